#!/usr/bin/env bash
# fuzz/run.sh SECONDS [SEED] [TARGET…]: replays every target's corpus and tries changed inputs for so many seconds each. Ends with an
# error on the first crash; the input is then under fuzz/artifacts/. Needs the stable toolchain alone. guided.sh is the same by coverage.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?how many seconds for each target}
seed=${2:-1}
shift $(($# < 2 ? $# : 2))
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target}
cargo build --release --quiet --bin drive
drive=$CARGO_TARGET_DIR/release/drive
# An input that makes somebody allocate without bound, recurse for ever or never return is a crash as well.
ulimit -v $((4 << 20)) 2>/dev/null || true
for target in ${@:-$("$drive" list)}; do
    timeout $((seconds + 120)) "$drive" "$target" "$seconds" "$seed"
done
