//! The audit by one training run (Steinke, Nasr, Jagielski 2023).

use super::tails::{at_least, crossing, masses};
use super::{AuditError, probability};

/// The number of correctly guessed canaries.
///
/// A canary is the protected unit of the guarantee: here a participant, included or excluded by its own fair coin, independently of
/// everything else. Several coordinates of one participant are one canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guesses {
    canaries: u32,
    guesses: u32,
    correct: u32,
}

impl Guesses {
    /// The number of canaries (m), of guesses (r; the rest are abstentions) and of correct ones among them (v).
    ///
    /// # Errors
    /// [`AuditError`] unless v <= r <= m and m > 0.
    pub fn new(canaries: u32, guesses: u32, correct: u32) -> Result<Self, AuditError> {
        if canaries == 0 {
            return Err(AuditError::TooFew(0));
        }
        if guesses > canaries {
            return Err(AuditError::Guesses { guesses: guesses as usize, canaries: canaries as usize });
        }
        if correct > guesses {
            return Err(AuditError::Correct { correct, guesses });
        }
        Ok(Self { canaries, guesses, correct })
    }

    /// Guesses that the `guess_in` highest scores were included and the `guess_out` lowest excluded, and counts how
    /// often that is correct. Both numbers must be fixed before the scores are seen.
    ///
    /// # Errors
    /// [`AuditError`]: lengths differ, more guesses than canaries, or scores are NaN.
    pub fn from_scores(
        scores: &[f64],
        included: &[bool],
        guess_in: usize,
        guess_out: usize,
    ) -> Result<Self, AuditError> {
        if scores.len() != included.len() {
            return Err(AuditError::Lengths { scores: scores.len(), canaries: included.len() });
        }
        if scores.iter().any(|score| !score.is_finite()) {
            return Err(AuditError::NotFinite);
        }
        let guesses = guess_in.saturating_add(guess_out);
        if guesses > scores.len() {
            return Err(AuditError::Guesses { guesses, canaries: scores.len() });
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let out = order[..guess_out].iter().filter(|&&canary| !included[canary]).count();
        let within = order[order.len() - guess_in..].iter().filter(|&&canary| included[canary]).count();
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self::new(small(scores.len()), small(guesses), small(out + within))
    }

    #[must_use]
    pub fn correct(&self) -> u32 {
        self.correct
    }

    /// Upper bound on the probability of this many correct guesses if the mechanism is (`epsilon`, `delta`)-DP (Theorem
    /// 5.2).
    ///
    /// `P[W >= v] + 2 m delta max_i P[v - i <= W < v] / i`, where W counts the successes of randomized response.
    #[must_use]
    pub fn p_value(&self, epsilon: f64, delta: f64) -> f64 {
        let masses = masses(self.guesses, 1.0 / (1.0 + libm::exp(-epsilon)));
        let (below, from) = masses.split_at(self.correct as usize);
        let pure = from.iter().rev().sum::<f64>();
        let (mut sum, mut most) = (0.0, 0.0_f64);
        for (i, mass) in below.iter().rev().enumerate() {
            sum += mass;
            most = most.max(sum / (i + 1) as f64);
        }
        (pure + 2.0 * f64::from(self.canaries) * delta * most).min(1.0)
    }

    /// A lower bound on the true epsilon at this `delta` that is correct with probability `confidence`, for example 0.95. 0 if the guesses
    /// are inconclusive.
    ///
    /// # Errors
    /// [`AuditError::Probability`].
    pub fn epsilon_at_least(&self, delta: f64, confidence: f64) -> Result<f64, AuditError> {
        probability("confidence", confidence)?;
        if delta != 0.0 {
            probability("delta", delta)?;
        }
        let level = 1.0 - confidence;
        let excess = |epsilon: f64| self.p_value(epsilon, delta) - level;
        if excess(0.0) >= 0.0 {
            return Ok(0.0);
        }
        Ok(crossing(0.0, EPSILON_MAX, excess))
    }
}

/// Beyond the bounds provable with any `u32` number of guesses.
const EPSILON_MAX: f64 = 30.0;

/// Parameters of an audit, fixed before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    pub canaries: u32,
    /// Number of highest scores guessed as included, and of lowest scores guessed as excluded.
    pub guesses_each: u32,
    /// Difference between the mean scores of included and excluded canaries, in standard deviations of the score's
    /// noise, which is assumed normal. Infinite without noise.
    pub shift: f64,
    /// The delta of the ledger.
    pub delta: f64,
    /// Probability with which the lower bound must hold, for example 0.95.
    pub confidence: f64,
}

