//! The codec of private updates, and the checks of one update.

pub mod adaptive_clip;
pub mod inspect;
pub mod private_codec;
pub mod rotation;
