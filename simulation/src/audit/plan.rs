//! The copy of a task, and how it is tested: settled before anything runs.

use std::ops::RangeInclusive;

use client_sdk::participant::machine::Settings;
use learning::privacy::PrivateCodec;
use learning::privacy::audit::{AuditError, Design, noise_power};
use recipe::TaskModel;
use serde::Serialize;
use serde_json::json;
use task_spec::{Clip, NoisedBy, PrivacySpec, TaskSpec};

use crate::SimulationError;

/// Name of the copy with noise alone.
const NOISE: &str = "audit-noise";
/// Numbers of participants: with fewer, no guesses disprove anything; more are enrolled one after the other for hours.
const PARTICIPANTS: RangeInclusive<u32> = 20..=100_000;
/// Largest model that is copied; of a longer one, as many values.
const MAX_PARAMETERS: usize = 1 << 20;
/// Rounds of noise alone.
pub(super) const NOISE_ROUNDS: u32 = 2;
/// Number of tests, which share the probability of a false finding.
const TESTS: f64 = 3.0;

/// An audit to run.
#[derive(Clone, Debug)]
pub struct PrivacyAudit {
    /// The audited task; its noise multiplier may be unsolved.
    pub task: TaskSpec,
    /// Number of made-up participants, all of them in every round.
    pub participants: u32,
    /// Probability that an honest task has no finding, above 0 and below 1.
    pub confidence: f64,
    /// Makes the audit repeatable; `None` draws everything from the system's randomness.
    pub seed: Option<u64>,
    /// Changes the settings of the participants; the identity, except in tests of the audit.
    pub participant: fn(Settings) -> Settings,
}

/// What an audit can find, known before it runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AuditDesign {
    /// Number of values in the audited sums.
    pub parameters: usize,
    /// Whether that is fewer than the task has.
    pub is_cut: bool,
    pub canaries: u32,
    pub guesses: u32,
    /// The noise multiplier of the task.
    pub noise_multiplier: f64,
    /// Probability to find noise of half the standard deviation.
    pub power_of_half_noise: f64,
    /// The expected lower bound on epsilon of the honest task.
    pub expected_bound: f64,
    /// The expected lower bound without noise: no bound of this audit is much higher.
    pub highest_bound: f64,
}

/// The copy, and how it is tested.
pub(super) struct Plan {
    pub(super) task: TaskSpec,
    pub(super) codec: PrivateCodec,
    pub(super) clip: f64,
    /// Whether each participant adds all noise of its own update.
    pub(super) is_local: bool,
    pub(super) design: Design,
    pub(super) report: AuditDesign,
}

impl PrivacyAudit {
    /// What this audit can find.
    ///
    /// # Errors
    /// [`SimulationError::Invalid`]: the task or the settings cannot be audited.
    pub fn design(&self) -> Result<AuditDesign, SimulationError> {
        self.plan().map(|plan| plan.report)
    }

