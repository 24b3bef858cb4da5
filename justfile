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

# unsafe code of the processor's part in an interpreter that knows undefined behaviour: plain loops, then 256- and 512-bit vectors
miri:
    cargo +nightly miri test -p aggregation --lib cpu::
    RUSTFLAGS="-Ctarget-feature=+avx2" cargo +nightly miri test -p aggregation --lib cpu::
    RUSTFLAGS="-Ctarget-feature=+avx2,+avx512f,+avx512bw,+avx512vl,+avx512vnni" cargo +nightly miri test -p aggregation --lib cpu::

# long forms of tests that CI runs short
soak:
    PROPTEST_CASES=4096 cargo test --workspace --release
    cargo test --release -p secure-agg -- --ignored
    for target in $(cd fuzz && cargo +nightly fuzz list); do (cd fuzz && cargo +nightly fuzz run $target -- -max_total_time=300); done

deny:
    cargo deny --offline check licenses bans sources
