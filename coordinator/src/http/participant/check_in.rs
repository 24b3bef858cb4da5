//! `POST /v1/check-in`: long-poll for work.
//!
//! A participant whose poll is open is checked in; when it is sent away it stays so until it should have come back.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use federation::id::{ParticipantId, RoundKey, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{Assignment as Place, AssignmentState, Round, RoundState};
use federation::task::{Solver, TaskSpec, TaskStatus, is_name};
use federation::time::Timestamp;
use federation::training::{Claim, Standing, Training, standing};
use secure_agg::messages::Advertise;
use secure_agg::params::SessionConfig;
use secure_agg::rejection::Rejection;
use secure_agg::server::CollectKeys;
use store::entity::check_in::{CheckIn, CheckInKeys};
use store::entity::participant::ParticipantRow;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::entity::training::Buffered;
use store::{StoreError, Transaction};
use wire::certificate::Authority;
use wire::participant::{
    Assignment, CheckInReply, CheckInRequest, Counted, DiscardReason, Finding, HeldUpdate, Invitation, MAX_FINDINGS,
    ModelRef, Question, SessionTerms,
};

use super::answers::{decode, refused};
use crate::admission::{Fact, InboxError, Offer, Waiting};
use crate::http::app::App;
use crate::http::authenticate::Participant;
use crate::http::extract::Json;
use crate::http::problem::{Error, Result};
use crate::model::next_round;
use crate::session::round_name;

/// When to come back to a coordinator that is shutting down: not before, and spread as otherwise.
const RESTART: Duration = Duration::from_secs(2);

/// In a request's extensions, beside [`crate::http::Connection`]: whoever asks keeps time itself, as a simulation does. Its
/// check-in counts as a poll that is held open for as long as it asked, but is answered at once; it asks again when a
/// [`store::WakeEvent`] would have called it.
#[derive(Clone, Copy, Debug)]
pub struct KeepsTime;

pub(in crate::http) async fn check_in(
    participant: Participant,
    State(app): State<Arc<App>>,
    keeps_time: Option<Extension<KeepsTime>>,
    Json(request): Json<CheckInRequest>,
) -> Result<Json<CheckInReply>> {
    metrics::counter!("tributary_polls_total").increment(1);
    if request.task.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(Error::InvalidValue("task must be 1 to 64 letters, digits, '-', '_' or '.'".to_owned()));
    }
    if request.findings.len() > MAX_FINDINGS {
        return Err(Error::InvalidValue(format!("findings must be about at most {MAX_FINDINGS} tasks")));
    }
    let asked = Duration::from_millis(request.wait_ms);
    let wait = if keeps_time.is_some() { asked } else { asked.min(app.settings.poll_max) };
    let place = app.desk.wait(participant.id);
    let mut leaving = Leaving {
        app: &app,
        participant: participant.id,
        examples: request.examples,
        place: &place,
        tasks: Vec::new(),
    };
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    loop {
        // Armed before the facts are read: what changes in between is not missed.
        let called = place.called();
        tokio::pin!(called);
        called.as_mut().enable();
        match look(&app, participant.id, &request, app.now()).await? {
            Found::Work(work) => {
                leaving.tasks.clear();
                return assigned(&app, participant.id, *work).map(Json);
            }
            Found::Over(task) => {
                leaving.tasks.clear();
                return Ok(Json(CheckInReply::TaskOver { task }));
            }
            Found::Train(train) => {
                leaving.tasks.clear();
                return to_train(&app, participant.id, *train).map(Json);
            }
            Found::Discard(task, serial, reason) => {
                leaving.tasks.clear();
                metrics::counter!("tributary_updates_discarded_total", "reason" => reason.as_str()).increment(1);
                return Ok(Json(CheckInReply::Discard { task, serial, reason }));
            }
            Found::Invited(invitation) => {
                leaving.tasks.clear();
                return Ok(Json(CheckInReply::Invited(invitation)));
            }
            Found::Asked(questions) => {
                leaving.tasks.clear();
                return Ok(Json(CheckInReply::Asked { questions }));
            }
            Found::Nothing { tasks, awaited } => {
                withdraw(&app, participant.id, &request);
                let keys = match awaited {
                    Some(invitation) => Some((invitation.task, judge(&app, participant.id, &invitation, &request)?)),
                    None => None,
                };
                write(&app, participant.id, &tasks, keys, &request, wait).await?;
                leaving.tasks = tasks;
            }
        }
        if keeps_time.is_some() || wait.is_zero() {
            break;
        }
        tokio::select! {
            () = called => {}
            () = &mut end => break,
            () = app.shutdown.cancelled() => break,
        }
    }
    leaving.tasks.clear();
    let pause = app.desk.come_back(wait, &app.random);
    let after = if app.shutdown.is_cancelled() { RESTART + pause } else { pause };
    Ok(Json(CheckInReply::ComeBack { after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX) }))
}

