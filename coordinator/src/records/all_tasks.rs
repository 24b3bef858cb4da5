//! Reads every task of a database.

use federation::id::TaskId;
use store::entity::task::TaskRow;
use store::{Store, StoreError};

/// Tasks read at once.
const PAGE: u32 = 100;

/// Every task, newest first, a page at a time.
pub(crate) struct AllTasks<'a> {
    store: &'a Store,
    cursor: Option<TaskId>,
}

impl<'a> AllTasks<'a> {
    pub(crate) fn of(store: &'a Store) -> Self {
        Self { store, cursor: None }
    }

    /// The next tasks; `None` after the last one.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<TaskRow>>, StoreError> {
        let cursor = self.cursor;
        let page = self.store.read("tasks", |tx| Box::pin(async move { tx.tasks(cursor, PAGE).await })).await?;
        let Some(last) = page.last() else { return Ok(None) };
        self.cursor = Some(last.id);
        Ok(Some(page))
    }
}
