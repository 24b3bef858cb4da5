//! The rules of serving a model, without I/O: batching, choice of the version per request, verdicts on canaries, and
//! the number of replicas.
//!
//! Time is a parameter, as the [`Moment`] since a fixed start, and so are random draws. The server (`serving/src/server`)
//! owns sockets, files and threads.

pub mod batcher;
pub mod latency;
pub mod rollout;
pub mod scale;
pub mod versions;

/// A point in time, relative to a start that is fixed per process.
pub type Moment = std::time::Duration;
