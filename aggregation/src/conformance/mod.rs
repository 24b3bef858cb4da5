//! The conformance suite for devices: for all inputs, the exact results of plain arithmetic, of sorting and of the
//! portable mask expansion. It asserts equality, since integers allow no tolerance.
//!
//! A device's test calls [`run`]; a failure panics with the name of the case.

pub mod bad_input;
mod cases;
mod lockstep;
mod robust;

pub use self::lockstep::Lockstep;

use crate::Aggregator;

/// Runs every case.
///
/// # Panics
/// If a result is wrong, if a valid operation fails, or an invalid one succeeds.
pub fn run(device: &dyn Aggregator) {
    cases::known_answers(device);
    cases::random_sums(device);
    cases::many_masks(device);
    cases::chunk_boundary(device);
    cases::splits(device);
    cases::slices(device);
    bad_input::no_inputs(device);
    bad_input::no_seeds(device);
    bad_input::two_rounds_at_once(device);
    bad_input::another_length(device);
    bad_input::padding(device);
    bad_input::out_of_range(device);
    bad_input::a_plan_for_another_vector(device);
    bad_input::another_slice(device);
    bad_input::broken_streams(device);
    robust::random_vectors(device);
    robust::many_vectors(device);
    robust::many_columns(device);
    robust::refusals(device);
    robust::two_at_once(device);
}
