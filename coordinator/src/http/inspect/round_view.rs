//! Views of rounds. A page takes a fixed number of statements, plus one for each selecting round; views of ended rounds are cached.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::round::{Round, RoundState};
use federation::time::{self, Timestamp};
use learning::privacy::SealedRow;
use secure_agg::params::MILLION;
use store::entity::noised_sum::SumWork;
use store::entity::round::{RoundChange, RoundMetric, RoundRow};
use store::entity::round_summary::{GroupSummary, RoundSummary};
use store::entity::session_message::MessageKind;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction};
use task_spec::CODEC_METRICS;
use wire::inspect::{
    BufferView, CompressionView, GroupView, ModelVersionRef, PhaseView, RoundView, SessionView, SumWorkView,
};

use super::distribution::distributions;
use crate::http::app::App;
use crate::privacy::rounding::Figures;
use crate::rounds::models::Models;

/// Views of rounds of one task, in the order of `rows`.
///
/// # Errors
/// Errors of the store; [`StoreError::Corrupt`] for a round without a base.
pub(super) async fn views(
    tx: &mut Transaction<'_>,
    app: &App,
    task: &TaskRow,
    rows: Vec<RoundRow>,
) -> Result<Vec<RoundView>, StoreError> {
    let now = app.now();
    let known: Vec<_> = rows.iter().map(|row| app.ended_rounds.find(row)).collect();
    let unknown = || rows.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(row, _)| &row.round);
    let attempts: Vec<_> = unknown().map(|round| (round.key.round, round.key.attempt)).collect();
    let mut summaries = match attempts.as_slice() {
        [] => Vec::new(),
        attempts => tx.round_summaries(task.id, attempts).await?,
    }
    .into_iter();
    let mut views = Vec::with_capacity(rows.len());
    for (row, known) in rows.into_iter().zip(known) {
        let view = match known {
            Some(view) => view,
            None => {
                let summary = summaries.next().unwrap_or_default();
                let present = Present::read(tx, &row.round, now).await?;
                let view = view(&app.models, task, &row, summary, present)?;
                app.ended_rounds.remember(row, &view);
                view
            }
        };
        views.push(view);
    }
    Ok(views)
}

/// Additional data for a round waiting for participants: at most one per task.
struct Present {
    checked_in: u32,
    now: Timestamp,
}

impl Present {
    async fn read(tx: &mut Transaction<'_>, round: &Round, now: Timestamp) -> Result<Self, StoreError> {
        let checked_in = if round.state == RoundState::Selecting {
            let keys_for = round.limits.secure.is_some().then_some(round.key);
            tx.count_checked_in(round.key.task, keys_for, now).await?
        } else {
            0
        };
        Ok(Self { checked_in, now })
    }
}

fn view(
    models: &Models,
    task: &TaskRow,
    row: &RoundRow,
    summary: RoundSummary,
    present: Present,
) -> Result<RoundView, StoreError> {
    let round = &row.round;
    let base = summary
        .base
        .ok_or_else(|| StoreError::corrupt(format!("round {} has no base model", round.key.round_key())))?;
    let secure_aggregation = session_view(models, task, row, &summary.messages);
    let buffer = buffer_view(task, round, &summary.buffered_from);
    let groups = group_views(round, &summary);
    let up = bytes_up(row, &summary.messages);
    let phases = phases(row, &summary, &up, present.checked_in);
    let spent = round.state == RoundState::Failed && was_spent(round, &summary.history);
    let dropped_why: BTreeMap<_, _> = summary.states.into_iter().filter(|(state, _)| state.is_dropped()).collect();
    let charged = summary.charged.and_then(|row| serde_json::from_str::<SealedRow>(&row).ok());
    let figures = Figures::of(&task.spec);
    let metric = |metric: &RoundMetric| (metric.name.clone(), figures.metric(metric));
    let (distributions, means) = distributions(&row.metrics);
    Ok(RoundView {
        task: round.key.task,
        number: round.key.round,
        attempt: round.key.attempt,
        state: round.state,
        failure: round.failure,
        spent,
        phases,
        cohort: round.cohort,
        reported: row.reported,
        dropped: dropped_why.values().sum(),
        dropped_why,
        dropped_in: summary.dropped_in,
        secure_aggregation,
        groups,
        work: summary.work.map(work_view),
        bytes_up: up.values().sum(),
        bytes_down: row.bytes_down,
        metrics: means.into_iter().filter(|metric| !is_codecs(metric)).map(metric).collect(),
        distributions,
        compression: compression_view(models, task, row).map(|view| figures.compression(view, row.reported)),
        buffer,
        epsilon: charged.map(|sealed| super::privacy::epsilon(&sealed.row.total)),
        round_trip_ms: round.limits.round_trip_ms,
        base: ModelVersionRef { version: round.base_version, sha256: base },
        model: summary.made.map(|made| ModelVersionRef { version: made.version, sha256: made.sha256 }),
        rolled_back_to: summary.made.and_then(|made| made.parent).filter(|parent| *parent != round.base_version),
        opened_at: round.opened_at,
        ended_at: row.ended_at,
        seconds: time::seconds(row.ended_at.unwrap_or(present.now).since(round.opened_at)),
    })
}

