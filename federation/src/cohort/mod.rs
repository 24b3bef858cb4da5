//! Who may join a round and who is drawn.
//!
//! [`Requirements`] says who is eligible, [`Cohort`] how many are wanted, a [`Selector`] which ones. A selector sees
//! candidates in the order of their names, what earlier rounds left ([`History`]) and a random generator, so the same
//! participants, past and seed draw the same cohort, whatever ids they were given. It keeps no state of its own: a draw that
//! a crash interrupts is made again.
//!
//! Whether a device may work at all (power, network, idleness) is not asked here: it answers that itself and simply does
//! not check in. What a task wants of devices ([`Criterion`]) they decide themselves. The coordinator learns yes or no and never
//! why.

mod coarse_loss;
mod on_device;
mod oort;
mod power_of_choice;
mod round_robin;
mod stratified;
mod uniform;
mod weighted;

use std::collections::BTreeMap;

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::id::ParticipantId;
use crate::time::Timestamp;

pub use coarse_loss::{BadLevel, CoarseLoss};
pub use on_device::{Attribute, Attributes, Criterion, EXAMPLES, MAX_CRITERIA, MAX_TEXTS, eligible};
pub use oort::Oort;
pub use power_of_choice::PowerOfChoice;
pub use round_robin::RoundRobin;
pub use stratified::{Quotas, Stratified};
pub use uniform::Uniform;

/// How many participants a round aims at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Cohort {
    /// So many.
    Count(u32),
    /// This part of the eligible participants that are checked in, in (0, 1].
    Fraction(f64),
}

impl Cohort {
    /// How many inputs the round aims at, given how many are eligible; at least 1 if anybody is.
    #[must_use]
    pub fn target(&self, eligible: u32) -> u32 {
        match *self {
            Self::Count(count) => count.min(eligible),
            Self::Fraction(fraction) => round_up(f64::from(eligible) * fraction).max(1).min(eligible),
        }
    }
}

/// Rounds a number of participants up, but not when only the binary form of a decimal fraction lifts it above a whole
/// number, as in 0.07 * 100.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, which is meant")]
pub(crate) fn round_up(participants: f64) -> u32 {
    (participants - 1e-9).ceil() as u32
}

/// What a participant must fulfil to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Requirements {
    /// Labels it must carry, each with this value.
    pub labels: BTreeMap<String, String>,
    /// Training examples it must offer, at least. Asked as a criterion ([`Self::on_device`]) of whoever does not say how many it has.
    pub min_examples: u64,
    /// Time between the starts of two participations, in milliseconds.
    pub min_gap_ms: u64,
    /// Rounds to sit out after taking part.
    pub min_gap_rounds: u32,
    /// Most rounds of this task it may take part in; 0 for no cap.
    pub max_participations: u32,
}

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

impl Requirements {
    /// What a device is asked that does not say how many examples it has; none if any number will do.
    #[must_use]
    pub fn on_device(&self) -> Option<Criterion> {
        #[expect(clippy::cast_precision_loss, reason = "a limit; exact up to 2^53")]
        let at_least = Some(self.min_examples as f64);
        (self.min_examples > 0).then(|| Criterion { attribute: EXAMPLES.to_owned(), at_least, ..Criterion::default() })
    }

    /// Whether `candidate` may be drawn for round `number` now.
    ///
    /// # Errors
    /// The first requirement it does not meet.
    pub fn check(&self, candidate: &Candidate, number: u32, now: Timestamp) -> Result<(), Ineligible> {
        if !self.labels.iter().all(|(name, value)| candidate.labels.get(name) == Some(value)) {
            return Err(Ineligible::Labels);
        }
        if (1..self.min_examples).contains(&candidate.examples) {
            return Err(Ineligible::TooFewExamples);
        }
        if self.max_participations > 0 && candidate.participations >= self.max_participations {
            return Err(Ineligible::ParticipationCap);
        }
        let Some((last_number, last_at)) = candidate.last else {
            return Ok(());
        };
        // A failed attempt at this very round is no reason to sit it out: where it is, no number is tried again that updates were
        // sent for.
        let sits_out = number > last_number && number - last_number <= self.min_gap_rounds;
        // A clock that was set back must not lock a participant out until it has caught up.
        let rests = last_at <= now && now.since(last_at).as_millis() < u128::from(self.min_gap_ms);
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

/// A way to choose among eligible candidates: one file and one variant of [`crate::task::Strategy`] each.
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
