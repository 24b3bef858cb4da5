#!/usr/bin/env bash
# The figures of docs/BENCHMARKS.md, measured anew. Wants a quiet machine; takes about forty minutes on two cores.
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
