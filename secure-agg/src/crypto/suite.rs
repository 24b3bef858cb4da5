//! The combination of primitives a session uses, under one number that the configuration digest covers.

/// The wire version: the prefix of every derivation and every signed text.
pub const PROTOCOL: &[u8] = b"fl-secagg/1";

/// Number of the only suite of this version: X25519, HKDF-SHA-256, ChaCha20-Poly1305, Ed25519, SHA-256, Shamir over
/// GF(2^61 - 1), masks from ChaCha20. Generators that are not pseudo-random functions (Philox, PCG, MT) never get a number.
pub const SUITE_CHACHA20: u8 = 1;
