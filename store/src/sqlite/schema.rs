//! SQLite's migrations, embedded.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::translate;
use crate::error::{Result, StoreError};
use crate::schema::{self, Migration, migrations, missing};

const MIGRATIONS: &[Migration] = migrations!("sqlite");

/// Applies all missing migrations.
pub(super) fn migrate(connection: &Connection) -> Result<()> {
    let found = version(connection)?;
    for step in missing(MIGRATIONS, found)? {
        let transaction = begin(connection)?;
        // Another process may have applied it in between.
        if version(&transaction)? < step.version {
            transaction.execute_batch(step.up).map_err(translate)?;
            transaction
                .execute("INSERT INTO schema_version (version, name) VALUES (?1, ?2)", (step.version, step.name))
                .map_err(translate)?;
        }
        transaction.commit().map_err(translate)?;
        tracing::info!(
            version = step.version,
            "migrated the database to schema version {} ({})",
            step.version,
            step.name
        );
    }
    Ok(())
}

/// Refuses a database with another schema than the newest.
pub(super) fn must_be_newest(connection: &Connection) -> Result<()> {
    let found = "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'";
    let found = match connection.query_row(found, (), |row| row.get::<_, u32>(0)).map_err(translate)? {
        0 => 0,
        _ => newest(connection)?,
    };
    match missing(MIGRATIONS, found)? {
        [] => Ok(()),
        [..] => Err(StoreError::Schema(format!(
            "the database has schema version {found}, and this program works with version {}: use the program that \
             serves it, or bring it up to date (`tributary migrate`)",
            schema::newest(MIGRATIONS)
        ))),
    }
}

#[cfg(feature = "conformance")]
pub(super) fn revert(connection: &Connection) -> Result<()> {
    for step in MIGRATIONS.iter().rev() {
        let transaction = begin(connection)?;
        transaction.execute_batch(step.down).map_err(translate)?;
        transaction.execute("DELETE FROM schema_version WHERE version = ?1", [step.version]).map_err(translate)?;
        transaction.commit().map_err(translate)?;
    }
    Ok(())
}

/// Takes the write lock, so that only one process migrates at a time.
fn begin(connection: &Connection) -> Result<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(translate)
}

/// The newest migration applied; 0 for an empty database.
fn version(connection: &Connection) -> Result<u32> {
    connection
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT",
        )
        .map_err(translate)?;
    newest(connection)
}

fn newest(connection: &Connection) -> Result<u32> {
    let newest = "SELECT coalesce(max(version), 0) FROM schema_version";
    connection.query_row(newest, (), |row| row.get(0)).map_err(translate)
}

#[cfg(test)]
mod tests {
    use super::super::dialect::spell;
    use super::*;
    use crate::driver::Query;
    use crate::entity::event::ActorFilter;

    #[test]
    fn events_of_an_actor_are_found_by_an_index_in_its_order() {
        let connection = Connection::open_in_memory().unwrap();
        migrate(&connection).unwrap();
        for (actor, index) in [
            (ActorFilter::Id("x".to_owned()), "event_actor "),
            (ActorFilter::Name("x".to_owned()), "event_actor_name "),
        ] {
            let query = spell(Query { sql: actor.sql().0.of_all, arguments: Vec::new() }).unwrap();
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sql)).unwrap();
            let (mut steps, mut plan) = (statement.raw_query(), String::new());
            while let Some(step) = steps.next().unwrap() {
                plan += &step.get::<_, String>(3).unwrap();
            }
            assert!(plan.contains(&format!("USING INDEX {index}")) && !plan.contains("ORDER BY"), "{plan}");
        }
    }
}
