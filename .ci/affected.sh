#!/usr/bin/env bash
# The runner of test executables in `.ci/run`: starts the executable, unless $CI_UNAFFECTED names its package. affected.sh PROGRAM ARGUMENT…
set -euo pipefail
case " ${CI_UNAFFECTED:-} " in
*" ${CARGO_PKG_NAME:-} "*) echo "not run: nothing that the tests of $CARGO_PKG_NAME are built from has changed" ;;
*) exec "$@" ;;
esac
