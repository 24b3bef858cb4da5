//! Masks and secrets: the secure aggregation protocol, both sides, without I/O.

pub mod codec;
pub(crate) mod crypto;
pub(crate) mod graph;
pub mod mask;
pub mod messages;
pub mod modular;
pub mod packing;
pub mod params;
pub(crate) mod participants;
pub mod rejection;
pub(crate) mod secret;
pub mod upload;

pub use secret::Secret;
pub use x25519_dalek::rand_core::CryptoRng;
