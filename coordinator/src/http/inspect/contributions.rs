//! `GET /v1/participants/{participant}/contributions`: the sums that contain updates of a participant, as a signed statement.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::contributions::{
    ContributedRound, Contributions, FORMAT, OpenRound, SignedContributions, SpentOn, TaskContributions,
};
use wire::route;

use super::privacy;
use crate::http::app::App;
use crate::http::auth::operators::Viewer;
use crate::http::extract::{Json, Path};
use crate::http::reply::problem::{Error, Result};

/// Get a signed statement about the sums that contain updates of one participant.
#[utoipa::path(
    get, path = route::PARTICIPANT_CONTRIBUTIONS, security(("token" = ["viewer"])),
    responses((status = 200, body = SignedContributions)),
)]
pub(in crate::http) async fn show(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path(participant): Path<ParticipantId>,
) -> Result<Json<SignedContributions>> {
    let statement = statement(&app, participant).await?;
    statement.map(Json).ok_or_else(|| Error::NotFound(format!("there is no participant {participant}")))
}

/// The statement; `None` for an unknown participant.
///
/// # Errors
/// Those of the store.
pub(in crate::http) async fn statement(app: &App, participant: ParticipantId) -> Result<Option<SignedContributions>> {
    let read = app.store.read("show_contributions", |tx| Box::pin(read(tx, participant))).await?;
    let Some(found) = read else { return Ok(None) };
    let mut tasks = Vec::with_capacity(found.tasks.len());
    for OfTask { task, rounds, open_rounds, version_before, version_before_is_kept } in found.tasks {
        let epsilon = privacy::spent(app, &task).await?;
        tasks.push(TaskContributions {
            task: task.id,
            version_before,
            version_before_is_kept,
            newest_version: task.model_version,
            privacy: epsilon.map(|epsilon| SpentOn { epsilon, delta: task.spec.privacy.delta }),
            name: task.spec.name,
            rounds,
            open_rounds,
        });
    }
    Ok(Some(app.sealer.sign_contributions(&Contributions {
        format: FORMAT,
        coordinator: app.sealer.audit_key(),
        participant,
        revoked_at: found.revoked_at,
        tasks,
        signed_at: app.now(),
        program: format!("tributary {}", listener::version()),
    })))
}

/// What the rows state about a participant.
struct Found {
    revoked_at: Option<Timestamp>,
    /// The tasks with an accepted update, oldest first.
    tasks: Vec<OfTask>,
}

/// What they state about one of its tasks.
struct OfTask {
    task: TaskRow,
    rounds: Vec<ContributedRound>,
    open_rounds: Vec<OpenRound>,
    version_before: u32,
    version_before_is_kept: bool,
}

async fn read(tx: &mut Transaction<'_>, participant: ParticipantId) -> std::result::Result<Option<Found>, StoreError> {
    let Some(row) = tx.participant(participant).await? else { return Ok(None) };
    let mut tasks: Vec<OfTask> = Vec::new();
    for (task, round, attempt, version) in tx.contributions(participant).await? {
        if tasks.last().is_none_or(|last| last.task.id != task) {
            let row = tx.task(task).await?;
            let task = row.ok_or_else(|| StoreError::corrupt(format!("a round of task {task} has no task")))?;
            let (rounds, open_rounds) = (Vec::new(), Vec::new());
            let version_before = task.model_version;
            tasks.push(OfTask { task, rounds, open_rounds, version_before, version_before_is_kept: true });
        }
        let Some(last) = tasks.last_mut() else { continue };
        match version {
            Some(version) => last.rounds.push(ContributedRound { round, attempt, version }),
            None => last.open_rounds.push(OpenRound { round, attempt }),
        }
    }
    for found in &mut tasks {
        if let Some(first) = found.rounds.first() {
            found.version_before = first.version.saturating_sub(1);
        }
        let before = tx.stored_version(found.task.id, found.version_before).await?;
        found.version_before_is_kept = before.is_some_and(|before| before.removed_at.is_none());
    }
    Ok(Some(Found { revoked_at: row.revoked_at, tasks }))
}
