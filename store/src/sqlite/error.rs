//! Translates SQLite's errors to [`StoreError`].

use rusqlite::Error;

use crate::error::StoreError;

// Primary result codes, https://sqlite.org/rescode.html.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READ_ONLY: i32 = 8;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CONSTRAINT: i32 = 19;
const NOT_A_DATABASE: i32 = 26;
/// Extended code: the index of the write-ahead log does not fit on the disk.
const IO_SHARED_MEMORY_SIZE: i32 = 10 | (19 << 8);

pub(super) fn translate(error: Error) -> StoreError {
    let Error::SqliteFailure(failure, message) = &error else { return StoreError::fault(error) };
    let message = || message.clone().unwrap_or_else(|| failure.to_string());
    match failure.extended_code {
        IO_SHARED_MEMORY_SIZE => StoreError::Full,
        code => match code & 0xff {
            BUSY | LOCKED => StoreError::Busy,
            FULL => StoreError::Full,
            READ_ONLY => StoreError::ReadOnly,
            CONSTRAINT => StoreError::Conflict(message()),
            CORRUPT | NOT_A_DATABASE => StoreError::corrupt(message()),
            _ => StoreError::fault(error),
        },
    }
}
