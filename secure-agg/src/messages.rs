//! Every message, in protocol order. Messages of participants are signed; messages of the coordinator are checked by
//! content.
//!
//! | # | direction | message | kind |
//! |---|---|---|---|
//! | R0 | to the coordinator | [`Advertise`] | 1 |
//! | R1 | to participants | [`Roster`] | 2 |
//! | R1 | to the coordinator | [`ShareKeys`] | 3 |
//! | R2 | to each participant | [`Delivery`] | 4 |
//! | R2 | to the coordinator | [`Complaint`] *or* [`MaskedInput`] | 5, 6 |
//! | R3 | to participants | [`Survivors`] | 7 |
//! | R3 | to the coordinator | [`Consistency`] | 8 |
//! | R4 | to participants | [`Agreement`] | 9 |
//! | R4 | to the coordinator | [`Unmasking`] | 10 |
//!
//! [`crate::batch::draw`] has the messages that form fixed batches, kinds 13 to 16.

mod agreement;
mod keys;
mod masked;
mod session;
mod shares;
mod signed;

pub use agreement::{Agreement, AgreementSignature, Consistency, Unmasking, UnmaskingBody, consistency_text};
pub use keys::{Advertise, AdvertiseBody, Roster, RosterEntry};
pub(crate) use keys::{roster_root, session_id};
pub use masked::{MaskedInput, MaskedInputBody, SurvivorInput, Survivors};
pub use session::{
    ClientId, MAX_CERTIFICATE_BYTES, MAX_CLIENT_ID_BYTES, MAX_TASK_ID_BYTES, RoundId, SealedShares, Sid,
};
pub use shares::{Complaint, ComplaintBody, Delivery, ShareKeys, ShareKeysBody};
pub use signed::{Body, InSession, Signed};