fn is_codecs(metric: &RoundMetric) -> bool {
    CODEC_METRICS.contains(&metric.name.as_str())
}

/// The savings and the error of compression. The task determines the savings; the error is among the round's metrics.
fn compression_view(models: &Models, task: &TaskRow, row: &RoundRow) -> Option<CompressionView> {
    let compression = task.spec.compression?;
    let model = models.of(task).ok()?;
    let upload_bytes = model.packed_len();
    let [norm, added_error] =
        CODEC_METRICS.map(|name| row.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value));
    Some(CompressionView {
        codec: compression.name().to_owned(),
        upload_bytes,
        ratio: 4.0 * model.tensors.shared.len() as f64 / upload_bytes as f64,
        norm,
        added_error,
    })
}

/// The base versions of the round's ahead-of-round updates, once its cohort is drawn.
fn buffer_view(task: &TaskRow, round: &Round, versions: &[u32]) -> Option<BufferView> {
    let (oldest_version, newest_version) = (*versions.iter().min()?, *versions.iter().max()?);
    let ahead = task.spec.ahead()?;
    let behind = || versions.iter().map(|version| round.base_version.saturating_sub(*version));
    let mean = |sum: f64| sum / versions.len() as f64;
    Some(BufferView {
        mode: task.spec.schedule.mode,
        updates: u32::try_from(versions.len()).unwrap_or(u32::MAX),
        oldest_version,
        newest_version,
        mean_staleness: mean(behind().map(f64::from).sum()),
        max_staleness: round.base_version.saturating_sub(oldest_version),
        mean_weight: mean(behind().map(|staleness| ahead.staleness.weight(staleness)).sum()),
    })
}

/// Whether masked inputs may have left their participants before the round ended.
fn was_spent(round: &Round, history: &[RoundChange]) -> bool {
    history.iter().any(|change| Round { state: change.state, ..round.clone() }.is_spent())
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
    let seconds = |millis: u64| time::seconds(Duration::from_millis(millis));
    SumWorkView {
        coordinator: work.coordinator,
        sum_device: work.sum_device,
        sum_because: work.sum_because,
        unmask_device: work.unmask_device,
        unmask_because: work.unmask_because,
        device_failure: work.device_failure,
        sum_seconds: seconds(work.sum_ms),
        unmask_seconds: seconds(work.unmask_ms),
        keystream_bytes: work.keystream_bytes,
    }
}

/// The session's numbers. They depend only on the task and the cohort size, so they outlive the session.
fn session_view(models: &Models, task: &TaskRow, row: &RoundRow, messages: &Stats) -> Option<SessionView> {
    let round = &row.round;
    let limits = round.limits.secure.filter(|_| round.cohort > 0)?;
    // The members of a session: the group, if the cohort is divided.
    let cohort = round.limits.groups.map_or(round.cohort, |groups| groups.size);
    let config = models.of(task).ok().and_then(|model| model.session.clone());
    let params = models.session_params(task, u16::try_from(cohort).unwrap_or(u16::MAX));
    let count = |kind| count(messages, kind);
    Some(SessionView {
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
    })
}

/// The groups of a divided cohort. All members of a group have the group's score.
fn group_views(round: &Round, summary: &RoundSummary) -> Vec<GroupView> {
    let count = round.limits.groups.map_or(0, |limits| limits.count);
    let view = |group| {
        let GroupSummary { members, reported, anomaly } = summary.groups.get(&group).copied().unwrap_or_default();
        GroupView { group, members, reported, anomaly }
    };
    (0..count).map(view).collect()
}

fn phases(
    row: &RoundRow,
    summary: &RoundSummary,
    bytes_up: &BTreeMap<RoundState, u64>,
    checked_in: u32,
) -> Vec<PhaseView> {
    let RoundSummary { history, messages, bytes_down, .. } = summary;
    let round = &row.round;
    let phase = |(index, change): (usize, &RoundChange)| {
        let next = history.get(index + 1);
        let (min, max) = limits(round, change.state);
        let count = match (change.state, next) {
            // The number drawn, the number present at the end without a cohort, or the number present now.
            (RoundState::Selecting, next) => next.map_or(checked_in, |next| next.count),
            // A running or failed phase counts its messages.
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
            bytes_up: bytes_up.get(&change.state).copied().unwrap_or_default(),
            bytes_down: bytes_down.get(&change.state).copied().unwrap_or_default(),
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
