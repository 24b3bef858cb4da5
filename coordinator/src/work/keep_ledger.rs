//! Stores the ends of privacy ledgers outside the database, and reports at start-up which ledgers do not match.

use std::sync::Arc;

use federation::round::Round;
use federation::task_status::TaskStatus;
use learning::privacy::Ledger;
use store::entity::task::TaskRow;
use store::{StoreError, WakeEvent};

use super::sums::blocking;
use super::{Environment, StepError};
use crate::ledger::{self, LedgerFault};
use recipe::server::PrivateTask;

/// Tasks that are read at once.
const PAGE: u32 = 100;

/// Reads a task's committed ledger.
pub(super) async fn read_ledger(
    env: &Environment,
    task: &TaskRow,
    private: &PrivateTask,
) -> Result<Ledger, LedgerFault> {
    let end = &ledger::stored_end(&env.sealer, task.id).await?;
    env.store.read("privacy ledger", |tx| Box::pin(ledger::read(tx, task, private, &env.sealer, end))).await
}

/// Reads a task's committed ledger and stores its end.
pub(super) async fn keep_ledger(
    env: &Environment,
    task: &TaskRow,
    private: &PrivateTask,
) -> Result<Ledger, LedgerFault> {
    let ledger = read_ledger(env, task, private).await?;
    let (sealer, id, privacy, read) = (Arc::clone(&env.sealer), task.id, task.spec.privacy.clone(), ledger.clone());
    let kept = blocking(move || Ok(ledger::keep_end(&sealer, id, &privacy, &read)?)).await;
    match kept {
        Ok(()) => Ok(ledger),
        Err(StepError::Store(error)) => Err(error.into()),
        Err(error) => Err(StoreError::fault(error).into()),
    }
}

/// Before a version is published: its release is in the ledger, and the ledger's end is stored outside the database.
pub(super) async fn before_publishing(
    env: &Environment,
    task: &TaskRow,
    round: &Round,
    private: &PrivateTask,
) -> Result<(), StepError> {
    let ledger = keep_ledger(env, task, private).await?;
    let of = (u64::from(round.key.round), round.key.attempt);
    if ledger.rows().iter().any(|sealed| (sealed.row.release.round, sealed.row.release.attempt) == of) {
        return Ok(());
    }
    Err(StepError::unworkable(format!(
        "the sum of {} is released, and the privacy ledger has no row for it",
        round.key.round_key()
    )))
}

/// Looks at the ledger of every task that is not over; at the first start of a program that keeps ends, at all of
/// them, to keep theirs. A ledger that does not match is logged, and pauses its task with the reason.
pub(super) async fn check_ledgers(env: &Environment) -> Result<(), StepError> {
    let is_first = !env.sealer.has_every_ledger_end();
    let mut cursor = None;
    loop {
        let page = env.store.read("tasks", |tx| Box::pin(async move { tx.tasks(cursor, PAGE).await })).await?;
        let Some(last) = page.last().map(|task| task.id) else { break };
        cursor = Some(last);
        let matters = |task: &&TaskRow| task.spec.privacy.is_private() && (is_first || !task.status.is_terminal());
        for task in page.iter().filter(matters) {
            check_ledger(env, task).await?;
        }
    }
    let sealer = Arc::clone(&env.sealer);
    blocking(move || Ok(sealer.note_every_ledger_end()?)).await
}

async fn check_ledger(env: &Environment, task: &TaskRow) -> Result<(), StepError> {
    // An unusable task is reported when it is worked on.
    let Some(private) = env.models.of(task).ok().and_then(|model| model.private.clone()) else { return Ok(()) };
    let why = match keep_ledger(env, task, &private).await {
        Ok(_) => match private.opendp() {
            Ok(_) => return Ok(()),
            Err(error) => format!("privacy.sampler {error}"),
        },
        Err(LedgerFault::Store(error)) => return Err(error.into()),
        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => untrusted.to_string(),
    };
    tracing::error!(task = %task.id, name = task.spec.name, "nothing more is released for this task: {why}");
    let (id, why, now) = (task.id, why.as_str(), env.clock.now());
    let pause = env.store.transact("pause task", |tx| {
        Box::pin(async move { tx.set_task_status(id, &[TaskStatus::Active], TaskStatus::Paused, now, Some(why)).await })
    });
    if pause.await? {
        env.store.wake().publish(WakeEvent::Task(id));
    }
    Ok(())
}
