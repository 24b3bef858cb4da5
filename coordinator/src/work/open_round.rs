//! Opens the next attempt at a task's next round.
//!
//! Its limits, and the model version it starts from, are fixed here and kept in its row.

use federation::round::{Round, RoundState};
use federation::task::TaskStatus;
use federation::time::Timestamp;
use store::{Transaction, WakeEvent};

use super::lease::Lease;
use super::situation::{Situation, next_round};
use super::{Environment, StepError};

/// Opens it, unless facts have changed since `situation` was read.
pub(super) async fn open_round(env: &Environment, lease: &mut Lease, situation: &Situation) -> Result<(), StepError> {
    let now = env.clock.now();
    env.fail_point.reached("open_round: before the row")?;
    let holder = &*lease;
    let opened = env
        .store
        .transact("open round", |tx| {
            Box::pin(async move {
                holder.confirm(tx, now).await?;
                let opened = insert(tx, situation, now).await?;
                holder.give_up(tx).await?;
                Ok::<_, StepError>(opened)
            })
        })
        .await?;
    lease.note(false);
    env.fail_point.reached("open_round: after the row")?;
    if let Some(round) = opened {
        tracing::info!(
            task = %round.key.task, round = round.key.number, attempt = round.attempt,
            base = round.base_version, "round opened"
        );
        env.store.wake().publish(WakeEvent::Round(round.key));
        if round.limits.secure.is_some() {
            // Those who wait are invited to make keys for it.
            env.store.wake().publish(WakeEvent::Opened(round.key.task));
        }
    }
    Ok(())
}

async fn insert(tx: &mut dyn Transaction, situation: &Situation, now: Timestamp) -> Result<Option<Round>, StepError> {
    let Some(task) = tx.task(situation.task.id).await? else { return Ok(None) };
    let key = next_round(&task);
    let latest = tx.round(key).await?;
    let same_facts = task.status == TaskStatus::Active
        && task.rounds_completed == situation.task.rounds_completed
        && latest.as_ref().map(|row| (row.round.attempt, row.round.state))
            == situation.latest.as_ref().map(|row| (row.round.attempt, row.round.state));
    if !same_facts {
        return Ok(None);
    }
    let round = Round {
        key,
        attempt: latest.map_or(1, |row| row.round.attempt.saturating_add(1)),
        state: RoundState::Selecting,
        base_version: task.model_version,
        limits: task.spec.round_limits(),
        cohort: 0,
        state_since: now,
        opened_at: now,
        failure: None,
    };
    tx.insert_round(&round).await?;
    Ok(Some(round))
}
