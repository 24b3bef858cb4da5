//! The possible results of a check-in.

use std::ops::ControlFlow;

use federation::id::TaskId;
use federation::round::Assignment;
use federation::training::Training;
use store::entity::open_task::{OpenTask, SelectingRound};
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use task_spec::TrainingPlan;
use wire::participant::{BatchStep, Counted, DiscardReason, Invitation, Question, TaskRefusal};
use wire::provenance::SignedProvenance;

use crate::rounds::base::RoundBase;

/// The result of a check-in.
pub(super) enum CheckInOutcome {
    Answer(CheckInAnswer),
    Waits(Waiting),
}

/// One step towards the result: the answer, or the data for the next step.
pub(super) type Step<T> = ControlFlow<CheckInAnswer, T>;

/// The answer to a participant that need not wait.
pub(super) enum CheckInAnswer {
    Round(Box<RoundOffer>),
    /// The task of its data is over.
    Over(Box<OpenTask>),
    /// It should train ahead of rounds.
    Train(Box<TrainingOffer>),
    /// Its finished update, of this task and training, is useless.
    Discard(TaskId, u32, DiscardReason),
    /// Tasks need to check their criteria on this device.
    Asked(Vec<Question>),
    /// A task needs it in a fixed batch.
    Batch(Box<BatchStep>),
    /// A round needs its keys before the draw.
    Invited(Box<Invitation>),
}

/// The wait of a participant without work.
pub(super) struct Waiting {
    /// The tasks that it waits for.
    pub(super) tasks: Vec<TaskId>,
    /// Its refusals of tasks.
    pub(super) refused: Vec<TaskRefusal>,
    /// The round with its keys and a pending draw.
    pub(super) awaited: Option<Box<Invitation>>,
    /// The rounds in need of its keys, in the order of [`crate::rounds::selection::contests::sort`].
    pub(super) rounds: Vec<SelectingRound>,
}

pub(super) struct RoundOffer {
    pub(super) place: Assignment,
    pub(super) task: TaskRow,
    pub(super) round: RoundRow,
    pub(super) base: RoundBase,
    /// The provenance of the base.
    pub(super) provenance: Option<SignedProvenance>,
    /// The update to aggregate, if trained ahead.
    pub(super) update: Option<Buffered>,
    /// The training plan of this round.
    pub(super) plan: TrainingPlan,
    /// The last successful round with the participant's update, for SCAFFOLD.
    pub(super) counted: Option<Counted>,
}

/// A training ahead of rounds.
pub(super) struct TrainingOffer {
    pub(super) training: Training,
    pub(super) task: TaskRow,
    /// The round expected to use the update.
    pub(super) number: u32,
    pub(super) base: RoundBase,
    /// The provenance of the base.
    pub(super) provenance: Option<SignedProvenance>,
}
