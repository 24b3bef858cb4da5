//! How local training proceeds step by step: rates over time, clipping, budgets, precision.
//!
//! All of it is a participant's own affair: it changes which update a device yields, and nothing of how updates are summed.

use serde::{Deserialize, Serialize};

/// Most mini-batches in a step.
pub const MAX_ACCUMULATE: u32 = 1024;
/// Least part of the learning rate that a schedule leaves: a rate of nothing would train nothing.
const LEAST_FACTOR: f64 = 1e-6;

/// What a schedule counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Over {
    /// Rounds of the task, by their number: t is 0 in round 1.
    #[default]
    Rounds,
    /// Steps of one participation: t is 0 at the first step of each round.
    Steps,
}

/// What the learning rate is multiplied by as time t goes on. Left out: 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Schedule {
    /// 1, always.
    Constant {},
    /// `factor^(t / every)`, rounded down: a stair.
    Step {
        /// Length of a stair, at least 1.
        every: u32,
        /// Above 0, at most 1.
        factor: f64,
        /// What t counts.
        #[serde(default)]
        over: Over,
    },
    /// `factor^t`.
    Exponential {
        /// Above 0, at most 1.
        factor: f64,
        /// What t counts.
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
        /// What t counts.
        #[serde(default)]
        over: Over,
    },
}

fn hundredth() -> f64 {
    0.01
}

impl Schedule {
    /// What it counts; nothing where it is constant.
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

/// A learning rate that rises in even stairs: `(t + 1) / (length + 1)` of it, times the schedule's factor, while t < `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Warmup {
    /// At least 1.
    pub length: u32,
    /// What t counts.
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

/// When a device stops and sends what it has: after so many steps or so much time, whichever is first. It takes one step at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Budget {
    /// Steps of the local optimizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// Milliseconds of training, by the device's own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

impl Budget {
    /// Whatever either of the two allows.
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

/// Numbers that forward and backward passes are computed in, where the device has them. Parameters and steps are 32-bit
/// numbers whatever this says, and so are passes on the CPU, which gains nothing from shorter ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with the range of 32.
    Bf16,
    /// 16 bits with a small range: the loss is scaled up by as much as the gradients allow.
    F16,
}

impl Precision {
    /// Whether it is the usual one.
    #[must_use]
    pub fn is_full(&self) -> bool {
        *self == Self::F32
    }
}

/// The factor of whatever counts steps, at one of them.
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
        // A rate never ends at nothing.
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
