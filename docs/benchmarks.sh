#!/usr/bin/env bash
# The figures of docs/BENCHMARKS.md, measured anew. Wants a quiet machine; takes about forty minutes on two cores, and at least half an hour
# more for what an app takes: memory, Python's overhead, cold start and sizes, which are built in three profiles. What cannot be measured
# here says SKIPPED and why.
set -euo pipefail
cd "$(dirname "$0")/.."

git log -1 --format='commit %h of %cs'
grep -m1 'model name' /proc/cpuinfo
nproc
cargo bench -p tributary --bench coordinator
cargo bench -p client-sdk --bench local_training
cargo bench -p aggregation --bench aggregate
cargo bench -p learning --bench quantize
cargo run --release -- demo --data mnist --model cnn --partition dirichlet:0.5 --rounds 30 --centralized

# ---- what an app takes

if grep -q VmHWM /proc/self/status 2>/dev/null; then
    cargo bench -p client-sdk --features process --bench memory
else
    echo "SKIPPED: memory: this system tells no peak of a process (VmHWM)"
fi
# As `.ci/sdks.sh` builds and runs them, whose functions these are.
root=$PWD
libraries=$(realpath "${CARGO_TARGET_DIR:-target}")/debug
binary=$libraries/tributary
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. .ci/federation.sh
. .ci/sdks/participants.sh
if command -v python3 >/dev/null; then
    cargo build --workspace --bins --lib --example shift
    if command -v gcc >/dev/null; then
        gcc -std=c11 -D_DEFAULT_SOURCE -I"$root/client-sdk/ffi/include" -o "$work/cold_start" client-sdk/ffi/tests/c/cold_start.c -ldl
        in_federation cold_start "$work/cold_start"
    else
        echo "SKIPPED: cold start: no gcc"
    fi
    if python_package; then
        "$work/venv/bin/python" client-sdk/python/bench/overhead.py "$binary" "$libraries/examples/shift"
    else
        echo "SKIPPED: Python's overhead (client-sdk/python/bench/overhead.py): no environment with numpy from PyPI"
    fi
else
    echo "SKIPPED: cold start and Python's overhead: no python3"
fi
if ! command -v xz >/dev/null; then
    echo "SKIPPED: sizes (cargo xtask size): no xz"
elif ! command -v cargo-zigbuild >/dev/null || ! rustup target list --installed 2>/dev/null | grep -qx aarch64-unknown-linux-gnu; then
    echo "SKIPPED: sizes on ARM, which docs/MOBILE.md has: no cargo-zigbuild (from PyPI) or no target aarch64-unknown-linux-gnu; here they are:"
    cargo xtask size
else
    cargo xtask size --target aarch64-unknown-linux-gnu
fi
