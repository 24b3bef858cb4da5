//! `GET /v1/participants/{participant}/contributions`: the sums that contain updates of a participant, as a signed statement.

use std::sync::Arc;

use axum::extract::State;
use federation::id::ParticipantId;
use federation::time::Timestamp;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use wire::contributions::{ContributedRound, Contributions, FORMAT, SignedContributions, SpentOn, TaskContributions};
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
    let read = app.store.read("show_contributions", |tx| Box::pin(read(tx, participant))).await?;
    let found = read.ok_or_else(|| Error::NotFound(format!("there is no participant {participant}")))?;
    let mut tasks = Vec::with_capacity(found.tasks.len());
    for (task, rounds) in found.tasks {
        let epsilon = privacy::spent(&app, &task).await?;
        let first = rounds.first().map_or(0, |round| round.version);
        tasks.push(TaskContributions {
            task: task.id,
            version_before: first.saturating_sub(1),
            newest_version: task.model_version,
            privacy: epsilon.map(|epsilon| SpentOn { epsilon, delta: task.spec.privacy.delta }),
            name: task.spec.name,
            rounds,
        });
    }
    Ok(Json(app.sealer.sign_contributions(&Contributions {
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
    /// Tasks, oldest first, each with at least one round.
    tasks: Vec<(TaskRow, Vec<ContributedRound>)>,
}

async fn read(tx: &mut Transaction<'_>, participant: ParticipantId) -> std::result::Result<Option<Found>, StoreError> {
    let Some(row) = tx.participant(participant).await? else { return Ok(None) };
    let mut tasks: Vec<(TaskRow, Vec<ContributedRound>)> = Vec::new();
    for (task, round, attempt, version) in tx.contributions(participant).await? {
        let contributed = ContributedRound { round, attempt, version };
        match tasks.last_mut() {
            Some((last, rounds)) if last.id == task => rounds.push(contributed),
            _ => {
                let row = tx.task(task).await?;
                let row = row.ok_or_else(|| StoreError::corrupt(format!("a round of task {task} has no task")))?;
                tasks.push((row, vec![contributed]));
            }
        }
    }
    Ok(Some(Found { revoked_at: row.revoked_at, tasks }))
}