/// Notices that a participant hung up in the middle of a poll: it is not ready any more, and must not be drawn.
struct Leaving<'a> {
    app: &'a App,
    participant: ParticipantId,
    examples: u64,
    place: &'a Waiting,
    /// Where it is checked in; none once the poll is answered.
    tasks: Vec<TaskId>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // It may have come back over another connection before this one was found dead.
        if self.tasks.is_empty() || !self.place.is_only_one() {
            return;
        }
        self.app.desk.forget(self.participant);
        let (participant, examples, now) = (self.participant, self.examples, self.app.now());
        for task in self.tasks.drain(..) {
            let gone = CheckIn {
                participant,
                task,
                examples,
                checked_in_at: now,
                expires_at: now,
                loss: None,
                keys: None,
                training: None,
            };
            self.app.inbox.note(Fact::CheckIn(gone));
        }
    }
}

/// What there is for a participant.
enum Found {
    Work(Box<Work>),
    /// The task it has data for is over.
    Over(TaskId),
    /// It was told to train ahead of rounds.
    Train(Box<Train>),
    /// The finished update that it holds, of this task and training, is of no use.
    Discard(TaskId, u32, DiscardReason),
    /// Tasks want to know whether this is a device for them.
    Asked(Vec<Question>),
    /// A round wants keys before it draws.
    Invited(Box<Invitation>),
    /// Nothing yet, in these tasks.
    Nothing {
        tasks: Vec<TaskId>,
        /// The round that it gave keys for, and that has not drawn yet.
        awaited: Option<Box<Invitation>>,
    },
}

struct Work {
    place: Place,
    task: TaskRow,
    round: RoundRow,
    base: ModelVersion,
    /// What the round aggregates, if it was trained ahead.
    update: Option<Buffered>,
    /// Where μ adapts.
    mu: Option<f64>,
    /// Where a solver needs to know.
    counted: Option<Counted>,
}

/// A training ahead of rounds.
struct Train {
    training: Training,
    task: TaskRow,
    base: ModelVersion,
}

async fn look(app: &App, participant: ParticipantId, request: &CheckInRequest, now: Timestamp) -> Result<Found> {
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
                    && name.is_none_or(|_| named.as_ref().is_some_and(|task| task.id == place.round.task))
                    && let Some(work) = work(app, tx, place, named.as_ref()).await?
                {
                    return Ok(Found::Work(Box::new(work)));
                }
                let tasks = match (name, named) {
                    (Some(_), Some(task)) if task.status.is_terminal() => return Ok(Found::Over(task.id)),
                    (Some(_), Some(task)) => vec![task],
                    // Nobody has created it yet; that is the operators' business, the participant just waits.
                    (Some(_), None) => Vec::new(),
                    (None, _) => {
                        let row = tx.participant(participant).await?;
                        suitable(tx.active_tasks().await?, row.as_ref(), examples)
                    }
                };
                let (tasks, questions) = sift(tasks, &request.findings);
                if !questions.is_empty() {
                    return Ok(Found::Asked(questions));
                }
                let mut ready = Vec::with_capacity(tasks.len());
                for task in &tasks {
                    match trained_ahead(tx, task, participant, request, now).await? {
                        Ok(may_join) => ready.push(may_join),
                        Err(found) => return Ok(found),
                    }
                }
                let joinable = tasks.iter().zip(ready).filter_map(|(task, may_join)| may_join.then_some(task));
                let invitations = invitations(app, tx, joinable, participant).await?;
                let awaited = invitations.iter().find(|invitation| has_keys_for(request, invitation)).cloned();
                if let (None, Some(invitation)) = (&awaited, invitations.into_iter().next()) {
                    return Ok(Found::Invited(Box::new(invitation)));
                }
                let tasks = tasks.iter().map(|task| task.id).collect();
                Ok(Found::Nothing { tasks, awaited: awaited.map(Box::new) })
            })
        })
        .await
}

