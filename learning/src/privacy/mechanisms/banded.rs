//! Banded matrix factorization: noise that is correlated over releases, for participants that take part several times.
//!
//! Training uses prefixes of the releases' sums, `A X` with ones on and below the diagonal in `A`. Instead of each row of `X`, rows of `C
//! X + Z` are made private and all released data are computed from them: `C` is lower triangular and Toeplitz with the first `b`
//! coefficients of `(1 - x)^(-1/2)`, the banded square root of `A` (Kalinin, Lampert 2024, "Banded Square Root Matrix Factorization for
//! Differentially Private Model Training"; with all coefficients the factorization of Fichtenberger, Henzinger, Upadhyay 2022), and
//! release `t` is `X_t + (C^-1 Z)_t`: noise that later noise takes back.
//!
//! **Sensitivity.** A participant adds `g_j` with `|g_j| <= D` to at most `k` releases, any two of them at a distance of at least `b`
//! places. That moves row `t` of `C X` by the sum over `j` of `c[t - t_j] g_j`, where at most one coefficient is not 0, since columns `b`
//! places away from each other have disjoint rows. So the rows move by at most `D^2 (|c[0..m_1]|^2 + ... + |c[0..m_k]|^2)` together,
//! squared, where `m_j <= b` rows of column `j` are released; that is largest where the first is in the first release and the others follow
//! as soon as they may (each earlier start makes its `m_j` no smaller): `k |c|^2 D^2` once all have been. It is exact, and holds for
//! whatever directions the `g_j` have and whenever they are chosen: each row's move has a bound of its own given who takes part when, so
//! Gaussian rows add up as if nothing depended on earlier ones (Denisov, McMahan, Rush, Smith, Guha Thakurta 2022; Choquette-Choo, McMahan,
//! Rush, Thakurta 2022, for several participations).
//!
//! **Integers.** Coefficients are rounded to multiples of 2^-8, and what is said of sensitivities is of the rounded ones, `K` in these
//! units. `Z` is discrete Gaussian on the grid of `K X`, 2^8 times as fine as that of `X`, so `Y = K X + Z` is noised integers, exactly.
//! The noise `n` of a release is solved for by rounding down, to an integer, at every step:
//!
//! ```text
//! n_t = floor((z_t - K_1 n_{t-1} - ... - K_{b-1} n_{t-b+1}) / 2^8 + 1/2)
//! ```
//!
//! and `r_t = X_t + n_t` is released. It is a function of `Y` alone: `r_t = floor((Y_t - K_1 r_{t-1} - ...) / 2^8 + 1/2)`, by induction,
//! since `Y_t - K_1 r_{t-1} - ... = 2^8 X_t + z_t - K_1 n_{t-1} - ...` and adding an integer before rounding is adding it after. Reducing
//! modulo 2^b comes last and is a function of `r`. A place without a release has `X = 0`.

use rand_chacha::ChaCha20Rng;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use super::discrete_gaussian::BadSigma;
use super::noise::add;
use crate::privacy::{DiscreteGaussian, PlaceSeeds, Sigma};

/// Maximum number of bands: more gain nothing for usual numbers of rounds, and each costs as much time as the others.
pub const BANDS_MAX: u32 = 1024;
/// Fractional bits of a coefficient.
const FRACTION_BITS: u32 = 8;
const ONE: i64 = 1 << FRACTION_BITS;
/// The inverse's coefficients are negligible beyond this multiple of the number of bands.
const DECAYED: usize = 4;
/// Number of words whose noise is computed at once.
const BLOCK: usize = 256;

/// The matrix `C`, given by its coefficients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandedMatrix {
    /// In units of 2^-8, from the diagonal down; positive and non-increasing.
    coefficients: Vec<i64>,
}

