//! Shamir's secret sharing [Shamir 1979] of 30-byte seeds over GF(2^61 - 1).
//!
//! A seed is four limbs of 60 bits, little-endian; each limb is the constant term of its own random polynomial of degree t - 1, evaluated
//! at the holders' indices 1..=n. Any t shares give the seed, t - 1 shares reveal nothing about it: for every seed, exactly one polynomial
//! agrees with them.

use zeroize::{Zeroize, Zeroizing};

use super::field::Element;
use super::reed_solomon;
use crate::participants::Index;
use crate::secret::Secret;

/// Bytes of a seed.
pub(crate) const SEED_BYTES: usize = 30;
/// Bytes of a share on the wire: four elements, each a `u64` little-endian.
pub(crate) const SHARE_BYTES: usize = 32;

const LIMBS: usize = 4;
const LIMB_BITS: usize = 60;

/// A secret-shared seed, of a mask key or of a self mask.
pub(crate) type Seed = Secret<[u8; SEED_BYTES]>;

/// One holder's share of one seed. Without `Debug`; erased when dropped.
pub(crate) struct Share([Element; LIMBS]);

impl Share {
    pub(crate) fn to_bytes(&self) -> Secret<[u8; SHARE_BYTES]> {
        let mut bytes = [0; SHARE_BYTES];
        for (chunk, limb) in bytes.chunks_exact_mut(8).zip(&self.0) {
            chunk.copy_from_slice(&limb.value().to_le_bytes());
        }
        Secret::take(&mut bytes)
    }

    /// Decodes a share; `None` if a limb is not below the prime.
    pub(crate) fn from_bytes(bytes: &[u8; SHARE_BYTES]) -> Option<Self> {
        let mut limbs = [Element::ZERO; LIMBS];
        let (chunks, _) = bytes.as_chunks::<8>();
        for (limb, chunk) in limbs.iter_mut().zip(chunks) {
            *limb = Element::canonical(u64::from_le_bytes(*chunk))?;
        }
        Some(Self(limbs))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Splits `seed` among holders 1..=n so that any `threshold` of them can restore it.
pub(crate) fn split(seed: &Seed, threshold: u16, holders: u16, rng: &mut dyn crate::CryptoRng) -> Vec<Share> {
    let mut coefficients = Zeroizing::new(Vec::with_capacity(usize::from(threshold)));
    coefficients.push(to_limbs(seed));
    for _ in 1..threshold {
        let mut row = [Element::ZERO; LIMBS];
        row.fill_with(|| Element::random(rng));
        coefficients.push(row);
        row.zeroize();
    }
    (1..=holders).map(|index| Share(evaluate(&coefficients, Element::small(index.into())))).collect()
}

/// Horner's rule on all limbs at once, constant term first.
fn evaluate(coefficients: &[[Element; LIMBS]], at: Element) -> [Element; LIMBS] {
    let mut value = [Element::ZERO; LIMBS];
    for row in coefficients.iter().rev() {
        for (value, coefficient) in value.iter_mut().zip(row) {
            *value = value.mul(at).add(*coefficient);
        }
    }
    value
}

/// Lagrange coefficients at zero for a set of holders: computed once and used for every seed they open.
pub(crate) struct Basis(Vec<Element>);

impl Basis {
    /// Precomputes for distinct holders, each at least 1.
    pub(crate) fn new(holders: &[Index]) -> Self {
        let at = |index: Index| Element::small(index.into());
        let weight = |own: Index| {
            let others = holders.iter().filter(|other| **other != own);
            let (above, below) = others.fold((Element::ONE, Element::ONE), |(above, below), other| {
                (above.mul(at(*other)), below.mul(at(*other).sub(at(own))))
            });
            above.mul(below.invert())
        };
        Self(holders.iter().map(|own| weight(*own)).collect())
    }

    /// The seed that these shares, in the order of the holders, interpolate; `None` if the result is not a seed, so a share is wrong.
    pub(crate) fn restore<'a>(&self, shares: impl IntoIterator<Item = &'a Share>) -> Option<Seed> {
        let mut limbs = Zeroizing::new([Element::ZERO; LIMBS]);
        for (weight, share) in self.0.iter().zip(shares) {
            for (limb, part) in limbs.iter_mut().zip(&share.0) {
                *limb = limb.add(weight.mul(*part));
            }
        }
        from_limbs(&limbs)
    }
}

/// The result of error correction.
pub(crate) struct Corrected {
    pub(crate) seed: Seed,
    /// The holders whose shares do not lie on the polynomials.
    pub(crate) disagreeing: Vec<Index>,
}

/// Restores a seed from m shares, up to floor((m - t)/2) of them wrong, and names the wrong ones [Berlekamp and Welch 1986]. `None` if more
/// are wrong. Check the result against the seed's commitment.
pub(crate) fn correct(holders: &[Index], shares: &[&Share], threshold: u16) -> Option<Corrected> {
    let at: Vec<Element> = holders.iter().map(|index| Element::small((*index).into())).collect();
    let points = reed_solomon::Points::new(&at);
    let mut limbs = Zeroizing::new([Element::ZERO; LIMBS]);
    let mut wrong = vec![false; holders.len()];
    for limb in 0..LIMBS {
        let values: Zeroizing<Vec<Element>> = Zeroizing::new(shares.iter().map(|share| share.0[limb]).collect());
        let polynomial = Zeroizing::new(points.decode(&values, threshold.into())?);
        limbs[limb] = polynomial.first().copied().unwrap_or(Element::ZERO);
        for ((wrong, at), value) in wrong.iter_mut().zip(&at).zip(values.iter()) {
            *wrong |= reed_solomon::evaluate(&polynomial, *at) != *value;
        }
    }
    let disagreeing = holders.iter().zip(wrong).filter_map(|(holder, wrong)| wrong.then_some(*holder)).collect();
    Some(Corrected { seed: from_limbs(&limbs)?, disagreeing })
}

fn to_limbs(seed: &Seed) -> [Element; LIMBS] {
    let mut limbs = [Element::ZERO; LIMBS];
    for (number, limb) in limbs.iter_mut().enumerate() {
        // A limb starts on a byte or in the middle of one: 60 bits are seven bytes and a half.
        let start = number * LIMB_BITS;
        let mut bytes = [0; 8];
        let source = &seed.expose()[start / 8..(start + LIMB_BITS).div_ceil(8)];
        bytes[..source.len()].copy_from_slice(source);
        let value = (u64::from_le_bytes(bytes) >> (start % 8)) & ((1 << LIMB_BITS) - 1);
        *limb = Element::canonical(value).unwrap_or(Element::ZERO);
        bytes.zeroize();
    }
    limbs
}

fn from_limbs(limbs: &[Element; LIMBS]) -> Option<Seed> {
    let mut bytes = [0u8; SEED_BYTES];
    for (number, limb) in limbs.iter().enumerate() {
        if limb.value() >> LIMB_BITS != 0 {
            bytes.zeroize();
            return None;
        }
        let start = number * LIMB_BITS;
        let shifted = (limb.value() << (start % 8)).to_le_bytes();
        for (byte, part) in bytes[start / 8..].iter_mut().zip(shifted) {
            *byte |= part;
        }
    }
    Some(Secret::take(&mut bytes))
}

#[cfg(test)]
mod tests {
    use chacha20::ChaCha20Rng;
    use chacha20::rand_core::{Rng as _, SeedableRng as _};
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::*;

