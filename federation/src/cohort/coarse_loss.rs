//! A training loss quantized to five bits.

use serde::{Deserialize, Serialize};

/// A participant's training loss in half octaves: level `l` stands for 2^((l - 20) / 2), from about 0.001 to about 45.
///
/// Selectors that follow the loss need one number per participant, which secure aggregation hides on purpose. A
/// participant that is asked for it (`selection.report_utility`) reports only this: one of 32 levels, each a factor of
/// √2 wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = u8, minimum = 0, maximum = 31))]
pub struct CoarseLoss(u8);

/// A level above 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no level of a coarse loss; levels go from 0 to 31")]
pub struct BadLevel(pub u8);

impl CoarseLoss {
    const TOP: u8 = 31;
    const ONE: u8 = 20;

    /// The nearest level; `None` for a negative, infinite or NaN loss.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=31 before")]
    pub fn of(loss: f64) -> Option<Self> {
        if !(loss.is_finite() && loss >= 0.0) {
            return None;
        }
        let level = (2.0 * loss.log2()).round() + f64::from(Self::ONE);
        Some(Self(level.clamp(0.0, f64::from(Self::TOP)) as u8))
    }

    /// The loss of this level.
    #[must_use]
    pub fn value(self) -> f64 {
        ((f64::from(self.0) - f64::from(Self::ONE)) / 2.0).exp2()
    }
}

impl TryFrom<u8> for CoarseLoss {
    type Error = BadLevel;

    fn try_from(level: u8) -> Result<Self, BadLevel> {
        if level <= Self::TOP { Ok(Self(level)) } else { Err(BadLevel(level)) }
    }
}

impl From<CoarseLoss> for u8 {
    fn from(loss: CoarseLoss) -> Self {
        loss.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_becomes_the_nearest_of_thirty_two_levels() {
        for (loss, level) in [(0.0, 0), (1e-9, 0), (0.5, 18), (1.0, 20), (1.41, 21), (2.3, 22), (45.0, 31), (1e9, 31)] {
            assert_eq!(CoarseLoss::of(loss).map(u8::from), Some(level), "{loss}");
        }
        for bad in [-0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(CoarseLoss::of(bad), None);
        }
        for level in 0..=31 {
            let loss = CoarseLoss::try_from(level).unwrap();
            assert_eq!(CoarseLoss::of(loss.value()), Some(loss));
        }
    }

    #[test]
    fn what_is_no_level_is_not_read() {
        assert_eq!(CoarseLoss::try_from(32), Err(BadLevel(32)));
        assert!(serde_json::from_str::<CoarseLoss>("32").unwrap_err().to_string().contains("from 0 to 31"));
        assert_eq!(serde_json::to_string(&CoarseLoss::try_from(7).unwrap()).unwrap(), "7");
    }
}
