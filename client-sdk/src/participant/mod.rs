//! A participant: the machine that decides, one file per state, and the driver that performs what it decides.
//!
//! ```text
//! Enroll ─► CheckIn ─► Fetch ─► (Recall) ─► Train ─► Persist ─► Upload ─► Persist ─► CheckIn …
//!             ▲ ▼                  └────────────┴─► Abandon ─► CheckIn
//!            Renew
//! ```
//!
//! With secure aggregation there is more to say, and each thing is persisted before it is said:
//!
//! ```text
//! CheckIn ─► (invited: keys) ─► CheckIn ─► Share ─► Fetch ─► AwaitDelivery ─► (Recall) ─► Train (and mask) ─► Upload
//!                                                                └─► Complain        CheckIn ◄─ Unmask ◄─ Confirm ◄┘
//! ```

mod abandon;
mod action;
mod ahead;
mod asked;
mod attempts;
mod base;
mod builder;
mod check_in;
mod complain;
mod core;
mod delivery;
mod depart;
mod driver;
mod early;
mod ended;
mod enroll;
mod error;
mod event;
mod exchange;
mod fetch;
mod given;
mod invited;
mod join;
pub mod machine;
mod model_file;
mod opening;
mod persist;
mod plan;
mod plan_error;
mod policy;
mod prefetch;
mod recall;
mod received;
mod record;
mod renew;
mod session;
mod settings;
mod settle;
mod share;
mod size;
pub mod snapshot;
mod state;
mod train;
mod train_ahead;
mod upload;
mod work;

pub use builder::{BuildError, Builder};
pub use driver::{Participant, Progress};
pub use error::ParticipantError;
pub use event::{Event, Outcome};
pub use plan_error::{PlanError, WorkError};
pub use policy::{Lowered, SecurityPolicy};
pub use prefetch::Prefetch;
pub use size::TooLarge;
pub use work::{Contribution, Work};
