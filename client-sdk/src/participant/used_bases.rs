//! The bases of inputs that masks alone hide: a participant sends at most one such input from each base.
//!
//! Two sums of inputs trained from one model, the second without one participant, differ by that participant's update,
//! whatever the task, round or attempt. So the model that an input starts from (the base) is recorded permanently
//! before the input is sent, and no second input from it is sent. An input with noise of this participant may be sent
//! again: its ledger charges both. An input that the coordinator can read is not recorded, since a second one reveals
//! nothing more; but a base used under masks is not used again without them.
//!
//! A base is identified by 16 bytes of its digest. A published model has one form
//! (`learning::checkpoint::read_published`), so a base is always recognized. Two models with the same 16 bytes would
//! take 2^64 trials to find, and would only make this participant refuse. Ten thousand rounds take 160 kB.

use std::collections::BTreeSet;

use wire::{Attempt, Digest};

use super::session::SessionError;

/// Maximum number of recorded bases; beyond it no input is sent under masks alone.
pub(super) const MOST_BASES: usize = 1 << 20;
/// Maximum number of inputs whose session is recorded; for older inputs only the base is.
const MOST_SESSIONS: usize = 1000;

/// Identifies a base: the first 16 bytes of its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BaseId(pub(super) [u8; 16]);

impl From<Digest> for BaseId {
    fn from(digest: Digest) -> Self {
        let mut base = [0; 16];
        base.copy_from_slice(&digest.0[..16]);
        Self(base)
    }
}

/// The session of an input, kept for the latest input of each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastInput {
    pub(super) base: BaseId,
    pub(super) place: Attempt,
    /// Id of the session.
    pub(super) session: Digest,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedBases {
    /// Number of inputs ever recorded; detects an older copy of the journal's record.
    pub(super) inputs: u64,
    pub(super) bases: BTreeSet<BaseId>,
    /// The latest input of each task, most recent last.
    pub(super) latest: Vec<PastInput>,
}

impl UsedBases {
    /// Checks that an input from this base may be sent in this attempt.
    pub(super) fn check(&self, base: BaseId, place: Attempt) -> Result<(), SessionError> {
        if !self.bases.contains(&base) {
            return if self.bases.len() < MOST_BASES { Ok(()) } else { Err(SessionError::UsedBasesFull) };
        }
        match self.latest(base) {
            // The record was written, but the process died before the input was: nothing was sent.
            Some(input) if input.place == place => Ok(()),
            _ => Err(SessionError::BaseUsed),
        }
    }

    /// The session of the input from this base, if it is the latest of its task.
    pub(super) fn latest(&self, base: BaseId) -> Option<PastInput> {
        self.latest.iter().find(|input| input.base == base).copied()
    }

    /// Removes a base after proof that its sum was not and will never be opened.
    pub(super) fn free(&mut self, base: BaseId) {
        self.bases.remove(&base);
        self.latest.retain(|input| input.base != base);
    }

    pub(super) fn record(&mut self, input: PastInput) -> Result<(), SessionError> {
        self.check(input.base, input.place)?;
        if self.bases.insert(input.base) {
            self.inputs += 1;
        }
        self.latest.retain(|before| before.place.task != input.place.task);
        self.latest.push(input);
        let surplus = self.latest.len().saturating_sub(MOST_SESSIONS);
        self.latest.drain(..surplus);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(base: u8, task: u8, round: u32) -> PastInput {
        let task = format!("00000000-0000-0000-0000-0000000000{task:02}").parse().unwrap();
        let place = Attempt { task, round, attempt: 1 };
        PastInput { base: BaseId([base; 16]), place, session: Digest([base; 32]) }
    }

    #[test]
    fn one_input_is_given_from_each_base_whatever_the_task_or_number() {
        let mut used = UsedBases::default();
        used.record(input(1, 1, 1)).unwrap();
        for again in [
            input(1, 1, 2),
            input(1, 2, 1),
            PastInput { place: Attempt { attempt: 2, ..input(1, 1, 1).place }, ..input(1, 1, 1) },
        ] {
            assert!(matches!(used.check(again.base, again.place), Err(SessionError::BaseUsed)), "{again:?}");
            assert!(used.record(again).is_err());
        }
        // The very place that it was written down for: the process died in between.
        used.record(input(1, 1, 1)).unwrap();
        assert_eq!(used.inputs, 1);
        used.record(input(2, 1, 2)).unwrap();
        used.record(input(3, 2, 1)).unwrap();
        assert_eq!((used.inputs, used.bases.len(), used.latest.len()), (3, 3, 2));
        assert!(used.record(input(1, 1, 1)).is_err(), "after that it has gone out");
        assert_eq!(used.latest(BaseId([3; 16])), Some(input(3, 2, 1)));
        used.free(BaseId([3; 16]));
        used.record(input(3, 2, 2)).unwrap();
        assert_eq!((used.inputs, used.latest(BaseId([3; 16]))), (4, Some(input(3, 2, 2))));
    }
}
