//! Masks and secrets: the secure aggregation protocol `fl-secagg/1`, both sides, without I/O, clock or ambient
//! randomness.
//!
//! A cohort of n participants sums its vectors such that the coordinator learns the sum and nothing else about any
//! participant, even if it lies and up to γn participants collude with it. `README.md` describes the protocol;
//! [`client`] and [`server`] are its two sides, [`messages`] its messages, [`params`] its parameters and [`mask`] its
//! masks.
//!
//! This crate knows no model, no transport, no storage and no certificate: a participant is an opaque id and an Ed25519
//! key.
//!
//! A whole session of three, without drop-outs, transport or journal:
//!
//! ```
//! use chacha20::{ChaCha20Rng, rand_core::SeedableRng as _};
//! use secure_agg::client::{Received, Setup, advertise_keys};
//! use secure_agg::mask::{self, Plane};
//! use secure_agg::messages::RoundId;
//! use secure_agg::params::{Policy, SessionConfig, VectorShape};
//! use secure_agg::server::CollectKeys;
//! use secure_agg::{IdentityKey, IdentityRefused, IdentityVerifier, MemorySigner, Signer, modular, packing};
//!
//! struct Certificates; // here a certificate is the key itself
//! impl IdentityVerifier for Certificates {
//!     fn verify(&self, _id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
//!         certificate.try_into().map(IdentityKey).map_err(|_| IdentityRefused)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = VectorShape { words: 2, modulus_bits: 32, input_bound: 1000, noise_margin: 0 };
//! let config = SessionConfig {
//!     suite: 1, min_cohort: 3, max_cohort: 3, max_corrupt: 100_000, max_dropout: 300_000, min_included: 0,
//!     model, scalars: VectorShape::NONE, application: [0; 32],
//! };
//! let policy = Policy { min_cohort: 3, min_tolerated_corrupt: 0, min_tolerated_colluders: 0, min_included: 0 };
//! let (round, model_hash) = (RoundId::new(b"task", 1, 0), [7; 32]);
//! let mut rng = ChaCha20Rng::seed_from_u64(1); // from the system, where it matters
//! let signers = [1, 2, 3].map(|seed| MemorySigner::from_seed(&[seed; 32]).unwrap());
//!
//! // R0. At every step: make `persist` durable, then send.
//! let server = CollectKeys::new(round.clone(), model_hash, config.clone())?;
//! let (mut clients, mut admitted) = (Vec::new(), Vec::new());
//! for (number, signer) in (1u8..).zip(&signers) {
//!     let setup = Setup {
//!         round: round.clone(), client_id: vec![number], certificate: signer.identity().0.to_vec(),
//!         config: config.clone(), policy, batch: None,
//!     };
//!     let step = advertise_keys(setup, signer, &mut rng)?;
//!     admitted.push(server.admit(step.send, &Certificates)?);
//!     clients.push(step.next);
//! }
//! // R1
//! let server = server.close(admitted)?;
//! let (mut dealing, mut admitted) = (Vec::new(), Vec::new());
//! for (client, signer) in clients.into_iter().zip(&signers) {
//!     let step = client.share_keys(server.roster(), &model_hash, 0, &Certificates, signer, &mut rng)?;
//!     admitted.push(server.admit(step.send)?);
//!     dealing.push(step.next);
//! }
//! // R2
//! let dealt = admitted.clone();
//! let server = server.close(admitted)?;
//! let (mut waiting, mut admitted, mut sum) = (Vec::new(), Vec::new(), vec![0; 2]);
//! for ((number, client), signer) in (1u16..).zip(dealing).zip(&signers) {
//!     let sealed = |dealer: u16| dealt[usize::from(dealer) - 1].message().body.sealed_for(number).copied();
//!     let Received::Ready(client) = client.receive(&server.delivery(number, sealed).unwrap())? else { unreachable!() };
//!     let step = client.mask(vec![u32::from(number), 100], Vec::new(), signer)?;
//!     modular::add_assign(&mut sum, &packing::unpack(&step.send.body, 2, model.modulus()?)?);
//!     admitted.push(server.admit(step.send.message)?);
//!     waiting.push(step.next);
//! }
//! // R3
//! let server = server.close(admitted)?;
//! let (mut agreeing, mut admitted) = (Vec::new(), Vec::new());
//! for (client, signer) in waiting.into_iter().zip(&signers) {
//!     let step = client.check(&server.announcement(), signer)?;
//!     admitted.push(server.admit(step.send)?);
//!     agreeing.push(step.next);
//! }
//! // R4
//! let server = server.close(admitted)?;
//! let mut admitted = Vec::new();
//! for (client, signer) in agreeing.into_iter().zip(&signers) {
//!     admitted.push(server.admit(client.unmask(server.agreement(), signer)?.send)?);
//! }
//! mask::apply(&server.close(admitted)?.plan(Plane::Model)?, 0, &mut sum)?;
//! assert_eq!(sum, [1 + 2 + 3, 300]);
//! # Ok(())
//! # }
//! ```

pub mod batch;
pub mod client;
pub mod codec;
#[cfg(test)]
#[path = "../tests/constant_time.rs"]
mod constant_time;
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
