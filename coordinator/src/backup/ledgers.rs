//! The privacy ledgers of a database, held against what was kept of them outside it.

use std::sync::Arc;

use store::entity::task::TaskRow;
use store::{Store, StoreError};

use crate::ledger::{self, LedgerFault};
use crate::ledger_end::StoredEnd;
use crate::models::Models;
use crate::seal::Sealer;

/// Tasks that are read at once.
const PAGE: u32 = 100;

/// Whether a ledger can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LedgerStanding {
    /// Every row is as it was written, and the last one is the one that was kept outside.
    Fits,
    /// Every row is as it was written, but nothing was kept outside: releases after the last row cannot be ruled out.
    Unconfirmed,
    /// Rows were changed or removed, or the database is older than a release.
    Wrong(String),
}

/// The ledgers of private tasks that are not over.
///
/// # Errors
/// The store's, and those of the shelf with the ends of ledgers.
pub(crate) async fn examine(store: &Store, sealer: &Arc<Sealer>) -> Result<Vec<(TaskRow, LedgerStanding)>, StoreError> {
    let (models, mut cursor, mut examined) = (Models::default(), None, Vec::new());
    loop {
        let page = store.read("tasks", |tx| Box::pin(async move { tx.tasks(cursor, PAGE).await })).await?;
        let Some(last) = page.last() else { return Ok(examined) };
        cursor = Some(last.id);
        for task in page.into_iter().filter(|task| task.spec.privacy.is_private() && !task.status.is_terminal()) {
            let standing = standing(store, &task, &models, sealer).await?;
            examined.push((task, standing));
        }
    }
}

async fn standing(
    store: &Store,
    task: &TaskRow,
    models: &Models,
    sealer: &Arc<Sealer>,
) -> Result<LedgerStanding, StoreError> {
    let private = match models.of(task) {
        Ok(model) => model.private.clone(),
        Err(error) => return Ok(LedgerStanding::Wrong(error.to_string())),
    };
    let Some(private) = private else { return Ok(LedgerStanding::Fits) };
    let private = &*private;
    let end = &ledger::stored_end(sealer, task.id).await?;
    match store.read("privacy ledger", |tx| Box::pin(ledger::read(tx, task, private, sealer, end))).await {
        Ok(_) => Ok(match end {
            StoredEnd::Nothing { .. } => LedgerStanding::Unconfirmed,
            StoredEnd::End(_) | StoredEnd::Foreign(_) => LedgerStanding::Fits,
        }),
        Err(LedgerFault::Store(error)) => Err(error),
        Err(untrusted @ (LedgerFault::Ledger(_) | LedgerFault::End(_))) => {
            Ok(LedgerStanding::Wrong(untrusted.to_string()))
        }
    }
}
