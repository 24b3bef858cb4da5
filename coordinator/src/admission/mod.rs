//! Turns participants' messages into facts: the gate checks them, then many are written per transaction.
//!
//! Independent of HTTP, and does not call background work, which stored facts wake up.

mod batcher;
mod bell;
mod desk;
mod gate;
mod receipt;
mod uploads;

pub(crate) use batcher::{Inbox, InboxError};
pub(crate) use bell::Bell;
pub(crate) use desk::{Desk, Novelty, Offer, Waiting};
pub(crate) use gate::{Rejection, Seat, Ticket, enter, open, take_seat};
pub(crate) use receipt::{Fact, Outcome};
pub(crate) use uploads::Uploads;
