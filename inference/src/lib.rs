//! The rules of serving a model, without I/O: which requests are computed together, which version answers whom, when a new
//! version is taken back, and how many replicas there should be.
//!
//! Time is a parameter everywhere, as the [`Moment`] since any fixed start, and so are draws. The program that serves
//! (`cli/src/serving`) owns sockets, files and threads, and asks here.

pub mod batcher;
pub mod latency;
pub mod rollout;
pub mod scale;
pub mod versions;

/// A point in time: how long after a start that is the same for all of a process.
pub type Moment = std::time::Duration;