impl BandedMatrix {
    /// A matrix with this many bands, clamped to 1 to [`BANDS_MAX`].
    #[must_use]
    pub fn new(bands: u32) -> Self {
        let mut coefficient = 1.0;
        let coefficients = (0..bands.clamp(1, BANDS_MAX)).map(|index| {
            if index > 0 {
                let twice = 2.0 * f64::from(index);
                coefficient *= (twice - 1.0) / twice;
            }
            #[expect(clippy::cast_possible_truncation, reason = "0 to 2^8")]
            let rounded = (coefficient * ONE as f64).round() as i64;
            rounded
        });
        Self { coefficients: coefficients.collect() }
    }

    /// The coefficients, from the diagonal down.
    #[must_use]
    pub fn coefficients(&self) -> Vec<f64> {
        self.coefficients.iter().map(|&coefficient| coefficient as f64 / ONE as f64).collect()
    }

    /// The first `count` coefficients of the inverse: the effect of one place's noise on the releases from that place
    /// on.
    fn inverse(&self, count: usize) -> Vec<f64> {
        let coefficients = self.coefficients();
        let mut inverse = vec![1.0];
        for place in 1..count.max(1) {
            let earlier = inverse.iter().rev().zip(&coefficients[1..]);
            let next = earlier.map(|(value, coefficient)| value * coefficient).sum::<f64>();
            debug_assert_eq!(inverse.len(), place);
            inverse.push(-next);
        }
        inverse
    }

    fn decayed(&self, releases: u32) -> Vec<f64> {
        self.inverse((DECAYED * self.coefficients.len()).min(releases as usize))
    }

    /// Variance of the noise in the last of `releases` releases over that of `Z`, on the same grid. It is 1 in the
    /// first release, and below 2 in all others.
    #[must_use]
    pub fn release_variance(&self, releases: u32) -> f64 {
        self.decayed(releases).iter().map(|value| value * value).sum()
    }

    /// Variance of the noise in the sum of the first `n` releases over that of `Z`, for each `n` up to `releases`, in
    /// order.
    pub fn prefix_variances(&self, releases: u32) -> impl Iterator<Item = f64> + use<> {
        let inverse = self.decayed(releases);
        let (mut sum, mut variance) = (0.0, 0.0);
        (0..releases as usize).map(move |place| {
            // Decayed coefficients add nothing.
            sum += inverse.get(place).copied().unwrap_or_default();
            variance += sum * sum;
            variance
        })
    }

    /// Sum of the squared coefficients over this many places of a participant, column after column, in units of 2^-16.
    fn squares(&self, places: u64) -> u64 {
        let of = |coefficients: &[i64]| coefficients.iter().map(|&value| value.unsigned_abs().pow(2)).sum::<u64>();
        let bands = self.coefficients.len();
        let rest = usize::try_from(places % bands as u64).unwrap_or_default();
        (places / bands as u64) * of(&self.coefficients) + of(&self.coefficients[..rest])
    }
}

/// Position of a release in a banded matrix, as a ledger charges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bands {
    /// Number of bands, 1 to [`BANDS_MAX`]; the minimum distance, in places, of a participant's releases.
    pub bands: u32,
    /// Maximum number of releases per participant, at least 1.
    pub participations: u32,
    /// Last place charged before this release; 0 if none.
    pub after: u32,
    /// Place of this release, from 1, above `after`.
    pub place: u32,
}

impl Bands {
    /// A single participation as the participant charges it to itself: the whole column.
    #[must_use]
    pub fn one_participation(self) -> Self {
        Self { participations: 1, after: 0, place: self.bands, ..self }
    }

    /// All places up to and including `releases`.
    #[must_use]
    pub fn whole(self, releases: u32) -> Self {
        Self { after: 0, place: releases, ..self }
    }

    /// This release and its successors, `count` in total.
    #[must_use]
    pub fn extended(self, count: u32) -> Self {
        Self { place: self.place.saturating_add(count.saturating_sub(1)), ..self }
    }

    /// The place of a release of `round`, given the round and position of the last charge. The distance of places is at least that of
    /// rounds, by which participants count, and each charge has its own place.
    #[must_use]
    pub fn following(self, round: u64, last: Option<(u64, Self)>) -> Self {
        let Some((last_round, last)) = last else { return Self { after: 0, place: 1, ..self } };
        let apart = u32::try_from(round.saturating_sub(last_round)).unwrap_or(u32::MAX).max(1);
        Self { after: last.place, place: last.place.saturating_add(apart), ..self }
    }

