//! The service: HTTP, background work, configuration.
//!
//! Executable, tests and simulation call [`Coordinator::start`]. Requests (`http`) validate, record and answer; longer work is a step of
//! background work (`work`). The two communicate only through stored facts and `store`'s wake-ups. `wiring` alone chooses implementations.

pub mod backup;
pub mod config;
#[cfg(feature = "deliberate-faults")]
pub mod faults;
pub mod http;
pub mod identity;
pub mod observe;
pub mod random;
pub mod work;

mod admission;
mod maintenance;
mod oidc;
mod privacy;
mod process;
mod records;
mod rounds;
mod step_error;
mod times;
mod wiring;

use federation::id::Digest;

pub use aggregation::device::{DeviceReport, Verdict};
pub use http::TokenError;
pub use listener::version;
pub use maintenance::fsck;
pub use privacy::seal;
pub use process::cores::forbid_core_dumps;
pub use process::files::make_private_folder;
pub use process::lock::LockError;
pub use rounds::base;
pub use times::parse_time;
pub use wiring::{
    ApartFile, Coordinator, Parts, RestoreOptions, Running, StartError, SystemClock, Worker, back_up, check,
    create_operator_token_offline, devices, files_apart, migrate, restore,
};

/// SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref());
    Digest(digest)
}
