//! Models that a participant receives or keeps: their files, and the base of a round.

pub(super) mod base;
pub(super) mod kept_models;
pub(super) mod last_version;
pub(super) mod model_file;
pub(super) mod received;
