//! Stores the ends of privacy ledgers outside the database, and reports mismatched ledgers at start-up.

use std::sync::Arc;

use federation::round::Round;
use federation::task_status::TaskStatus;
use learning::privacy::Ledger;
use store::entity::task::TaskRow;
use store::{StoreError, WakeEvent};

use super::summing::sums::blocking;
use super::{Environment, StepError};
use crate::privacy::ledger::{self, LedgerFault};
use crate::records::all_tasks::AllTasks;
use recipe::server::PrivateTask;

/// Reads a task's committed ledger.
pub(super) async fn read_ledger(
    env: &Environment,
    task: &TaskRow,
    private: &PrivateTask,
) -> Result<Ledger, LedgerFault> {
    let ledger = ledger::verify(&env.store, &env.sealer, task, Some(private)).await?;
    ledger.ok_or_else(|| StoreError::fault("a private task without a ledger").into())
}

/// Reads a task's committed ledger and stores its end.
pub(super) async fn keep_ledger(
    env: &Environment,
    task: &TaskRow,
    private: &PrivateTask,
) -> Result<Ledger, LedgerFault> {
    let ledger = read_ledger(env, task, private).await?;
    let (sealer, id, spec, read) = (Arc::clone(&env.sealer), task.id, task.spec.clone(), ledger.clone());
    let kept = blocking(move || Ok(ledger::keep_end(&sealer, id, &spec, &read)?)).await;
    match kept {
        Ok(()) => Ok(ledger),
        Err(StepError::Store(error)) => Err(error.into()),
        Err(error) => Err(StoreError::fault(error).into()),
    }
}

/// Requires, before publication of a version, that its release is in the ledger, and the ledger's end is stored outside the database.
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

/// Checks the ledger of every unfinished task. A ledger that differs from its stored end is logged, and pauses its task with the reason.
pub(super) async fn check_ledgers(env: &Environment) -> Result<(), StepError> {
    let mut tasks = AllTasks::of(&env.store);
    while let Some(page) = tasks.next().await? {
        for task in page.iter().filter(|task| !task.status.is_terminal()) {
            check_ledger(env, task).await?;
        }
    }
    Ok(())
}

async fn check_ledger(env: &Environment, task: &TaskRow) -> Result<(), StepError> {
    // An unusable task is reported when it is processed.
    let Ok(model) = env.models.of(task) else { return Ok(()) };
    let private = model.private.as_deref();
    let Some(why) = ledger::why_untrusted(&env.store, &env.sealer, task, private).await? else {
        if let Some(private) = private {
            keep_ledger(env, task, private).await?;
        }
        return Ok(());
    };
    pause(env, task, &why).await
}

/// Pauses a task with an untrusted ledger.
///
/// # Errors
/// Errors of the store.
pub(super) async fn pause(env: &Environment, task: &TaskRow, why: &str) -> Result<(), StepError> {
    tracing::error!(task = %task.id, name = task.spec.name, "nothing more is released for this task: {why}");
    let (id, now) = (task.id, env.clock.now());
    let pause = env.store.transact("pause task", |tx| {
        Box::pin(async move { tx.set_task_status(id, &[TaskStatus::Active], TaskStatus::Paused, now, Some(why)).await })
    });
    if pause.await? {
        env.store.wake().publish(WakeEvent::Task(id));
    }
    Ok(())
}
