//! Determines the result of a check-in.

use federation::id::{ParticipantId, TaskId};
use federation::round::Assignment;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::open_task::{OpenTask, SelectingRound};
use store::entity::participant::Certificates;
use store::entity::task::TaskRow;
use store::{Store, StoreError, Transaction};
use task_spec::Solver;
use wire::participant::{CheckInRequest, Counted, Declined};

use super::ahead::{AheadOutcome, trained_ahead};
use super::ask::sift;
use super::found::{CheckInOutcome, RoundOffer};
use super::invitations::has_keys_for;
use crate::http::app::App;
use crate::http::problem::Result;
use crate::{base, provenance};

/// What rows say of a participant that asks for work.
enum Sight {
    Found(CheckInOutcome),
    /// It may join these tasks' rounds, or wait for them.
    Open {
        tasks: Vec<TaskId>,
        /// Those that need keys before they draw.
        rounds: Vec<(TaskRow, SelectingRound)>,
    },
}

/// The tasks that may have work for a participant, and which of its certificates count.
pub(super) async fn glance(
    store: &Store,
    participant: ParticipantId,
    name: Option<&str>,
) -> Result<(Option<Certificates>, Vec<OpenTask>), StoreError> {
    let seen = store.read("glance_for_work", |tx| Box::pin(async move { tx.glance(participant, name).await })).await?;
    Ok(seen.map_or_else(Default::default, |seen| (Some(seen.certificates), seen.tasks)))
}

