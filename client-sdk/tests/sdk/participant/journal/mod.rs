//! The records of the journal.

mod snapshot;
