//! What the terms of privacy of one round mean to one participant: the grid, its share of the noise, and what taking part costs.
//!
//! Everything is derived by the code that the coordinator derives it by. What cannot be derived, or is not what the encoding and
//! the session say, is refused before a byte of the model has come.

use std::sync::Arc;

use learning::privacy::accountant::tree_levels;
use learning::privacy::{Bands, PlanError, PlanRequest, Release};
use task_spec::{PrivacyMechanism, PrivacySpec};
use wire::participant::{Assignment, PrivacyTerms, SessionTerms};

use crate::codec::{PrivateQuantizer, TermsError};
use crate::digest::rotation_seed;

/// The arithmetic of one round with a privacy mechanism, as one participant needs it.
#[derive(Clone, Debug)]
pub struct PrivateRound {
    /// As the operator wrote it.
    pub spec: PrivacySpec,
    /// From floats to integers, and what this participant adds.
    pub quantizer: Arc<PrivateQuantizer>,
    /// The L2 norm that updates are scaled down to.
    pub clip: f64,
    /// What the rotation of the whole cohort is drawn from.
    pub rotation_seed: [u8; 32],
    /// What taking part costs: of the fewest updates that may be released, as is enforced.
    pub release: Release,
    /// What is done wrong on purpose.
    #[cfg(feature = "deliberate-faults")]
    pub fault: Option<super::faults::Fault>,
}

impl PrivateRound {
    /// Derives it from what the assignment says; `parameters` is the length of the shared layout.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn new(assignment: &Assignment, terms: &PrivacyTerms, parameters: usize) -> Result<Self, TermsError> {
        let quantizer = PrivateQuantizer::new(terms, parameters as u64, assignment.encoding.modulus_bits)?;
        Self::of(assignment, terms, Arc::new(quantizer))
    }

    /// The same, on a grid that was derived from these terms.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn of(
        assignment: &Assignment,
        terms: &PrivacyTerms,
        quantizer: Arc<PrivateQuantizer>,
    ) -> Result<Self, TermsError> {
        check_encoding(assignment, &quantizer.request)?;
        check_cover(assignment.secure_aggregation.as_ref(), terms, terms.spec.mechanism)?;
        Ok(Self {
            spec: terms.spec.clone(),
            clip: terms.clip,
            rotation_seed: rotation_seed(assignment.attempt_key()).0,
            release: cost(assignment, &quantizer)?,
            quantizer,
            #[cfg(feature = "deliberate-faults")]
            fault: None,
        })
    }

    /// Whether this participant's own noise is in what it sends.
    #[must_use]
    pub fn has_own_noise(&self) -> bool {
        self.quantizer.shares.is_some()
    }
}

/// The encoding repeats what follows from the terms.
fn check_encoding(assignment: &Assignment, request: &PlanRequest) -> Result<(), TermsError> {
    let encoding = &assignment.encoding;
    for (what, expected, got) in [
        ("the largest cohort", request.largest_cohort(), encoding.max_cohort),
        ("the largest weight", request.max_weight, encoding.max_weight),
    ] {
        if expected != got {
            return Err(TermsError::Different { what, expected: expected.into(), got: got.into() });
        }
    }
    Ok(())
}

/// What the noise counts on is what the session enforces.
fn check_cover(
    session: Option<&SessionTerms>,
    terms: &PrivacyTerms,
    mechanism: PrivacyMechanism,
) -> Result<(), TermsError> {
    let is_distributed = mechanism.needs_secure_aggregation();
    let session = match session {
        Some(session) => session,
        None if is_distributed => return Err(TermsError::Uncovered(mechanism)),
        None => return Ok(()),
    };
    if u32::from(session.min_included) < terms.smallest_cohort {
        return Err(TermsError::Included { needed: terms.smallest_cohort, got: session.min_included });
    }
    let needed = u64::from(session.max_corrupt) * u64::from(terms.smallest_cohort) / 1_000_000;
    if is_distributed && u64::from(terms.colluders) < needed {
        return Err(TermsError::Colluders { needed, got: terms.colluders });
    }
    Ok(())
}

/// What one participation costs whoever knows of it.
fn cost(
    assignment: &Assignment,
    PrivateQuantizer { request, codec, .. }: &PrivateQuantizer,
) -> Result<Release, PlanError> {
    let mut release = request.release(codec)?.without_sampling();
    (release.round, release.attempt) = (assignment.round.into(), assignment.attempt);
    if request.mechanism == PrivacyMechanism::Tree {
        // One node on every level holds the update. So many Gaussian releases cost what one does whose sensitivity is the
        // square root of their number larger, with the noise of all these nodes in it.
        let levels = tree_levels(request.rounds);
        release.sum.sensitivity *= f64::from(levels).sqrt();
        release.sum.dimension = release.sum.dimension.saturating_mul(levels.into());
    }
    // Participations that keep their distance meet different noise: each costs its column of the matrix, and they add up.
    release.bands = release.bands.map(Bands::one_participation);
    Ok(release)
}
