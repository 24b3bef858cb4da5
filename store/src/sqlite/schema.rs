//! SQLite's migrations, embedded.

use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::error::translate;
use crate::error::Result;
use crate::schema::{Migration, missing};

/// Every step, in order.
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
];

/// Takes every missing step.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<()> {
    let found = version(connection).await?;
    for step in missing(MIGRATIONS, found)? {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(translate)?;
        // Somebody else may have taken the step since we looked.
        if version(&mut transaction).await? < step.version {
            sqlx::raw_sql(step.up).execute(&mut *transaction).await.map_err(translate)?;
            sqlx::query("INSERT INTO schema_version (version, name) VALUES (?1, ?2)")
                .bind(step.version)
                .bind(step.name)
                .execute(&mut *transaction)
                .await
                .map_err(translate)?;
        }
        transaction.commit().await.map_err(translate)?;
        tracing::info!(
            version = step.version,
            "migrated the database to schema version {} ({})",
            step.version,
            step.name
        );
    }
    Ok(())
}

/// Takes every step back.
#[cfg(feature = "conformance")]
pub(super) async fn revert(connection: &mut SqliteConnection) -> Result<()> {
    for step in MIGRATIONS.iter().rev() {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(translate)?;
        sqlx::raw_sql(step.down).execute(&mut *transaction).await.map_err(translate)?;
        sqlx::query("DELETE FROM schema_version WHERE version = ?1")
            .bind(step.version)
            .execute(&mut *transaction)
            .await
            .map_err(translate)?;
        transaction.commit().await.map_err(translate)?;
    }
    Ok(())
}

/// The newest step taken; 0 for an empty database.
async fn version(connection: &mut SqliteConnection) -> Result<u32> {
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
        .execute(&mut *connection)
        .await
        .map_err(translate)?;
    let row = sqlx::query("SELECT coalesce(max(version), 0) AS version FROM schema_version")
        .fetch_one(connection)
        .await
        .map_err(translate)?;
    row.try_get("version").map_err(translate)
}
