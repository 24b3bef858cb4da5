//! A participant: the machine that decides, one file per state, and the driver that performs what it decides.
//!
//! ```text
//! Enroll ─► CheckIn ─► Fetch ─► (LoadLocal) ─► Train ─► Persist ─► Upload ─► Persist ─► CheckIn …
//!             ▲ ▼ └─► FetchFinal   └───────────────┴─► Abandon ─► CheckIn
//!            Renew    (the end)
//! ```
//!
//! With secure aggregation there is more to say, and each thing is persisted before it is said:
//!
//! ```text
//! CheckIn ─► (invited: keys) ─► CheckIn ─► Share ─► Fetch ─► AwaitDelivery ─► (LoadLocal) ─► Train (and mask) ─► Upload
//!                                                                └─► Complain           CheckIn ◄─ Unmask ◄─ Confirm ◄┘
//! ```

mod abandon;
mod abort_proof;
mod action;
mod ahead;
mod attempts;
mod base;
mod build_error;
pub(crate) mod builder;
mod charge;
mod check_in;
mod circumstances;
mod complain;
mod core;
mod delivery;
mod depart;
mod driven;
mod driver;
mod eligibility;
mod enroll;
mod error;
mod event;
mod event_data;
mod exchange;
mod fetch;
mod final_model;
mod invited;
mod join;
mod keep_model;
pub(crate) mod kept_models;
mod last_version;
mod load_local;
pub mod machine;
mod model_file;
mod opening;
mod pause;
mod persist;
mod plan;
mod plan_error;
mod policy;
mod prefetch;
mod prefetches;
mod prove;
mod provenance;
mod received;
mod record;
mod refusals;
mod renew;
mod replaced;
mod round_end;
mod session;
mod settings;
mod share;
mod size;
pub mod snapshot;
mod spans;
mod state;
pub mod tick;
mod traffic;
mod train;
mod train_ahead;
mod training_log;
mod unfinished;
mod upload;
mod used_bases;
mod wanted;
mod work;

pub use build_error::BuildError;
pub use builder::Builder;
pub use driven::{Driven, Step};
pub use driver::{Participant, Progress};
pub use error::ParticipantError;
pub use event::{Event, Outcome, Span};
pub use kept_models::KeptModel;
pub use plan_error::{PlanError, WorkError};
pub use policy::{LoweredFloor, SecurityPolicy};
pub use prefetch::Prefetch;
pub use provenance::ProvenanceError;
pub use refusals::Refusal;
pub use size::TooLarge;
pub use traffic::DataUse;
pub use work::{Contribution, RoundWork};
