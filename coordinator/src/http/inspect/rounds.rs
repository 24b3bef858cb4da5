//! `GET /v1/tasks/{task}/rounds`, `…/rounds/{round}` and `…/rounds/{round}/assignments`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use federation::id::{ParticipantId, RoundKey};
use federation::round::{Assignment, AssignmentState, Round, RoundState};
use federation::time::Timestamp;
use learning::privacy::SealedRow;
use secure_agg::params::MILLION;
use serde::Deserialize;
use store::entity::assignment::AssignmentChange;
use store::entity::noised_sum::SumWork;
use store::entity::round::{RoundChange, RoundMetric, RoundRow};
use store::entity::session_message::MessageKind;
use store::{StoreError, Transaction, WakeEvent};
use task_spec::CODEC_METRICS;
use wire::inspect::{
    AssignmentView, BufferView, CompressionView, GroupView, MetricView, ModelVersionRef, Page, PhaseView, RoundView,
    SessionView, StatusChange, SumWorkView,
};

use super::distribution::distributions;
use super::{PageQuery, page};
use crate::http::app::App;
use crate::http::authenticate::Viewer;
use crate::http::extract::{Json, Path, Query};
use crate::http::problem::{Error, Result};
use crate::model::TaskModel;
use crate::session::given_by;

pub(in crate::http) async fn list(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path(task): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<RoundView>>> {
    let (limit, before) = (query.limit()?, query.cursor::<u32>()?);
    let (task, now) = (app.task(&task).await?.id, app.now());
    let views = app
        .store
        .read("list_rounds", |tx| {
            Box::pin(async move {
                let mut views = Vec::new();
                for row in tx.rounds(task, before, limit + 1).await? {
                    views.push(view(tx, row, now).await?);
                }
                Ok::<_, StoreError>(views)
            })
        })
        .await?;
    Ok(Json(page(views, limit, |view| view.number.to_string(), |view| view)))
}

/// `?attempt=…`, or `?after_state=…&wait_ms=…`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct RoundQuery {
    attempt: Option<u32>,
    after_state: Option<RoundState>,
    wait_ms: u64,
}

