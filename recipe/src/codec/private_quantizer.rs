//! Quantization and noise, derived from privacy terms in the same way on both sides.

use learning::privacy::{NoiseShares, PlanError, PlanRequest, PrivateCodec, TaskFacts};
use task_spec::{Clip, PrivacyMechanism, SpecError};
use wire::participant::PrivacyTerms;

/// Reasons privacy terms are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// The terms lack a mechanism.
    #[error("they name no mechanism, so nothing is promised")]
    NoMechanism,
    /// A field fixed at the task's creation is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The terms are invalid.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Spec(Vec<SpecError>),
    /// A number is out of range.
    #[error("{what} must be {range}, not {got}")]
    Range { what: &'static str, range: &'static str, got: f64 },
    /// A value differs from the one derived from the terms.
    #[error("{what} is {got} where they make it {expected}")]
    Different { what: &'static str, expected: u64, got: u64 },
    /// A share of the noise alone does not hide an update.
    #[error("{} needs secure aggregation, and the round has none", .0.as_str())]
    Uncovered(PrivacyMechanism),
    /// Sums of fewer updates than the noise counts on could be opened.
    #[error("sums of {got} updates could be opened where the noise counts on {needed}")]
    Included {
        /// Required by the noise.
        needed: u32,
        /// Enforced by the session.
        got: u16,
    },
    /// Colluding participants could remove too much of the noise.
    #[error("the session allows {needed} of the fewest participants to collude where the noise counts on {got}")]
    Colluders {
        /// Allowed by the session.
        needed: u64,
        /// Required by the noise.
        got: u32,
    },
    /// Quantization or noise cannot be derived.
    #[error(transparent)]
    Derived(#[from] PlanError),
}

/// Quantization of updates in a private task, and the noise added by participants.
#[derive(Clone, Debug)]
pub struct PrivateQuantizer {
    /// The request from which all values are derived.
    pub request: PlanRequest,
    /// The codec from floats to integers.
    pub codec: PrivateCodec,
    /// The participants' shares of the noise, if they add any.
    pub shares: Option<NoiseShares>,
}

impl PrivateQuantizer {
    /// Derives the quantizer for this number of shared parameters.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn new(terms: &PrivacyTerms, parameters: u64, modulus_bits: u8) -> Result<Self, TermsError> {
        let spec = &terms.spec;
        if !spec.is_private() {
            return Err(TermsError::NoMechanism);
        }
        spec.check().map_err(TermsError::Spec)?;
        let Some(noise_multiplier) = spec.noise_multiplier else { return Err(TermsError::Missing("noise_multiplier")) };
        if spec.delta.is_none() {
            return Err(TermsError::Missing("delta"));
        }
        check_ranges(terms)?;
        let request = request(terms, parameters, modulus_bits).map_err(TermsError::Spec)?;
        Ok(Self::of(request, noise_multiplier)?)
    }

    /// Derives the quantizer from a request.
    ///
    /// # Errors
    /// [`PlanError`].
    pub(crate) fn of(request: PlanRequest, noise_multiplier: f64) -> Result<Self, PlanError> {
        let codec = request.codec(noise_multiplier)?;
        let shares = request.shares(&codec)?;
        Ok(Self { request, codec, shares })
    }
}

/// The request for these terms; their noise multiplier may be unsolved.
pub(crate) fn request(terms: &PrivacyTerms, parameters: u64, modulus_bits: u8) -> Result<PlanRequest, Vec<SpecError>> {
    let PrivacyTerms { ref spec, cohort, smallest_cohort, colluders, rounds, .. } = *terms;
    PlanRequest::of(spec, &TaskFacts { cohort, parameters, modulus_bits, smallest_cohort, colluders, rounds })
}

fn check_ranges(terms: &PrivacyTerms) -> Result<(), TermsError> {
    let spec = &terms.spec;
    let population = spec.population.unwrap_or(terms.cohort);
    let clip = terms.clip;
    let is_fixed = |norm: f64| matches!(spec.clip, Some(Clip::Fixed(fixed)) if fixed != norm);
    let checks = [
        (
            "cohort",
            "at least 1 and at most the population",
            terms.cohort.into(),
            (1..=population).contains(&terms.cohort),
        ),
        (
            "smallest_cohort",
            "at least 1 and at most the cohort",
            terms.smallest_cohort.into(),
            (1..=terms.cohort).contains(&terms.smallest_cohort),
        ),
        ("rounds", "at least 1", terms.rounds.into(), terms.rounds > 0),
        ("clip", "a normal number above 0", clip, clip.is_normal() && clip > 0.0),
        ("clip", "what the task fixes it to", clip, !is_fixed(clip)),
    ];
    match checks.into_iter().find(|(.., holds)| !holds) {
        Some((what, range, got, _)) => Err(TermsError::Range { what, range, got }),
        None => Ok(()),
    }
}
