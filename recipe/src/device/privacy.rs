//! The privacy terms of a round for one participant: quantization, its share of the noise, and the cost of taking part.
//!
//! Derived by the same code as on the coordinator. Underivable terms, and terms contradicting the encoding or the session, are refused
//! before the model is fetched.

use std::sync::Arc;

use learning::privacy::accountant::tree_levels;
use learning::privacy::{Bands, PlanError, PlanRequest, Release};
use task_spec::{PrivacyMechanism, PrivacySpec};
use wire::participant::{Assignment, PrivacyTerms, SessionTerms};

use crate::codec::{PrivateQuantizer, TermsError};
use crate::digest::rotation_seed;

/// A participant's arithmetic of one private round.
#[derive(Clone, Debug)]
pub struct PrivateRound {
    /// The specification, as the operator wrote it.
    pub spec: PrivacySpec,
    /// Quantization and this participant's noise.
    pub quantizer: Arc<PrivateQuantizer>,
    /// L2 clipping norm of updates.
    pub clip: f64,
    /// Seed of the cohort's common rotation.
    pub rotation_seed: [u8; 32],
    /// The cost of taking part: that of a release of the smallest sum that may be opened.
    pub release: Release,
    /// A deliberate fault, for audits.
    #[cfg(feature = "deliberate-faults")]
    pub fault: Option<super::faults::Fault>,
}

impl PrivateRound {
    /// Derives the round's arithmetic from the assignment; `parameters` is the length of the shared layout.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn new(assignment: &Assignment, terms: &PrivacyTerms, parameters: usize) -> Result<Self, TermsError> {
        let quantizer = PrivateQuantizer::new(terms, parameters as u64, assignment.encoding.modulus_bits)?;
        Self::of(assignment, terms, Arc::new(quantizer))
    }

    /// The same, with a quantizer already derived from these terms.
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
}

/// Checks that the encoding matches the privacy terms.
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

/// Checks that the session enforces the assumptions of the noise.
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

/// The cost of one participation, to observers who know of it.
fn cost(
    assignment: &Assignment,
    PrivateQuantizer { request, codec, .. }: &PrivateQuantizer,
) -> Result<Release, PlanError> {
    let mut release = request.release(codec)?.without_sampling();
    (release.round, release.attempt) = (assignment.round.into(), assignment.attempt);
    if request.mechanism == PrivacyMechanism::Tree {
        // One node on every level of the tree contains the update. These Gaussian releases cost as much as one with a sensitivity larger by
        // the square root of their number.
        let levels = tree_levels(request.rounds);
        release.sum.sensitivity *= f64::from(levels).sqrt();
        release.sum.dimension = release.sum.dimension.saturating_mul(levels.into());
    }
    // Participations at the required distance meet independent noise: each costs its column of the matrix, and the
    // costs add up.
    release.bands = release.bands.map(Bands::one_participation);
    // Its own ledger has a row for each of its participations, and charges them all.
    release.participations = None;
    Ok(release)
}