    fn seed_of(bytes: [u8; 30]) -> Seed {
        Secret::new(bytes)
    }

    #[derive(serde::Deserialize)]
    struct Known {
        shamir: KnownShares,
    }

    #[derive(serde::Deserialize)]
    struct KnownShares {
        secret_hex: String,
        limbs: Vec<u64>,
        coeffs: Vec<Vec<u64>>,
        shares: std::collections::BTreeMap<u16, Vec<u64>>,
        share_wire_hex: std::collections::BTreeMap<u16, String>,
        lagrange0_245: std::collections::BTreeMap<u16, u64>,
    }

    fn known() -> KnownShares {
        serde_json::from_str::<Known>(include_str!("../../tests/vectors/kat.json")).unwrap().shamir
    }

    #[test]
    fn the_known_polynomials_give_the_known_shares() {
        let known = known();
        let mut bytes = [0; 30];
        hex::decode_to_slice(&known.secret_hex, &mut bytes).unwrap();
        let limbs = to_limbs(&seed_of(bytes));
        assert_eq!(limbs.map(Element::value).to_vec(), known.limbs);
        let rows: Vec<[Element; 4]> = (0..3)
            .map(|power| std::array::from_fn(|limb| Element::canonical(known.coeffs[limb][power]).unwrap()))
            .collect();
        for (index, expected) in &known.shares {
            let share = Share(evaluate(&rows, Element::small((*index).into())));
            assert_eq!(share.0.map(Element::value).to_vec(), *expected);
            assert_eq!(hex::encode(share.to_bytes().expose()), known.share_wire_hex[index]);
        }
    }

