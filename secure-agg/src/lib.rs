//! Masks and secrets: the secure aggregation protocol, both sides, without I/O.

pub(crate) mod crypto;
pub mod mask;
pub mod modular;
pub mod packing;
pub(crate) mod participants;
pub(crate) mod secret;

pub use secret::Secret;
pub use x25519_dalek::rand_core::CryptoRng;
