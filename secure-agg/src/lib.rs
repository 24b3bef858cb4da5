//! Masks and secrets: the secure aggregation protocol `fl-secagg/1`, both sides, without I/O, clock or ambient randomness.
//!
//! A cohort of n participants sums its vectors so that the coordinator learns the sum and nothing else about any one of them,
//! even if it lies and up to γn participants collude with it. `README.md` tells the protocol; [`client`] and [`server`] are its
//! two sides, [`messages`] what they say, [`params`] the numbers, [`mask`] what hides a vector.
//!
//! This crate knows no model, no transport, no storage and no certificate: a participant is an opaque id and an Ed25519 key.

pub mod client;
pub mod codec;
pub(crate) mod crypto;
pub(crate) mod graph;
pub mod mask;
pub mod messages;
pub mod modular;
pub mod packing;
pub mod params;
mod participants;
pub mod rejection;
mod secret;
pub mod server;
pub mod upload;
#[cfg(test)]
#[path = "../tests/vectors.rs"]
mod vectors;

pub use crypto::agreement::{BadPublicKey, PublicKey};
pub use crypto::signature::{
    IdentityKey, IdentityRefused, IdentityVerifier, MemorySigner, Signature, Signer, SignerFault,
};
pub use crypto::suite::{PROTOCOL, SUITE_CHACHA20};
pub use crypto::transcript::Digest;
pub use participants::{Index, IndexSet, MAX_COHORT};
pub use secret::Secret;
pub use x25519_dalek::rand_core::CryptoRng;