impl Design {
    /// Lower bound on the probability that the audit's bound exceeds `epsilon`.
    ///
    /// Given the score at which guessing ends, guesses are correct independently with the same probability. The score
    /// is placed where it is worst, except with a probability of 2e-6, which is subtracted.
    ///
    /// # Errors
    /// [`AuditError`]: more guesses than canaries, or a probability out of range.
    pub fn power(&self, epsilon: f64) -> Result<f64, AuditError> {
        let guesses = self.guesses()?;
        let bound =
            |correct| Guesses::new(self.canaries, guesses, correct)?.epsilon_at_least(self.delta, self.confidence);
        // The bound is monotone in the number of correct guesses.
        let (mut low, mut high) = (0, guesses + 1);
        while low < high {
            let middle = u32::midpoint(low, high);
            if bound(middle)? > epsilon { high = middle } else { low = middle + 1 }
        }
        Ok((at_least(guesses, self.right(), low) - 2.0 * libm::exp(-SLACK)).max(0.0))
    }

    /// The lower bound given by the expected number of correct guesses, rounded down.
    ///
    /// # Errors
    /// As for [`power`](Self::power).
    pub fn expected_bound(&self) -> Result<f64, AuditError> {
        let guesses = self.guesses()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and guesses")]
        let correct = (f64::from(guesses) * self.right()).floor() as u32;
        Guesses::new(self.canaries, guesses, correct)?.epsilon_at_least(self.delta, self.confidence)
    }

    fn guesses(&self) -> Result<u32, AuditError> {
        match self.guesses_each.checked_mul(2) {
            Some(guesses) if guesses <= self.canaries && !self.shift.is_nan() => Ok(guesses),
            _ => Err(AuditError::Guesses { guesses: 2 * self.guesses_each as usize, canaries: self.canaries as usize }),
        }
    }

    /// Lower bound on the probability that a guess is correct.
    fn right(&self) -> f64 {
        let each = f64::from(self.guesses_each);
        // A binomial count of this mean is below `each` with a probability below exp(-SLACK), by Chernoff's bound.
        let mean = each + SLACK + (SLACK * SLACK + 2.0 * SLACK * each).sqrt();
        let part = mean / f64::from(self.canaries);
        if part >= 1.0 {
            return 0.5;
        }
        let above = |score: f64| 0.5 * libm::erfc(score * std::f64::consts::FRAC_1_SQRT_2);
        if self.shift == f64::INFINITY {
            return (0.5 / part).min(1.0);
        }
        let within = |score: f64| above(score - self.shift);
        let end = crossing(-40.0, self.shift.abs() + 40.0, |score| part - 0.5 * (above(score) + within(score)));
        0.5 * within(end) / part
    }
}

/// The neglected events have probability exp(-SLACK) on either side.
const SLACK: f64 = 14.0;

