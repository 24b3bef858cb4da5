//! Determines the result of a check-in.

use federation::id::ParticipantId;
use federation::round::Assignment;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::entity::participant::ParticipantRow;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::Solver;
use wire::participant::{CheckInRequest, Counted};

use super::ahead::{AheadOutcome, trained_ahead};
use super::ask::sift;
use super::found::{CheckInOutcome, RoundOffer};
use super::invitations::{has_keys_for, invitations};
use crate::base;
use crate::http::app::App;
use crate::http::problem::Result;

pub(super) async fn look(
    app: &App,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<CheckInOutcome> {
    let name = request.task.as_deref();
    let examples = request.examples;
    app.store
        .read("look_for_work", |tx| {
            Box::pin(async move {
                let named = match name {
                    Some(name) => tx.task_by_name(name).await?,
                    None => None,
                };
                if let Some(place) = tx.pending_assignment(participant).await?
                    && name.is_none_or(|_| named.as_ref().is_some_and(|task| task.id == place.attempt.task))
                    && let Some(work) = work(app, tx, place, named.as_ref()).await?
                {
                    return Ok(CheckInOutcome::Round(Box::new(work)));
                }
                let tasks = match (name, named) {
                    (Some(_), Some(task)) if task.status.is_terminal() => return Ok(CheckInOutcome::Over(task.id)),
                    (Some(_), Some(task)) => vec![task],
                    // The task does not exist yet; the participant waits for an operator to create it.
                    (Some(_), None) => Vec::new(),
                    (None, _) => {
                        let row = tx.participant(participant).await?;
                        suitable(tx.active_tasks().await?, row.as_ref(), examples)
                    }
                };
                let (tasks, questions) = sift(tasks, request, participant, now);
                if !questions.is_empty() {
                    return Ok(CheckInOutcome::Asked(questions));
                }
                let tasks = match trained_ahead(tx, tasks, participant, request, now).await? {
                    AheadOutcome::Tasks(tasks) => tasks,
                    AheadOutcome::Answer(found) => return Ok(found),
                };
                let joinable = tasks.iter().filter(|(_, may_join)| *may_join).map(|(task, _)| task);
                let invitations = invitations(app, tx, joinable, participant, request.declined).await?;
                let awaited = invitations.iter().find(|invitation| has_keys_for(request, invitation)).cloned();
                if let (None, Some(invitation)) = (&awaited, invitations.into_iter().next()) {
                    return Ok(CheckInOutcome::Invited(Box::new(invitation)));
                }
                let tasks = tasks.iter().map(|(task, _)| task.id).collect();
                Ok(CheckInOutcome::Nothing { tasks, awaited: awaited.map(Box::new) })
            })
        })
        .await
}

/// The assignment of a place. `named` is its task if the participant named it.
async fn work(
    app: &App,
    tx: &mut Transaction<'_>,
    place: Assignment,
    named: Option<&TaskRow>,
) -> Result<Option<RoundOffer>, StoreError> {
    let task = match named {
        Some(task) => Some(task.clone()),
        None => tx.task(place.attempt.task).await?,
    };
    let Some(task) = task else { return Ok(None) };
    let Some(round) = tx.round_attempt(place.attempt).await? else { return Ok(None) };
    let Some(base) = base::read(tx, &task, round.round.base_version).await? else { return Ok(None) };
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
    Ok(Some(RoundOffer { place, task, round, base, update, plan, counted }))
}

/// The tasks that would accept this participant, as far as it reports its properties; the draw decides whether it is
/// its turn.
fn suitable(mut tasks: Vec<TaskRow>, participant: Option<&ParticipantRow>, examples: u64) -> Vec<TaskRow> {
    let Some(participant) = participant else { return Vec::new() };
    let suits = |task: &TaskRow| {
        let require = &task.spec.selection.require;
        task.status == TaskStatus::Active
            && (examples == 0 || examples >= require.min_examples)
            && require.labels.iter().all(|(name, value)| participant.labels.get(name) == Some(value))
    };
    tasks.retain(suits);
    tasks
}
