//! The suite that every device must pass: for all inputs, exactly the answer of plain arithmetic, of sorting and of the portable
//! mask expansion. It asserts equality, since integers leave nothing to tolerate.
//!
//! A device's test calls [`run`]; a failure panics and says which case it was.

mod cases;
mod lockstep;
mod refusals;
mod robust;

pub use self::lockstep::Lockstep;

use crate::Aggregator;

/// Runs every case.
///
/// # Panics
/// When an answer is wrong or an operation fails that must not, or the other way round.
pub fn run(device: &dyn Aggregator) {
    cases::known_answers(device);
    cases::random_sums(device);
    cases::many_masks(device);
    cases::chunk_boundary(device);
    cases::no_inputs(device);
    cases::splits(device);
    cases::slices(device);
    cases::two_sums_at_once(device);
    refusals::lengths(device);
    refusals::padding(device);
    refusals::plans(device);
    refusals::slices(device);
    refusals::torn_streams(device);
    robust::random_vectors(device);
    robust::many_vectors(device);
    robust::many_columns(device);
    robust::refusals(device);
    robust::two_at_once(device);
}
