//! From which models this participant has given an input that masks alone hide: from each it gives one.
//!
//! Two sums of inputs that were trained from one model, the second without one participant, differ by that participant's update,
//! whatever the tasks are called and whatever number or attempt the rounds have. So the model that an input starts from (the base)
//! is remembered for good, before the input leaves, and no second one is given from it. Where this participant adds noise, the
//! input may be given: what both cost is in its ledger. Where the coordinator can read the input it learns nothing by a second,
//! so such a one is not remembered; but what was given under masks is not given again without them.
//!
//! A base is known by 16 bytes of its digest. A published model has one form (`learning::checkpoint::read_published`), so the
//! model that was answered from is always recognized. Two models with the same 16 bytes would take 2^64 trials to make, and do no
//! more than have this participant refuse. Ten thousand rounds take 160 kB.

use std::collections::BTreeSet;

use wire::{Attempt, Digest};

use super::session::SessionError;

/// Most bases that are remembered; beyond them nothing more is given under masks alone.
pub(super) const MOST_BASES: usize = 1 << 20;
/// Most inputs of which is remembered in which session they were given; of older ones only the base is.
const MOST_SESSIONS: usize = 1000;

/// A base, as it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BaseId(pub(super) [u8; 16]);

impl From<Digest> for BaseId {
    fn from(digest: Digest) -> Self {
        let mut base = [0; 16];
        base.copy_from_slice(&digest.0[..16]);
        Self(base)
    }
}

/// In which session an input was given, as long as it is the latest of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastInput {
    pub(super) base: BaseId,
    pub(super) place: Attempt,
    /// The session's id.
    pub(super) session: Digest,
}

/// What was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UsedBases {
    /// How many inputs ever; what is in the journal can be told from an older copy by it.
    pub(super) inputs: u64,
    pub(super) bases: BTreeSet<BaseId>,
    /// The latest of each task, the latest task last.
    pub(super) latest: Vec<PastInput>,
}

impl UsedBases {
    /// Whether an input may be given from this base at this place.
    pub(super) fn check(&self, base: BaseId, place: Attempt) -> Result<(), SessionError> {
        if !self.bases.contains(&base) {
            return if self.bases.len() < MOST_BASES { Ok(()) } else { Err(SessionError::UsedBasesFull) };
        }
        match self.latest(base) {
            // It was written down, and the process died before the input itself was: none has left.
            Some(input) if input.place == place => Ok(()),
            _ => Err(SessionError::BaseUsed),
        }
    }

    /// In which session the input from this base was given, if it is the latest of its task.
    pub(super) fn latest(&self, base: BaseId) -> Option<PastInput> {
        self.latest.iter().find(|input| input.base == base).copied()
    }

    /// Forgets a base: it is proven that its sum was never opened and never will be.
    pub(super) fn free(&mut self, base: BaseId) {
        self.bases.remove(&base);
        self.latest.retain(|input| input.base != base);
    }

    /// Remembers that one is given.
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
