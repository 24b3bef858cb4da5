//! Converts participants' messages into facts: the gate checks them, then many are written per transaction.
//!
//! Independent of HTTP and of background work; stored facts wake the latter.

mod batcher;
mod check_ins;
mod gate;
mod parts;
mod receipt;
mod round_wakeups;
mod standings;
mod uploads;

pub(crate) use batcher::{Inbox, InboxError, Linger};
pub(crate) use check_ins::{CheckInChange, CheckIns, Offer, WaitingParticipant};
pub(crate) use gate::{AdmissionError, Rejection, SessionMember, UploadPermit, enter, find_member, may_send, open};
pub(crate) use parts::{PartPermit, announce, enter_part, forget_parts, set_whole, store_part};
pub(crate) use receipt::{Fact, FactOutcome};
pub(crate) use round_wakeups::RoundWakeups;
pub(crate) use uploads::Uploads;
