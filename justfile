# The commands people type. Anything with logic is in xtask.

# everything CI does
ci:
    bash .ci/run

# what must pass before a commit
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo xtask tidy

test:
    cargo test --workspace

demo *args:
    cargo run --release -- demo {{args}}

# a coordinator with its own throw-away CA, data in .tributary/
serve:
    cargo run --release -- serve --dev --data-dir .tributary

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

# unsafe code of the processor's part in an interpreter that finds undefined behaviour, with and without vector instructions
miri:
    cargo +nightly miri test -p aggregation --lib -- cpu::
    RUSTFLAGS=-Ctarget-feature=+avx2 cargo +nightly miri test -p aggregation --lib -- cpu::
    RUSTFLAGS=-Ctarget-feature=+avx2,+avx512f,+avx512bw,+avx512vl cargo +nightly miri test -p aggregation --lib -- cpu::
    cargo +nightly miri test -p aggregation --lib --target aarch64-unknown-linux-gnu -- cpu::

# compiles the SDK's CUDA trainer with a compiler from PyPI (160 MB): no GPU, no toolkit, six minutes of a core; see docs/GPU.md
check-train-cuda:
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    printf '%s --hash=sha256:%s\n' >"$work/wheels" \
        nvidia-cuda-nvcc==13.0.88 56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03 \
        nvidia-nvvm==13.0.88 c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0 \
        nvidia-cuda-crt==13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4 \
        nvidia-cuda-runtime==13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548 \
        nvidia-cuda-cccl==13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649 \
        nvidia-curand==10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes -d "$work" -r "$work/wheels"
    for wheel in "$work"/*.whl; do unzip -qo "$wheel" -d "$work"; done
    cuda=$work/nvidia/cu13
    chmod +x "$cuda"/bin/* "$cuda"/nvvm/bin/*
    PATH=$cuda/bin:$PATH NVCC=$cuda/bin/nvcc CUDA_HOME=$cuda CUDA_COMPUTE_CAP=90 CUDARC_CUDA_VERSION=13000 \
        cargo check -p client-sdk --features cuda

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
    cargo build --release --workspace --bins
    .ci/deploy.sh target/release/tributary

# long forms of tests that CI runs short
soak:
    PROPTEST_CASES=4096 cargo test --workspace --release
    cargo test --release -p secure-agg -p learning -p coordinator -- --ignored
    bash fuzz/run.sh 300 $RANDOM

# the coordinator's noise by OpenDP's measurement, which no default build has
opendp:
    cargo test --workspace --features coordinator/opendp --test private --test privacy_opendp

deny:
    cargo deny --offline check licenses bans sources
