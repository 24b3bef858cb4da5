//! A reusable snapshot of a migrated in-memory database: restoring it needs no migration, and prepared statements stay
//! prepared.

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::error::translate;
use super::{STATEMENTS, SqliteBackend};
use crate::error::Result;

impl SqliteBackend {
    /// Keeps the present rows of every table, in a second database, for [`restore`](Self::restore). Once.
    pub(crate) async fn save(&self) -> Result<()> {
        let save = |connection: &Connection| {
            let mut statements = "ATTACH DATABASE ':memory:' AS saved;".to_owned();
            for table in tables(connection)? {
                statements += &format!("CREATE TABLE saved.{table} AS SELECT * FROM main.{table};");
            }
            // The statements that restore tables are prepared once, in addition to the others.
            connection.set_prepared_statement_cache_capacity(2 * STATEMENTS);
            // A plan that depends on bound values is made anew at every use.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(translate)?;
            // They refuse that events are removed, which setting back does. Off for good: each change of it prepares all statements anew.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(translate)?;
            connection.execute_batch(&statements).map_err(translate)
        };
        self.writer.lend().await?.run(save)
    }

    /// Sets every table back to the rows that were saved.
    pub(crate) async fn restore(&self) -> Result<()> {
        let restore = |connection: &Connection| {
            let transaction = connection.unchecked_transaction().map_err(translate)?;
            let tables = tables(&transaction)?;
            let run = |statement: String| {
                let mut statement = transaction.prepare_cached(&statement).map_err(translate)?;
                statement.execute(()).map_err(translate)
            };
            // Rows refer to rows of tables that were there before theirs.
            for table in tables.iter().rev() {
                run(format!("DELETE FROM main.{table}"))?;
            }
            for table in &tables {
                run(format!("INSERT INTO main.{table} SELECT * FROM saved.{table}"))?;
            }
            transaction.commit().map_err(translate)
        };
        self.writer.lend().await?.run(restore)
    }
}

/// The tables in the order in which migrations made them.
fn tables(connection: &Connection) -> Result<Vec<String>> {
    let names = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid";
    let mut names = connection.prepare_cached(names).map_err(translate)?;
    let names = names.query_map((), |row| row.get(0)).map_err(translate)?;
    names.collect::<rusqlite::Result<_>>().map_err(translate)
}
