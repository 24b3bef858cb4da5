//! Determines the result of a check-in.

use std::ops::ControlFlow::{Break, Continue};

use federation::id::{Attempt, ParticipantId, TaskId};
use federation::round::Assignment;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::open_task::{OpenTask, SelectingRound};
use store::entity::participant::Certificates;
use store::entity::task::TaskRow;
use store::{Store, StoreError, Transaction};
use task_spec::Solver;
use wire::participant::{CheckInRequest, Counted, Declined, Question, RoundKeys, TaskRefusal};

use super::ahead::trained_ahead;
use super::ask::sift;
use super::batch::{Batched, batched};
use super::found::{CheckInAnswer, CheckInOutcome, RoundOffer, Step, Waiting};
use crate::http::app::App;
use crate::http::reply::problem::Result;
use crate::records::provenance;
use crate::rounds::base;
use crate::rounds::selection::contests;

/// The tasks whose rounds a participant may join or wait for.
struct OpenRounds {
    tasks: Vec<TaskId>,
    /// Rounds in need of keys before the draw.
    rounds: Vec<(TaskRow, SelectingRound)>,
}

/// Reads the tasks with possible work for a participant, and its valid certificates.
pub(super) async fn glance(
    store: &Store,
    participant: ParticipantId,
    name: Option<&str>,
) -> Result<(Option<Certificates>, Vec<OpenTask>), StoreError> {
    let seen = store.read("glance_for_work", |tx| Box::pin(async move { tx.glance(participant, name).await })).await?;
    Ok(seen.map_or_else(Default::default, |seen| (Some(seen.certificates), seen.tasks)))
}

