//! Defects of an audit log.

use super::hex::AuditKey;

/// A defect of an audit log. Positions count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    #[error("line {line} is not one of an export of the audit log: {problem}")]
    Unreadable { line: u64, problem: String },
    #[error("line {line} stands where {expected} belongs")]
    Order { line: u64, expected: &'static str },
    #[error(
        "position {expected} is missing: position {found} stands in its place; it was removed, or moved further on"
    )]
    Missing { expected: u64, found: u64 },
    #[error(
        "position {found} stands where position {expected} belongs; it was repeated, or moved there, or an entry was \
         inserted before it"
    )]
    Misplaced { expected: u64, found: u64 },
    #[error("position {0} was changed: its line is not as an export writes it, or its hash does not follow from it")]
    Changed(u64),
    /// If an entry was changed and its hash recomputed, only the next entry shows it, and that entry may itself be the changed one.
    #[error(
        "position {0} was changed, or the entry before it together with its hash: the hash at position {0} does not \
         follow from the two"
    )]
    Unlinked(u64),
    #[error("positions after {entries} are missing: the log was cut off, and its head at position {head} is not")]
    CutOff { entries: u64, head: u64 },
    #[error("the log ends after position {0} without a signed head: its end was cut off")]
    NoHead(u64),
    #[error("there are entries after position {head}, where the signed head ends")]
    BeyondHead { head: u64 },
    #[error("entries up to position {0} were rewritten: a head was signed for others")]
    Rewritten(u64),
    #[error("the head at position {0} is not signed by the key that it names")]
    Signature(u64),
    #[error("the log is signed by the key {found}, not by {expected}")]
    OtherKey { expected: AuditKey, found: AuditKey },
}
