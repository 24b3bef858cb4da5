//! Release of a sum: unmasking, noise, and robust combinations.

mod draw;
mod noise;
mod release;
mod release_groups;
pub(super) mod release_sum;
mod robust;
#[cfg(feature = "deliberate-faults")]
pub(super) mod spoil;
