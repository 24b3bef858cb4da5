//! `POST /v1/check-in`: long poll for work.
//!
//! A participant with an open poll is checked in. After the answer it stays checked in until its expected return.

mod ahead;
mod ask;
mod assignment;
mod batch;
mod found;
mod invitations;
mod look;
mod over;
mod waiting_for;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use federation::id::{Digest, ParticipantId, TaskId};
use store::entity::check_in::CheckInKeys;
use store::entity::open_task::SelectingRound;
use task_spec::is_name;
use wire::participant::{BatchReport, CheckInReply, CheckInRequest, Finding, MAX_FINDINGS, RoundKeys};
use wire::route;

use self::ahead::claim;
use self::assignment::{assigned, to_train};
use self::found::{CheckInAnswer, CheckInOutcome, Waiting};
use self::invitations::judge;
use self::look::{glance, look};
use self::over::over;
use self::waiting_for::{kept, reasons};
use crate::admission::{CheckInChange, Fact, Offer, WaitingParticipant};
use crate::http::app::App;
use crate::http::auth::authenticate::Claimant;
use crate::http::extract::Json;
use crate::http::reply::problem::{Error, Result};

/// Minimum return delay during a shutdown, plus the usual jitter.
const RESTART: Duration = Duration::from_secs(2);

/// Interval between reviews of the choice of round for a waiting participant.
const REVIEW: Duration = Duration::from_secs(1);

/// Marker in a request's extensions, next to [`crate::http::Connection`]: the caller simulates time. Its check-in has the effect of a poll
/// held open for the requested time, but the answer comes at once. The caller polls again at each [`store::WakeEvent`] that would have
/// woken the poll.
#[derive(Clone, Copy, Debug)]
pub struct VirtualTime;

/// Long-poll for work.
#[utoipa::path(
    post, path = route::CHECK_IN, request_body = CheckInRequest, security(("certificate" = [])),
    responses((status = 200, body = CheckInReply)),
)]
pub(in crate::http) async fn check_in(
    caller: Claimant,
    State(app): State<Arc<App>>,
    keeps_time: Option<Extension<VirtualTime>>,
    request: Result<Json<CheckInRequest>>,
) -> Result<Json<CheckInReply>> {
    let request = match request.and_then(|Json(request)| checked(request)) {
        Ok(request) => request,
        // Only authenticated participants get validation details.
        Err(error) => return Err(caller.look_up(&app).await.err().unwrap_or(error)),
    };
    let asked = Duration::from_millis(request.wait_ms);
    let wait = if keeps_time.is_some() { asked } else { asked.min(app.config.http.poll_max()) };
    // An unauthenticated caller waits at most for the first lookup.
    let place = app.check_ins.wait(caller.participant());
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    // Created before the facts are read, to notice changes in between.
    let called = place.called();
    tokio::pin!(called);
    called.as_mut().enable();
    let name = request.task.as_deref();
    let seen = glance(&app.store, caller.participant(), name);
    let (participant, mut open) = caller.look_up_by(&app, seen).await?;
    metrics::counter!("tributary_polls_total").increment(1);
    let mut guard = PollGuard { app: &app, participant: participant.id, place: &place, tasks: Vec::new() };
    let kept = loop {
        let kept = kept(&open, &request);
        let rounds = match look(&app, participant.id, open, &request, app.now()).await? {
            CheckInOutcome::Answer(answer) => {
                guard.tasks.clear();
                return respond(&app, participant.id, answer, &request.findings).await.map(Json);
            }
            CheckInOutcome::Waits(Waiting { tasks, refused, awaited, rounds }) => {
                withdraw(&app, participant.id, &request);
                let keys = awaited.map(|invitation| judge(&app, participant.id, &invitation, &request)).transpose()?;
                let refused = refused.iter().map(|refusal| (refusal.task, Some(refusal.reason.as_str())));
                let tasks: Vec<_> = tasks.into_iter().map(|task| (task, None)).chain(refused).collect();
                write(&app, participant.id, &tasks, keys, &request, wait, keeps_time.is_some()).await?;
                guard.tasks = tasks.into_iter().map(|(task, _)| task).collect();
                rounds
            }
        };
        if keeps_time.is_some() || wait.is_zero() {
            break kept;
        }
        tokio::select! {
            () = called.as_mut() => {}
            () = &mut end => break kept,
            () = app.shutdown.cancelled() => break kept,
            () = other_round(&app, &rounds, &request) => {}
        }
        called.set(place.called());
        called.as_mut().enable();
        open = glance(&app.store, participant.id, name).await?.1;
    };
    // Omitted for callers with simulated time and during a shutdown.
    let is_told = keeps_time.is_none() && !app.shutdown.is_cancelled();
    let waiting_for = if is_told { reasons(&app, participant.id, name, kept).await? } else { Vec::new() };
    guard.tasks.clear();
    let pause = app.check_ins.come_back(wait, &app.random);
    let after = if app.shutdown.is_cancelled() { RESTART + pause } else { pause };
    Ok(Json(CheckInReply::ComeBack { after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX), waiting_for }))
}

