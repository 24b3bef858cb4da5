#!/usr/bin/env bash
# The runner of test executables in `.ci/run`: starts the executable, unless $CI_UNAFFECTED names its package. affected.sh PROGRAM ARGUMENT…
# The tests that run `tributary` get the release, which is what people run and takes a third of the time: $CI_RELEASED is a file that exists
# once $CI_RELEASE is built; until then they wait, unless the process $CI_COMPILERS, which builds it, has ended.
set -euo pipefail
case " ${CI_UNAFFECTED:-} " in
*" ${CARGO_PKG_NAME:-} "*)
    echo "not run: nothing that the tests of $CARGO_PKG_NAME are built from has changed"
    exit
    ;;
esac
case ${CI_RELEASE:-}:${1##*/} in
/*:it-*)
    until [ -e "$CI_RELEASED" ] || ! kill -0 "$CI_COMPILERS" 2>/dev/null; do sleep 1; done
    export TRIBUTARY_TESTED=$CI_RELEASE
    ;;
esac
exec "$@"
