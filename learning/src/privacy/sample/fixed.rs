//! Fixed-point numbers of any length, for comparisons beyond 64 bits.
//!
//! Every operation rounds towards zero; errors are counted in units of the last place and bounded once, generously, by [`ERROR_BITS`]. Slow
//! and small on purpose: it runs once in about a billion draws.

use std::cmp::Ordering;

use super::halves;

/// [`exp_neg`] and [`Fixed::scale`] chains of fewer than 2^39 steps are within `2^ERROR_BITS` units of the last place.
pub(crate) const ERROR_BITS: u32 = 40;

/// A number in `[0, 2^64)`: fraction limbs, least significant first, then one integer limb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fixed(Vec<u64>);

impl Fixed {
    /// An integer, with `limbs` fraction limbs.
    pub(crate) fn integer(value: u64, limbs: usize) -> Self {
        let mut digits = vec![0; limbs + 1];
        digits[limbs] = value;
        Self(digits)
    }

    /// `0.d0 d1 d2 …` in base 2^64.
    pub(crate) fn fraction(digits: &[u64]) -> Self {
        Self(digits.iter().rev().copied().chain([0]).collect())
    }

    /// The nearest float, for tests.
    #[cfg(test)]
    pub(crate) fn to_f64(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, &limb| sum / 18_446_744_073_709_551_616.0 + limb as f64)
    }

    fn limbs(&self) -> usize {
        self.0.len() - 1
    }

    /// Multiplies by `num / den`; the caller must rule out overflow. Less than one unit is lost.
    pub(crate) fn scale(&mut self, num: u64, den: u64) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let [low, high] = halves(u128::from(*limb) * u128::from(num) + u128::from(carry));
            (*limb, carry) = (low, high);
        }
        let mut remainder = carry % den;
        for limb in self.0.iter_mut().rev() {
            let dividend = (u128::from(remainder) << 64) | u128::from(*limb);
            let [quotient, _] = halves(dividend / u128::from(den));
            [remainder, _] = halves(dividend % u128::from(den));
            *limb = quotient;
        }
    }

    pub(crate) fn shift_right(&mut self, bits: u32) {
        let (whole, part) = ((bits / 64) as usize, bits % 64);
        let old = std::mem::take(&mut self.0);
        self.0 = (0..old.len())
            .map(|index| {
                let limb = |at: usize| u128::from(old.get(at).copied().unwrap_or(0));
                let pair = limb(index + whole) | (limb(index + whole + 1) << 64);
                halves(pair >> part)[0]
            })
            .collect();
    }

    /// The product, of two numbers whose product is below 2^64; less than one unit is lost.
    fn mul(&self, other: &Self) -> Self {
        let mut product = vec![0_u64; self.0.len() + other.0.len()];
        for (i, &a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (j, &b) in other.0.iter().enumerate() {
                let sum = u128::from(a) * u128::from(b) + u128::from(product[i + j]) + u128::from(carry);
                [product[i + j], carry] = halves(sum);
            }
            product[i + other.0.len()] = carry;
        }
        let limbs = self.limbs();
        Self(product[limbs..=2 * limbs].to_vec())
    }

    fn add(&mut self, other: &Self) {
        let mut carry = false;
        for (a, &b) in self.0.iter_mut().zip(&other.0) {
            let (sum, first) = a.overflowing_add(b);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*a, carry) = (sum, first || second);
        }
    }

    fn sub(&mut self, other: &Self) {
        let mut borrow = false;
        for (a, &b) in self.0.iter_mut().zip(&other.0) {
            let (difference, first) = a.overflowing_sub(b);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            (*a, borrow) = (difference, first || second);
        }
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|&limb| limb == 0)
    }

    /// Compares two numbers of equal length, each known to within `2^ERROR_BITS` units; `None` if they are too close.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        let order = self.0.iter().rev().cmp(other.0.iter().rev());
        let (mut difference, smaller) = if order.is_lt() { (other.clone(), self) } else { (self.clone(), other) };
        difference.sub(smaller);
        let close = difference.0[1..].iter().all(|&limb| limb == 0) && difference.0[0] >> (ERROR_BITS + 1) == 0;
        (!close).then_some(order)
    }
}

