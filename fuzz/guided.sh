#!/usr/bin/env bash
# fuzz/guided.sh SECONDS TARGET…: the same targets under libFuzzer, which keeps what reaches new code. Stable suffices (and a C++
# compiler for libFuzzer itself); everything is built once more with counters in it. What was found is kept under found/TARGET; a crash
# is stored under artifacts/ and ends the run with an error. Inputs worth keeping go into corpus/TARGET by `-merge=1`.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?how many seconds for each target}
shift
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target}/guided
triple=$(rustc -vV | sed -n 's/^host: //p')
flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares)
for target in ${@:?which targets}; do
    # With a target triple the flags reach neither build scripts nor procedural macros.
    RUSTFLAGS="${flags[*]}" cargo build --release --quiet --features libfuzzer --target "$triple" --bin "$target"
    mkdir -p "found/$target" "artifacts/$target"
    "$CARGO_TARGET_DIR/$triple/release/$target" "found/$target" "corpus/$target" -max_total_time="$seconds" -max_len=70000 \
        -artifact_prefix="artifacts/$target/" -print_final_stats=1
done
