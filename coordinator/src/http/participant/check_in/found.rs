//! What there may be for a participant that asks.

use federation::id::TaskId;
use federation::round::Assignment as Place;
use federation::training::Training;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use task_spec::TrainingPlan;
use wire::participant::{Counted, DiscardReason, Invitation, Question};

use crate::base::RoundBase;

/// What there is for a participant.
pub(super) enum Found {
    Work(Box<Work>),
    /// The task it has data for is over.
    Over(TaskId),
    /// It was told to train ahead of rounds.
    Train(Box<Train>),
    /// The finished update that it holds, of this task and training, is of no use.
    Discard(TaskId, u32, DiscardReason),
    /// Tasks want to know whether this is a device for them.
    Asked(Vec<Question>),
    /// A round wants keys before it draws.
    Invited(Box<Invitation>),
    /// Nothing yet, in these tasks.
    Nothing {
        tasks: Vec<TaskId>,
        /// The round that it gave keys for, and that has not drawn yet.
        awaited: Option<Box<Invitation>>,
    },
}

pub(super) struct Work {
    pub(super) place: Place,
    pub(super) task: TaskRow,
    pub(super) round: RoundRow,
    pub(super) base: RoundBase,
    /// What the round aggregates, if it was trained ahead.
    pub(super) update: Option<Buffered>,
    /// How it trains in this round.
    pub(super) plan: TrainingPlan,
    /// Where a solver needs to know.
    pub(super) counted: Option<Counted>,
}

/// A training ahead of rounds.
pub(super) struct Train {
    pub(super) training: Training,
    pub(super) task: TaskRow,
    /// The round that may take the update.
    pub(super) number: u32,
    pub(super) base: RoundBase,
}
