//! The record of the privacy ledgers of all tasks; append-only.
//!
//! It is written before the record of the round with the charged update; the round's record contains the number of
//! charges. One charge more means that the process died in between: the update was not written, so it was not sent.
//! Fewer mean that this record was removed or rolled back.

use zeroize::Zeroizing;

use super::{LEDGER, PRIVACY, decode, encode};
use crate::journal::JournalError;
use crate::privacy::{Account, AccountRecord, PrivacyPolicy};

/// Restores the account. `charges` is the number of charges known to the round's record.
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

fn read(record: &[u8]) -> Result<AccountRecord, JournalError> {
    let (mut kept, mut parts): (AccountRecord, _) = decode(PRIVACY, record)?;
    for task in &mut kept.tasks {
        let rows = serde_json::from_slice(parts.take(task.rows_bytes)?);
        task.rows = rows.map_err(|error| JournalError::corrupt(PRIVACY, error))?;
    }
    parts.end()?;
    Ok(kept)
}

pub(in crate::participant) fn encode_account(account: &Account) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    let mut kept = account.keep();
    let mut parts = Vec::new();
    for task in &mut kept.tasks {
        let rows = serde_json::to_vec(&task.rows).map_err(|error| JournalError::corrupt(PRIVACY, error))?;
        task.rows_bytes = rows.len();
        parts.push(rows);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    encode(PRIVACY, LEDGER, &kept, &parts)
}
