//! Cohorts with fixed batches: an input is included only if every member of its batch has sent one.
//!
//! Batches are drawn, and left out, as a whole (`secure_agg::batch`). So a phase counts the members of complete batches, and waits for the
//! members of batches that can still become complete.

use crate::advance::Tally;
use crate::round::RoundState;

/// The progress of one batch of a cohort in the current phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTally {
    /// Number of the cohort's group with the batch; `None` for an undivided cohort.
    pub group: Option<u32>,
    /// Number of members of the batch (T).
    pub size: u32,
    /// Number of members with an accepted input.
    pub reported: u32,
    /// Number of awaited members.
    pub pending: u32,
    /// Number of answers in the phase.
    pub answered: u32,
}

impl BatchTally {
    /// Replaces the members' contribution to `tally` by that of their batch in `state`.
    fn adjust(&self, tally: &mut Tally, state: RoundState) {
        match state {
            RoundState::Sharing => {
                let (answered, pending) = self.whole(self.answered);
                tally.answered = tally.answered - self.answered.min(tally.answered) + answered;
                tally.pending = tally.pending - self.pending.min(tally.pending) + pending;
            }
            RoundState::Collecting => {
                let (reported, pending) = self.whole(self.reported);
                tally.reported = tally.reported - self.reported.min(tally.reported) + reported;
                tally.pending = tally.pending - self.pending.min(tally.pending) + pending;
            }
            // Incomplete batches are left out when collection closes.
            RoundState::Selecting
            | RoundState::Confirming
            | RoundState::Unmasking
            | RoundState::Aggregating
            | RoundState::Completed
            | RoundState::Failed
            | RoundState::Cancelled => {}
        }
    }

    /// Number of included members and of awaited members, if `done` members have completed the phase.
    fn whole(&self, done: u32) -> (u32, u32) {
        if done == self.size {
            (self.size, 0)
        } else if done + self.pending == self.size {
            (0, self.size)
        } else {
            (0, 0)
        }
    }
}

/// Adjusts the tally of a round, or of one group of it, to its batches.
#[must_use]
pub fn adjusted<'b>(mut tally: Tally, state: RoundState, batches: impl IntoIterator<Item = &'b BatchTally>) -> Tally {
    for batch in batches {
        batch.adjust(&mut tally, state);
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(done: u32, pending: u32) -> BatchTally {
        BatchTally { group: None, size: 4, reported: done, pending, answered: done }
    }

    #[test]
    fn only_complete_batches_count() {
        // Complete, incomplete and waited for, torn; and five participants without a batch.
        let batches = [batch(4, 0), batch(3, 1), batch(2, 1)];
        let plain = Tally { reported: 9 + 3, pending: 2 + 2, ..Tally::default() };
        let collecting = adjusted(plain, RoundState::Collecting, &batches);
        assert_eq!(collecting, Tally { reported: 4 + 3, pending: 4 + 2, ..plain });
        let plain = Tally { answered: 9 + 3, pending: 2 + 2, ..Tally::default() };
        let sharing = adjusted(plain, RoundState::Sharing, &batches);
        assert_eq!(sharing, Tally { answered: 4 + 3, pending: 4 + 2, ..plain });
        let confirming = Tally { reported: 7, answered: 5, pending: 2, ..Tally::default() };
        assert_eq!(adjusted(confirming, RoundState::Confirming, &batches), confirming);
    }

    #[test]
    fn tallies_without_batches_do_not_change() {
        let tally = Tally { eligible: 1, pending: 2, answered: 3, reported: 4, published: true };
        assert_eq!(adjusted(tally, RoundState::Collecting, []), tally);
    }
}
