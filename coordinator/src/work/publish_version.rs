//! Publishes the task's next model version from a released sum: a pure function of stored blobs (the sum, the base model, the server
//! optimizer's state), processed slice by slice, then one transaction.

use federation::id::{Attempt, Digest};
use federation::model_version::ModelVersion;
use federation::round::{FailureReason, Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use learning::MetricValue;
use recipe::TaskModel;
use recipe::server::{NextVersion, ReadSeek, RoundTerms, StepFailure, StepFiles, StepOut, step};
use store::entity::round::RoundMetric;
use store::entity::task::TaskRow;
use store::{StoreError, Transaction, WakeEvent};

use super::close_phase::{count_phase, count_round, fail_round};
use super::engine::lease::Lease;
use super::engine::situation::Situation;
use super::gate::restored;
use super::keep_best::{Improvement, promote_best};
use super::keep_ledger;
use super::shred::{before_publishing, destroy_keys_of_an_end};
use super::summing::streams::{Buffering, NewBlob, making, open_verified};
use super::summing::sums::Slices;
use super::traced::trace_sum;
use super::{Environment, StepError};
use crate::maintenance::retention::retire;
use crate::privacy::ledger::forget_correlated_noise;
use crate::privacy::release_keys::of_the_task;
use crate::records::provenance::{self, Signer};
use crate::rounds::ahead::outdated;

/// Reasons why a sum yields no model version.
enum PublishError {
    /// The attempt has no released sum.
    NotReleased,
    /// Honest participants cannot produce this sum.
    ImplausibleSum(String),
    /// The released sum is permanently unreadable.
    Lost(StepError),
    /// The step failed earlier.
    Step(StepError),
}

impl<E: Into<StepError>> From<E> for PublishError {
    fn from(error: E) -> Self {
        Self::Step(error.into())
    }
}

/// Publishes the next version from the base model and the released sum.
pub(super) async fn publish_version(
    env: &Environment,
    lease: &mut Lease,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    let Some(round) = situation.open_round() else { return Ok(()) };
    let began = env.clock.now();
    lease.hold(env).await?;
    let (version, metrics) = match lease.keep_during(env, store_version(env, model, &situation.task, round)).await {
        Ok(stored) => stored,
        Err(reason) => return give_up(env, lease, situation, reason).await,
    };
    let (holder, version, metrics) = (&*lease, &version, &metrics);
    let signer = Signer { models: &env.models, sealer: &env.sealer };
    let (published, outdated) = env
        .store
        .transact("publish version", |tx| {
            Box::pin(async move {
                let confirmed = holder.confirm(tx, &*env.clock).await;
                #[cfg(feature = "deliberate-faults")]
                if confirmed.is_err() && super::releases::spoil::publishes_twice() {
                    let now = env.clock.now();
                    let token = holder.take_anew(tx, now).await?;
                    let published = super::releases::spoil::publish_again(tx, signer, round, version, now).await?;
                    holder.give_up(tx, token).await?;
                    return Ok((published, Vec::new()));
                }
                let (token, now) = confirmed?;
                let published = complete(tx, signer, round, version, metrics, now).await?;
                let outdated = outdated(tx, round.key.task, now).await?;
                holder.give_up(tx, token).await?;
                Ok::<_, StepError>((published, outdated))
            })
        })
        .await?;
    lease.note(None);
    env.fail_point.reached("publish_version: after the rows")?;
    if published.is_some_and(TaskStatus::is_terminal) {
        destroy_keys_of_an_end(env, of_the_task(round.key.task)).await;
    }
    if let Some(status) = published {
        trace_sum(env, round.key, "publish", began).await;
        announce(env, round, version, status);
    }
    if !outdated.is_empty() {
        env.store.wake().publish(WakeEvent::Assigned(outdated.into()));
    }
    Ok(())
}

/// Computes the version, and stores its bytes and lasting data; returns its row and the round's metrics.
async fn store_version(
    env: &Environment,
    model: &TaskModel,
    task: &TaskRow,
    round: &Round,
) -> Result<(ModelVersion, Vec<RoundMetric>), PublishError> {
    if let Some(private) = &model.private {
        keep_ledger::before_publishing(env, task, round, private).await?;
    }
    before_publishing(env, round.key, model.private.as_deref()).await?;
    let BuiltVersion { next, version, optimizer_state } = make(env, model, round).await?;
    let metrics: Vec<_> = next
        .metrics
        .into_iter()
        .map(|(name, MetricValue { value, count })| RoundMetric { name, value, count })
        .collect();
    let restored = restored(env, task, round, &metrics).await?;
    env.fail_point.reached("publish_version: before the blob")?;
    let optimizer_state = match optimizer_state {
        Some(state) => Some(state.store(&env.blobs).await?.0),
        None => None,
    };
    env.fail_point.reached("publish_version: after the optimizer's state")?;
    let (sha256, bytes) = version.store(&env.blobs).await?;
    env.fail_point.reached("publish_version: after the blob")?;
    let version = ModelVersion {
        task: round.key.task,
        version: round.base_version.saturating_add(1),
        sha256,
        bytes,
        round: Some(round.key.round),
        parent: Some(round.base_version),
        clip: next.clip,
        optimizer_state,
        created_at: env.clock.now(),
    };
    let version = match restored {
        Some(good) => good.again(version.version, version.round, version.created_at),
        None => version,
    };
    Ok((version, metrics))
}

/// A computed but unstored version.
struct BuiltVersion {
    next: NextVersion,
    version: NewBlob,
    optimizer_state: Option<NewBlob>,
}

/// Reads the released sum and the base model, and takes the server's step.
async fn make(env: &Environment, model: &TaskModel, round: &Round) -> Result<BuiltVersion, PublishError> {
    let (attempt, base_version) = (round.key, round.base_version);
    let (sum, base) = env
        .store
        .read("released sum", |tx| {
            Box::pin(async move {
                let sum = tx.noised_sum(attempt).await?;
                let base = tx.model_version(attempt.task, base_version).await?;
                Ok::<_, StoreError>((sum, base))
            })
        })
        .await?;
    let sum = sum.ok_or(PublishError::NotReleased)?;
    let base = base
        .ok_or_else(|| StepError::unworkable(format!("model version {base_version} of {} has no row", attempt.task)))?;
    let slices = Slices::of_files(model, &env.config);
    let mut sum = match open_verified(&env.blobs, sum.blob, slices).await.map_err(StepError::from) {
        Err(error) if error.is_loss() => return Err(PublishError::Lost(error)),
        opened => opened?,
    };
    let terms = RoundTerms::new(model, base.clip, attempt);
    let mut state = match base.optimizer_state {
        Some(blob) => Some(open_verified(&env.blobs, blob, slices).await?),
        None => None,
    };
    // After a restored first version, or one without a kept optimizer state, the optimizer starts anew.
    let starts_anew = base.optimizer_state.is_none() && base.restored_from().is_some();
    let version = if starts_anew { 0 } else { base_version };
    let about = usize::try_from(base.bytes).unwrap_or_default();
    let mut base = open_verified(&env.blobs, base.sha256, slices).await?;
    let (model, slice) = (model.clone(), slices.length());
    let of_state = if model.optimizer.remembers() { about.saturating_mul(2) } else { 0 };
    let held = [Buffering::of(slices, about), Buffering::of(slices, of_state)];
    let (next, [made, made_state]) = making(&env.blobs, held, move |[version_out, state_out]| {
        let optimizer_state = state.as_mut().map(|state| &mut **state as &mut dyn ReadSeek);
        let files = StepFiles { sum: &mut *sum, base: &mut *base, optimizer_state };
        let out = StepOut { version: version_out, optimizer_state: state_out };
        step(&model, &terms, version, files, out, slice).map_err(|failure| match failure {
            StepFailure::ImplausibleSum(problem) => PublishError::ImplausibleSum(problem),
            StepFailure::UnusableBase(problem) => StepError::unworkable(problem).into(),
            StepFailure::Io(error) => PublishError::Step(StoreError::from(error).into()),
        })
    })
    .await?;
    let optimizer_state = next.has_state.then_some(made_state);
    Ok(BuiltVersion { next, version: made, optimizer_state })
}

async fn give_up(
    env: &Environment,
    lease: &mut Lease,
    situation: &Situation,
    reason: PublishError,
) -> Result<(), StepError> {
    let task = situation.task.id;
    match reason {
        PublishError::NotReleased => Ok(()),
        PublishError::ImplausibleSum(problem) => {
            tracing::error!(%task, problem, "honest participants cannot have made this sum");
            fail_round(env, lease, situation, FailureReason::GarbageSum).await
        }
        PublishError::Lost(error) => {
            tracing::error!(%task, %error, "the released sum cannot be read any more");
            fail_round(env, lease, situation, FailureReason::InputLost).await
        }
        PublishError::Step(error) => Err(error),
    }
}

/// Stores the model version, the round's result and end, and the task's progress in one transaction. Returns the task's status; `None` if
/// the attempt has already ended.
async fn complete(
    tx: &mut Transaction<'_>,
    signer: Signer<'_>,
    round: &Round,
    version: &ModelVersion,
    metrics: &[RoundMetric],
    now: Timestamp,
) -> Result<Option<TaskStatus>, StepError> {
    let attempt = round.key;
    let Some(task) = tx.task(attempt.task).await? else { return Ok(None) };
    let Some(row) = tx.round_attempt(attempt).await? else { return Ok(None) };
    let before = row.round;
    let after = Round { state: RoundState::Completed, state_since: now, ..before.clone() };
    if before.state != RoundState::Aggregating
        || attempt.round_key() != task.next_round()
        || !tx.transition_round(&before, &after).await?
    {
        return Ok(None);
    }
    provenance::publish(tx, signer, &task, version, Some(attempt)).await?;
    tx.set_round_result(attempt, metrics, Some(version.version)).await?;
    let completed = task.rounds_completed.saturating_add(1);
    tx.task_advanced(attempt.task, completed, version.version).await?;
    let Improvement { promoted, end } = promote_best(tx, &task, now).await?;
    let task = TaskRow { model_version: version.version, promoted_version: promoted, ..task };
    retire(tx, &task, now).await?;
    let end = if completed >= task.spec.rounds.count { Some("every round is done".to_owned()) } else { end };
    let Some(end) = end else { return Ok(Some(task.status)) };
    let running = [TaskStatus::Active, TaskStatus::Paused, TaskStatus::BudgetExhausted];
    tx.set_task_status(attempt.task, &running, TaskStatus::Completed, now, Some(&end)).await?;
    forget_correlated_noise(tx, attempt.task).await?;
    Ok(Some(TaskStatus::Completed))
}

fn announce(env: &Environment, round: &Round, version: &ModelVersion, status: TaskStatus) {
    let Attempt { task, round: number, attempt } = round.key;
    let sha256: Digest = version.sha256;
    tracing::info!(%task, round = number, attempt, version = version.version, %sha256, "model version published");
    let now = env.clock.now();
    count_phase(env, round, &Round { state_since: now, ..round.clone() });
    env.traces.ended(round, "completed", now);
    count_round("completed", "");
    let wake = env.store.wake();
    wake.publish(WakeEvent::Round(round.key.round_key()));
    if status == TaskStatus::Completed {
        tracing::info!(%task, rounds = number, "task completed");
        wake.publish(WakeEvent::Task(task));
    } else {
        // Waiting participants are not woken: the next round notifies its drawn ones.
        wake.publish(WakeEvent::Work);
    }
}
