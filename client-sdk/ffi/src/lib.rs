//! The participant for C, Kotlin and Swift.
//!
//! One facade in safe Rust ([`Participant`], [`Machine`], [`Job`], [`Model`], [`Callbacks`], [`TributaryError`]) over
//! the runner of the SDK. Kotlin and Swift call it through the scaffolding that uniffi makes of it. C calls it through
//! `c`, which only adds handles, texts in buffers and error codes. The header is `include/tributary.h`.

#[cfg(feature = "uniffi")]
uniffi::setup_scaffolding!("tributary");

mod analysis;
mod app;
mod asked;
mod c;
#[cfg(feature = "models")]
mod columns;
mod constraints;
mod error;
mod job;
mod machine;
mod model;
mod options;
mod participant;
#[cfg(feature = "models")]
mod ready;
mod slot;
mod tensors;

pub use self::app::callback::CallbackError;
pub use self::app::callbacks::{Callbacks, EventListener, KeyStore};
pub use self::app::conditions::{DataUse, DeviceConditions, HeldUp};
pub use self::app::http_client::{Exchange, HttpClient, HttpHeader, HttpRequest};
#[cfg(feature = "models")]
pub use self::columns::{Column, ColumnElements, GraphExamples, GraphTargets};
pub use self::constraints::{AdapterBase, Purpose};
pub use self::error::TributaryError;
pub use self::job::Job;
pub use self::machine::{Circumstances, Machine, Todo, Trainer};
pub use self::model::{Model, load_model};
pub use self::participant::{End, Next, Participant, withdraw};
pub use self::tensors::{Metric, Tensor};
