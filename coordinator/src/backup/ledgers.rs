//! Compares the privacy ledgers of a database with their ends outside the database.

use std::sync::Arc;

use store::entity::task::TaskRow;
use store::{Store, StoreError};

use crate::privacy::ledger::{self, LedgerFault};
use crate::privacy::seal::Sealer;
use crate::records::all_tasks::AllTasks;
use crate::rounds::models::Models;

/// Whether a ledger can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LedgerStanding {
    /// All rows verify, and the last row matches the stored end.
    Fits,
    /// Rows were changed or removed, the database is older than a release, or the stored end is missing.
    Wrong(String),
}

/// Verifies the ledgers of all tasks created as private, including finished ones.
///
/// # Errors
/// Errors of the store, and of the secret store with the ends of ledgers.
pub(crate) async fn examine(store: &Store, sealer: &Arc<Sealer>) -> Result<Vec<(TaskRow, LedgerStanding)>, StoreError> {
    let (models, mut tasks, mut examined) = (Models::default(), AllTasks::of(store), Vec::new());
    while let Some(page) = tasks.next().await? {
        for task in page {
            if let Some(standing) = standing(store, &task, &models, sealer).await? {
                examined.push((task, standing));
            }
        }
    }
    Ok(examined)
}

/// The status of a task's ledger; `None` for a task created without privacy.
async fn standing(
    store: &Store,
    task: &TaskRow,
    models: &Models,
    sealer: &Arc<Sealer>,
) -> Result<Option<LedgerStanding>, StoreError> {
    let model = match models.of(task) {
        Ok(model) => model,
        Err(error) => {
            return Ok(task.spec.privacy.is_private().then(|| LedgerStanding::Wrong(error.to_string())));
        }
    };
    match ledger::verify(store, sealer, task, model.private.as_deref()).await {
        Ok(ledger) => Ok(ledger.map(|_| LedgerStanding::Fits)),
        Err(LedgerFault::Store(error)) => Err(error),
        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => {
            Ok(Some(LedgerStanding::Wrong(untrusted.to_string())))
        }
    }
}