/// Whether the participant may join the task's next round, or what it is told instead: where participants train ahead, only
/// those join who hold an update that is not too old.
async fn trained_ahead(
    tx: &mut (dyn Transaction + '_),
    task: &TaskRow,
    participant: ParticipantId,
    request: &CheckInRequest,
    now: Timestamp,
) -> Result<std::result::Result<bool, Found>> {
    let Some(ahead) = task.spec.ahead() else { return Ok(Ok(true)) };
    let training = tx.training(task.id, participant).await?;
    let claim = claim(request, task.id);
    let discard = |reason| Ok(Err(Found::Discard(task.id, claim.map_or(0, |claim| claim.serial), reason)));
    match (standing(training.as_ref(), claim, task.model_version, ahead.staleness, now), training) {
        (Standing::Ready { .. }, _) => Ok(Ok(true)),
        (Standing::Stale { .. }, _) => discard(DiscardReason::TooStale),
        (Standing::Unknown, _) => discard(DiscardReason::Unknown),
        (Standing::Training, Some(training)) => {
            let base = tx.model_version(task.id, training.base_version).await?;
            let base =
                base.ok_or_else(|| StoreError::Corrupt(format!("a training of task {} has no base", task.id)))?;
            Ok(Err(Found::Train(Box::new(Train { training, task: task.clone(), base }))))
        }
        (Standing::Training | Standing::Resting | Standing::Free, _) => Ok(Ok(false)),
    }
}

/// What the participant says of its training for this task.
fn claim(request: &CheckInRequest, task: TaskId) -> Option<Claim> {
    let report = request.training.filter(|report| report.task == task)?;
    Some(Claim { serial: report.serial, is_ready: report.ready })
}

/// The work of a place. `named` is its task if the participant named it.
async fn work(
    app: &App,
    tx: &mut (dyn Transaction + '_),
    place: Place,
    named: Option<&TaskRow>,
) -> Result<Option<Work>, StoreError> {
    let task = match named {
        Some(task) => Some(task.clone()),
        None => tx.task(place.round.task).await?,
    };
    let Some(task) = task else { return Ok(None) };
    let Some(round) = tx.round_attempt(place.round, place.attempt).await? else { return Ok(None) };
    let Some(base) = tx.model_version(task.id, round.round.base_version).await? else { return Ok(None) };
    let update = match task.spec.ahead() {
        Some(_) => tx.buffered(place.round, place.attempt, place.participant).await?,
        None => None,
    };
    let plan = &task.spec.training;
    let mu = app.mus.of_round(tx, plan, place.round).await?;
    let counted = match plan.solver {
        Some(Solver::Scaffold { .. }) => tx.last_counted(task.id, place.participant).await?,
        Some(Solver::FedNova { .. }) | None => None,
    };
    let counted = counted.map(|(round, attempt)| Counted { round, attempt });
    Ok(Some(Work { place, task, round, base, update, mu, counted }))
}

/// The rounds of these tasks that take keys now: those with secure aggregation that have not drawn yet.
async fn invitations<'a>(
    app: &App,
    tx: &mut (dyn Transaction + '_),
    tasks: impl Iterator<Item = &'a TaskRow> + Send,
    participant: ParticipantId,
) -> Result<Vec<Invitation>, StoreError> {
    let mut invitations = Vec::new();
    for task in tasks.filter(|task| task.spec.secure_aggregation.enabled) {
        let Some(row) = tx.round(next_round(task)).await? else { continue };
        let round = &row.round;
        if round.state != RoundState::Selecting {
            continue;
        }
        // Whoever was not sampled is not in this round, whatever happens.
        if round.limits.sampled.is_some() && !tx.is_sampled(round.key, round.attempt, participant).await? {
            continue;
        }
        let base = tx.model_version(task.id, round.base_version).await?;
        let session = app.models.of(task).ok().and_then(|model| model.session_in(base.and_then(|base| base.clip)));
        let config =
            session.ok_or_else(|| StoreError::Corrupt(format!("task {} cannot work as it is stored", task.id)))?;
        invitations.push(Invitation {
            task: task.id,
            round: row.round.key.number,
            attempt: row.round.attempt,
            terms: SessionTerms::from(&*config),
        });
    }
    Ok(invitations)
}

fn has_keys_for(request: &CheckInRequest, invitation: &Invitation) -> bool {
    request.keys.as_ref().is_some_and(|keys| {
        (keys.task, keys.round, keys.attempt) == (invitation.task, invitation.round, invitation.attempt)
    })
}

/// Has the protocol judge the keys that came with a check-in. Only good ones are kept, so a roster can be made of them
/// without asking again.
fn judge(
    app: &App,
    participant: ParticipantId,
    invitation: &Invitation,
    request: &CheckInRequest,
) -> Result<CheckInKeys> {
    let Some(keys) = &request.keys else { return Err(Error::fault("keys were found and are gone")) };
    let advertise: Advertise = decode(&keys.advertisement.0)?;
    if advertise.body.client_id.as_slice() != participant.0.as_bytes() {
        return Err(refused(Rejection::Certificate));
    }
    let key = RoundKey { task: invitation.task, number: invitation.round };
    let name = round_name(key, invitation.attempt);
    // Which model the round starts from makes no difference to keys.
    let phase = CollectKeys::new(name, [0; 32], SessionConfig::from(&invitation.terms)).map_err(Error::fault)?;
    let authority = Authority::new(app.authority.certificate().to_vec(), app.now());
    phase.admit(advertise, &authority).map_err(refused)?;
    let advertisement = keys.advertisement.0.clone().into();
    Ok(CheckInKeys { round: keys.round, attempt: keys.attempt, advertisement })
}

/// The tasks that would take this participant at all; whether it is its turn is decided when a cohort is drawn.
fn suitable(mut tasks: Vec<TaskRow>, participant: Option<&ParticipantRow>, examples: u64) -> Vec<TaskRow> {
    let Some(participant) = participant else { return Vec::new() };
    let suits = |task: &TaskRow| {
        let require = &task.spec.selection.require;
        task.status == TaskStatus::Active
            && examples >= require.min_examples
            && require.labels.iter().all(|(name, value)| participant.labels.get(name) == Some(value))
    };
    tasks.retain(suits);
    tasks
}

/// Leaves the tasks that want nothing of devices or were told that this is one for them, and asks where nothing was told.
fn sift(mut tasks: Vec<TaskRow>, findings: &[Finding]) -> (Vec<TaskRow>, Vec<Question>) {
    let mut questions = Vec::new();
    tasks.retain(|task| {
        let criteria = &task.spec.selection.on_device;
        let found = findings.iter().find(|finding| finding.task == task.id);
        if !criteria.is_empty() && found.is_none() && findings.len() + questions.len() < MAX_FINDINGS {
            questions.push(Question { task: task.id, criteria: criteria.clone() });
        }
        criteria.is_empty() || found.is_some_and(|finding| finding.eligible)
    });
    (tasks, questions)
}

/// Takes back what is written for tasks that this is no device for any more.
fn withdraw(app: &App, participant: ParticipantId, request: &CheckInRequest) {
    for finding in request.findings.iter().filter(|finding| !finding.eligible) {
        if let Some(gone) = app.desk.withdraw(participant, finding.task, app.now()) {
            app.inbox.note(Fact::CheckIn(gone));
        }
    }
}

/// Writes the check-ins that are due and waits until they are durable.
async fn write(
    app: &App,
    participant: ParticipantId,
    tasks: &[TaskId],
    keys: Option<(TaskId, CheckInKeys)>,
    request: &CheckInRequest,
    wait: Duration,
) -> Result<()> {
    let now = app.now();
    let away = wait + app.desk.away_max();
    for task in tasks {
        let keys = keys.as_ref().filter(|(of, _)| of == task).map(|(_, keys)| keys.clone());
        let loss = request.loss.filter(|report| report.task == *task).map(|report| report.level);
        let offer = Offer { examples: request.examples, loss, training: claim(request, *task) };
        if let Some(check_in) = app.desk.due(participant, *task, offer, keys, away, now) {
            app.inbox.submit(Fact::CheckIn(check_in.clone())).await.map_err(unwritten)?;
            app.desk.remember(check_in, now);
        }
    }
    Ok(())
}

pub(super) fn unwritten(error: InboxError) -> Error {
    match error {
        InboxError::Store(error) => Error::Store(error),
        InboxError::Closed => Error::ShuttingDown,
    }
}

fn assigned(app: &App, participant: ParticipantId, work: Work) -> Result<CheckInReply> {
    let Work { place, task, round, base, update, mu, counted } = work;
    // It was taken out of the queue when it was drawn; its next check-in must be written again.
    app.desk.forget(participant);
    if place.state == AssignmentState::Assigned {
        app.inbox.note(Fact::Working { round: place.round, attempt: place.attempt, participant });
    }
    let now = app.now();
    // A round that closed in between has no time left.
    let mut deadline_at = round.round.deadline_at().unwrap_or(now);
    if round.round.state == RoundState::Sharing {
        // Training comes after the shares.
        deadline_at = deadline_at.plus(round.round.limits.collect.deadline());
    }
    let Round { key, attempt, limits, cohort, .. } = round.round;
    let groups = limits.groups.map(|groups| groups.count);
    // Whom its update is added up with.
    let cohort = limits.groups.map_or(cohort, |groups| groups.size);
    let update = update.map(|update| HeldUpdate { serial: update.serial, version: update.base_version });
    let when = When { number: key.number, attempt, cohort, deadline_at, now };
    let mut assignment = Assignment { update, groups, counted, ..assignment(app, task, base, when)? };
    assignment.training.proximal_mu = mu.unwrap_or(assignment.training.proximal_mu);
    Ok(CheckInReply::Assigned(Box::new(assignment)))
}

/// A training ahead of rounds, as the participant is told.
fn to_train(app: &App, participant: ParticipantId, train: Train) -> Result<CheckInReply> {
    let Train { training, task, base } = train;
    app.desk.forget(participant);
    let (number, least) = (next_round(&task).number, task.spec.round_limits().select.min);
    let cohort = task.spec.draw(least).cohort;
    let (attempt, deadline_at, now) = (training.serial, training.expires_at, app.now());
    let when = When { number, attempt, cohort, deadline_at, now };
    Ok(CheckInReply::Train(Box::new(assignment(app, task, base, when)?)))
}

/// Where and until when something is to be done.
struct When {
    number: u32,
    attempt: u32,
    cohort: u32,
    deadline_at: Timestamp,
    now: Timestamp,
}

fn assignment(app: &App, task: TaskRow, base: ModelVersion, when: When) -> Result<Assignment> {
    let When { number, attempt, cohort, deadline_at, now } = when;
    let terms = app.models.of(&task).map_err(|_| Error::fault("a task cannot work as it is stored"))?;
    let privacy = terms.private.as_ref().map(|private| private.terms(base.clip.unwrap_or(private.initial_clip())));
    let session = terms.session_in(base.clip).map(|config| SessionTerms::from(&*config));
    let encoding = terms.encoding().clone();
    let report_loss = task.spec.reports_utility();
    let metrics = task.spec.travelling_metrics();
    let TaskSpec { name, model, training, .. } = task.spec;
    Ok(Assignment {
        task: task.id,
        task_name: name,
        round: number,
        attempt,
        model,
        base: ModelRef { version: base.version, sha256: base.sha256, bytes: base.bytes },
        training,
        encoding,
        metrics,
        privacy,
        secure_aggregation: session,
        report_loss,
        update: None,
        counted: None,
        cohort,
        groups: None,
        deadline_at,
        remaining_ms: u64::try_from(deadline_at.since(now).as_millis()).unwrap_or(u64::MAX),
    })
}