/// What there is for a participant that may have work in these tasks.
pub(super) async fn look(
    app: &App,
    participant: ParticipantId,
    open: Vec<OpenTask>,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<CheckInOutcome> {
    for open in open.iter().filter(|open| !open.is_checked_in) {
        // Somebody else drew the participant, and did not live to say so: what was written for it here is gone.
        let _ = app.check_ins.withdraw(participant, open.task.id);
    }
    let sight = match in_sight(open, participant, request, now) {
        Some(sight) => sight,
        None => {
            let look = app.store.read("look_for_work", |tx| Box::pin(look_closer(app, tx, participant, request, now)));
            look.await?
        }
    };
    let (tasks, rounds) = match sight {
        Sight::Found(outcome) => return Ok(outcome),
        Sight::Open { tasks, rounds } => (tasks, rounds),
    };
    let mut invitations = Vec::with_capacity(rounds.len());
    for (task, round) in &rounds {
        invitations.push(app.invitations.of(&app.store, &app.models, &app.mus, task, *round).await?);
    }
    let awaited = invitations.iter().find(|invitation| has_keys_for(request, invitation)).cloned();
    if let (None, Some(invitation)) = (&awaited, invitations.into_iter().next()) {
        return Ok(CheckInOutcome::Invited(Box::new(invitation)));
    }
    Ok(CheckInOutcome::Nothing { tasks, awaited: awaited.map(Box::new) })
}

/// What open tasks alone say; `None` if more must be read, for a place in a round or for training ahead of rounds.
fn in_sight(
    open: Vec<OpenTask>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Option<Sight> {
    let needs_more = |open: &OpenTask| open.awaits_it || open.task.spec.ahead().is_some();
    if request.training.is_some_and(|report| report.ready) || open.iter().any(needs_more) {
        return None;
    }
    Some(match suiting(open, participant, request, now) {
        Suiting::Found(outcome) => Sight::Found(outcome),
        Suiting::Tasks(tasks) => joining(tasks.iter().map(|open| (open, true)), request),
    })
}

/// The same, with whatever else has to be read.
async fn look_closer(
    app: &App,
    tx: &mut Transaction<'_>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<Sight> {
    let name = request.task.as_deref();
    let open = tx.open_tasks(participant, name).await?;
    if let Some(place) = tx.pending_assignment(participant).await?
        && let Some(OpenTask { task, .. }) = open.iter().find(|open| open.task.id == place.attempt.task)
        && let Some(work) = work(app, tx, place, task).await?
    {
        return Ok(Sight::Found(CheckInOutcome::Round(Box::new(work))));
    }
    let tasks = match suiting(open, participant, request, now) {
        Suiting::Found(outcome) => return Ok(Sight::Found(outcome)),
        Suiting::Tasks(tasks) => tasks,
    };
    Ok(match trained_ahead(tx, tasks, participant, request, now).await? {
        AheadOutcome::Answer(outcome) => Sight::Found(outcome),
        AheadOutcome::Tasks(tasks) => joining(tasks.iter().map(|(open, may_join)| (open, *may_join)), request),
    })
}

/// The assignment of a place in a round of `task`.
async fn work(
    app: &App,
    tx: &mut Transaction<'_>,
    place: Assignment,
    task: &TaskRow,
) -> Result<Option<RoundOffer>, StoreError> {
    let Some(round) = tx.round_attempt(place.attempt).await? else { return Ok(None) };
    let Some(base) = base::read(tx, task, round.round.base_version).await? else { return Ok(None) };
    let provenance = provenance::of(tx, task.id, base.version.version).await?;
    let update = match task.spec.ahead() {
        Some(_) => tx.buffered(place.attempt, place.participant).await?,
        None => None,
    };
    let plan = &task.spec.training;
    let plan = app.mus.plan_of_round(tx, plan, place.attempt.round_key()).await?;
    let counted = match plan.solver {
        Some(Solver::Scaffold { .. }) => tx.last_counted(task.id, place.participant).await?,
        Some(Solver::FedNova { .. }) | None => None,
    };
    let counted = counted.map(|last| Counted { round: last.round, attempt: last.attempt });
    Ok(Some(RoundOffer { place, task: task.clone(), round, base, provenance, update, plan, counted }))
}

/// What the properties that a participant reports decide.
enum Suiting {
    Found(CheckInOutcome),
    Tasks(Vec<OpenTask>),
}

/// The tasks that would accept this participant, as far as it reports its properties; the draw decides whether it is
/// its turn.
fn suiting(mut open: Vec<OpenTask>, participant: ParticipantId, request: &CheckInRequest, now: Timestamp) -> Suiting {
    if request.task.is_none() {
        open.retain(|open| suits(open, request.examples));
    } else if let Some(over) = open.iter().position(|open| open.task.status.is_terminal()) {
        return Suiting::Found(CheckInOutcome::Over(Box::new(open.swap_remove(over))));
    }
    let (open, questions) = sift(open, request, participant, now);
    if questions.is_empty() { Suiting::Tasks(open) } else { Suiting::Found(CheckInOutcome::Asked(questions)) }
}

/// Whether the task takes a participant with these labels and so many examples; 0 if it does not tell.
pub(super) fn suits(open: &OpenTask, examples: u64) -> bool {
    let least = open.task.spec.selection.require.min_examples;
    takes_part(open) && (examples == 0 || examples >= least) && has_labels(open)
}

/// Whether the participant may be drawn into a round of the task, as far as its status goes: a paused one opens no further rounds,
/// and draws the cohort of the round that was open.
pub(super) fn takes_part(open: &OpenTask) -> bool {
    match open.task.status {
        TaskStatus::Active => true,
        TaskStatus::Paused => open.selecting.is_some(),
        TaskStatus::BudgetExhausted | TaskStatus::Completed | TaskStatus::Cancelled => false,
    }
}

/// Whether the task takes a participant with these labels.
pub(super) fn has_labels(OpenTask { task, labels, .. }: &OpenTask) -> bool {
    task.spec.selection.require.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The tasks that a participant waits for, each with whether it may join the next round; and of these rounds those with secure
/// aggregation that have not drawn yet.
fn joining<'a>(tasks: impl Iterator<Item = (&'a OpenTask, bool)> + Clone, request: &CheckInRequest) -> Sight {
    let needs_keys = |(open, may_join): (&OpenTask, bool)| {
        let round = open.selecting.filter(|_| may_join && open.task.spec.secure_aggregation.enabled)?;
        let declines = |declined: Declined| declined.task == open.task.id && declined.sent >= round.attempt.round;
        // It has said that it makes none; it waits for a round that it may take part in.
        (!request.declined.is_some_and(declines)).then(|| (open.task.clone(), round))
    };
    Sight::Open {
        rounds: tasks.clone().filter_map(needs_keys).collect(),
        tasks: tasks.map(|(open, _)| open.task.id).collect(),
    }
}