pub(in crate::http) async fn show(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(String, u32)>,
    Query(query): Query<RoundQuery>,
) -> Result<Json<RoundView>> {
    let key = RoundKey { task: app.task(&task).await?.id, number };
    let wait = Duration::from_millis(query.wait_ms).min(app.settings.poll_max);
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    // Subscribed before the first look: what changes in between is not missed.
    let mut events = app.store.wake().subscribe();
    loop {
        let found = find(&app, key, query.attempt).await?;
        // One that does not exist yet may be waited for as well.
        let found = match found {
            Some(view) if query.after_state != Some(view.state) => return Ok(Json(view)),
            found => found,
        };
        let changed = async {
            while let Some(event) = events.next().await {
                if matches!(event, WakeEvent::Round(round) if round == key) || event == WakeEvent::Lost {
                    return;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = &mut end => {
                return found.map(Json).ok_or_else(|| Error::NotFound(format!("the task has no round {number} yet")));
            }
            () = app.shutdown.cancelled() => {
                return found.map(Json).ok_or(Error::ShuttingDown);
            }
        }
    }
}

async fn find(app: &App, key: RoundKey, attempt: Option<u32>) -> Result<Option<RoundView>> {
    let now = app.now();
    app.store
        .read("show_round", |tx| {
            Box::pin(async move {
                let row = match attempt {
                    Some(attempt) => tx.round_attempt(key, attempt).await?,
                    None => tx.round(key).await?,
                };
                match row {
                    Some(row) => view(tx, row, now).await.map(Some),
                    None => Ok(None),
                }
            })
        })
        .await
        .map_err(Error::Store)
}

async fn view(
    tx: &mut (dyn Transaction + '_),
    row: RoundRow,
    now: Timestamp,
) -> std::result::Result<RoundView, StoreError> {
    let round = &row.round;
    let history = tx.round_history(round.key, round.attempt).await?;
    let states = tx.count_by_state(round.key, round.attempt).await?;
    let dropped_why: BTreeMap<_, _> = states.into_iter().filter(|(state, _)| state.is_dropped()).collect();
    let messages = tx.message_stats(round.key, round.attempt).await?;
    let traffic = Traffic { up: bytes_up(&row, &messages), down: tx.traffic(round.key, round.attempt).await? };
    let checked_in = if round.state == RoundState::Selecting {
        let keys_for = round.limits.secure.is_some().then_some((round.key.number, round.attempt));
        tx.count_checked_in(round.key.task, keys_for, now).await?
    } else {
        0
    };
    let work = tx.noised_sum(round.key, round.attempt).await?.and_then(|sum| sum.work).map(work_view);
    let secure_aggregation = session_view(tx, &row, &messages).await?;
    let buffer = buffer_view(tx, round).await?;
    let groups = group_views(tx, round).await?;
    let base = reference(tx, round.key, round.base_version).await?;
    let made = match row.model_version {
        Some(version) => tx.model_version(round.key.task, version).await?,
        None => None,
    };
    let rolled_back_to = made.as_ref().and_then(|made| made.parent).filter(|parent| *parent != round.base_version);
    let model = made.map(|made| ModelVersionRef { version: made.version, sha256: made.sha256 });
    let compression = compression_view(tx, &row).await?;
    let charged = tx.privacy_row_of(round.key, round.attempt).await?;
    let charged = charged.and_then(|row| serde_json::from_str::<SealedRow>(&row.row).ok());
    let epsilon = charged.map(|sealed| super::privacy::epsilon(&sealed.row.total));
    let base = base.ok_or_else(|| StoreError::Corrupt(format!("round {} has no base model", round.key)))?;
    let metric = |metric: &RoundMetric| (metric.name.clone(), MetricView { value: metric.value, count: metric.count });
    let (distributions, means) = distributions(&row.metrics);
    Ok(RoundView {
        task: round.key.task,
        number: round.key.number,
        attempt: round.attempt,
        state: round.state,
        failure: round.failure,
        spent: round.state == RoundState::Failed && was_spent(round, &history),
        phases: phases(&row, &history, &messages, &traffic, checked_in),
        cohort: round.cohort,
        reported: row.reported,
        dropped: dropped_why.values().sum(),
        dropped_why,
        dropped_in: tx.count_dropped_by_phase(round.key, round.attempt).await?,
        secure_aggregation,
        groups,
        work,
        bytes_up: traffic.up.values().sum(),
        bytes_down: row.bytes_down,
        metrics: means.into_iter().filter(|metric| !is_codecs(metric)).map(metric).collect(),
        distributions,
        compression,
        buffer,
        epsilon,
        base_given_by: given_by(tx, round).await?,
        round_trip_ms: round.limits.round_trip_ms,
        base,
        model,
        rolled_back_to,
        opened_at: round.opened_at,
        ended_at: row.ended_at,
        seconds: row.ended_at.unwrap_or(now).since(round.opened_at).as_secs_f64(),
    })
}

async fn reference(
    tx: &mut (dyn Transaction + '_),
    key: RoundKey,
    version: u32,
) -> std::result::Result<Option<ModelVersionRef>, StoreError> {
    let found = tx.model_version(key.task, version).await?;
    Ok(found.map(|model| ModelVersionRef { version, sha256: model.sha256 }))
}

fn is_codecs(metric: &RoundMetric) -> bool {
    CODEC_METRICS.contains(&metric.name.as_str())
}

/// What it saves follows from the task; what it costs is kept among the round's metrics.
async fn compression_view(
    tx: &mut (dyn Transaction + '_),
    row: &RoundRow,
) -> std::result::Result<Option<CompressionView>, StoreError> {
    let Some(task) = tx.task(row.round.key.task).await? else { return Ok(None) };
    let Some(compression) = task.spec.compression else { return Ok(None) };
    let Ok(model) = TaskModel::new(&task.spec) else { return Ok(None) };
    let upload_bytes = model.packed_len();
    let [norm, added_error] =
        CODEC_METRICS.map(|name| row.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value));
    Ok(Some(CompressionView {
        codec: compression.name().to_owned(),
        upload_bytes,
        ratio: 4.0 * model.shared.len() as f64 / upload_bytes as f64,
        norm,
        added_error,
    }))
}

/// The updates of the round that were trained ahead of it, once its cohort is drawn.
async fn buffer_view(
    tx: &mut (dyn Transaction + '_),
    round: &Round,
) -> std::result::Result<Option<BufferView>, StoreError> {
    let updates = tx.all_buffered(round.key, round.attempt).await?;
    let versions = || updates.iter().map(|update| update.base_version);
    let (Some(oldest_version), Some(newest_version)) = (versions().min(), versions().max()) else { return Ok(None) };
    let Some(task) = tx.task(round.key.task).await? else { return Ok(None) };
    let Some(ahead) = task.spec.ahead() else { return Ok(None) };
    let behind = || versions().map(|version| round.base_version.saturating_sub(version));
    let mean = |sum: f64| sum / updates.len() as f64;
    Ok(Some(BufferView {
        mode: task.spec.schedule.mode,
        updates: u32::try_from(updates.len()).unwrap_or(u32::MAX),
        oldest_version,
        newest_version,
        mean_staleness: mean(behind().map(f64::from).sum()),
        max_staleness: round.base_version.saturating_sub(oldest_version),
        mean_weight: mean(behind().map(|staleness| ahead.staleness.weight(staleness)).sum()),
    }))
}

/// Whether masked inputs may have left their participants before it ended.
fn was_spent(round: &Round, history: &[RoundChange]) -> bool {
    history.iter().any(|change| Round { state: change.state, ..round.clone() }.is_spent())
}

/// Bytes, by the state in which they went.
struct Traffic {
    up: BTreeMap<RoundState, u64>,
    down: BTreeMap<RoundState, u64>,
}

fn bytes_up(row: &RoundRow, messages: &Stats) -> BTreeMap<RoundState, u64> {
    let mut up = BTreeMap::from([(RoundState::Collecting, row.bytes_up)]);
    for (kind, (_, bytes)) in messages {
        let state = match kind {
            MessageKind::Shares => RoundState::Sharing,
            MessageKind::Input | MessageKind::Complaint => RoundState::Collecting,
            MessageKind::Consistency => RoundState::Confirming,
            MessageKind::Unmasking => RoundState::Unmasking,
        };
        *up.entry(state).or_default() += bytes;
    }
    up
}

type Stats = BTreeMap<MessageKind, (u32, u64)>;

fn count(messages: &Stats, kind: MessageKind) -> u32 {
    messages.get(&kind).map_or(0, |(count, _)| *count)
}

fn work_view(work: SumWork) -> SumWorkView {
    let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
    SumWorkView {
        sum_device: work.sum_device,
        unmask_device: work.unmask_device,
        sum_seconds: seconds(work.sum_ms),
        unmask_seconds: seconds(work.unmask_ms),
        keystream_bytes: work.keystream_bytes,
    }
}

/// The session's numbers follow from the task and the cohort's size, so they can be told when the session is long over.
async fn session_view(
    tx: &mut (dyn Transaction + '_),
    row: &RoundRow,
    messages: &Stats,
) -> std::result::Result<Option<SessionView>, StoreError> {
    let round = &row.round;
    let Some(limits) = round.limits.secure.filter(|_| round.cohort > 0) else { return Ok(None) };
    let task = tx.task(round.key.task).await?;
    let model = task.and_then(|task| TaskModel::new(&task.spec).ok());
    // Who shares a session: of a cohort that is divided, a group.
    let cohort = round.limits.groups.map_or(round.cohort, |groups| groups.size);
    let small = u16::try_from(cohort).unwrap_or(u16::MAX);
    let config = model.and_then(|model| model.session);
    let params = config.as_ref().and_then(|config| config.params(small).ok());
    let count = |kind| count(messages, kind);
    Ok(Some(SessionView {
        threshold: limits.threshold,
        out_degree: params.as_ref().map_or(0, |params| params.out_degree().into()),
        min_out: params.as_ref().map_or(0, |params| params.min_out().into()),
        tolerated_corrupt: config.map_or(0, |config| {
            let corrupt = u64::from(config.max_corrupt) * u64::from(cohort) / u64::from(MILLION);
            u32::try_from(corrupt).unwrap_or(u32::MAX)
        }),
        advertised: round.cohort,
        shared: count(MessageKind::Shares),
        included: row.reported,
        signed: count(MessageKind::Consistency),
        unmasked: count(MessageKind::Unmasking),
    }))
}

fn phases(
    row: &RoundRow,
    history: &[RoundChange],
    messages: &Stats,
    traffic: &Traffic,
    checked_in: u32,
) -> Vec<PhaseView> {
    let round = &row.round;
    let phase = |(index, change): (usize, &RoundChange)| {
        let next = history.get(index + 1);
        let (min, max) = limits(round, change.state);
        let count = match (change.state, next) {
            // How many were drawn, or were there when it ended without a cohort, or are there now.
            (RoundState::Selecting, next) => next.map_or(checked_in, |next| next.count),
            // Of a phase that still runs, or ended in failure, only its messages tell.
            (RoundState::Sharing, _) => count(messages, MessageKind::Shares),
            (RoundState::Confirming, _) => count(messages, MessageKind::Consistency),
            (RoundState::Unmasking, _) => count(messages, MessageKind::Unmasking),
            (_, Some(next)) => next.count,
            (_, None) => row.reported,
        };
        PhaseView {
            state: change.state,
            started_at: change.at,
            ended_at: next.map(|next| next.at),
            deadline_at: round.deadline_at().filter(|_| next.is_none()),
            min,
            max,
            count: Some(count),
            bytes_up: traffic.up.get(&change.state).copied().unwrap_or_default(),
            bytes_down: traffic.down.get(&change.state).copied().unwrap_or_default(),
        }
    };
    history.iter().enumerate().filter(|(_, change)| !change.state.is_terminal()).map(phase).collect()
}

fn limits(round: &Round, state: RoundState) -> (Option<u32>, Option<u32>) {
    match state {
        RoundState::Selecting => (Some(round.limits.select.min), Some(round.limits.select.max)),
        RoundState::Collecting => (Some(round.limits.collect.min), Some(round.limits.collect.max)),
        RoundState::Sharing | RoundState::Confirming | RoundState::Unmasking => {
            (Round { state, ..round.clone() }.answers_needed(), None)
        }
        RoundState::Aggregating | RoundState::Completed | RoundState::Failed | RoundState::Cancelled => (None, None),
    }
}

/// `?attempt=…&cursor=…&limit=…`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct AssignmentsQuery {
    attempt: Option<u32>,
    cursor: Option<String>,
    limit: Option<u32>,
}

pub(in crate::http) async fn assignments(
    _: Viewer,
    State(app): State<Arc<App>>,
    Path((task, number)): Path<(String, u32)>,
    Query(query): Query<AssignmentsQuery>,
) -> Result<Json<Page<AssignmentView>>> {
    let key = RoundKey { task: app.task(&task).await?.id, number };
    let paging = PageQuery { cursor: query.cursor, limit: query.limit };
    let (limit, cursor, attempt) = (paging.limit()?, paging.cursor::<ParticipantId>()?, query.attempt);
    let views = app
        .store
        .read("list_assignments", |tx| {
            Box::pin(async move {
                let row = match attempt {
                    Some(attempt) => tx.round_attempt(key, attempt).await?,
                    None => tx.round(key).await?,
                };
                let Some(round) = row.map(|row| row.round) else {
                    return Err(Error::NotFound(format!("the task has no round {number}, or no such attempt at it")));
                };
                let sets = Sets::read(tx, &round).await?;
                let mut views = Vec::new();
                for assignment in tx.assignments(key, round.attempt, cursor, limit + 1).await? {
                    views.push(assignment_view(tx, assignment, &sets).await?);
                }
                Ok(views)
            })
        })
        .await?;
    Ok(Json(page(views, limit, |view| view.participant.to_string(), |view| view)))
}

/// Who sent what in a session: the members of U2, U3, U4 and U5.
struct Sets(Vec<(&'static str, HashSet<ParticipantId>)>);

impl Sets {
    async fn read(tx: &mut (dyn Transaction + '_), round: &Round) -> std::result::Result<Self, StoreError> {
        if round.limits.secure.is_none() {
            return Ok(Self(Vec::new()));
        }
        let mut sets = Vec::new();
        for (name, kind) in [
            ("U2", MessageKind::Shares),
            ("U3", MessageKind::Input),
            ("U4", MessageKind::Consistency),
            ("U5", MessageKind::Unmasking),
        ] {
            sets.push((name, tx.message_senders(round.key, round.attempt, kind).await?.into_iter().collect()));
        }
        Ok(Self(sets))
    }

    fn of(&self, participant: ParticipantId) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let members = self.0.iter().filter(|(_, set)| set.contains(&participant)).map(|(name, _)| *name);
        // Whoever was drawn had advertised.
        ["U1"].into_iter().chain(members).map(str::to_owned).collect()
    }
}

/// The groups of a cohort that was divided. Everybody in a group has the group's score.
async fn group_views(
    tx: &mut (dyn Transaction + '_),
    round: &Round,
) -> std::result::Result<Vec<GroupView>, StoreError> {
    let Some(limits) = round.limits.groups.filter(|limits| limits.count > 0) else { return Ok(Vec::new()) };
    let cohort = tx.assignments(round.key, round.attempt, None, limits.count.saturating_mul(limits.size)).await?;
    let mut groups = Vec::new();
    for group in 0..limits.count {
        let members = || cohort.iter().filter(|member| member.group == Some(group));
        let is_reported = |member: &&Assignment| member.state == AssignmentState::Reported;
        let count = |members: usize| u32::try_from(members).unwrap_or(u32::MAX);
        let anomaly = match members().find(is_reported) {
            Some(member) => tx.anomaly_score(round.key, round.attempt, member.participant).await?,
            None => None,
        };
        let (members, reported) = (count(members().count()), count(members().filter(is_reported).count()));
        groups.push(GroupView { group, members, reported, anomaly });
    }
    Ok(groups)
}

async fn assignment_view(
    tx: &mut (dyn Transaction + '_),
    assignment: Assignment,
    sets: &Sets,
) -> std::result::Result<AssignmentView, StoreError> {
    let Assignment { round, attempt, participant, .. } = assignment;
    let name = tx.participant(participant).await?.map_or_else(|| participant.to_string(), |row| row.name);
    let change = |change: AssignmentChange| StatusChange {
        status: change.state.to_string(),
        at: change.at,
        detail: change.detail,
    };
    let history = tx.assignment_history(round, attempt, participant).await?;
    Ok(AssignmentView {
        participant,
        name,
        state: assignment.state,
        detail: assignment.detail,
        dropped_in: assignment.dropped_in,
        group: assignment.group,
        sets: sets.of(participant),
        bytes_up: tx.admitted(round, attempt, participant).await?.map(|admitted| admitted.bytes),
        anomaly: tx.anomaly_score(round, attempt, participant).await?,
        history: history.into_iter().map(change).collect(),
    })
}