/// Answers a participant that need not wait.
async fn respond(
    app: &App,
    participant: ParticipantId,
    answer: CheckInAnswer,
    findings: &[Finding],
) -> Result<CheckInReply> {
    match answer {
        CheckInAnswer::Round(work) => assigned(app, participant, *work),
        CheckInAnswer::Over(task) => over(app, *task, findings).await,
        CheckInAnswer::Train(train) => to_train(app, participant, *train),
        CheckInAnswer::Discard(task, serial, reason) => {
            metrics::counter!("tributary_updates_discarded_total", "reason" => reason.as_str()).increment(1);
            Ok(CheckInReply::Discard { task, serial, reason })
        }
        CheckInAnswer::Batch(step) => Ok(CheckInReply::Batch(step)),
        CheckInAnswer::Invited(invitation) => Ok(CheckInReply::Invited(invitation)),
        CheckInAnswer::Asked(questions) => Ok(CheckInReply::Asked { questions }),
    }
}

/// Resolves when another round than the one with the participant's keys is chosen; pending if there is only one.
async fn other_round(app: &App, rounds: &[SelectingRound], request: &CheckInRequest) {
    if rounds.len() < 2 {
        return std::future::pending().await;
    }
    let held = request.keys.as_ref().map(RoundKeys::attempt_key);
    loop {
        tokio::time::sleep(REVIEW).await;
        match app.contests.choose(&app.store, rounds, held, app.now()).await {
            Ok(chosen) if chosen == held => {}
            // The next lookup handles the new choice, or reports the error.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Validates the request's values.
fn checked(request: CheckInRequest) -> Result<CheckInRequest> {
    if request.task.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Error::InvalidValue(
            "task must be 1 to 64 letters, digits, '-', '_' or '.', and not of dots alone".to_owned(),
        ));
    }
    if request.findings.len() > MAX_FINDINGS {
        return Err(Error::InvalidValue(format!("findings must be about at most {MAX_FINDINGS} tasks")));
    }
    if request.refusals.len() > MAX_FINDINGS {
        return Err(Error::InvalidValue(format!("refusals must be of at most {MAX_FINDINGS} tasks")));
    }
    Ok(request)
}

/// Detects a participant disconnecting during a poll: it must not be drawn.
struct PollGuard<'a> {
    app: &'a App,
    participant: ParticipantId,
    place: &'a WaitingParticipant,
    /// The tasks of its check-in; empty after the answer.
    tasks: Vec<TaskId>,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        // The participant may have returned over another connection before this one timed out.
        if self.tasks.is_empty() || !self.place.is_only_one() {
            return;
        }
        for task in self.tasks.drain(..) {
            take_back(self.app, self.participant, task);
        }
    }
}

/// Withdraws check-ins for tasks whose criteria the device no longer meets.
fn withdraw(app: &App, participant: ParticipantId, request: &CheckInRequest) {
    for finding in request.findings.iter().filter(|finding| !finding.eligible) {
        take_back(app, participant, finding.task);
    }
}

/// Withdraws the check-in written here, unless another coordinator has written since.
fn take_back(app: &App, participant: ParticipantId, task: TaskId) {
    if let Some(written) = app.check_ins.withdraw(participant, task) {
        app.inbox.note(Fact::Gone(written));
    }
}

/// The fixed batch that the participant reports.
fn batch(request: &CheckInRequest) -> Option<Digest> {
    match request.batch {
        Some(BatchReport::Member { batch, .. }) => Some(batch),
        Some(BatchReport::Offer { .. } | BatchReport::Reveal { .. }) | None => None,
    }
}

/// Writes the due check-ins for a poll of this length, with the reasons of refusals. Waits until check-ins with new information are
/// durable. If the caller `keeps_time`, waits for all, since its clock may pass their expiry.
async fn write(
    app: &App,
    participant: ParticipantId,
    tasks: &[(TaskId, Option<&'static str>)],
    keys: Option<CheckInKeys>,
    request: &CheckInRequest,
    wait: Duration,
    keeps_time: bool,
) -> Result<()> {
    let now = app.now();
    let away = wait + app.check_ins.away_max();
    for (task, refusal) in tasks {
        let keys = keys.as_ref().filter(|keys| keys.attempt.task == *task).cloned();
        let offer = Offer {
            examples: request.examples,
            loss: request.loss.filter(|report| report.task == *task).map(|report| report.level),
            training: claim(request, *task),
            round_trip_ms: request.round_trip_ms,
            sent_round: request.declined.filter(|declined| declined.task == *task).map(|declined| declined.sent),
            refusal: *refusal,
            batch: batch(request),
        };
        let Some((check_in, change)) = app.check_ins.due(participant, *task, offer, keys, away, now) else { continue };
        app.reported_rounds.note(&check_in);
        let fact = match change {
            CheckInChange::New => Fact::CheckIn(check_in.clone()),
            CheckInChange::Extension => Fact::StillThere(check_in.clone()),
        };
        // The written check-in is still valid, so waiting for the disk is unnecessary.
        let is_left = if change == CheckInChange::Extension && !keeps_time {
            app.inbox.note(fact)
        } else {
            app.inbox.submit(fact).await.map(|_| true)?
        };
        if is_left {
            app.check_ins.remember(check_in, now);
        }
    }
    Ok(())
}
