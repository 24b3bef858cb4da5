//! ONNX files to graphs with their parameters, and back.
//!
//! Runs on the operator's machine (the CLI and Python), never on devices: those decode [`graph::Graph`] alone. The crate
//! performs no I/O. Versions of operators, forms of exporters, functions, `If` and shape arithmetic are resolved here;
//! what cannot train is rejected with the node's name and the reason.
//!
//! # Which initializers are parameters
//!
//! | initializer | becomes |
//! |---|---|
//! | listed in [`Options::constants`] | constant |
//! | listed in [`Options::parameters`] | parameter |
//! | integers, truth values | constant |
//! | floats of rank 0; a single float under an invented name (`val_3`) | constant |
//! | floats with an infinity or NaN (masks) | constant |
//! | mean and variance of a `BatchNormalization`; `….running_mean`, `….running_var` | constant, or parameter of [`BatchNorm::Batch`] |
//! | other floats, 16 and 64 bits converted to 32 | parameter |
//!
//! In a file without float initializers, the floats of `Constant` nodes are taken for initializers.
//!
//! Sizes, bounds and scales that an operation fixes (`Clip`, `Resize`, `Pad`) become attributes.
#![forbid(unsafe_code)]

mod build;
mod data;
mod decode;
mod error;
mod export;
mod import;
mod lower;
mod options;
mod points;
mod proto;
mod traps;

pub use error::{ImportError, MAX_BYTES, Place, Warning};
pub use export::{ExportError, export};
pub use import::{Imported, Tensor, import};
pub use options::{BatchNorm, Dropout, Options};
