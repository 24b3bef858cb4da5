//! The combination of primitives of a session, identified by a number in the configuration digest.

/// The wire version: the prefix of every derivation and every signed text.
pub const PROTOCOL: &[u8] = b"fl-secagg/1";

/// The only suite of this version: X25519, HKDF-SHA-256, ChaCha20-Poly1305, Ed25519, SHA-256, Shamir over GF(2^61 - 1),
/// masks from ChaCha20. Generators that are not pseudo-random functions (Philox, PCG, MT) must never be used.
pub const SUITE_CHACHA20: u8 = 1;
