//! A participant: the machine that decides, one file per state, and the driver that performs what it decides.
//!
//! ```text
//! Enroll ─► CheckIn ─► Fetch ─► (Recall) ─► Train ─► Persist ─► Upload ─► Persist ─► CheckIn …
//!             ▲ ▼                  └────────────┴─► Abandon ─► CheckIn
//!            Renew
//! ```

mod abandon;
mod builder;
mod check_in;
mod driver;
mod enroll;
mod error;
mod event;
mod fetch;
pub mod machine;
mod persist;
mod recall;
mod renew;
pub mod snapshot;
mod train;
mod upload;
mod work;

pub use builder::{BuildError, Builder};
pub use driver::{Participant, Progress};
pub use error::ParticipantError;
pub use event::{Event, Outcome};
pub use work::{Contribution, PlanError, Work, WorkError};
