//! The possible results of a check-in.

use federation::id::TaskId;
use federation::round::Assignment;
use federation::training::Training;
use store::entity::open_task::OpenTask;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use task_spec::TrainingPlan;
use wire::participant::{Counted, DiscardReason, Invitation, Question};
use wire::provenance::SignedProvenance;

use crate::base::RoundBase;

/// What there is for a participant.
pub(super) enum CheckInOutcome {
    Round(Box<RoundOffer>),
    /// The task it has data for is over.
    Over(Box<OpenTask>),
    /// It should train ahead of rounds.
    Train(Box<TrainingOffer>),
    /// Its finished update, of this task and training, is not useful.
    Discard(TaskId, u32, DiscardReason),
    /// Tasks want to know whether this device meets their criteria.
    Asked(Vec<Question>),
    /// A round needs keys before it draws.
    Invited(Box<Invitation>),
    /// Nothing yet, in these tasks.
    Nothing {
        tasks: Vec<TaskId>,
        /// The round that it sent keys for and that has not drawn yet.
        awaited: Option<Box<Invitation>>,
    },
}

pub(super) struct RoundOffer {
    pub(super) place: Assignment,
    pub(super) task: TaskRow,
    pub(super) round: RoundRow,
    pub(super) base: RoundBase,
    /// Where the base comes from.
    pub(super) provenance: Option<SignedProvenance>,
    /// The update to aggregate, if it was trained ahead.
    pub(super) update: Option<Buffered>,
    /// The training plan of this round.
    pub(super) plan: TrainingPlan,
    /// For solvers that need it.
    pub(super) counted: Option<Counted>,
}

/// A training ahead of rounds.
pub(super) struct TrainingOffer {
    pub(super) training: Training,
    pub(super) task: TaskRow,
    /// The round that may use the update.
    pub(super) number: u32,
    pub(super) base: RoundBase,
    /// Where the base comes from.
    pub(super) provenance: Option<SignedProvenance>,
}
