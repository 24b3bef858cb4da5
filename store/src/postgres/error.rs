//! Translates errors of PostgreSQL and of the way to it to [`StoreError`].

use sqlx::Error;
use sqlx::postgres::PgDatabaseError;

use crate::error::StoreError;

/// An error of a statement, by its SQLSTATE: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
pub(super) fn translate(error: Error) -> StoreError {
    let Error::Database(told) = &error else { return lost_or_fault(error) };
    let code = told.code().unwrap_or_default().into_owned();
    let message = || told.message().to_owned();
    match (&*code, code.get(..2).unwrap_or_default()) {
        // Serialization failure, deadlock, lock not available, a transaction that an earlier error ended.
        ("40001" | "40P01" | "55P03" | "25P02", _) => StoreError::Busy,
        (_, "23") => StoreError::Conflict(conflict(told.try_downcast_ref())),
        ("53100", _) => StoreError::Full,
        ("25006", _) => StoreError::ReadOnly,
        ("XX001" | "XX002", _) => StoreError::corrupt(message()),
        // Too many connections; a server that stops, starts or has crashed, or did not wait any longer; a broken connection.
        ("53300" | "57P01" | "57P02" | "57P03" | "25P03", _) | (_, "08") => StoreError::Unreachable(message()),
        _ => StoreError::fault(error),
    }
}

/// An error of connecting, which says what to mend: the server refused, or there is no way to it.
pub(super) fn unreachable(error: Error) -> StoreError {
    match error {
        Error::Database(told) => StoreError::Unreachable(told.message().to_owned()),
        Error::Io(cause) => StoreError::Unreachable(cause.to_string()),
        Error::Tls(cause) => StoreError::Unreachable(format!("TLS: {cause}")),
        Error::Configuration(cause) => StoreError::Unreachable(cause.to_string()),
        error => translate(error),
    }
}

fn lost_or_fault(error: Error) -> StoreError {
    match error {
        Error::Io(cause) => StoreError::Unreachable(cause.to_string()),
        Error::Tls(cause) => StoreError::Unreachable(format!("TLS: {cause}")),
        Error::Protocol(told) => StoreError::Unreachable(told),
        error => StoreError::fault(error),
    }
}

/// Which constraint of which table, without the values, which may be long.
fn conflict(told: Option<&PgDatabaseError>) -> String {
    let Some(told) = told else { return "a constraint".to_owned() };
    match (told.table(), told.constraint().or_else(|| told.column())) {
        (Some(table), Some(constraint)) => format!("{}: {table}, {constraint}", told.message()),
        _ => told.message().to_owned(),
    }
}
