//! Fixed batches at check-in: admits members of large enough batches, and runs the draw for other participants.

use federation::id::{ParticipantId, TaskId};
use store::WakeEvent;
use store::entity::open_task::SelectingRound;
use store::entity::task::TaskRow;
use wire::certificate::Authority;
use wire::participant::{BatchReport, BatchStep, CheckInRequest};

use crate::http::app::App;
use crate::http::participant::answers::rejected;
use crate::http::reply::problem::Result;
use crate::rounds::selection::batches::{self, Demand, Progress, Reporter};

/// Whether a participant's batch lets it join a round.
pub(super) enum Batched {
    /// Its keys are needed.
    Yes,
    /// It waits for the draw.
    No,
    /// It takes a step of the draw first.
    Step(Box<BatchStep>),
}

/// Processes the participant's batch report for a selecting round.
pub(super) async fn batched(
    app: &App,
    participant: ParticipantId,
    request: &CheckInRequest,
    (task, _): &(TaskRow, SelectingRound),
    tasks: &[TaskId],
) -> Result<Batched> {
    let Some(demand) = Demand::of(task.id, &task.spec) else { return Ok(Batched::Yes) };
    let report = request.batch.as_ref();
    // A member of a smaller batch declines the invitation, and reports the reason.
    if let Some(BatchReport::Member { .. }) = report {
        return Ok(Batched::Yes);
    }
    let now = app.now();
    let authority = Authority::new(app.members.certificate().to_vec(), now);
    let reporter = &Reporter { participant, authority: &authority, fresh_id: app.random.uuid(), now, tasks };
    let progress =
        app.store.transact("draw batches", |tx| Box::pin(batches::report(tx, reporter, demand, report))).await?;
    Ok(match progress {
        Progress::Waits => Batched::No,
        Progress::Step { step, awakened } => {
            if !awakened.is_empty() {
                app.store.wake().publish(WakeEvent::Assigned(awakened.into()));
            }
            Batched::Step(Box::new(step))
        }
        Progress::Rejected(rejection) => return Err(rejected(rejection)),
    })
}
