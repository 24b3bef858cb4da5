//! The record of what was spent on privacy: the ledgers of all tasks, only ever added to.
//!
//! It is written before the record of the round whose update was charged, and that record says how many charges it knows of.
//! One charge more than that means that the process died in between: the update was never kept, so never sent.
//! Fewer mean that this record was removed or rolled back.

use learning::privacy::SealedRow;
use serde::{Deserialize, Serialize};
use wire::{Attempt, TaskId};
use zeroize::Zeroizing;

use super::{LEDGER, PRIVACY, decode, encode};
use crate::journal::JournalError;
use crate::privacy::{Account, Kept, KeptTask, PrivacyPolicy, Promise};

#[derive(Serialize, Deserialize)]
struct Header {
    last: Option<Attempt>,
    tasks: Vec<Task>,
}

#[derive(Serialize, Deserialize)]
struct Task {
    task: TaskId,
    name: String,
    promise: Promise,
    /// Length of its rows as JSON.
    rows_bytes: usize,
}

/// The account as it was left. `charges` is how many the record of the round knows of.
pub(in crate::participant) fn restore(
    record: Option<&[u8]>,
    charges: u64,
    policy: PrivacyPolicy,
) -> Result<Account, JournalError> {
    let kept = record.map(read).transpose()?.unwrap_or_default();
    let account = Account::open(kept, charges, policy);
    match account.charges() {
        held if held >= charges => Ok(account),
        held => Err(JournalError::RolledBack { name: PRIVACY.to_owned(), held, charged: charges }),
    }
}

fn read(record: &[u8]) -> Result<Kept, JournalError> {
    let (Header { last, tasks }, mut parts) = decode(PRIVACY, record)?;
    let mut kept = Kept { last, tasks: Vec::new() };
    for Task { task, name, promise, rows_bytes } in tasks {
        let rows: Vec<SealedRow> =
            serde_json::from_slice(parts.take(rows_bytes)?).map_err(|error| JournalError::corrupt(PRIVACY, error))?;
        kept.tasks.push(KeptTask { task, name, promise, rows });
    }
    parts.end()?;
    Ok(kept)
}

/// The account as it is to be left.
pub(in crate::participant) fn encode_account(account: &Account) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let Kept { last, tasks } = account.keep();
    let mut parts = Vec::new();
    let mut headers = Vec::new();
    for KeptTask { task, name, promise, rows } in tasks {
        let rows = serde_json::to_vec(&rows).map_err(|error| JournalError::corrupt(PRIVACY, error))?;
        headers.push(Task { task, name, promise, rows_bytes: rows.len() });
        parts.push(rows);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    encode(PRIVACY, LEDGER, &Header { last, tasks: headers }, &parts)
}
