//! The course of local training: learning rates over time, clipping, budgets, precision.
//!
//! These settings affect only how a device computes its update, not how updates are summed.

use serde::{Deserialize, Serialize};

/// Maximum number of mini-batches per step.
pub const MAX_ACCUMULATE: u32 = 1024;
/// Lower bound on a schedule's factor, so that training never stops.
const LEAST_FACTOR: f64 = 1e-6;

/// The time unit of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Over {
    /// Rounds of the task, by number: t is 0 in round 1.
    #[default]
    Rounds,
    /// Steps of one participation: t is 0 at the first step of each round.
    Steps,
}

/// Factor on the learning rate as a function of time t. Default: 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Schedule {
    /// Always 1.
    Constant {},
    /// `factor^(t / every)`, rounded down: a step function.
    Step {
        /// Length of a step, at least 1.
        every: u32,
        /// Above 0, at most 1.
        factor: f64,
        #[serde(default)]
        over: Over,
    },
    /// `factor^t`.
    Exponential {
        /// Above 0, at most 1.
        factor: f64,
        #[serde(default)]
        over: Over,
    },
    /// Half a cosine from 1 at t = 0 to `floor` at t = `length`, and `floor` from then on.
    Cosine {
        /// At least 1.
        length: u32,
        /// Above 0, at most 1. Default: 0.01.
        #[serde(default = "hundredth")]
        floor: f64,
        #[serde(default)]
        over: Over,
    },
}

fn hundredth() -> f64 {
    0.01
}

impl Schedule {
    /// The time unit; `None` for a constant schedule.
    #[must_use]
    pub fn over(&self) -> Option<Over> {
        match *self {
            Self::Constant {} => None,
            Self::Step { over, .. } | Self::Exponential { over, .. } | Self::Cosine { over, .. } => Some(over),
        }
    }

    /// The factor at `t`, above 0 and at most 1.
    #[must_use]
    pub fn factor(&self, t: u32) -> f64 {
        let power = |factor: f64, t: u32| factor.powi(i32::try_from(t).unwrap_or(i32::MAX));
        let factor = match *self {
            Self::Constant {} => 1.0,
            Self::Step { every, factor, .. } => power(factor, t / every.max(1)),
            Self::Exponential { factor, .. } => power(factor, t),
            Self::Cosine { length, floor, .. } => {
                let part = f64::from(t.min(length)) / f64::from(length.max(1));
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * part).cos())
            }
        };
        factor.clamp(LEAST_FACTOR, 1.0)
    }
}

/// A learning rate that starts low and rises linearly: `(t + 1) / (length + 1)` times the schedule's factor while t <
/// `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Warmup {
    /// At least 1.
    pub length: u32,
    #[serde(default)]
    pub over: Over,
}

impl Warmup {
    /// The factor at `t`, above 0 and at most 1.
    #[must_use]
    pub fn factor(&self, t: u32) -> f64 {
        if t >= self.length { 1.0 } else { (f64::from(t) + 1.0) / (f64::from(self.length) + 1.0) }
    }
}

/// When a device stops early and sends its update: after this many steps or this much time, whichever comes first, but
/// at least one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Budget {
    /// Maximum number of local optimizer steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Maximum training time in milliseconds, by the device's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

impl Budget {
    /// The lower of each limit.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self { steps: least(self.steps, other.steps), time_ms: least(self.time_ms, other.time_ms) }
    }
}

/// Number format of forward and backward passes, if the device supports it. Parameters and optimizer steps always use
/// 32 bits, and so do passes on the CPU, which would gain nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with the exponent range of 32-bit floats.
    Bf16,
    /// 16 bits with a small exponent range: the loss is scaled up as far as the gradients allow.
    F16,
}

impl Precision {
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self == Self::F32
    }
}

/// Combined factor of a schedule and a warm-up that count steps, at a given step.
#[must_use]
pub fn step_factor(schedule: Option<&Schedule>, warmup: Option<&Warmup>, step: u32) -> f64 {
    let schedule = schedule.filter(|schedule| schedule.over() == Some(Over::Steps));
    let warmup = warmup.filter(|warmup| warmup.over == Over::Steps);
    schedule.map_or(1.0, |schedule| schedule.factor(step)) * warmup.map_or(1.0, |warmup| warmup.factor(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrainingPlan;

    fn factors(schedule: Schedule, times: &[u32]) -> Vec<f64> {
        times.iter().map(|&t| schedule.factor(t)).collect()
    }

    #[test]
    fn schedules_are_what_they_say() {
        let over = Over::Rounds;
        assert_eq!(factors(Schedule::Constant {}, &[0, 7, u32::MAX]), [1.0; 3]);
        let stairs = Schedule::Step { every: 3, factor: 0.5, over };
        assert_eq!(factors(stairs, &[0, 2, 3, 5, 6, 9]), [1.0, 1.0, 0.5, 0.5, 0.25, 0.125]);
        assert_eq!(factors(Schedule::Exponential { factor: 0.5, over }, &[0, 1, 2]), [1.0, 0.5, 0.25]);
        let cosine = factors(Schedule::Cosine { length: 4, floor: 0.2, over }, &[0, 1, 2, 4, 100]);
        // 0.2 + 0.8 (1 + cos(pi / 4)) / 2
        let expected = [1.0, 0.882_842_712_474_619, 0.6, 0.2, 0.2];
        for (got, expected) in cosine.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{cosine:?}");
        }
        // The factor never reaches 0.
        assert_eq!(factors(Schedule::Exponential { factor: 1e-9, over }, &[5, u32::MAX]), [LEAST_FACTOR; 2]);
        let warmup = Warmup { length: 3, over };
        assert_eq!([0, 1, 2, 3, 4].map(|t| warmup.factor(t)), [0.25, 0.5, 0.75, 1.0, 1.0]);
    }

    #[test]
    fn what_counts_rounds_is_in_the_rate_of_a_round_and_what_counts_steps_is_not() {
        let plain = TrainingPlan::default();
        assert_eq!(plain.in_round(7), plain);
        assert_eq!(plain.step_factor(7), 1.0);
        let rounds = TrainingPlan {
            learning_rate: 0.8,
            schedule: Some(Schedule::Exponential { factor: 0.5, over: Over::Rounds }),
            warmup: Some(Warmup { length: 1, over: Over::Rounds }),
            ..TrainingPlan::default()
        };
        assert_eq!([1, 2, 3].map(|round| rounds.in_round(round).learning_rate), [0.4, 0.4, 0.2]);
        let resolved = rounds.in_round(2);
        assert_eq!((resolved.schedule, resolved.warmup, rounds.step_factor(5)), (None, None, 1.0));
        let steps = TrainingPlan {
            schedule: Some(Schedule::Step { every: 2, factor: 0.5, over: Over::Steps }),
            warmup: Some(Warmup { length: 1, over: Over::Steps }),
            ..TrainingPlan::default()
        };
        assert_eq!(steps.in_round(9), steps);
        assert_eq!([0, 1, 2, 4].map(|step| steps.step_factor(step)), [0.5, 1.0, 0.5, 0.25]);
    }

    #[test]
    fn the_tighter_budget_is_whatever_ends_first() {
        let budget = |steps, time_ms| Budget { steps, time_ms };
        assert_eq!(budget(Some(3), None).tighter(budget(Some(5), Some(9))), budget(Some(3), Some(9)));
        assert_eq!(budget(None, None).tighter(budget(None, Some(9))), budget(None, Some(9)));
    }
}
