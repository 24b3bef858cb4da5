//! Turns participants' messages into facts: the gate checks them, then many are written per transaction.
//!
//! Independent of HTTP, and does not call background work, which stored facts wake up.

mod batcher;
mod check_ins;
mod gate;
mod receipt;
mod round_wakeups;
mod uploads;

pub(crate) use batcher::{Inbox, InboxError};
pub(crate) use check_ins::{CheckIns, Novelty, Offer, Waiting};
pub(crate) use gate::{NotAdmitted, Rejection, Seat, Ticket, enter, open, take_seat};
pub(crate) use receipt::{Fact, Outcome};
pub(crate) use round_wakeups::RoundWakeups;
pub(crate) use uploads::Uploads;
