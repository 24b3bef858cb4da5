//! The participant for C, Kotlin and Swift.
//!
//! One facade in safe Rust ([`Participant`], [`Job`], [`Callbacks`], [`TributaryError`]) over the runner of the SDK. Kotlin and
//! Swift call it through the scaffolding that uniffi makes of it; C calls it through `c`, which adds handles, texts in
//! buffers and error codes, and no rule of its own. The header is `include/tributary.h`.

#[cfg(feature = "uniffi")]
uniffi::setup_scaffolding!("tributary");

mod c;
mod callbacks;
mod error;
mod job;
mod participant;
#[cfg(feature = "models")]
mod ready;

pub use self::callbacks::{CallbackError, Callbacks, DeviceConditions, EventListener, KeyStore};
pub use self::error::TributaryError;
pub use self::job::{Job, Metric, Tensor};
pub use self::participant::{End, Next, Participant};
