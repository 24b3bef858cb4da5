//! GF(2^61 - 1): the field for secret sharing. Branches and addresses are independent of values.

use zeroize::Zeroize;

/// The Mersenne prime 2^61 - 1.
pub(crate) const PRIME: u64 = (1 << 61) - 1;

/// An element, always below [`PRIME`]. May be secret, hence no `Debug`; long-term owners must erase it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element(u64);

impl Element {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(1);

    /// The element `value`; `None` unless it is below the prime. Each element has one encoding.
    pub(crate) const fn canonical(value: u64) -> Option<Self> {
        if value < PRIME { Some(Self(value)) } else { None }
    }

    /// The element of a small number, such as a participant's index.
    pub(crate) const fn small(value: u32) -> Self {
        Self(value as u64)
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }

    /// A uniform element: 61 random bits, drawn again in the one of 2^61 cases outside the field.
    pub(crate) fn random(rng: &mut dyn crate::CryptoRng) -> Self {
        loop {
            if let Some(element) = Self::canonical(rng.next_u64() >> 3) {
                return element;
            }
        }
    }

    pub(crate) const fn add(self, other: Self) -> Self {
        Self(reduce_once(self.0 + other.0))
    }

    pub(crate) const fn sub(self, other: Self) -> Self {
        Self(reduce_once(self.0 + PRIME - other.0))
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves of a 122-bit product fit 61 bits")]
    pub(crate) const fn mul(self, other: Self) -> Self {
        // 2^61 = 1 in this field, so the high half folds onto the low half.
        let product = self.0 as u128 * other.0 as u128;
        Self(reduce_once((product as u64 & PRIME) + (product >> 61) as u64))
    }

    /// The inverse by Fermat, with a fixed sequence of multiplications; zero yields zero.
    pub(crate) const fn invert(self) -> Self {
        let mut power = Self::ONE;
        let exponent = PRIME - 2;
        let mut bit = 61;
        while bit > 0 {
            bit -= 1;
            power = power.mul(power);
            if exponent >> bit & 1 == 1 {
                power = power.mul(self);
            }
        }
        power
    }
}

impl Zeroize for Element {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

/// `value` mod the prime, for `value` below twice the prime.
const fn reduce_once(value: u64) -> u64 {
    let reduced = value.wrapping_sub(PRIME);
    // All ones exactly where the subtraction went below zero.
    let negative = 0u64.wrapping_sub(reduced >> 63);
    (reduced & !negative) | (value & negative)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..PRIME, 0..4u64, PRIME - 4..PRIME]
    }

    fn wide(value: Element) -> u128 {
        u128::from(value.value())
    }

    #[test]
    fn the_prime_is_not_an_element() {
        assert!(Element::canonical(PRIME).is_none());
        assert!(Element::canonical(u64::MAX).is_none());
        assert!(Element::canonical(PRIME - 1).is_some());
    }

    proptest! {
        #[test]
        fn arithmetic_is_that_of_the_integers_modulo_the_prime(a in number(), b in number()) {
            let (a, b) = (Element::canonical(a).unwrap(), Element::canonical(b).unwrap());
            let prime = u128::from(PRIME);
            prop_assert_eq!(wide(a.add(b)), (wide(a) + wide(b)) % prime);
            prop_assert_eq!(wide(a.sub(b)), (wide(a) + prime - wide(b)) % prime);
            prop_assert_eq!(wide(a.mul(b)), wide(a) * wide(b) % prime);
            let inverse = a.invert();
            let expected = u64::from(a.value() != 0);
            prop_assert_eq!(a.mul(inverse).value(), expected);
        }
    }
}