    /// Whether the fields are consistent.
    #[must_use]
    pub fn is_sane(&self) -> bool {
        (1..=BANDS_MAX).contains(&self.bands) && self.participations > 0 && self.after < self.place
    }

    /// Upper bound on the squared sensitivity that this release, including places skipped before it, adds: that up to
    /// `place` minus that up to `after`, over the square of one update's sensitivity.
    #[must_use]
    pub fn weight(&self) -> f64 {
        let matrix = BandedMatrix::new(self.bands);
        let squares = matrix.squares(self.met(self.place)) - matrix.squares(self.met(self.after));
        squares as f64 / (ONE * ONE) as f64
    }

    /// Number of noise vectors accounted for by this release.
    #[must_use]
    pub fn vectors(&self) -> u64 {
        self.met(self.place) - self.met(self.after)
    }

    /// Maximum number of the first `places` places covered by one participant's columns.
    fn met(&self, places: u32) -> u64 {
        u64::from(places).min(u64::from(self.bands) * u64::from(self.participations))
    }
}

/// The noise of one release, at the last place in `seeds`. The noise of earlier places is drawn again, one vector each.
pub struct BandedNoise {
    /// A generator for each place, the release's last.
    streams: Vec<ChaCha20Rng>,
    matrix: BandedMatrix,
    /// On the grid of `K X`.
    sampler: DiscreteGaussian,
}

impl BandedNoise {
    /// Noise built from vectors of standard deviation `sigma` (see [`fine`]), with a matrix of this many bands.
    ///
    /// # Errors
    /// [`BadSigma`] if the standard deviation is too large on the finer grid.
    pub fn new(seeds: PlaceSeeds, sigma: Sigma, bands: u32) -> Result<Self, BadSigma> {
        let streams = (1..=seeds.last()).map(|place| seeds.rng(place)).collect();
        Ok(Self { streams, matrix: BandedMatrix::new(bands), sampler: DiscreteGaussian::new(fine(sigma)?) })
    }

    /// Adds the noise to the words of the release's exact sum, or of the next slice of it.
    pub fn add_to(&mut self, words: &mut [u32], modulus_bits: u8) {
        let mut noise = vec![[0_i64; BLOCK]; self.streams.len()];
        for words in words.chunks_mut(BLOCK) {
            for (at, rng) in self.streams.iter_mut().enumerate() {
                let (earlier, from_here) = noise.split_at_mut(at);
                let here = &mut from_here[0][..words.len()];
                here.fill_with(|| self.sampler.sample(rng));
                for (earlier, &coefficient) in earlier.iter().rev().zip(&self.matrix.coefficients[1..]) {
                    here.iter_mut().zip(earlier).for_each(|(value, &earlier)| *value -= coefficient * earlier);
                }
                here.iter_mut().for_each(|value| *value = (*value + ONE / 2) >> FRACTION_BITS);
            }
            let last = noise.last().into_iter().flatten();
            words.iter_mut().zip(last).for_each(|(word, &noise)| *word = add(*word, noise, modulus_bits));
        }
        noise.iter_mut().for_each(|values| values.zeroize());
    }
}

/// The standard deviation of `Z` on its finer grid.
///
/// # Errors
/// [`BadSigma`] if it is too large to draw from.
pub fn fine(sigma: Sigma) -> Result<Sigma, BadSigma> {
    Sigma::at_least(sigma.value() * ONE as f64)
}

