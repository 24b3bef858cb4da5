//! The primitives, one per file. They do not depend on messages or phases.

pub(crate) mod aead;
pub(crate) mod agreement;
pub(crate) mod field;
pub(crate) mod kdf;
pub(crate) mod reed_solomon;
pub(crate) mod shamir;
pub(crate) mod signature;
pub(crate) mod suite;
pub(crate) mod transcript;
