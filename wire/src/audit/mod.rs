//! The audit log: every event with its place and a hash over all events so far, signed heads, and their verification.
//!
//! `hash = SHA-256("tributary audit entry 1\0" ‖ hash before ‖ position ‖ event)`, where the hash before the first entry is 32 zeros, the
//! position 8 bytes (big-endian), and the event its JSON as it is exported, without white space. A head is an Ed25519 signature over
//! `"tributary audit head 1\0" ‖ position ‖ hash ‖ time` (milliseconds since 1970, 8 bytes).
//!
//! An export has one JSON value a line ([`Line`]): a header, the entries from position 1 on, and the newest signed head.

mod entry;
mod finding;
mod hex;
mod verify;

pub use self::entry::{AuditKeyView, ChainEnd, Entry, EventView, FORMAT, Head, Header, Line};
pub use self::finding::Finding;
pub use self::hex::{AuditKey, Hex};
pub use self::verify::{Verified, Verifier};