/// The standard deviation of `Z` in units of the sums' grid, as ledgers record it.
///
/// # Errors
/// [`BadSigma`] if it is too large to draw from on the finer grid.
pub fn coarse(sigma: Sigma) -> Result<f64, BadSigma> {
    Ok(fine(sigma)?.value() / ONE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sets of at most `most` out of `releases` places with a distance of at least `apart`.
    fn patterns(releases: usize, most: usize, apart: usize) -> Vec<Vec<usize>> {
        let subsets = (0..1_u32 << releases).map(|set| (0..releases).filter(|at| set >> at & 1 == 1).collect());
        let fits =
            |places: &Vec<usize>| places.len() <= most && places.windows(2).all(|pair| pair[1] - pair[0] >= apart);
        subsets.filter(fits).collect()
    }

    /// Squared distance that a participant moves the rows of `C X` when it takes part at `places` with updates of
    /// length 1, all equal or with alternating sign: the extremes where columns overlap.
    fn moved(matrix: &BandedMatrix, releases: usize, places: &[usize]) -> f64 {
        let coefficients = matrix.coefficients();
        let row = |row: usize, sign: f64| {
            let columns = places.iter().enumerate().filter(|&(_, &place)| place <= row);
            let of = |(nth, &place): (usize, &usize)| {
                let sign = if nth % 2 == 0 { 1.0 } else { sign };
                sign * coefficients.get(row - place).copied().unwrap_or_default()
            };
            columns.map(of).sum::<f64>().powi(2)
        };
        let square = |sign: f64| (0..releases).map(|at| row(at, sign)).sum::<f64>();
        square(1.0).max(square(-1.0))
    }

    #[test]
    fn coefficients_are_those_of_the_square_root() {
        // (1 - x)^(-1/2) = 1 + 1/2 x + 3/8 x^2 + 5/16 x^3 + 35/128 x^4 + 63/256 x^5 + 231/1024 x^6 ...
        let exact = [1.0, 0.5, 0.375, 0.3125, 0.273_437_5, 0.246_093_75];
        assert_eq!(BandedMatrix::new(6).coefficients(), exact);
        assert_eq!(BandedMatrix::new(7).coefficients()[6], 58.0 / 256.0, "rounded from 57.75");
        assert_eq!(BandedMatrix::new(0), BandedMatrix::new(1));
        let widest = BandedMatrix::new(u32::MAX);
        assert_eq!(widest.coefficients.len(), 1024);
        assert!(widest.coefficients.windows(2).all(|pair| pair[0] >= pair[1] && pair[1] > 0));
        // The inverse of the square root is that of 1 - x: 1 - 1/2 x - 1/8 x^2 - 1/16 x^3 - 5/128 x^4.
        assert_eq!(BandedMatrix::new(6).inverse(5), [1.0, -0.5, -0.125, -0.0625, -0.039_062_5]);
    }

    /// The module's theorem, over every pattern of participation.
    #[test]
    fn no_pattern_of_participations_moves_more_than_is_charged_and_one_moves_as_much() {
        let releases = 10;
        for bands in 1..=5 {
            let matrix = BandedMatrix::new(bands);
            for participations in 1..=4 {
                let all = patterns(releases, participations as usize, bands as usize);
                for seen in 1..=10 {
                    let place = Bands { bands, participations, after: 0, place: 1 }.whole(seen);
                    let most = all.iter().map(|places| moved(&matrix, seen as usize, places)).fold(0.0, f64::max);
                    assert_eq!(place.weight(), most, "{place:?}");
                }
            }
            // One place closer than allowed costs more than is charged.
            if bands > 1 {
                let closer = patterns(releases, 2, bands as usize - 1);
                let most = closer.iter().map(|places| moved(&matrix, releases, places)).fold(0.0, f64::max);
                assert!(most > Bands { bands, participations: 2, after: 0, place: 1 }.whole(10).weight());
            }
        }
    }

    #[test]
    fn what_releases_are_charged_adds_up_whatever_is_left_out() {
        let one = Bands { bands: 4, participations: 3, after: 0, place: 1 };
        for step in 1..5_u64 {
            let (mut last, mut sum, mut vectors) = (None, 0.0, 0);
            for nth in 0..20 {
                let round = 1 + nth * step;
                let next = one.following(round, last);
                assert!(next.is_sane());
                (sum, vectors) = (sum + next.weight(), vectors + next.vectors());
                last = Some((round, next));
                let whole = one.whole(next.place);
                assert_eq!((sum, vectors), (whole.weight(), whole.vectors()));
                assert_eq!(u64::from(next.place), round);
            }
            assert_eq!((sum, vectors), (3.0 * one.one_participation().weight(), 12));
        }
        // A second release of the same round has a place of its own.
        let first = one.following(7, None);
        let again = one.following(7, Some((7, first)));
        assert_eq!((first.place, again.after, again.place), (1, 1, 2));
        assert_eq!(one.following(9, Some((7, again))).place, 4);
        assert_eq!(one.extended(3).weight(), one.whole(3).weight());
        for wrong in [
            Bands { bands: 0, ..one },
            Bands { bands: 1025, ..one },
            Bands { participations: 0, ..one },
            Bands { after: 1, ..one },
        ] {
            assert!(!wrong.is_sane(), "{wrong:?}");
        }
    }

    /// Published figures of the factorization with all bands: its sensitivity, squared, is `(ln n + ln 16 + gamma) / pi` up to
    /// `O(1 / n)`, and the mean squared error at sensitivity 1 at most `(1 + ln(4 n / 5) / pi)^2` (Henzinger, Upadhyay,
    /// Upadhyay 2023, "Almost Tight Error Bounds on Differentially Private Continual Counting", Theorem 1).
    #[test]
    fn all_bands_are_as_good_as_is_published() {
        use std::f64::consts::PI;
        const GAMMA: f64 = 0.577_215_664_901_532_9;
        for n in [64_u32, 256, 1024] {
            let matrix = BandedMatrix::new(n);
            let square = Bands { bands: n, participations: 1, after: 0, place: 1 }.one_participation().weight();
            let expected = (f64::from(n).ln() + 16_f64.ln() + GAMMA) / PI;
            assert!((square / expected - 1.0).abs() < 4e-3, "{n}: {square} {expected}");
            let prefixes: Vec<f64> = matrix.prefix_variances(n).collect();
            let mean = prefixes.iter().sum::<f64>() / f64::from(n);
            let bound = (1.0 + (0.8 * f64::from(n)).ln() / PI).powi(2);
            assert!(square * mean < bound && square * mean > 0.95 * bound, "{n}: {} {bound}", square * mean);
            assert!((prefixes.last().unwrap() / expected - 1.0).abs() < 1e-2, "both factors are alike");
        }
    }

    /// At the same epsilon, which is the same noise over sensitivity: the mean squared error of all prefixes.
    #[test]
    fn fewer_errors_than_a_tree_for_one_participation() {
        for rounds in [2_u32, 7, 15, 60, 63, 64, 100, 500, 1000] {
            let levels = f64::from(crate::privacy::accountant::tree_levels(rounds));
            let tree = levels * (1..=rounds).map(|t| f64::from(t.count_ones())).sum::<f64>();
            let banded = |bands: u32| {
                let square = Bands { bands, participations: 1, after: 0, place: 1 }.one_participation().weight();
                square * BandedMatrix::new(bands).prefix_variances(rounds).sum::<f64>()
            };
            assert!(banded(rounds) < 0.9 * tree, "{rounds}: {} {tree}", banded(rounds));
            // Independent noise is one band.
            assert_eq!(banded(1), 0.5 * f64::from(rounds) * f64::from(rounds + 1));
            if rounds > 7 {
                assert!(banded(1) > banded(2) && banded(2) > banded(rounds / 2), "{rounds}");
            }
        }
    }

    #[test]
    fn what_is_left_of_noise_decays() {
        for bands in [1, 2, 3, 5, 8, 20, 64, 300, 1024] {
            let matrix = BandedMatrix::new(bands);
            let variance = matrix.release_variance(u32::MAX);
            assert!((1.0..1.35).contains(&variance), "{bands}: {variance}");
            let long = matrix.inverse(8 * bands as usize + 64);
            let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
            assert!((square(&long) / variance - 1.0).abs() < 1e-2, "{bands}: {} {variance}", square(&long));
            // The sum of two or more releases has more noise than one of them, and less than if they were independent.
            let mut prefixes = matrix.prefix_variances(40);
            assert_eq!(prefixes.next(), Some(1.0));
            assert!(prefixes.zip(2..).all(|(at, count)| at <= f64::from(count)), "{bands}");
        }
    }

    fn lift(word: u32) -> f64 {
        f64::from(word.cast_signed())
    }

    fn noise(seed: u8, bands: u32, place: u32, words: usize) -> Vec<u32> {
        let mut noise = vec![0; words];
        let sigma = Sigma::at_least(1000.0).unwrap();
        BandedNoise::new(PlaceSeeds::up_to(seed, place), sigma, bands).unwrap().add_to(&mut noise, 32);
        noise
    }

    #[test]
    fn releases_and_their_sums_have_the_noise_that_was_planned() {
        let (bands, words) = (4, 4000);
        let matrix = BandedMatrix::new(bands);
        let mut sum = vec![0.0; words];
        for (place, planned) in (1..=12).zip(matrix.prefix_variances(12)) {
            let noise: Vec<f64> = noise(5, bands, place, words).into_iter().map(lift).collect();
            let variance = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>() / 4000.0 / 1e6;
            // Standard error 2.2 %.
            assert!((variance(&noise) / matrix.release_variance(place) - 1.0).abs() < 0.1, "{place}");
            sum.iter_mut().zip(&noise).for_each(|(sum, noise)| *sum += noise);
            assert!((variance(&sum) / planned - 1.0).abs() < 0.1, "{place}: {} {planned}", variance(&sum));
        }
        assert_eq!(noise(5, 4, 6, 300), noise(5, 4, 6, 600)[..300], "the same whenever it is made");
        assert_ne!(noise(5, 4, 6, 300), noise(6, 4, 6, 300));
        assert_ne!(noise(5, 4, 6, 300), noise(5, 4, 7, 300));
        assert!(BandedNoise::new(PlaceSeeds::up_to(1, 1), Sigma::at_least(2f64.powi(25)).unwrap(), 2).is_err());
    }

    /// The release is a function of `Y = K X + Z` alone: it can be computed from `Y` without `X` and `Z`.
    #[test]
    fn what_is_released_follows_from_the_noised_rows() {
        let (bands, words, bits) = (3, 500, 20);
        let modulus = 1_i64 << bits;
        let matrix = BandedMatrix::new(bands);
        let sigma = Sigma::at_least(700.0).unwrap();
        let sampler = DiscreteGaussian::new(fine(sigma).unwrap());
        let exact = |place: usize| (0..words).map(move |at| ((place * 7919 + at * at * 31) % 90_001) as i64 - 45_000);
        let mut released: Vec<Vec<i64>> = Vec::new();
        for (place, nth) in (0..9).zip(1..) {
            let mut rng = PlaceSeeds::up_to(9, nth).rng(nth);
            let mut row: Vec<i64> = (0..words).map(|_| sampler.sample(&mut rng)).collect();
            for (back, &coefficient) in matrix.coefficients.iter().enumerate().take(place + 1) {
                row.iter_mut().zip(exact(place - back)).for_each(|(y, x)| *y += coefficient * x);
            }
            for (back, &coefficient) in matrix.coefficients.iter().enumerate().skip(1).take(place) {
                row.iter_mut().zip(&released[place - back]).for_each(|(y, r)| *y -= coefficient * r);
            }
            let from_rows: Vec<i64> = row.into_iter().map(|value| (value + 128).div_euclid(256)).collect();
            let mut sum: Vec<u32> = exact(place).map(|x| u32::try_from(x.rem_euclid(modulus)).unwrap()).collect();
            BandedNoise::new(PlaceSeeds::up_to(9, nth), sigma, bands).unwrap().add_to(&mut sum, bits);
            let reduced: Vec<u32> = from_rows.iter().map(|r| u32::try_from(r.rem_euclid(modulus)).unwrap()).collect();
            assert_eq!(sum, reduced, "{place}");
            released.push(from_rows);
        }
    }
}
