//! FedProx's adaptive μ: the proximal term grows while the loss rises and shrinks while it falls (Li et al. 2020, "Federated optimization
//! in heterogeneous networks", §5.3.2).
//!
//! μ is a function of the losses of all completed rounds. The function is stateless, so a resumed round gets the same μ.

/// The adaptation rule for μ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveMu {
    /// μ of the first two rounds; at least 0.
    pub start: f64,
    /// Change of μ at each adaptation; 0.1 in the paper.
    pub step: f64,
    /// Number of consecutive rounds with a falling loss after which μ shrinks; 5 in the paper.
    pub patience: u32,
}

impl AdaptiveMu {
    /// The rule with the paper's `step` and `patience`.
    #[must_use]
    pub fn new(start: f64) -> Self {
        Self { start, step: 0.1, patience: 5 }
    }

    /// μ for the next round, given the loss of each completed round, oldest first. A NaN counts as a rise and is
    /// skipped in later comparisons.
    #[must_use]
    pub fn after(&self, losses: impl IntoIterator<Item = f64>) -> f64 {
        let (mut mu, mut falls) = (self.start, 0);
        let mut last = None;
        for loss in losses {
            match last {
                _ if !loss.is_finite() => (mu, falls) = (mu + self.step, 0),
                Some(last) if loss > last => (mu, falls) = (mu + self.step, 0),
                Some(last) if loss < last => falls += 1,
                Some(_) => falls = 0,
                None => {}
            }
            if falls > 0 && falls >= self.patience {
                (mu, falls) = ((mu - self.step).max(0.0), 0);
            }
            last = if loss.is_finite() { Some(loss) } else { last };
        }
        mu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_with_the_loss_and_falls_after_five_falls() {
        let rule = AdaptiveMu { step: 0.125, ..AdaptiveMu::new(1.0) };
        assert_eq!((rule.step, AdaptiveMu::new(0.0).step, rule.patience), (0.125, 0.1, 5));
        for (losses, mu) in [
            (&[][..], 1.0),
            (&[2.0], 1.0),
            (&[2.0, 2.5], 1.125),
            (&[2.0, 2.5, 3.0], 1.25),
            (&[2.0, f64::NAN, 1.9], 1.125),
            (&[6.0, 5.0, 4.0, 3.0, 2.0], 1.0),
            (&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 0.875),
            (&[6.0, 5.0, 4.0, 4.0, 3.0, 2.0, 1.0], 1.0),
            (&[11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 0.75),
        ] {
            assert_eq!(rule.after(losses.iter().copied()), mu, "{losses:?}");
        }
        let never_negative = AdaptiveMu { patience: 1, ..AdaptiveMu::new(0.05) };
        assert_eq!(never_negative.after([3.0, 2.0, 1.0]), 0.0);
    }
}
