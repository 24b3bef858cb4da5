//! Synthetic, IDX and text data, and ways to partition it among participants.
//!
//! The command line, the simulation, the examples and the tests need somebody's data to train on; this crate reads or
//! generates it and deals it out. It knows files and numbers only: no rounds, no devices, no network. Everything random
//! comes from a seed, so several processes with one seed agree on who holds which example without talking.
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
pub mod partition;
mod random;
pub mod synthetic;
pub mod text;

pub use dataset::{Dataset, Labelled, Text};
pub use error::DataError;
pub use federated::Federated;
pub use partition::Partition;
