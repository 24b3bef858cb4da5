//! Products that saturate.

/// The product of sizes.
pub(super) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size as u64))
}

/// The product of numbers.
pub(super) fn times<const N: usize>(numbers: [u64; N]) -> u64 {
    numbers.into_iter().fold(1, u64::saturating_mul)
}
