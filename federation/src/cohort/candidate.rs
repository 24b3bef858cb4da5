//! A participant that may be drawn, and what a selector sees of it.

use std::collections::BTreeMap;

use rand::Rng;
use serde::{Deserialize, Serialize};
use task_spec::Requirements;

use super::CoarseLoss;
use crate::id::ParticipantId;
use crate::time::Timestamp;

/// A participant that is checked in, with its history in the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub participant: ParticipantId,
    /// Given at enrolment.
    pub labels: BTreeMap<String, String>,
    /// Training examples it says it has; 0 if it does not say, and then it was asked whether it has enough.
    pub examples: u64,
    /// Assignments it has had in this task.
    pub participations: u32,
    /// The last of them: round number and when it was drawn.
    pub last: Option<(u32, Timestamp)>,
    /// The training loss it volunteered last, if it volunteers any.
    pub loss: Option<CoarseLoss>,
    /// How long its last participation took, from the draw to its input, in milliseconds; or at least, if the round did not
    /// wait for it.
    pub duration_ms: Option<u64>,
}

/// Why a participant is not drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Ineligible {
    /// A label is missing or has another value.
    Labels,
    /// Too few training examples.
    TooFewExamples,
    /// Took part too recently.
    TooSoon,
    /// Has had its share of rounds.
    ParticipationCap,
}

impl Candidate {
    /// Whether it may be drawn for round `number` now.
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
        // A failed attempt at this very round is no reason to sit it out: where it is, no number is tried again that updates were
        // sent for.
        let sits_out = number > last_number && number - last_number <= require.min_gap_rounds;
        // A clock that was set back must not lock a participant out until it has caught up.
        let rests = last_at <= now && now.since(last_at).as_millis() < u128::from(require.min_gap_ms);
        if sits_out || rests { Err(Ineligible::TooSoon) } else { Ok(()) }
    }
}

/// What earlier rounds of the task tell a selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The number of the round that is drawn.
    pub round: u32,
    /// What each completed round gained, oldest first: its mean training loss times the examples it was taken over. Finite
    /// and not negative; rounds that reported no loss are left out.
    pub utilities: Vec<f64>,
}

/// A way to choose among eligible candidates: one file and one variant of [`task_spec::Strategy`] each.
pub trait Selector: Send + Sync {
    /// Chooses `count` of `candidates`, or all of them if there are fewer; never one twice. `candidates` are ordered by name.
    fn select(
        &self,
        candidates: &[Candidate],
        history: &History,
        count: usize,
        rng: &mut dyn Rng,
    ) -> Vec<ParticipantId>;
}
