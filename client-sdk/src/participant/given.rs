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
pub(super) struct Base(pub(super) [u8; 16]);

impl From<Digest> for Base {
    fn from(digest: Digest) -> Self {
        let mut base = [0; 16];
        base.copy_from_slice(&digest.0[..16]);
        Self(base)
    }
}

/// In which session an input was given, as long as it is the latest of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) base: Base,
    pub(super) place: Attempt,
    /// The session's id.
    pub(super) session: Digest,
}

/// What was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// How many inputs ever; what is in the journal can be told from an older copy by it.
    pub(super) inputs: u64,
    pub(super) bases: BTreeSet<Base>,
    /// The latest of each task, the latest task last.
    pub(super) latest: Vec<Input>,
}

impl Given {
    /// Whether an input may be given from this base at this place.
    pub(super) fn check(&self, base: Base, place: Attempt) -> Result<(), SessionError> {
        if !self.bases.contains(&base) {
            return if self.bases.len() < MOST_BASES { Ok(()) } else { Err(SessionError::GivenFull) };
        }
        match self.latest(base) {
            // It was written down, and the process died before the input itself was: none has left.
            Some(input) if input.place == place => Ok(()),
            _ => Err(SessionError::Given),
        }
    }

    /// In which session the input from this base was given, if it is the latest of its task.
    pub(super) fn latest(&self, base: Base) -> Option<Input> {
        self.latest.iter().find(|input| input.base == base).copied()
    }

    /// Forgets a base: it is proven that its sum was never opened and never will be.
    pub(super) fn free(&mut self, base: Base) {
        self.bases.remove(&base);
        self.latest.retain(|input| input.base != base);
    }

    /// Remembers that one is given.
    pub(super) fn give(&mut self, input: Input) -> Result<(), SessionError> {
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

    fn input(base: u8, task: u8, round: u32) -> Input {
        let task = format!("00000000-0000-0000-0000-0000000000{task:02}").parse().unwrap();
        let place = Attempt { task, round, attempt: 1 };
        Input { base: Base([base; 16]), place, session: Digest([base; 32]) }
    }

    #[test]
    fn one_input_is_given_from_each_base_whatever_the_task_or_number() {
        let mut given = Given::default();
        given.give(input(1, 1, 1)).unwrap();
        for again in [
            input(1, 1, 2),
            input(1, 2, 1),
            Input { place: Attempt { attempt: 2, ..input(1, 1, 1).place }, ..input(1, 1, 1) },
        ] {
            assert!(matches!(given.check(again.base, again.place), Err(SessionError::Given)), "{again:?}");
            assert!(given.give(again).is_err());
        }
        // The very place that it was written down for: the process died in between.
        given.give(input(1, 1, 1)).unwrap();
        assert_eq!(given.inputs, 1);
        given.give(input(2, 1, 2)).unwrap();
        given.give(input(3, 2, 1)).unwrap();
        assert_eq!((given.inputs, given.bases.len(), given.latest.len()), (3, 3, 2));
        assert!(given.give(input(1, 1, 1)).is_err(), "after that it has gone out");
        assert_eq!(given.latest(Base([3; 16])), Some(input(3, 2, 1)));
        given.free(Base([3; 16]));
        given.give(input(3, 2, 2)).unwrap();
        assert_eq!((given.inputs, given.latest(Base([3; 16]))), (4, Some(input(3, 2, 2))));
    }
}
