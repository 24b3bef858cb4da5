//! What the terms of a round mean: the grid, this participant's share of the noise, what it is promised and what it costs.
//!
//! Everything is derived by the code that the coordinator derives it by (`learning::privacy`). What cannot be derived, or is
//! not what the encoding and the session say, is refused before a byte of the model has come.

use learning::privacy::accountant::tree_levels;
use learning::privacy::{Bands, NoiseLaw, PlanError, PlanRequest, PrivateCodec, Release, TaskFacts};
use serde::{Deserialize, Serialize};
use task_spec::{Clip, PrivacyMechanism, PrivacyView, SpecError};
use wire::participant::{Assignment, PrivacyTerms, SessionTerms, rotation_seed};

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
    /// Not understood, or wrong in itself.
    #[error("{0}")]
    Spec(String),
    /// A number out of its range.
    #[error("{what} must be {range}, not {got}")]
    Range {
        /// Which.
        what: &'static str,
        /// What it must be.
        range: &'static str,
        /// What it is.
        got: f64,
    },
    /// Something else than follows from the terms.
    #[error("{what} is {got} where they make it {expected}")]
    Different {
        /// What.
        what: &'static str,
        /// What follows.
        expected: u64,
        /// What was said.
        got: u64,
    },
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

/// What is promised to those who take part; what was promised first is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Promise {
    pub(crate) mechanism: PrivacyMechanism,
    pub(crate) noise_multiplier: f64,
    pub(crate) delta: f64,
    /// For how many rounds it was planned.
    pub(crate) rounds: u32,
    /// The task's budget, where it is meant for those who know who took part.
    pub(crate) epsilon: Option<f64>,
    /// With a banded matrix: how often one participant takes part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) participations: Option<Participations>,
}

/// How often one participant takes part where noise is correlated along a banded matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Participations {
    /// In how many rounds, at most.
    pub(crate) most: u32,
    /// How many rounds from one to the next, at least: as many as the matrix has bands.
    pub(crate) separation: u32,
}

/// The arithmetic of one round with a privacy mechanism, as one participant needs it.
#[derive(Clone, Debug)]
pub struct PrivateRound {
    /// From floats to integers.
    pub(crate) codec: PrivateCodec,
    /// What this participant adds, if participants do.
    pub(crate) noise: Option<NoiseLaw>,
    /// The norm updates are scaled down to.
    pub(crate) clip: f64,
    pub(crate) rotation_seed: [u8; 32],
    pub(crate) promise: Promise,
    /// What taking part costs: of the fewest updates that may be released, as is enforced.
    pub(crate) release: Release,
    #[cfg(feature = "deliberate-faults")]
    pub(crate) fault: Option<crate::faults::Fault>,
}

impl PrivateRound {
    /// Derives it from what the assignment says; `parameters` is the length of the shared layout.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn new(assignment: &Assignment, terms: &PrivacyTerms, parameters: usize) -> Result<Self, TermsError> {
        let spec = &terms.spec;
        if !spec.is_private() {
            return Err(TermsError::NoMechanism);
        }
        spec.check().map_err(problems)?;
        let Some(noise_multiplier) = spec.noise_multiplier else { return Err(TermsError::Missing("noise_multiplier")) };
        let Some(delta) = spec.delta else { return Err(TermsError::Missing("delta")) };
        let request = request(assignment, terms, parameters)?;
        let codec = request.codec(noise_multiplier)?;
        let noise = request.shares(&codec)?.map(|shares| shares.share);
        check_encoding(assignment, &request)?;
        check_cover(assignment.secure_aggregation.as_ref(), terms, spec.mechanism)?;
        let is_ours = matches!(spec.against, PrivacyView::CohortKnown | PrivacyView::Server);
        Ok(Self {
            codec,
            noise,
            clip: terms.clip,
            rotation_seed: rotation_seed(assignment.attempt_key()).0,
            promise: Promise {
                mechanism: spec.mechanism,
                noise_multiplier,
                delta,
                rounds: request.rounds,
                epsilon: spec.epsilon.filter(|_| is_ours),
                participations: (spec.mechanism == PrivacyMechanism::BandedMatrix).then(|| Participations {
                    most: request.participations.unwrap_or(request.rounds),
                    separation: request.bands(),
                }),
            },
            release: cost(assignment, &request, &codec)?,
            #[cfg(feature = "deliberate-faults")]
            fault: None,
        })
    }
}

fn problems(problems: Vec<SpecError>) -> TermsError {
    TermsError::Spec(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn request(assignment: &Assignment, terms: &PrivacyTerms, parameters: usize) -> Result<PlanRequest, TermsError> {
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
    if let Some((what, range, got, _)) = checks.into_iter().find(|(.., holds)| !holds) {
        return Err(TermsError::Range { what, range, got });
    }
    let facts = TaskFacts {
        cohort: terms.cohort,
        parameters: parameters as u64,
        modulus_bits: assignment.encoding.modulus_bits,
        smallest_cohort: terms.smallest_cohort,
        colluders: terms.colluders,
        rounds: terms.rounds,
    };
    PlanRequest::of(spec, &facts).map_err(problems)
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
fn cost(assignment: &Assignment, request: &PlanRequest, codec: &PrivateCodec) -> Result<Release, PlanError> {
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
