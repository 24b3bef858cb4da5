//! The service: HTTP, background work, configuration.
//!
//! [`Coordinator::start`] is what the executable, the tests and the simulation call. Requests (`http`) judge, record and
//! answer; whatever takes longer is a step of background work (`work`). The two never call each other: they meet in
//! stored facts, and `store`'s wake-ups say when there is something new. `wiring` alone chooses implementations.

pub mod backup;
pub mod base;
pub mod config;
#[cfg(feature = "deliberate-faults")]
pub mod faults;
mod files;
pub mod fsck;
mod guarded;
pub mod http;
pub mod identity;
mod inputs;
mod invitations;
mod lacking;
pub mod observe;
pub mod random;
pub mod seal;
pub mod work;

mod admission;
mod ahead;
mod audit;
mod damage;
mod event_feed;
mod host;
mod ledger;
mod ledger_end;
mod lock;
mod models;
mod oidc;
mod open_files;
mod program;
mod provenance;
mod proximal;
mod release_keys;
mod reported_rounds;
mod retention;
mod retries;
mod session;
mod sessions;
mod shelf;
mod shortage;
mod signing;
mod step_error;
mod times;
mod waiting_for;
mod wiring;

use federation::id::Digest;

pub use aggregation::device::{DeviceReport, Verdict};
pub use files::make_private_folder;
pub use http::TokenError;
pub use lock::LockError;
pub use program::version;
pub use times::parse_time;
pub use wiring::{
    ApartFile, Coordinator, Parts, Running, StartError, SystemClock, Worker, back_up, check,
    create_operator_token_offline, devices, files_apart, migrate, restore,
};

/// SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Digest(digest)
}
