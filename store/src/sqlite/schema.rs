//! SQLite's migrations, embedded.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::translate;
use crate::error::Result;
use crate::schema::{Migration, missing};

/// All migrations, in order.
const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "initial",
        up: include_str!("../../../migrations/sqlite/0001_initial.up.sql"),
        down: include_str!("../../../migrations/sqlite/0001_initial.down.sql"),
    },
    Migration {
        version: 2,
        name: "privacy",
        up: include_str!("../../../migrations/sqlite/0002_privacy.up.sql"),
        down: include_str!("../../../migrations/sqlite/0002_privacy.down.sql"),
    },
    Migration {
        version: 3,
        name: "optimizer_state",
        up: include_str!("../../../migrations/sqlite/0003_optimizer_state.up.sql"),
        down: include_str!("../../../migrations/sqlite/0003_optimizer_state.down.sql"),
    },
    Migration {
        version: 4,
        name: "groups",
        up: include_str!("../../../migrations/sqlite/0004_groups.up.sql"),
        down: include_str!("../../../migrations/sqlite/0004_groups.down.sql"),
    },
    Migration {
        version: 5,
        name: "training",
        up: include_str!("../../../migrations/sqlite/0005_training.up.sql"),
        down: include_str!("../../../migrations/sqlite/0005_training.down.sql"),
    },
    Migration {
        version: 6,
        name: "unopened",
        up: include_str!("../../../migrations/sqlite/0006_unopened.up.sql"),
        down: include_str!("../../../migrations/sqlite/0006_unopened.down.sql"),
    },
    Migration {
        version: 7,
        name: "token_participant",
        up: include_str!("../../../migrations/sqlite/0007_token_participant.up.sql"),
        down: include_str!("../../../migrations/sqlite/0007_token_participant.down.sql"),
    },
];

/// Applies all missing migrations.
pub(super) fn migrate(connection: &Connection) -> Result<()> {
    let found = version(connection)?;
    for step in missing(MIGRATIONS, found)? {
        let transaction = begin(connection)?;
        // Another process may have applied it meanwhile.
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

/// Takes the write lock, so that no two processes migrate at once.
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
    let newest = "SELECT coalesce(max(version), 0) FROM schema_version";
    connection.query_row(newest, (), |row| row.get(0)).map_err(translate)
}