    pub(super) fn plan(&self) -> Result<Plan, SimulationError> {
        let invalid = |text: &str| SimulationError::Invalid(text.to_owned());
        if !(self.confidence > 0.5 && self.confidence < 1.0) {
            return Err(invalid("the confidence must be above 0.5 and below 1"));
        }
        if !PARTICIPANTS.contains(&self.participants) {
            let (least, most) = (PARTICIPANTS.start(), PARTICIPANTS.end());
            return Err(SimulationError::Invalid(format!("an audit needs {least} to {most} participants")));
        }
        let mut original = self.task.clone();
        let model = TaskModel::complete(&mut original).and_then(|()| TaskModel::new(&original));
        let model = model.map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            SimulationError::Invalid(problems.join("; "))
        })?;
        let mechanism = original.privacy.mechanism;
        match mechanism.noised_by() {
            NoisedBy::Nobody => return Err(invalid("the task has no privacy mechanism")),
            NoisedBy::CoordinatorOverRounds => {
                return Err(invalid(
                    "the noise of a tree or a banded matrix depends on that of other rounds, which this audit cannot test",
                ));
            }
            NoisedBy::Coordinator | NoisedBy::Cohort | NoisedBy::EachParticipant => {}
        }
        let all = model.tensors.shared.len();
        let parameters = all.clamp(self.participants as usize, MAX_PARAMETERS);
        let task = self.copy(&original, parameters)?;
        let copied = TaskModel::new(&task).map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            SimulationError::Invalid(format!("a copy with {} participants: {}", self.participants, problems.join("; ")))
        })?;
        let private = copied.private.ok_or_else(|| invalid("the task has no privacy mechanism"))?;
        let (codec, z) = (private.quantizer.codec, original.privacy.noise_multiplier.unwrap_or_default());
        let is_local = mechanism.noised_by() == NoisedBy::EachParticipant;
        let delta = original.privacy.delta.unwrap_or_default();
        // With local noise, that of the others hides a canary, too.
        let shift = 1.0 / (codec.inflation() * z * if is_local { f64::from(self.participants).sqrt() } else { 1.0 });
        let confidence = self.test_confidence();
        let of = |guesses_each, shift| Design { canaries: self.participants, guesses_each, shift, delta, confidence };
        // The number that shows noise of half the width best, and then the absence of noise.
        let mut best = None;
        for part in 1..=16 {
            let design = of((self.participants * part / 32).max(1), 2.0 * shift);
            let bounds = design
                .expected_bound()
                .and_then(|half| Ok((half, Design { shift: f64::INFINITY, ..design }.expected_bound()?)));
            let bounds = bounds.map_err(|error: AuditError| SimulationError::Invalid(error.to_string()))?;
            if best.is_none_or(|(most, _)| bounds > most) {
                best = Some((bounds, Design { shift, ..design }));
            }
        }
        let design = best.map_or_else(|| of(1, shift), |(_, design)| design);
        let bound = |shift| Design { shift, ..design }.expected_bound().unwrap_or_default();
        let coordinates = u32::try_from(parameters).unwrap_or(u32::MAX);
        let report = AuditDesign {
            parameters,
            is_cut: parameters < all,
            canaries: self.participants,
            guesses: 2 * design.guesses_each,
            noise_multiplier: z,
            power_of_half_noise: noise_power(coordinates, 0.25, confidence).unwrap_or_default(),
            expected_bound: bound(shift),
            highest_bound: bound(f64::INFINITY),
        };
        let clip = original.privacy.clip.map_or(1.0, |clip| clip.initial());
        Ok(Plan { task, codec, clip, is_local, design, report })
    }

    /// Each test has its part of the probability of a false finding.
    pub(super) fn test_confidence(&self) -> f64 {
        1.0 - (1.0 - self.confidence) / TESTS
    }

    /// The copy of a complete task.
    fn copy(&self, original: &TaskSpec, parameters: usize) -> Result<TaskSpec, SimulationError> {
        let people = self.participants;
        let text = json!({
            "name": NOISE,
            "model": { "tensors": [{ "name": "w", "shape": [parameters] }] },
            "metrics": [],
            "rounds": { "count": NOISE_ROUNDS, "select_min": people, "select_max": people },
            "selection": { "cohort": { "count": people } },
        });
        let mut task: TaskSpec =
            serde_json::from_value(text).map_err(|error| SimulationError::Invalid(error.to_string()))?;
        task.aggregation.modulus_bits = original.aggregation.modulus_bits;
        task.secure_aggregation = original.secure_aggregation.clone();
        task.privacy = PrivacySpec {
            mechanism: original.privacy.mechanism,
            noise_multiplier: original.privacy.noise_multiplier,
            delta: original.privacy.delta,
            clip: Some(Clip::Fixed(original.privacy.clip.map_or(1.0, |clip| clip.initial()))),
            accounting: original.privacy.accounting,
            ..PrivacySpec::default()
        };
        Ok(task)
    }
}
