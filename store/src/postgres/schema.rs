//! PostgreSQL's migrations, embedded. They run under an advisory lock, so that processes may start at once.

use sqlx::{AssertSqlSafe, PgConnection, raw_sql};

use super::error::translate;
use crate::error::{Result, StoreError};
use crate::schema::{self, Migration, migrations, missing};

const MIGRATIONS: &[Migration] = migrations!("postgres");

/// The lock of migrations: the first eight bytes of "tributary".
const LOCK: i64 = i64::from_be_bytes(*b"tributar");

/// Applies all missing migrations. A second process waits, and finds them applied.
///
/// An error leaves the lock to the end of the connection.
pub(super) async fn migrate(connection: &mut PgConnection) -> Result<()> {
    run(connection, &format!("SELECT pg_advisory_lock({LOCK})")).await?;
    let found = version(connection).await?;
    for step in missing(MIGRATIONS, found)? {
        let Migration { version, name, up, .. } = step;
        let insert = format!("INSERT INTO schema_version (version, name) VALUES ({version}, '{name}')");
        run(connection, &format!("BEGIN;\n{up}\n;{insert}; COMMIT")).await?;
        tracing::info!(version, "migrated the database to schema version {version} ({name})");
    }
    run(connection, &format!("SELECT pg_advisory_unlock({LOCK})")).await
}

#[cfg(feature = "conformance")]
pub(super) async fn revert(connection: &mut PgConnection) -> Result<()> {
    for Migration { version, down, .. } in MIGRATIONS.iter().rev() {
        let delete = format!("DELETE FROM schema_version WHERE version = {version}");
        run(connection, &format!("BEGIN;\n{down}\n;{delete}; COMMIT")).await?;
    }
    Ok(())
}

/// # Errors
/// `Schema` unless the database has exactly this program's migrations.
pub(super) async fn must_be_newest(connection: &mut PgConnection) -> Result<()> {
    let table = sqlx::query_scalar::<_, bool>("SELECT to_regclass('schema_version') IS NOT NULL");
    let found = match table.fetch_one(&mut *connection).await.map_err(translate)? {
        false => 0,
        true => newest(connection).await?,
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

/// The newest migration applied; 0 for an empty database.
async fn version(connection: &mut PgConnection) -> Result<u32> {
    run(
        connection,
        "SET client_min_messages = warning;
         CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY, name TEXT NOT NULL);
         RESET client_min_messages",
    )
    .await?;
    newest(connection).await
}

async fn newest(connection: &mut PgConnection) -> Result<u32> {
    let newest = sqlx::query_scalar::<_, i64>("SELECT coalesce(max(version), 0) FROM schema_version");
    let newest = newest.fetch_one(connection).await.map_err(translate)?;
    newest.try_into().map_err(StoreError::corrupt)
}

/// Runs statements without arguments.
async fn run(connection: &mut PgConnection, statements: &str) -> Result<()> {
    raw_sql(AssertSqlSafe(statements)).execute(connection).await.map(drop).map_err(translate)
}
