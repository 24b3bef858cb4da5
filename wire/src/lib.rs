//! The HTTP contract: routes, bodies, media types, headers and problem types.
//!
//! Coordinator and SDK are released separately; they share only this crate. It contains types only: rules, servers and clients are
//! elsewhere. Fields may be added to bodies; renaming or removing a field is a breaking change: `tests/compat.rs` reads a sample of every
//! body ever shipped.

pub mod admin;
pub mod audit;
pub mod base64;
pub mod certificate;
pub mod contributions;
pub mod grammar;
pub mod headers;
pub mod inspect;
pub mod ledger;
pub mod participant;
pub mod problem;
pub mod provenance;
pub mod route;
pub mod signature;
pub mod signer;
pub mod statement;
pub mod trace;

pub use federation::cohort::{CoarseLoss, Ineligible};
pub use federation::device_reason::DeviceReason;
pub use federation::event;
pub use federation::id::{Attempt, Digest, ParticipantId, RoundKey, TaskId, TokenId};
pub use federation::round::{AssignmentState, FailureReason, RoundState};
pub use federation::round_trip;
pub use federation::task_status::TaskStatus;
pub use federation::time::Timestamp;
pub use task_spec::{Attribute, Attributes, Criterion, EXAMPLES, GRAPH_VERSION, TABLE_VERSION};
pub use trace::TraceContext;
