//! A participant that may be drawn, with the data visible to selectors.

use std::collections::BTreeMap;

use rand::Rng;
use serde::{Deserialize, Serialize};
use task_spec::Requirements;

use super::CoarseLoss;
use crate::id::ParticipantId;
use crate::time::Timestamp;

/// A checked-in participant with its history in the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub participant: ParticipantId,
    /// The labels that it was given at enrolment.
    pub labels: BTreeMap<String, String>,
    /// Reported number of training examples; 0 if not reported, in which case the device itself checks the minimum.
    pub examples: u64,
    /// Number of assignments in this task.
    pub participations: u32,
    /// The last assignment: round number and time of the draw.
    pub last: Option<(u32, Timestamp)>,
    /// The last training loss it reported, if any.
    pub loss: Option<CoarseLoss>,
    /// Duration of its last participation, from the draw to its input, in milliseconds; a lower bound if the round did
    /// not wait for it.
    pub duration_ms: Option<u64>,
    /// Reported round-trip time of its connection, in milliseconds, if it matters: see [`crate::round_trip`].
    pub round_trip_ms: Option<u32>,
}

/// Reasons a participant is not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Ineligible {
    /// A label is missing or has another value.
    Labels,
    /// Too few training examples.
    TooFewExamples,
    /// It took part too recently.
    TooSoon,
    /// It has reached its limit of participations.
    ParticipationCap,
}

impl Candidate {
    /// Checks whether it may be drawn for round `number` at `now`.
    ///
    /// # Errors
    /// The first requirement it does not meet.
    pub fn check(&self, require: &Requirements, number: u32, now: Timestamp) -> Result<(), Ineligible> {
        if !require.labels.iter().all(|(name, value)| self.labels.get(name) == Some(value)) {
            return Err(Ineligible::Labels);
        }
        if (1..require.min_examples).contains(&self.examples) {
            return Err(Ineligible::TooFewExamples);
        }
        if require.max_participations > 0 && self.participations >= require.max_participations {
            return Err(Ineligible::ParticipationCap);
        }
        let Some((last_number, last_at)) = self.last else {
            return Ok(());
        };
        // A failed attempt at the same round is ignored: if such a number is retried, its participants have sent no updates.
        let sits_out = number > last_number && number - last_number <= require.min_gap_rounds;
        // A clock that was set back must not exclude a participant until it has caught up.
        let rests = last_at <= now && now.since(last_at).as_millis() < u128::from(require.min_gap_ms);
        if sits_out || rests { Err(Ineligible::TooSoon) } else { Ok(()) }
    }
}

/// Results of earlier rounds of the task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Number of the round to draw.
    pub round: u32,
    /// Utility gained by each completed round, oldest first: its mean training loss times the number of examples.
    /// Finite and not negative; rounds without a loss are omitted.
    pub utilities: Vec<f64>,
}

/// A selection strategy: one file and one variant of [`task_spec::Strategy`] each.
pub trait Selector: Send + Sync {
    /// Chooses `count` distinct candidates, or all if there are fewer. `candidates` are ordered by name.
    fn select(
        &self,
        candidates: &[Candidate],
        history: &History,
        count: usize,
        rng: &mut dyn Rng,
    ) -> Vec<ParticipantId>;
}