/// `exp(-num / den)` for `den` from 1 to 2^126, with `limbs` fraction limbs.
pub(crate) fn exp_neg(num: u128, den: u128, limbs: usize) -> Fixed {
    let [whole, beyond] = halves(num / den);
    if beyond > 0 || whole > 64 * limbs as u64 {
        return Fixed::integer(0, limbs);
    }
    // Long division, one bit at a time.
    let mut y = Fixed::integer(whole, limbs);
    let mut remainder = num % den;
    for limb in y.0[..limbs].iter_mut().rev() {
        for _ in 0..64 {
            remainder <<= 1;
            let bit = remainder >= den;
            if bit {
                remainder -= den;
            }
            *limb = (*limb << 1) | u64::from(bit);
        }
    }
    // exp(-y) = exp(-y / 2^j)^(2^j), with y / 2^j at most 1/2.
    let halvings = 65 - whole.leading_zeros();
    y.shift_right(halvings);
    let mut sum = Fixed::integer(1, limbs);
    let mut term = sum.clone();
    for k in 1.. {
        term = term.mul(&y);
        term.scale(1, k);
        if term.is_zero() {
            break;
        }
        if k % 2 == 1 { sum.sub(&term) } else { sum.add(&term) }
    }
    for _ in 0..halvings {
        sum = sum.mul(&sum.clone());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(value: &Fixed) -> String {
        value.0.iter().rev().skip(1).map(|limb| format!("{limb:016x}")).collect()
    }

    #[test]
    fn knows_e() {
        // 1/e and exp(-20/3) from an independent program (Python's decimal, 120 digits).
        assert!(hex(&exp_neg(1, 1, 4)).starts_with("5e2d58d8b3bcdf1abadec7829054f90dda9805aab56c7733"));
        assert!(hex(&exp_neg(20, 3, 4)).starts_with("005367408e7950f00487fdd3b2ef8fc305dffa92df83466bb225"));
        assert_eq!(exp_neg(0, 1, 2), Fixed::integer(1, 2));
        assert_eq!(exp_neg(1000, 1, 2), Fixed::integer(0, 2));
    }

    #[test]
    fn agrees_with_floating_point() {
        for (num, den) in [(1_u128, 7_u128), (1 << 80, (1 << 80) + 12345), (99, 10), (1 << 100, 1 << 97), (43, 2)] {
            let value = exp_neg(num, den, 3);
            let expected = (-(num as f64) / den as f64).exp();
            assert!((value.to_f64() / expected - 1.0).abs() < 1e-14, "{num}/{den}: {value:?} {expected}");
        }
    }

    #[test]
    fn arithmetic_agrees_with_integers() {
        // 0x1234.8 * 3 / 2 = 0x1b4e.c
        let mut value = Fixed(vec![0, 1 << 63, 0x1234]);
        value.scale(3, 2);
        assert_eq!(value, Fixed(vec![0, 0xc << 60, 0x1b4e]));
        value.shift_right(4);
        assert_eq!(value, Fixed(vec![0, 0xec << 56, 0x1b4]));
        value.shift_right(64);
        assert_eq!(value, Fixed(vec![0xec << 56, 0x1b4, 0]));
        let mut sum = Fixed(vec![u64::MAX, u64::MAX, 0]);
        sum.add(&Fixed(vec![1, 0, 0]));
        assert_eq!(sum, Fixed::integer(1, 2));
        sum.sub(&Fixed(vec![1, 0, 0]));
        assert_eq!(sum, Fixed(vec![u64::MAX, u64::MAX, 0]));
        let square = Fixed::integer(1 << 20, 2).mul(&Fixed(vec![7, 0, 3]));
        assert_eq!(square, Fixed(vec![7 << 20, 0, 3 << 20]));
    }

    #[test]
    fn does_not_judge_what_is_too_close() {
        let (a, b) = (Fixed(vec![0, 5, 0]), Fixed(vec![1 << ERROR_BITS, 5, 0]));
        assert_eq!(a.compare(&b), None);
        assert_eq!(a.compare(&a), None);
        let far = Fixed(vec![1 << (ERROR_BITS + 1), 5, 0]);
        assert_eq!(a.compare(&far), Some(Ordering::Less));
        assert_eq!(far.compare(&a), Some(Ordering::Greater));
    }
}
