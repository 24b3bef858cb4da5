//! Reasons why a participant waits.

use federation::id::{ParticipantId, TaskId};
use federation::task_status::TaskStatus;
use store::StoreError;
use store::entity::open_task::OpenTask;
use wire::inspect::TaskWaitingFor;
use wire::participant::{CheckInRequest, MAX_WAITING_FOR, WaitingFor};

use super::look::{refusal, suits, takes_part};
use crate::http::app::App;

/// A task open to a participant, and the reason for waiting in it.
pub(super) struct OpenTaskReason {
    task: TaskId,
    name: String,
    by: WaitingBecause,
}

enum WaitingBecause {
    Operator(TaskStatus),
    Label(String, String),
    Device,
    Refusal,
    /// The rounds themselves: needs further reads.
    Rounds,
}

/// The reasons for waiting in each task open to a participant.
pub(super) fn kept(open: &[OpenTask], request: &CheckInRequest) -> Vec<OpenTaskReason> {
    let is_open = |open: &&OpenTask| request.task.is_some() || suits(open, request.examples);
    let kept = |open: &OpenTask| OpenTaskReason {
        task: open.task.id,
        name: open.task.spec.name.clone(),
        by: kept_by(open, request),
    };
    open.iter().filter(is_open).take(MAX_WAITING_FOR).map(kept).collect()
}

fn kept_by(open: &OpenTask, request: &CheckInRequest) -> WaitingBecause {
    let OpenTask { task, labels, .. } = open;
    let wanted = &task.spec.selection.require.labels;
    if !takes_part(open) {
        return WaitingBecause::Operator(task.status);
    }
    if let Some((label, value)) = wanted.iter().find(|(label, value)| labels.get(*label) != Some(value)) {
        return WaitingBecause::Label(label.clone(), value.clone());
    }
    if refusal(request, task.id).is_some() {
        return WaitingBecause::Refusal;
    }
    match request.findings.iter().any(|finding| finding.task == task.id && !finding.eligible) {
        true => WaitingBecause::Device,
        false => WaitingBecause::Rounds,
    }
}

/// The reasons for a participant waiting for a task by this name, or for any.
pub(super) async fn reasons(
    app: &App,
    participant: ParticipantId,
    name: Option<&str>,
    kept: Vec<OpenTaskReason>,
) -> Result<Vec<WaitingFor>, StoreError> {
    if kept.is_empty() {
        return Ok(vec![match name {
            Some(name) => WaitingFor::Task { named: name.to_owned(), there_are: others(app, participant).await? },
            None => WaitingFor::AnyTask,
        }]);
    }
    let mut reasons = Vec::with_capacity(kept.len());
    for OpenTaskReason { task: id, name: task, by } in kept {
        reasons.push(match by {
            WaitingBecause::Operator(status) => WaitingFor::Operator { task, status },
            WaitingBecause::Label(label, value) => WaitingFor::Label { task, label, value },
            WaitingBecause::Device => WaitingFor::Device { task },
            WaitingBecause::Refusal => WaitingFor::Refused { task },
            WaitingBecause::Rounds => match app.lacking.of(&app.store, app.retries, id, app.now()).await? {
                TaskWaitingFor::Participants { more, until } => WaitingFor::Participants { task, more, until },
                TaskWaitingFor::Round { at, .. } => WaitingFor::Round { task, at },
                TaskWaitingFor::Nothing
                | TaskWaitingFor::Operator { .. }
                | TaskWaitingFor::Phase { .. }
                | TaskWaitingFor::Updates { .. }
                | TaskWaitingFor::Other => WaitingFor::Round { task, at: None },
            },
        });
    }
    Ok(reasons)
}

/// Names of other tasks open to a participant.
async fn others(app: &App, participant: ParticipantId) -> Result<Vec<String>, StoreError> {
    let open = app.store.read("tasks_by_name", |tx| Box::pin(async move { tx.open_tasks(participant, None).await }));
    let mut open = open.await?;
    open.retain(|open| suits(open, 0));
    open.truncate(MAX_WAITING_FOR);
    Ok(open.into_iter().map(|open| open.task.spec.name).collect())
}
