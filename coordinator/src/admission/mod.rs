//! How messages of participants become facts: judged by the gate, then written many per transaction.
//!
//! Nothing here knows HTTP, and background work is not called from here: it is woken by what was stored.

mod batcher;
mod bell;
mod desk;
mod gate;
mod receipt;
mod uploads;

pub(crate) use batcher::{Inbox, InboxError};
pub(crate) use bell::Bell;
pub(crate) use desk::{Desk, Novelty, Offer, Waiting};
pub(crate) use gate::{NotAdmitted, Rejection, Seat, Ticket, enter, open, take_seat};
pub(crate) use receipt::{Fact, Outcome};
pub(crate) use uploads::Uploads;
