//! The factor on the loss that keeps gradients within the range of 16-bit floats.

use task_spec::Precision;

use crate::train::learner::StepResult;

/// The factor on the loss before its gradient is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::train) struct LossScale {
    pub(super) factor: f64,
    /// Steps since it changed; `None` if it is constant.
    pub(super) steps: Option<u32>,
}

impl LossScale {
    /// Number of consecutive steps without overflow after which it doubles.
    const GROWTH_INTERVAL: u32 = 2000;
    /// Beyond this the scaled loss itself would overflow.
    const MOST: f64 = 65_536.0;

    pub(in crate::train) fn new(precision: Precision) -> Self {
        match precision {
            Precision::F16 => Self { factor: Self::MOST, steps: Some(0) },
            Precision::F32 | Precision::Bf16 => Self { factor: 1.0, steps: None },
        }
    }

    /// Updates the scale after a step, given whether all gradients were finite; returns whether to apply the step.
    pub(in crate::train) fn after(&mut self, is_finite: bool) -> StepResult {
        let Some(steps) = &mut self.steps else { return StepResult::Taken };
        if !is_finite {
            (self.factor, *steps) = (self.factor / 2.0, 0);
            return StepResult::Skipped;
        }
        *steps += 1;
        if *steps == Self::GROWTH_INTERVAL {
            (self.factor, *steps) = ((self.factor * 2.0).min(Self::MOST), 0);
        }
        StepResult::Taken
    }
}
