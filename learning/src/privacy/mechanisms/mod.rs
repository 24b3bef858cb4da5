//! Noise: its distributions, and how it is drawn and added to integers.

pub mod banded;
pub mod discrete_gaussian;
pub mod noise;
pub mod opendp;
pub(super) mod place_seeds;
pub mod skellam;
