//! Invariants once faults have stopped, and at the very end.

use std::path::Path;
use std::time::Duration;

use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use store::Store;

use super::super::disk::Disk;
use super::super::outcome::{Broken, Check};
use super::super::schedule::TaskKind;
use super::{Facts, NEEDED, unread};

/// Longer than any pause between two attempts.
const PAUSE: Duration = Duration::from_secs(400);
/// How much later than its deadline a phase may end.
const LATE: Duration = Duration::from_secs(60);

impl Facts {
    /// At the end: all published versions and all charges are unchanged.
    pub(crate) async fn is_kept(&mut self, rows: &Store, disk: &Disk) -> Result<(), Broken> {
        self.state = None;
        self.check(rows, disk).await
    }

    /// Once faults have stopped: the task has ended, or a reason is reported.
    pub(crate) async fn is_explained(&self, rows: &Store, now: Timestamp, live: usize) -> Result<(), Broken> {
        match self.status {
            Some(status) if status.is_terminal() => return Ok(()),
            Some(TaskStatus::Paused | TaskStatus::BudgetExhausted) => return Ok(()),
            Some(TaskStatus::Active | TaskStatus::Completed | TaskStatus::Cancelled) | None => {}
        }
        let (task, error) = (self.task, self.last_error.as_deref().unwrap_or("none"));
        let latest = rows.read("latest", |tx| Box::pin(async move { tx.rounds(task, None, 1).await })).await;
        let latest = latest.map_err(unread)?.pop().map(|row| row.round);
        let Some(round) = latest else {
            // A buffered round opens once enough devices hold an update.
            let never = format!("no round ever opened; last error: {error}");
            return if live < NEEDED { Ok(()) } else { Err((Check::Progress, never)) };
        };
        let age = now.since(round.state_since);
        let stands = format!("{:?} is {} for {} s; last error: {error}", round.key, round.state, age.as_secs());
        let late = round.phase_duration().map_or(PAUSE, |phase| phase + LATE);
        if live >= NEEDED && age > late {
            return Err((Check::Progress, format!("nothing happens: {stands}")));
        }
        // In a private task each update costs, and devices may have spent their budget.
        if live >= NEEDED && self.kind != TaskKind::Private {
            return Err((Check::Progress, format!("the task does not end: {stands}")));
        }
        Ok(())
    }

    /// At the very end: all blobs and keys are referenced.
    pub(crate) async fn is_tidy(&self, rows: &Store, disk: &Disk, keys: &Path) -> Result<(), Broken> {
        let named = rows.read("named", |tx| Box::pin(async move { tx.referenced_blobs().await })).await;
        let named = named.map_err(unread)?;
        if let Some(digest) = disk.all().keys().find(|digest| !named.contains(digest)) {
            return Err((Check::Garbage, format!("blob {digest} is left, and nothing names it")));
        }
        let mut left = std::fs::read_dir(keys).into_iter().flatten().flatten().map(|entry| entry.file_name());
        match left.find(|_| self.is_over()) {
            Some(name) => Err((Check::Garbage, format!("the key {name:?} is left of a task that is over"))),
            None => Ok(()),
        }
    }
}