    #[test]
    fn the_known_shares_give_the_known_secret() {
        let known = known();
        let basis = Basis::new(&[2, 4, 5]);
        let weights: Vec<u64> = basis.0.iter().copied().map(Element::value).collect();
        assert_eq!(weights, known.lagrange0_245.values().copied().collect::<Vec<_>>());
        let shares: Vec<Share> = [2u16, 4, 5]
            .into_iter()
            .map(|index| {
                let mut bytes = [0; 32];
                hex::decode_to_slice(&known.share_wire_hex[&index], &mut bytes).unwrap();
                Share::from_bytes(&bytes).unwrap()
            })
            .collect();
        assert_eq!(hex::encode(basis.restore(&shares).unwrap().expose()), known.secret_hex);
    }

    #[test]
    fn a_share_that_is_not_canonical_is_refused() {
        let mut bytes = [0; 32];
        bytes[8..16].copy_from_slice(&super::super::field::PRIME.to_le_bytes());
        assert!(Share::from_bytes(&bytes).is_none());
        bytes[8] -= 1;
        assert!(Share::from_bytes(&bytes).is_some());
    }

    proptest! {
        #[test]
        fn limbs_hold_every_bit_of_a_seed(bytes in any::<[u8; 30]>()) {
            let seed = from_limbs(&to_limbs(&seed_of(bytes))).unwrap();
            prop_assert_eq!(seed.expose(), &bytes);
        }

        #[test]
        fn any_threshold_of_shares_restores_and_one_fewer_does_not(
            bytes in any::<[u8; 30]>(),
            (threshold, chosen) in (1u16..9).prop_flat_map(|t| (Just(t), subsequence((1u16..=12).collect::<Vec<_>>(), usize::from(t)))),
            stream in any::<u64>(),
        ) {
            let mut rng = ChaCha20Rng::seed_from_u64(stream);
            let shares = split(&seed_of(bytes), threshold, 12, &mut rng);
            let restore = |chosen: &[u16]| {
                Basis::new(chosen).restore(chosen.iter().map(|holder| &shares[usize::from(*holder) - 1]))
            };
            let restored = restore(&chosen).unwrap();
            prop_assert_eq!(restored.expose(), &bytes);
            if threshold > 1 {
                let other = restore(&chosen[1..]);
                prop_assert!(other.is_none_or(|seed| seed.expose() != &bytes));
            }
        }

        /// For every secret exactly one t-th share agrees with t - 1 given ones, so together they reveal nothing.
        #[test]
        fn one_share_fewer_is_consistent_with_every_secret(
            (bytes, claimed) in any::<([u8; 30], [u8; 30])>(),
            threshold in 2u16..9,
            stream in any::<u64>(),
        ) {
            let mut rng = ChaCha20Rng::seed_from_u64(stream);
            let shares = split(&seed_of(bytes), threshold, threshold, &mut rng);
            let holders: Vec<u16> = (1..=threshold).collect();
            let basis = Basis::new(&holders);
            let (last, known) = shares.split_last().unwrap();
            let mut invented = Share(to_limbs(&seed_of(claimed)));
            let inverse = basis.0.last().unwrap().invert();
            for (limb, value) in invented.0.iter_mut().enumerate() {
                let rest = basis.0.iter().zip(known).fold(*value, |rest, (w, share)| rest.sub(w.mul(share.0[limb])));
                *value = rest.mul(inverse);
            }
            let restored = basis.restore(known.iter().chain([&invented])).unwrap();
            prop_assert_eq!(restored.expose(), &claimed);
            prop_assert_eq!(invented.to_bytes().expose() == last.to_bytes().expose(), bytes == claimed);
        }

        #[test]
        fn wrong_shares_are_corrected_and_named(
            bytes in any::<[u8; 30]>(),
            threshold in 1u16..8,
            liars in subsequence((1u16..=14).collect::<Vec<_>>(), 0..=7),
            stream in any::<u64>(),
        ) {
            let mut rng = ChaCha20Rng::seed_from_u64(stream);
            let mut shares = split(&seed_of(bytes), threshold, 14, &mut rng);
            for liar in &liars {
                let limb = usize::try_from(rng.next_u32() % 4).unwrap();
                let element = &mut shares[usize::from(*liar) - 1].0[limb];
                *element = element.add(Element::small(1 + rng.next_u32() % 1000));
            }
            let holders: Vec<u16> = (1..=14).collect();
            let all: Vec<&Share> = shares.iter().collect();
            let found = correct(&holders, &all, threshold);
            if liars.len() <= usize::from((14 - threshold) / 2) {
                let found = found.unwrap();
                prop_assert_eq!(found.seed.expose(), &bytes);
                prop_assert_eq!(found.disagreeing, liars);
            }
        }
    }
}
