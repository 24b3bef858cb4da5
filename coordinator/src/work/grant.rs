//! Assigns asynchronous trainings to waiting participants, up to the task's limit.
//!
//! The task's selector draws them like a cohort; their base version is stored before they are notified.

use federation::cohort::{self, History};
use federation::id::ParticipantId;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::{Transaction, WakeEvent};

use super::engine::lease::Lease;
use super::engine::situation::Situation;
use super::selection::waiting::{free_places, waiting};
use super::{Environment, StepError};
use crate::rounds::ahead::{TrainingStates, filled_next, last_opened};

/// Fills the free slots.
pub(super) async fn grant(env: &Environment, lease: &mut Lease, situation: &Situation) -> Result<(), StepError> {
    let fresh_seed = env.random.bytes();
    env.fail_point.reached("grant: before the rows")?;
    let (holder, id) = (&*lease, situation.task.id);
    let granted = env
        .store
        .transact("grant trainings", |tx| {
            Box::pin(async move {
                let (token, now) = holder.confirm(tx, &*env.clock).await?;
                let granted = insert(tx, id, fresh_seed, now).await?;
                holder.give_up(tx, token).await?;
                Ok::<_, StepError>(granted)
            })
        })
        .await?;
    lease.note(None);
    env.fail_point.reached("grant: after the rows")?;
    if !granted.is_empty() {
        tracing::info!(task = %id, participants = granted.len(), "told to train ahead");
        metrics::counter!("tributary_trainings_granted_total").increment(granted.len() as u64);
        env.store.wake().publish(WakeEvent::Assigned(granted.into()));
    }
    Ok(())
}

async fn insert(
    tx: &mut Transaction<'_>,
    id: federation::id::TaskId,
    fresh_seed: [u8; 32],
    now: Timestamp,
) -> Result<Vec<ParticipantId>, StepError> {
    let Some(task) = tx.task(id).await? else { return Ok(Vec::new()) };
    let Some(ahead) = task.spec.ahead() else { return Ok(Vec::new()) };
    let latest = tx.round(task.next_round()).await?;
    let number = filled_next(&task, latest.as_ref().map(|row| &row.round));
    let Some(number) = number.filter(|_| task.status == TaskStatus::Active) else { return Ok(Vec::new()) };
    let standings = TrainingStates::read(tx, &task, &ahead, now).await?;
    let places = free_places(&standings, &ahead, last_opened(tx, &task).await?);
    let candidates = waiting(tx, &task, &standings, number, now).await?;
    let seed = task.spec.selection.seed.map_or(fresh_seed, |seed| draw_seed(seed, now));
    let rng = &mut ChaCha20Rng::from_seed(seed);
    let history = History { round: number, utilities: Vec::new() };
    let mut chosen =
        cohort::selector(&task.spec.selection.strategy).select(&candidates, &history, places as usize, rng);
    chosen.sort_unstable();
    tx.grant_trainings(id, &chosen, task.model_version, now, now.plus(ahead.training_deadline)).await?;
    tx.remove_check_ins(&chosen).await?;
    Ok(chosen)
}

/// Varies with time, and is the same in every process.
fn draw_seed(seed: u64, now: Timestamp) -> [u8; 32] {
    let mut key = *b"----------------tributary grants";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&now.0.to_le_bytes());
    key
}
