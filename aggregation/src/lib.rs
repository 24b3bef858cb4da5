//! Bulk integer arithmetic: sums masked vectors as they arrive and removes the masks from the sum.
//!
//! Words are integers modulo 2^b, so neither order nor device can change an answer: replicas with different hardware may share a round, and
//! a lost device can be replaced in the middle without changing the result. `secure-agg` defines the masks; this crate computes them fast.
//! `unsafe` is allowed only here and in the SDK's C interface. This crate is independent of tasks, rounds, privacy, files and networks.
//!
//! ```
//! use aggregation::{Aggregator, Shape, cpu::CpuAggregator};
//! use secure_agg::mask::{MaskPlan, Plane};
//!
//! let cpu = CpuAggregator::new(1)?;
//! let shape = Shape::new(2, 32)?;
//! let mut sum = cpu.begin(shape)?;
//! sum.add_packed(&[1, 0, 0, 0, 2, 0, 0, 0])?;
//! sum.merge(&[10, 20])?;
//! let plan = MaskPlan::new(Plane::Model, 2, shape.modulus())?;
//! assert_eq!(sum.unmask(&plan)?, [11, 22]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aggregator;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod cpu;
#[cfg(any(feature = "cuda", feature = "host-cuda-test"))]
pub mod cuda;
pub mod device;
mod error;
pub mod fallback;
#[cfg(any(feature = "cuda", feature = "wgpu", feature = "host-cuda-test"))]
mod gpu;
mod limits;
mod memory;
mod panic;
pub mod robust;
mod self_test;
mod shape;
mod stream;
#[cfg(feature = "wgpu")]
pub mod wgpu;
mod work;

pub use aggregator::{Accumulator, Aggregator, Answered, FallbackEvent, Finished};
pub use error::AggregationError;
pub use memory::MemoryUse;
pub use shape::Shape;
pub use work::{Effort, Work};
