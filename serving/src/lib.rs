//! Serves published models, and exports them in the forms that other servers read.
//!
//! `server` is the I/O around the pure crate `inference`; `onnx` writes ONNX files. The command line reads options and calls [`start`].

pub mod named_folder;
pub mod onnx;
mod server;

pub use server::v2::{Datatype, Signature, TensorMetadata, signature};
pub use server::{Running, Settings, TlsFiles, start};
