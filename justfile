# The commands people type. Anything with logic is in xtask.

# everything CI does
ci:
    bash .ci/run

# what must pass before a commit
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --features examples/candle -- -D warnings
    cargo xtask tidy

test:
    cargo test --workspace --features examples/candle

demo *args:
    cargo run --release -- demo {{args}}

# a coordinator with its own throw-away CA, data in .tributary/
serve:
    cargo run --release -- serve --dev --data-dir .tributary

# rounds under injected faults: `just faults --seeds 1000`
faults *args:
    cargo run --release -p faults -- {{args}}

# figures of docs/BENCHMARKS.md; takes minutes, wants a quiet machine
bench:
    bash docs/benchmarks.sh

# the GPU kernels without a GPU: on Mesa's software Vulkan (mesa-vulkan-drivers, libvulkan1), and the CUDA text as C++
devices:
    AGGREGATION_REQUIRE_WGPU=1 cargo test -p aggregation --features cuda,wgpu,host-cuda-test

# the committed PTX is what NVRTC makes of the kernels, and its machine code for sm_90 is within its limits (wheels from PyPI)
ptx:
    python3 aggregation/src/cuda/regenerate.py --check
    python3 aggregation/src/cuda/check_ptx.py

# unsafe code of the processor's part and of the C ABI in an interpreter that finds undefined behaviour
miri:
    RUSTFLAGS=-Ctarget-feature=+avx2,+avx512f,+avx512bw,+avx512vl cargo +nightly miri test -p aggregation --lib -- cpu::
    cargo +nightly miri test -p aggregation --lib --target aarch64-unknown-linux-gnu -- cpu::
    cargo +nightly miri test -p tributary-ffi --no-default-features --lib -- c::

# compiles the SDK's CUDA trainer with a compiler from PyPI (160 MB): no GPU, no toolkit; see docs/GPU.md
check-train-cuda:
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    gpu/toolkit.sh "$work"
    . "$work/env"
    cargo check -p client-sdk --features cuda

# everything that a bare machine with an NVIDIA GPU needs to check and measure us, in gpu/bundle; there: bash run.sh
gpu-bundle *args:
    gpu/bundle.sh {{args}}

# type-checks what runs on Apple's GPUs. Nothing is linked, so empty objects do where Apple's C compiler is not
check-metal:
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    printf '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : >"$2"; shift; done\n' >"$work/cc"
    chmod +x "$work/cc"
    export CC_aarch64_apple_darwin=$work/cc AR_aarch64_apple_darwin=$work/cc CRATE_CC_NO_DEFAULTS=1
    rustup target add aarch64-apple-darwin
    cargo check -p client-sdk --features metal --target aarch64-apple-darwin
    cargo check -p aggregation --features wgpu --target aarch64-apple-darwin

# image, chart, compose file, alerts and dashboard; wants root on Debian, Debian's packages and PyPI
deploy:
    cargo build --release
    .ci/deploy.sh target/release/tributary

# long forms of tests that CI runs short
soak:
    PROPTEST_CASES=4096 cargo test --workspace --release
    cargo test --release -p secure-agg -p learning -p coordinator -- --ignored
    bash fuzz/run.sh 300 $RANDOM

# the coordinator's noise by OpenDP's measurement, which no default build has
opendp:
    cargo test --workspace --features coordinator/opendp --test coordinator-it --test learning-it -- opendp::

deny:
    cargo deny --offline check licenses bans sources
