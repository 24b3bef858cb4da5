//! A value protected against printing, copying, variable-time comparison and remaining in memory.
//!
//! The only access to the bytes is [`Secret::expose`], so `grep expose` lists every use of a secret. Code that borrows a secret can still
//! copy it.

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroize;

/// A secret: no `Debug`, no `Clone`, no `PartialEq`; erased when dropped.
///
/// ```compile_fail
/// let secret = secure_agg::Secret::new([7u8; 32]);
/// println!("{secret:?}");
/// ```
/// ```compile_fail
/// let secret = secure_agg::Secret::new([7u8; 32]);
/// let copy = secret.clone();
/// ```
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes ownership of a secret value. Where `T` is `Copy`, prefer [`Secret::take`].
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for computations. Never log it.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<const N: usize> Secret<[u8; N]> {
    /// Takes the bytes and erases the caller's copy.
    #[must_use]
    pub fn take(bytes: &mut [u8; N]) -> Self {
        let secret = Self(*bytes);
        bytes.zeroize();
        secret
    }

    /// A second owner of the same bytes, erased independently. Use sparingly.
    pub(crate) const fn duplicate(&self) -> Self {
        Self(self.0)
    }

    pub(crate) fn random(rng: &mut dyn crate::CryptoRng) -> Self {
        let mut secret = Self([0; N]);
        rng.fill_bytes(&mut secret.0);
        secret
    }
}

impl<const N: usize> ConstantTimeEq for Secret<[u8; N]> {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_erases_the_callers_copy_and_comparison_sees_every_byte() {
        let mut bytes = [7u8; 30];
        let secret = Secret::take(&mut bytes);
        assert_eq!(bytes, [0; 30]);
        assert!(bool::from(secret.ct_eq(&Secret::new([7; 30]))));
        for position in 0..30 {
            let mut other = [7; 30];
            other[position] ^= 1;
            assert!(!bool::from(secret.ct_eq(&Secret::new(other))));
        }
    }
}
