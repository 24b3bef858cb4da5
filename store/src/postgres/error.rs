//! Translates errors of PostgreSQL and of the way to it to [`StoreError`].

use std::io::ErrorKind;

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
        (code, _) if is_away(code) => StoreError::Unreachable(message()),
        _ => StoreError::fault(error),
    }
}

/// An error of connecting. Only a server that is unreachable, or accepts no connections now, may accept the same connection later.
pub(super) fn connection_error(error: Error) -> StoreError {
    match error {
        Error::Database(told) => rejected(&told.code().unwrap_or_default(), told.message()),
        // Errors of TLS, such as an untrusted certificate, arrive as invalid data.
        Error::Io(cause) if cause.kind() == ErrorKind::InvalidData => StoreError::NoAccess(format!("TLS: {cause}")),
        Error::Io(cause) => StoreError::Unreachable(cause.to_string()),
        Error::Tls(cause) => StoreError::NoAccess(format!("TLS: {cause}")),
        Error::Configuration(cause) => StoreError::NoAccess(cause.to_string()),
        error => translate(error),
    }
}

/// The server's answer to a connection, by its SQLSTATE.
fn rejected(code: &str, message: &str) -> StoreError {
    // A lack of memory or disk ends, too.
    if is_away(code) || code.starts_with("53") {
        return StoreError::Unreachable(message.to_owned());
    }
    StoreError::NoAccess(message.to_owned())
}

/// Too many connections; a server that stops, starts or has crashed, or did not wait any longer; a broken connection.
fn is_away(code: &str) -> bool {
    matches!(code, "53300" | "57P01" | "57P02" | "57P03" | "25P03") || code.starts_with("08")
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn connection_is_retried_only_if_the_server_is_away() {
        for code in ["57P03", "57P01", "53300", "53200", "08006", "08P01"] {
            assert!(matches!(rejected(code, "why"), StoreError::Unreachable(why) if why == "why"), "{code}");
        }
        // A wrong password, an unknown user or rule, an unknown database, a missing right to connect, a database that
        // rejects connections.
        for code in ["28P01", "28000", "3D000", "42501", "55000", ""] {
            assert!(matches!(rejected(code, "why"), StoreError::NoAccess(why) if why == "why"), "{code}");
        }
        for (kind, is_retried) in [
            (ErrorKind::ConnectionRefused, true),
            (ErrorKind::NotFound, true),
            (ErrorKind::UnexpectedEof, true),
            (ErrorKind::InvalidData, false),
        ] {
            let error = connection_error(Error::Io(io::Error::new(kind, "why")));
            assert_eq!(matches!(error, StoreError::Unreachable(_)), is_retried, "{error:?}");
        }
        let no_tls = connection_error(Error::Tls("server does not support TLS".into()));
        assert!(matches!(no_tls, StoreError::NoAccess(why) if why.starts_with("TLS: ")));
    }
}