/// Determines the result for a participant with these open tasks.
pub(super) async fn look(
    app: &App,
    participant: ParticipantId,
    open: Vec<OpenTask>,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<CheckInOutcome> {
    for open in open.iter().filter(|open| !open.is_checked_in) {
        // Another process drew the participant and crashed before announcing it: the check-in written here is gone.
        let _ = app.check_ins.withdraw(participant, open.task.id);
    }
    let refused: Vec<_> = open.iter().filter_map(|open| refusal(request, open.task.id)).collect();
    let found = match from_open_tasks(open, participant, request, now) {
        Some(found) => found,
        None => {
            let look =
                app.store.read("look_for_work", |tx| Box::pin(read_candidates(app, tx, participant, request, now)));
            look.await?
        }
    };
    let OpenRounds { mut tasks, rounds: joinable } = match found {
        Break(answer) => return Ok(CheckInOutcome::Answer(answer)),
        Continue(open) => open,
    };
    let joined: Vec<_> = joinable.iter().map(|(task, _)| task.id).collect();
    let mut waiting = Vec::with_capacity(joinable.len());
    for round in joinable {
        match batched(app, participant, request, &round, &joined).await? {
            Batched::Yes => waiting.push(round),
            Batched::No => tasks.retain(|task| *task != round.0.id),
            Batched::Step(step) => return Ok(CheckInOutcome::Answer(CheckInAnswer::Batch(step))),
        }
    }
    let mut rounds: Vec<_> = waiting.iter().map(|(_, round)| *round).collect();
    contests::sort(&mut rounds);
    let held = request.keys.as_ref().map(RoundKeys::attempt_key);
    let chosen = app.contests.choose(&app.store, &rounds, held, now).await?;
    let Some((task, round)) = waiting.iter().find(|(_, round)| Some(round.attempt) == chosen) else {
        return Ok(CheckInOutcome::Waits(Waiting { tasks, refused, awaited: None, rounds }));
    };
    let invitation = Box::new(app.invitations.of(&app.store, &app.models, &app.mus, task, *round).await?);
    if held != chosen {
        let released = rounds.iter().find(|round| Some(round.attempt) == held);
        if let Some(SelectingRound { attempt, .. }) = released
            && !release(app, participant, *attempt).await?
        {
            // The round with its keys has drawn it, so it gets an assignment instead of an invitation.
            let waiting = Waiting { tasks: Vec::new(), refused, awaited: None, rounds: Vec::new() };
            return Ok(CheckInOutcome::Waits(waiting));
        }
        return Ok(CheckInOutcome::Answer(CheckInAnswer::Invited(invitation)));
    }
    Ok(CheckInOutcome::Waits(Waiting { tasks, refused, awaited: Some(invitation), rounds }))
}

/// Withdraws a participant's keys from a round, before it sends others. Returns false if it was drawn.
async fn release(app: &App, participant: ParticipantId, attempt: Attempt) -> Result<bool> {
    let released =
        app.store.transact("release_keys", |tx| Box::pin(async move { tx.release_keys(attempt, participant).await }));
    let released = released.await?;
    if released {
        // Must be written again if the same round gets new keys.
        let _ = app.check_ins.withdraw(participant, attempt.task);
    }
    Ok(released)
}

/// The participant's reported refusal of a task, if any.
pub(super) fn refusal(request: &CheckInRequest, task: TaskId) -> Option<TaskRefusal> {
    request.refusals.iter().copied().find(|refusal| refusal.task == task)
}

/// Decides from the open tasks alone; `None` if more must be read, for a place in a round or for training ahead of rounds.
fn from_open_tasks(
    open: Vec<OpenTask>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Option<Step<OpenRounds>> {
    let needs_more = |open: &OpenTask| open.awaits_it || open.task.spec.ahead().is_some();
    if request.training.is_some_and(|report| report.ready) || open.iter().any(needs_more) {
        return None;
    }
    let tasks = suiting(open, participant, request, now);
    Some(tasks.map_continue(|tasks| joining(tasks.iter().map(|open| (open, true)), request)))
}

/// Decides with further reads.
async fn read_candidates(
    app: &App,
    tx: &mut Transaction<'_>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<Step<OpenRounds>> {
    let name = request.task.as_deref();
    let open = tx.open_tasks(participant, name).await?;
    if let Some(place) = tx.pending_assignment(participant).await?
        && let Some(OpenTask { task, .. }) = open.iter().find(|open| open.task.id == place.attempt.task)
        && let Some(work) = work(app, tx, place, task).await?
    {
        return Ok(Break(CheckInAnswer::Round(Box::new(work))));
    }
    let tasks = match suiting(open, participant, request, now) {
        Break(answer) => return Ok(Break(answer)),
        Continue(tasks) => tasks,
    };
    let tasks = trained_ahead(tx, tasks, participant, request, now).await?;
    Ok(tasks.map_continue(|tasks| joining(tasks.iter().map(|(open, may_join)| (open, *may_join)), request)))
}

/// The assignment for a place in a round of `task`.
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

/// The tasks accepting this participant, by its reported properties. The draw decides the rest.
fn suiting(
    mut open: Vec<OpenTask>,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Step<Vec<OpenTask>> {
    if request.task.is_none() {
        open.retain(|open| suits(open, request.examples));
    } else if let Some(over) = open.iter().position(|open| open.task.status.is_terminal()) {
        let over = open.swap_remove(over);
        let is_known = request.findings.iter().any(|finding| finding.task == over.task.id);
        return Break(match over.task.spec.table_rules() {
            // Whether its SDK can read the answer.
            Some(rules) if !is_known => {
                CheckInAnswer::Asked(vec![Question { task: over.task.id, criteria: vec![rules] }])
            }
            Some(_) | None => CheckInAnswer::Over(Box::new(over)),
        });
    }
    open.retain(|open| refusal(request, open.task.id).is_none());
    let (open, questions) = sift(open, request, participant, now);
    if questions.is_empty() { Continue(open) } else { Break(CheckInAnswer::Asked(questions)) }
}

/// Whether the task accepts a participant with these labels and this number of examples; 0 means unknown.
pub(super) fn suits(open: &OpenTask, examples: u64) -> bool {
    let least = open.task.spec.selection.require.min_examples;
    takes_part(open) && (examples == 0 || examples >= least) && has_labels(open)
}

/// Whether the task's status allows the participant to be drawn. A paused task stops opening rounds, but still draws the cohort of its open
/// round.
pub(super) fn takes_part(open: &OpenTask) -> bool {
    match open.task.status {
        TaskStatus::Active => true,
        TaskStatus::Paused => open.selecting.is_some(),
        TaskStatus::BudgetExhausted | TaskStatus::Completed | TaskStatus::Cancelled => false,
    }
}

/// Whether the participant's labels satisfy the task.
pub(super) fn has_labels(OpenTask { task, labels, .. }: &OpenTask) -> bool {
    task.spec.selection.require.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The participant's tasks, each with whether it may join the next round, and the undrawn secure-aggregation rounds among them.
fn joining<'a>(tasks: impl Iterator<Item = (&'a OpenTask, bool)> + Clone, request: &CheckInRequest) -> OpenRounds {
    let needs_keys = |(open, may_join): (&OpenTask, bool)| {
        let round = open.selecting.filter(|_| may_join && open.task.spec.secure_aggregation.enabled)?;
        let declines = |declined: Declined| declined.task == open.task.id && declined.sent >= round.attempt.round;
        // The participant declined this round; it waits for one it may join.
        (!request.declined.is_some_and(declines)).then(|| (open.task.clone(), round))
    };
    OpenRounds {
        rounds: tasks.clone().filter_map(needs_keys).collect(),
        tasks: tasks.map(|(open, _)| open.task.id).collect(),
    }
}
