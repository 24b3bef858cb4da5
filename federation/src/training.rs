//! Training ahead of rounds: the version that each participant trains from, and checks of its reports.
//!
//! The coordinator remembers the version that it assigned; the participant only claims to have finished that training. So a participant
//! cannot make an update look fresher than it is.

use task_spec::{Ahead, Staleness};

use crate::id::ParticipantId;
use crate::time::Timestamp;

/// The last training given to a participant in one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    pub participant: ParticipantId,
    /// Number of this training among those given to it in this task, from 1.
    pub serial: u32,
    /// The model version it starts from.
    pub base_version: u32,
    pub granted_at: Timestamp,
    /// When the training stops counting.
    pub expires_at: Timestamp,
    /// Its update is in a sum and will not be used again.
    pub is_over: bool,
}

/// A participant's report on a training, sent with its check-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Serial number of the training.
    pub serial: u32,
    /// True if it holds the finished update; false if the training ended without one.
    pub is_ready: bool,
}

/// State of a participant in a task with training ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingStatus {
    /// May be assigned a training.
    Free,
    Training,
    /// It gave up a training from the newest version. It is assigned another one when there is a newer version or that training has
    /// expired, just as a participant that fails in a round may be drawn again in the next.
    Resting,
    /// It holds an update that is fresh enough for aggregation.
    Ready {
        /// Number of versions published since its training began.
        staleness: u32,
    },
    /// It holds a too old update.
    Stale {
        /// Number of versions published since its training began.
        staleness: u32,
    },
    /// It claims an unknown update, or one already in a sum.
    Unknown,
}

/// Judges a participant's claim, given its last training and the newest `version`.
#[must_use]
pub fn standing(
    training: Option<&Training>,
    claim: Option<Claim>,
    version: u32,
    bound: Staleness,
    now: Timestamp,
) -> TrainingStatus {
    let open = training.filter(|training| !training.is_over);
    let claim_of = |training: &&Training| claim.is_some_and(|claim| claim.serial == training.serial);
    let claims_update = claim.is_some_and(|claim| claim.is_ready);
    match open {
        Some(training) => {
            let staleness = version.saturating_sub(training.base_version);
            match (claim_of(&training), claims_update) {
                (true, true) if staleness <= bound.max => TrainingStatus::Ready { staleness },
                (true, true) => TrainingStatus::Stale { staleness },
                (true, false) if staleness == 0 && now < training.expires_at => TrainingStatus::Resting,
                (true, false) => TrainingStatus::Free,
                (false, true) => TrainingStatus::Unknown,
                // A participant that restarted during a training reports nothing, so it is assigned the training again.
                (false, false) if now < training.expires_at && staleness <= bound.max => TrainingStatus::Training,
                (false, false) => TrainingStatus::Free,
            }
        }
        None if claims_update => TrainingStatus::Unknown,
        None => TrainingStatus::Free,
    }
}

/// Whether the next round opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    Now,
    /// Not before this time.
    At(Timestamp),
    /// Once more updates are ready.
    WhenReady,
}

/// Whether a round opens, given the number of `ready` updates, the minimum it needs, and when the last round opened (or
/// the task was created).
#[must_use]
pub fn opening(ahead: &Ahead, ready: u32, min: u32, last_opened: Timestamp, now: Timestamp) -> Opening {
    let opens_at = ahead.period.map(|period| last_opened.plus(period));
    match opens_at {
        // If the last round opened in the future, the clock was set back; the round may then open at once.
        Some(opens_at) if last_opened <= now && now < opens_at => Opening::At(opens_at),
        _ if ready < min.max(1) => Opening::WhenReady,
        _ => Opening::Now,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const BOUND: Staleness = Staleness { a: 1.0, p: 0.5, max: 2 };
    const NOW: Timestamp = Timestamp(1_000);

    fn training() -> Training {
        Training {
            participant: ParticipantId(Uuid::from_u128(1)),
            serial: 3,
            base_version: 5,
            granted_at: Timestamp(0),
            expires_at: Timestamp(2_000),
            is_over: false,
        }
    }

    fn judge(training: Training, claim: Option<(u32, bool)>, version: u32) -> TrainingStatus {
        let claim = claim.map(|(serial, is_ready)| Claim { serial, is_ready });
        standing(Some(&training), claim, version, BOUND, NOW)
    }

    #[test]
    fn a_finished_update_is_as_old_as_what_was_assigned() {
        for (version, expected) in [
            (5, TrainingStatus::Ready { staleness: 0 }),
            (7, TrainingStatus::Ready { staleness: 2 }),
            (8, TrainingStatus::Stale { staleness: 3 }),
            (4, TrainingStatus::Ready { staleness: 0 }),
        ] {
            assert_eq!(judge(training(), Some((3, true)), version), expected, "{version}");
        }
        let late = Training { expires_at: NOW, ..training() };
        assert_eq!(judge(late, Some((3, true)), 5), TrainingStatus::Ready { staleness: 0 }, "late, but here");
    }

    #[test]
    fn nobody_claims_what_it_was_not_given() {
        for serial in [0, 2, 4, u32::MAX] {
            assert_eq!(judge(training(), Some((serial, true)), 5), TrainingStatus::Unknown, "{serial}");
        }
        let over = Training { is_over: true, ..training() };
        assert_eq!(judge(over, Some((3, true)), 5), TrainingStatus::Unknown, "it is in a sum already");
        let claim = Some(Claim { serial: 1, is_ready: true });
        assert_eq!(standing(None, claim, 5, BOUND, NOW), TrainingStatus::Unknown);
    }

    #[test]
    fn who_says_nothing_trains_until_nobody_counts_on_it() {
        assert_eq!(judge(training(), None, 7), TrainingStatus::Training);
        assert_eq!(judge(training(), Some((2, false)), 7), TrainingStatus::Training, "that was the training before");
        assert_eq!(judge(training(), Some((3, false)), 6), TrainingStatus::Free, "it gave up");
        assert_eq!(judge(training(), Some((3, false)), 5), TrainingStatus::Resting, "just now");
        assert_eq!(judge(Training { expires_at: NOW, ..training() }, Some((3, false)), 5), TrainingStatus::Free);
        assert_eq!(judge(training(), None, 8), TrainingStatus::Free, "what it makes is of no use");
        assert_eq!(judge(Training { expires_at: NOW, ..training() }, None, 5), TrainingStatus::Free);
        assert_eq!(judge(Training { is_over: true, ..training() }, None, 5), TrainingStatus::Free);
        assert_eq!(standing(None, None, 5, BOUND, NOW), TrainingStatus::Free);
    }
}
