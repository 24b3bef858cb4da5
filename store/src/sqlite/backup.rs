//! A copy of a database file that others may be writing to, by SQLite's online backup.
//!
//! The copy is of one state. That state stays readable in the write-ahead log while its pages are copied, so writers continue;
//! only the log cannot be emptied until then ([`Store::empty_log`](crate::Store::empty_log)).

use std::fs::File;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error::translate;
use super::schema;
use crate::error::{Result, StoreError};
use crate::private;

/// Pages copied between two reports.
const PAGES: i32 = 1024;

/// Pages of the database that `copy_database` has copied, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedPages {
    pub done: u64,
    pub of: u64,
}

/// Copies `source` to the new file `to`, and makes the copy durable.
pub(super) fn copy(source: Connection, to: &Path, mut on_progress: impl FnMut(CopiedPages)) -> Result<()> {
    // The state that the first statement sees is the one that is copied.
    source.execute_batch("BEGIN DEFERRED").map_err(translate)?;
    schema::must_be_newest(&source)?;
    private::options().write(true).create_new(true).open(to)?;
    let mut copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(translate)?;
    let backup = Backup::new(&source, &mut copy).map_err(translate)?;
    loop {
        let step = backup.step(PAGES).map_err(translate)?;
        let progress = backup.progress();
        let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
        on_progress(CopiedPages {
            done: count(progress.pagecount - progress.remaining),
            of: count(progress.pagecount),
        });
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            _ => return Err(StoreError::Busy),
        }
    }
    drop(backup);
    drop(source);
    // Prevents readers of the copy from leaving files next to it.
    copy.query_row("PRAGMA journal_mode = DELETE", (), |row| row.get::<_, String>(0)).map_err(translate)?;
    if let Some(problem) = problems(&copy)?.into_iter().next() {
        return Err(StoreError::corrupt(problem));
    }
    drop(copy);
    File::open(to)?.sync_all()?;
    Ok(())
}

/// Malformed parts found by SQLite, and rows with dangling references; reads everything.
pub(super) fn problems(connection: &Connection) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut checked = connection.prepare("PRAGMA integrity_check").map_err(translate)?;
    let mut rows = checked.query(()).map_err(translate)?;
    while let Some(row) = rows.next().map_err(translate)? {
        let problem: String = row.get(0).map_err(translate)?;
        if problem != "ok" {
            found.push(problem);
        }
    }
    let mut checked = connection.prepare("PRAGMA foreign_key_check").map_err(translate)?;
    let mut rows = checked.query(()).map_err(translate)?;
    while let Some(row) = rows.next().map_err(translate)? {
        let (table, parent) =
            (row.get::<_, String>(0).map_err(translate)?, row.get::<_, String>(2).map_err(translate)?);
        found.push(format!("a row of {table} refers to a row of {parent} that is not there"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::{SqliteBackend, copy_database, open_to_read};
    use super::*;
    use crate::driver::Mode;
    use crate::transaction;

    #[tokio::test]
    async fn a_copy_is_one_state_of_a_database_that_is_written_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("rows.db"), folder.path().join("copy.db"));
        drop(SqliteBackend::open_file(&from, 1).await.unwrap());
        let writer = Connection::open(&from).unwrap();
        writer.execute_batch("CREATE TABLE note (n INTEGER PRIMARY KEY, text TEXT)").unwrap();
        let add = |from: u32| {
            writer.execute_batch("BEGIN").unwrap();
            for n in from..from + 6_000 {
                writer.execute("INSERT INTO note VALUES (?1, ?2)", (n, "x".repeat(1_000))).unwrap();
            }
            writer.execute_batch("COMMIT").unwrap();
        };
        add(0);
        let (mut seen, wrote) = (Vec::new(), AtomicBool::new(false));
        copy_database(&from, &to, |pages| {
            seen.push(pages);
            if !wrote.swap(true, Ordering::Relaxed) {
                add(6_000);
            }
        })
        .unwrap();
        assert!(seen.len() > 1 && seen.windows(2).all(|pair| pair[0].done < pair[1].done), "{seen:?}");
        assert!(seen.iter().all(|pages| pages.of == seen[0].of), "one state: {seen:?}");
        assert_eq!(seen.last().map(|pages| pages.done), Some(seen[0].of));
        let rows = |path: &Path| -> u32 {
            open_to_read(path).unwrap().query_row("SELECT count(*) FROM note", (), |row| row.get(0)).unwrap()
        };
        assert_eq!((rows(&from), rows(&to)), (12_000, 6_000), "written while it was copied, and not in the copy");
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("copy.db-")), "{names:?}");
        assert!(matches!(copy_database(&from, &to, |_| {}), Err(StoreError::Fault(_))), "no file is overwritten");
    }

    #[tokio::test]
    async fn nothing_is_changed_through_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.db");
        assert!(SqliteBackend::open_read_only(&path).await.is_err(), "none is made");
        drop(SqliteBackend::open_file(&path, 1).await.unwrap());
        let reader = SqliteBackend::open_read_only(&path).await.unwrap();
        let mut aside = transaction::Aside::default();
        let mut change = transaction::Closure::new(|tx| Box::pin(tx.clear_leases()));
        transaction::run(&reader, "test", Mode::Write, &mut aside, &mut change).await;
        assert!(matches!(change.into_returned(), Err(StoreError::ReadOnly)));
        Connection::open(&path).unwrap().execute_batch("DELETE FROM schema_version WHERE version > 1").unwrap();
        let refused = SqliteBackend::open_read_only(&path).await.err();
        assert!(matches!(refused, Some(StoreError::Schema(_))), "{refused:?}");
    }
}
