//! A participant: the machine that decides, one file per state, and the driver that performs its decisions.
//!
//! ```text
//! Enroll ─► CheckIn ─► Fetch ─► (LoadLocal) ─► Train ─► Persist ─► Upload ─► Persist ─► CheckIn …
//!             ▲ ▼ └─► FetchFinal   └───────────────┴─► Abandon ─► CheckIn
//!            Renew    (the end)
//! ```
//!
//! Secure aggregation adds messages, and each is persisted before it is sent:
//!
//! ```text
//! CheckIn ─► (invited: keys) ─► CheckIn ─► Share ─► Fetch ─► AwaitDelivery ─► (LoadLocal) ─► Train (and mask) ─► Upload
//!                                                                └─► Complain           CheckIn ◄─ Unmask ◄─ Confirm ◄┘
//! ```

mod api;
mod checks;
mod drivers;
mod journal;
pub mod machine;
mod model;
mod states;
mod task;

pub use api::build_error::BuildError;
pub use api::error::ParticipantError;
pub use api::event::{Event, Outcome, Span};
pub use api::plan_error::{PlanError, WorkError};
pub use checks::policy::{LoweredFloor, SecurityPolicy};
pub use checks::provenance::ProvenanceError;
pub use checks::size::TooLarge;
pub use drivers::builder::Builder;
pub(crate) use drivers::builder::Report;
pub use drivers::driven::{Driven, Step};
pub use drivers::driver::{Participant, Progress};
pub use drivers::prefetch::Prefetch;
pub use drivers::tick;
pub use drivers::withdrawal::WithdrawalError;
pub use journal::refusals::Refusal;
pub use journal::snapshot;
pub use journal::traffic::DataUse;
pub use model::kept_models::KeptModel;
pub(crate) use model::kept_models::KeptModels;
pub use task::work::{Contribution, RoundWork};
