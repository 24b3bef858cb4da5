//! The participant's half: checking an assignment, and the one path from an update to the bytes that leave the device.

#[cfg(feature = "deliberate-faults")]
pub mod faults;
pub mod pipeline;
mod privacy;

use wire::participant::{Assignment, SessionTerms};

pub use privacy::PrivateRound;

use crate::{AssignmentTerms, UpdateCodec};

/// Checks that a session's terms match this assignment: length, modulus and headroom of the sum, and, by the digest, the meaning of its
/// words.
///
/// # Errors
/// The term of the session that differs from the assignment.
pub fn check_session(assignment: &Assignment, terms: &SessionTerms, codec: &UpdateCodec) -> Result<(), &'static str> {
    let encoding = &assignment.encoding;
    let cohort = u32::from(terms.min_cohort)..=u32::from(terms.max_cohort);
    let shape = codec.shape();
    // Noise uses exactly its promised headroom.
    let (bound, margin) = match codec {
        UpdateCodec::Private(_) => (terms.input_bound == shape.input_bound, terms.noise_margin == shape.noise_margin),
        UpdateCodec::Plain(_) | UpdateCodec::Sums(_) => (terms.input_bound >= shape.input_bound, true),
    };
    let application = AssignmentTerms::from(assignment).in_round(assignment.base.version, &assignment.earlier);
    let checks = [
        ("largest cohort", u32::from(terms.max_cohort) == encoding.max_cohort),
        ("cohort", cohort.contains(&assignment.cohort)),
        // A group has exactly the agreed size; the session rejects other rosters.
        (
            "size of a group",
            encoding.groups.is_none_or(|groups| *cohort.start() == groups.size && groups.size == *cohort.end()),
        ),
        ("modulus", terms.modulus_bits == shape.modulus_bits),
        ("number of words", terms.words == shape.words),
        ("bound of an input", bound),
        ("room for noise", margin),
        // Last, since it would hide the differing term.
        ("encoding, model or training", terms.application == application),
    ];
    match checks.into_iter().find(|(_, holds)| !holds) {
        Some((what, _)) => Err(what),
        None => Ok(()),
    }
}
