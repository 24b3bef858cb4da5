//! Opens the next attempt at a task's next round.
//!
//! Fixes its limits and base model version, and stores them in its row. A private round also fixes its possible members, and does not open
//! if its cost exceeds the remaining budget.

use federation::id::{Attempt, ParticipantId};
use federation::round::{Round, RoundLimits, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use learning::privacy::LedgerError;
use store::entity::task::TaskRow;
use store::{Transaction, WakeEvent};
use task_spec::OnBudgetEnd;

use super::engine::lease::Lease;
use super::engine::situation::Situation;
use super::keep_ledger::{self, keep_ledger};
use super::selection::sample::{population, sample};
use super::selection::starved;
use super::shred::destroy_keys_of_an_end;
use super::{Environment, StepError};
use crate::maintenance::damage;
use crate::privacy::ledger::{self, Charger, LedgerFault};
use crate::privacy::release_keys::of_the_task;
use crate::rounds::ahead::TrainingStates;
use recipe::TaskModel;
use recipe::server::PrivateTask;

/// Result of opening a round.
enum OpenOutcome {
    /// The facts have changed since they were read.
    Nothing,
    /// The round, and with training ahead the holders of usable updates.
    Opened(Round, Option<Vec<ParticipantId>>),
    /// The round would exceed the privacy budget, its ledger cannot be trusted, or participants refuse.
    Stopped(TaskStatus, String),
}

/// Opens the round, unless facts have changed since `situation` was read, or the privacy budget is insufficient.
pub(super) async fn open_round(
    env: &Environment,
    lease: &mut Lease,
    model: &TaskModel,
    situation: &Situation,
) -> Result<(), StepError> {
    if !base_is_whole(env, situation, env.clock.now()).await? {
        return Ok(());
    }
    let seed = env.random.bytes();
    if let Some(private) = &model.private {
        // Stores the charges of failed rounds. An untrusted ledger stops the task below.
        match keep_ledger(env, &situation.task, private).await {
            Err(LedgerFault::Store(error)) => return Err(error.into()),
            Ok(_) | Err(LedgerFault::Ledger(_) | LedgerFault::End(_)) => {}
        }
    } else if is_stripped(env, &situation.task).await? {
        return Ok(());
    }
    env.fail_point.reached("open_round: before the row")?;
    let charger = &Charger::of_task(&env.models, &env.sealer, &situation.task).await?;
    let holder = &*lease;
    let outcome = env
        .store
        .transact("open round", |tx| {
            Box::pin(async move {
                let (token, now) = holder.confirm(tx, &*env.clock).await?;
                let outcome = insert(tx, charger, model, situation, seed, now).await?;
                holder.give_up(tx, token).await?;
                Ok::<_, StepError>(outcome)
            })
        })
        .await?;
    lease.note(None);
    env.fail_point.reached("open_round: after the row")?;
    match outcome {
        OpenOutcome::Nothing => {}
        OpenOutcome::Opened(round, holders) => {
            tracing::info!(
                task = %round.key.task, round = round.key.round, attempt = round.key.attempt,
                base = round.base_version, "round opened"
            );
            env.store.wake().publish(WakeEvent::Round(round.key.round_key()));
            if let Some(holders) = holders {
                // They are invited to make keys for it, or notified that their update is too old.
                env.store.wake().publish(WakeEvent::Assigned(holders.into()));
            }
            if round.limits.secure.is_some() {
                // Waiting participants are invited to make keys for it. Holders of an update may not have been stored as such yet.
                env.store.wake().publish(WakeEvent::Opened(round.key.task));
            }
        }
        OpenOutcome::Stopped(status, why) => {
            if status.is_terminal() {
                destroy_keys_of_an_end(env, of_the_task(situation.task.id)).await;
            }
            tracing::warn!(task = %situation.task.id, %status, "no round opens: {why}");
            env.store.wake().publish(WakeEvent::Task(situation.task.id));
        }
    }
    Ok(())
}

/// Whether a task created as private is no longer private in its row. If so, it has been paused.
async fn is_stripped(env: &Environment, task: &TaskRow) -> Result<bool, StepError> {
    let why = ledger::why_untrusted(&env.store, &env.sealer, task, None).await?;
    let Some(why) = why else { return Ok(false) };
    keep_ledger::pause(env, task, &why).await?;
    Ok(true)
}

/// Whether the round's base model version exists undamaged. Otherwise the task has been paused: every round would fail, since participants
/// accept no other bytes.
async fn base_is_whole(env: &Environment, situation: &Situation, now: Timestamp) -> Result<bool, StepError> {
    let (task, number) = (situation.task.id, situation.task.model_version);
    let version =
        env.store.read("base version", |tx| Box::pin(async move { tx.model_version(task, number).await })).await?;
    let version =
        version.ok_or_else(|| StepError::unworkable(format!("model version {number} of {task} has no row")))?;
    match damage::open_model(&env.store, &*env.blobs, &version, now).await {
        Ok(_) => Ok(true),
        Err(error) if damage::is_damage(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn insert(
    tx: &mut Transaction<'_>,
    charger: &Charger<'_>,
    model: &TaskModel,
    situation: &Situation,
    seed: [u8; 32],
    now: Timestamp,
) -> Result<OpenOutcome, StepError> {
    let Some(task) = tx.task(situation.task.id).await? else { return Ok(OpenOutcome::Nothing) };
    let key = task.next_round();
    let latest = tx.round(key).await?;
    let same_facts = task.status == TaskStatus::Active
        && task.rounds_completed == situation.task.rounds_completed
        && task.model_version == situation.task.model_version
        && latest.as_ref().map(|row| (row.round.key, row.round.state))
            == situation.latest.as_ref().map(|row| (row.round.key, row.round.state));
    if !same_facts {
        return Ok(OpenOutcome::Nothing);
    }
    let attempt = key.attempt(latest.map_or(1, |row| row.round.key.attempt.saturating_add(1)));
    let mut limits = RoundLimits::of(&task.spec);
    let mut sampled = None;
    if let Some(private) = &model.private {
        if let Some((status, why)) = out_of_budget(tx, &task, private, charger, attempt).await? {
            tx.set_task_status(task.id, &[TaskStatus::Active], status, now, Some(&why)).await?;
            if status.is_terminal() {
                ledger::forget_correlated_noise(tx, task.id).await?;
            }
            return Ok(OpenOutcome::Stopped(status, why));
        }
        if let Some(why) = starved::too_few_left(tx, &task, private).await? {
            starved::pause(tx, attempt, &why, now).await?;
            return Ok(OpenOutcome::Stopped(TaskStatus::Paused, why));
        }
        limits = private.limits(limits);
        // If the privacy figures depend on the draw, it comes last, so that nothing can depend on it.
        if task.spec.sampling_amplifies() {
            limits.sampled = Some(u32::try_from(population(tx, &task).await?.len()).unwrap_or(u32::MAX));
        } else {
            sampled = sample(tx, &task, seed).await?;
            limits.sampled = sampled.as_ref().map(|sampled| u32::try_from(sampled.len()).unwrap_or(u32::MAX));
        }
    }
    let round = Round {
        key: attempt,
        state: RoundState::Selecting,
        base_version: task.model_version,
        limits,
        cohort: 0,
        state_since: now,
        opened_at: now,
        failure: None,
    };
    tx.insert_round(&round).await?;
    if let Some(sampled) = sampled {
        tx.insert_sampled(attempt, &sampled).await?;
    }
    let holders = match task.spec.ahead() {
        Some(ahead) => Some(TrainingStates::read(tx, &task, &ahead, now).await?.holders()),
        None => None,
    };
    Ok(OpenOutcome::Opened(round, holders))
}

/// Whether no round may open: its planned cost exceeds the budget, or its noise cannot be drawn. Returns the task's new status and the
/// reason.
async fn out_of_budget(
    tx: &mut Transaction<'_>,
    task: &TaskRow,
    private: &PrivateTask,
    charger: &Charger<'_>,
    attempt: Attempt,
) -> Result<Option<(TaskStatus, String)>, StepError> {
    let ledger = match charger.ledger(tx, task, private).await {
        Ok(ledger) => ledger,
        Err(LedgerFault::Store(error)) => return Err(error.into()),
        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => {
            return Ok(Some((TaskStatus::Paused, untrusted.to_string())));
        }
    };
    // Rounds require the task's own sampler, without substitutes.
    if let Err(error) = private.opendp() {
        return Ok(Some((TaskStatus::Paused, format!("privacy.sampler {error}"))));
    }
    let release = private.planned(&ledger, attempt.round, attempt.attempt);
    let release = release.map_err(StepError::unworkable)?;
    match ledger.would_exceed(&release) {
        Ok(_) => Ok(None),
        Err(error @ LedgerError::BudgetExceeded { .. }) => {
            let status = match task.spec.privacy.on_budget_end {
                OnBudgetEnd::Pause => TaskStatus::BudgetExhausted,
                OnBudgetEnd::Complete => TaskStatus::Completed,
            };
            Ok(Some((status, error.to_string())))
        }
        Err(error) => Ok(Some((TaskStatus::Paused, error.to_string()))),
    }
}
