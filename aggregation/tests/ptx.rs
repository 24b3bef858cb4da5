//! The committed machine-independent code of the CUDA kernels matches their committed text. `src/cuda/check_ptx.py` checks the code's
//! quality, and `src/cuda/regenerate.py --check` that the compiler produces it from the text.

const SOURCE: &str = include_str!("../src/cuda/kernels.cu");
const PTX: &str = include_str!("../src/cuda/kernels.sm_75.ptx");

/// FNV-1a, as in `regenerate.py`.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn the_ptx_was_made_from_these_kernels() {
    let expected = format!("// made from kernels.cu {:016x}", fingerprint(SOURCE));
    assert_eq!(PTX.lines().last(), Some(&*expected), "run src/cuda/regenerate.py");
    for kernel in ["unmask", "add_packed", "trimmed_sum", "gram"] {
        assert!(PTX.contains(&format!(".visible .entry {kernel}(")), "{kernel} is missing");
    }
    assert!(PTX.contains(".target sm_75"), "GPUs from Turing on are supported");
}