#[cfg(test)]
mod tests {
    use rand::{Rng as _, RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha20Rng;

    use super::*;

    fn bound(canaries: u32, guesses: u32, correct: u32, delta: f64) -> f64 {
        Guesses::new(canaries, guesses, correct).unwrap().epsilon_at_least(delta, 0.95).unwrap()
    }

    #[test]
    fn is_the_papers_bound() {
        // Appendix D and section 7 (figure 11) of arXiv:2305.08846, as printed there.
        assert!((bound(1000, 100, 75, 1e-4) - 0.673).abs() < 1e-3);
        assert!((bound(100_000, 1510, 1439, 1e-5) - 2.675).abs() < 1e-3);
        // Pure and all right: (1 + exp(-epsilon))^-r is the level.
        let q = 0.05_f64.powf(1.0 / 2000.0);
        assert!((bound(2000, 2000, 2000, 0.0) - (q / (1.0 - q)).ln()).abs() < 1e-9);
        // Half right is inconclusive, and so are zero guesses.
        assert_eq!(bound(1000, 100, 50, 1e-5), 0.0);
        assert_eq!(bound(1000, 0, 0, 1e-5), 0.0);
        // Delta makes it weaker; being right more often, stronger.
        assert!(bound(1000, 100, 75, 1e-3) < bound(1000, 100, 75, 0.0));
        assert!((50..100).all(|v| bound(1000, 100, v, 1e-5) <= bound(1000, 100, v + 1, 1e-5)));
    }

    /// Coins, and scores that reveal them with (epsilon, delta): randomized response that is bypassed with probability
    /// delta.
    fn randomized_response(rng: &mut ChaCha20Rng, canaries: usize, epsilon: f64, delta: f64) -> (Vec<f64>, Vec<bool>) {
        let included: Vec<bool> = (0..canaries).map(|_| rng.random()).collect();
        let honest = 1.0 / (1.0 + (-epsilon).exp());
        let score = |&coin: &bool| {
            let uniform = f64::from(rng.next_u32()) / 4_294_967_296.0;
            if uniform < delta + (1.0 - delta) * honest {
                f64::from(u8::from(coin))
            } else {
                f64::from(u8::from(!coin))
            }
        };
        let scores = included.iter().map(score).collect();
        (scores, included)
    }

    #[test]
    fn randomized_response_is_hardly_ever_said_to_be_worse_than_it_is() {
        let mut rng = ChaCha20Rng::seed_from_u64(11);
        for (epsilon, delta) in [(0.5, 0.0), (1.0, 1e-4), (2.0, 1e-2)] {
            let runs = 600;
            let mut exceeded = 0;
            for _ in 0..runs {
                let (scores, included) = randomized_response(&mut rng, 400, epsilon, delta);
                let guesses = Guesses::from_scores(&scores, &included, 150, 150).unwrap();
                exceeded += u32::from(guesses.p_value(epsilon, delta) < 0.05);
            }
            // Five in a hundred are 30, standard deviation 5.3.
            assert!(exceeded <= 46, "{epsilon} {delta}: {exceeded}");
        }
        // And the bound is close to the true epsilon.
        let (scores, included) = randomized_response(&mut rng, 100_000, 1.0, 0.0);
        let found = Guesses::from_scores(&scores, &included, 40_000, 40_000).unwrap();
        let found = found.epsilon_at_least(0.0, 0.95).unwrap();
        assert!(found > 0.9 && found < 1.03, "{found}");
    }

    #[test]
    fn power_is_what_runs_show() {
        let mut rng = ChaCha20Rng::seed_from_u64(5);
        let mut normal = |mean: f64| {
            let (u, v): (f64, f64) = (rng.random(), rng.random());
            mean + (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        for (shift, epsilon) in [(1.2, 1.0), (1.0, 1.0), (3.0, 3.0)] {
            let design = Design { canaries: 2000, guesses_each: 200, shift, delta: 1e-5, confidence: 0.95 };
            let runs = 100;
            let mut seen = 0.0;
            for _ in 0..runs {
                let included: Vec<bool> = (0..2000).map(|i| i % 2 == 0).collect();
                let scores: Vec<f64> = included.iter().map(|&x| normal(if x { shift } else { 0.0 })).collect();
                let guesses = Guesses::from_scores(&scores, &included, 200, 200).unwrap();
                seen += f64::from(u8::from(guesses.p_value(epsilon, 1e-5) < 0.05)) / f64::from(runs);
            }
            let power = design.power(epsilon).unwrap();
            // The prediction holds; it is conservative, so the audit may find more.
            assert!(seen >= power - 0.1, "{shift}: {seen} {power}");
        }
    }

    #[test]
    fn without_noise_it_sees_everything_and_with_enough_nothing() {
        let design = Design { canaries: 2048, guesses_each: 800, shift: f64::INFINITY, delta: 1e-5, confidence: 0.95 };
        assert!(design.power(1.0).unwrap() > 0.999_99);
        assert!(design.expected_bound().unwrap() > 5.0);
        let hidden = Design { shift: 0.1, ..design };
        assert!(hidden.power(1.0).unwrap() < 1e-6);
        assert_eq!(hidden.expected_bound().unwrap(), 0.0);
        assert!(Design { shift: 8.0, ..design }.power(1.0).unwrap() > 0.999_99);
        assert!(Design { guesses_each: 1025, ..design }.power(1.0).is_err());
    }

    #[test]
    fn refuses_what_is_no_audit() {
        assert_eq!(Guesses::new(10, 11, 0), Err(AuditError::Guesses { guesses: 11, canaries: 10 }));
        assert_eq!(Guesses::new(10, 5, 6), Err(AuditError::Correct { correct: 6, guesses: 5 }));
        assert_eq!(Guesses::new(0, 0, 0), Err(AuditError::TooFew(0)));
        let of = |scores: &[f64], included: &[bool], k| Guesses::from_scores(scores, included, k, k);
        assert_eq!(of(&[1.0], &[], 0), Err(AuditError::Lengths { scores: 1, canaries: 0 }));
        assert_eq!(of(&[1.0, f64::NAN], &[true, false], 1), Err(AuditError::NotFinite));
        assert_eq!(of(&[1.0], &[true], 1), Err(AuditError::Guesses { guesses: 2, canaries: 1 }));
        let some = of(&[3.0, 1.0, 2.0, 0.0], &[true, false, false, true], 1).unwrap();
        assert_eq!(some, Guesses::new(4, 2, 1).unwrap());
        assert_eq!(some.epsilon_at_least(1.0, 0.95), Err(AuditError::Probability("delta")));
        assert_eq!(some.epsilon_at_least(0.0, 1.0), Err(AuditError::Probability("confidence")));
    }
}
