//! Synthetic, IDX, NPZ and text data, and ways to partition it among participants.
//!
//! This crate reads or generates the data for the command line, the simulation, the examples and the tests, and
//! partitions it. It knows nothing of rounds, devices or the network. All randomness comes from a seed, so several
//! processes with the same seed agree on the partition without communicating.
//!
//! ```
//! # fn main() -> Result<(), datasets::DataError> {
//! let federated = datasets::synthetic::generate(5, 1.0, 1.0, 42)?;
//! assert_eq!(federated.shards.len(), 5);
//! # Ok(())
//! # }
//! ```

mod dataset;
mod error;
mod federated;
pub mod idx;
mod limits;
pub mod npz;
pub mod partition;
mod random;
pub mod synthetic;
pub mod text;

pub use dataset::{Dataset, Labelled, Text, split};
pub use error::DataError;
pub use federated::Federated;
pub use partition::Partition;
