//! What SQLite says, in the words of [`StoreError`].

use sqlx::Error;

use crate::error::StoreError;

// Primary result codes, https://sqlite.org/rescode.html.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CONSTRAINT: i32 = 19;
const NOT_A_DATABASE: i32 = 26;
/// Extended code: no room for the index of the write-ahead log.
const IO_SHARED_MEMORY_SIZE: i32 = 10 | (19 << 8);

pub(super) fn translate(error: Error) -> StoreError {
    match error {
        Error::Io(error) => error.into(),
        Error::ColumnDecode { index, source } => StoreError::Corrupt(format!("column {index}: {source}")),
        Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
            let message = || error.message().to_owned();
            match code & 0xff {
                _ if code == IO_SHARED_MEMORY_SIZE => StoreError::Full,
                BUSY | LOCKED => StoreError::Busy,
                FULL => StoreError::Full,
                CONSTRAINT => StoreError::Conflict(message()),
                CORRUPT | NOT_A_DATABASE => StoreError::Corrupt(message()),
                _ => StoreError::fault(error),
            }
        }
        error => StoreError::fault(error),
    }
}
