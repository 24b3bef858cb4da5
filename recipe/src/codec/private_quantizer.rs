//! The grid and the noise that terms of privacy stand for, the same on both sides.

use learning::privacy::{NoiseShares, PlanError, PlanRequest, PrivateCodec, TaskFacts};
use task_spec::{Clip, PrivacyMechanism, SpecError};
use wire::participant::PrivacyTerms;

/// Why terms of privacy are not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    /// Terms that promise nothing.
    #[error("they name no mechanism, so nothing is promised")]
    NoMechanism,
    /// Something that must have been decided when the task was created.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Wrong in itself.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Spec(Vec<SpecError>),
    /// A number out of its range.
    #[error("{what} must be {range}, not {got}")]
    Range {
        what: &'static str,
        /// What it must be.
        range: &'static str,
        got: f64,
    },
    /// Something else than follows from the terms.
    #[error("{what} is {got} where they make it {expected}")]
    Different { what: &'static str, expected: u64, got: u64 },
    /// A share of the noise does not hide the update it was added to.
    #[error("{} needs secure aggregation, and the round has none", .0.as_str())]
    Uncovered(PrivacyMechanism),
    /// Sums of fewer updates than the noise counts on could be opened.
    #[error("sums of {got} updates could be opened where the noise counts on {needed}")]
    Included {
        /// What the noise counts on.
        needed: u32,
        /// What the session enforces.
        got: u16,
    },
    /// Those who may collude could take too much of the noise off.
    #[error("the session allows {needed} of the fewest participants to collude where the noise counts on {got}")]
    Colluders {
        /// What the session allows.
        needed: u64,
        /// What the noise counts on.
        got: u32,
    },
    /// No grid or no noise can be derived.
    #[error(transparent)]
    Derived(#[from] PlanError),
}

/// What updates of a private task are rounded to, and what participants add to them.
#[derive(Clone, Debug)]
pub struct PrivateQuantizer {
    /// What everything is derived from.
    pub request: PlanRequest,
    /// From floats to integers.
    pub codec: PrivateCodec,
    /// What participants add, if they do.
    pub shares: Option<NoiseShares>,
}

impl PrivateQuantizer {
    /// Derives it for so many shared parameters.
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

    /// The same, from what is planned for.
    ///
    /// # Errors
    /// [`PlanError`].
    pub(crate) fn of(request: PlanRequest, noise_multiplier: f64) -> Result<Self, PlanError> {
        let codec = request.codec(noise_multiplier)?;
        let shares = request.shares(&codec)?;
        Ok(Self { request, codec, shares })
    }
}

/// What is planned for, from terms whose noise need not be solved for yet.
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
