//! The numbers derived from `[privacy]` of a task: quantization, noise, cohort sizes and the charge for a release.
//!
//! `learning` computes the figures; here they are assembled from the task, for requests and background work alike.

use std::sync::Arc;

use federation::round::RoundLimits;
use learning::privacy::plan::smallest_draw;
use learning::privacy::{
    Budget, Ledger, OpenDpError, OpenDpGaussian, PlanError, PlanRequest, PlanSampling, PrivateCodecError, Release,
    SamplingRate, next_clip, plan,
};
use task_spec::{Clip, MAX_SECURE_COHORT, MIN_SECURE_COHORT, Sampling, SpecError, TaskSpec};
use task_spec::{NOISE_RANGE, NoisedBy, PrivacyMechanism, PrivacySampler, PrivacySpec, PrivacyView};
use wire::participant::PrivacyTerms;

use super::field::wrong;
use crate::codec::{PrivateQuantizer, request};

/// Probability of a Poisson draw so small that its round fails before any upload.
const FAILING: f64 = 0.01;
/// Maximum bits of a word.
const MODULUS_BITS_MAX: u8 = 32;

/// Maximum words of a sum with noise drawn by OpenDP: each takes microseconds, and the result is stored in the database.
const OPENDP_WORDS_MAX: usize = 1 << 20;

/// Reasons OpenDP cannot draw the noise of a task.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    #[error(transparent)]
    OpenDp(#[from] OpenDpError),
    /// A charge for the comparison is missing.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The sum is too long.
    #[error(
        "is \"opendp\", which is slow and draws noise for sums of at most {OPENDP_WORDS_MAX} words; this task's have {0}: leave it out, \
         or train a smaller model"
    )]
    TooLong(usize),
}

/// The numbers derived from a private task.
#[derive(Clone, Debug)]
pub struct PrivateTask {
    /// The specification, as the operator wrote it.
    pub spec: PrivacySpec,
    /// Quantization and the participants' noise.
    pub quantizer: Arc<PrivateQuantizer>,
    terms: PrivacyTerms,
    least: u32,
    /// Whether sampling amplifies the published figure.
    amplified: bool,
    /// Number of present members of the population required before a cohort is drawn; 0 if any number may be.
    attendance: u32,
}

impl PrivateTask {
    /// Derives the numbers; `None` for a task without a mechanism. `noise_multiplier` must be set.
    ///
    /// # Errors
    /// Every invalid field.
    pub fn new(spec: &TaskSpec, parameters: u64) -> Result<Option<Self>, Vec<SpecError>> {
        if !spec.privacy.is_private() {
            // A budget without a mechanism is an error: it would guarantee nothing.
            spec.privacy.check()?;
            return Ok(None);
        }
        spec.privacy.check()?;
        let terms = terms(spec)?;
        let request = planned(spec, &terms, parameters)?;
        let Some(z) = spec.privacy.noise_multiplier else {
            return Err(wrong("privacy.noise_multiplier", "must have been solved for when the task was created"));
        };
        let mut quantizer = match PrivateQuantizer::of(request, z) {
            // Secure aggregation rejects sums that may wrap around.
            Ok(quantizer) if quantizer.codec.params().wrap_sigmas.is_none() => quantizer,
            Ok(_) | Err(PlanError::Codec(PrivateCodecError::Headroom { .. })) => {
                return Err(wrong(bits_field(spec), no_room(&request, z)));
            }
            Err(error) => return Err(unplanned(&error)),
        };
        let least = least_cohort(spec, terms.smallest_cohort);
        if least > terms.cohort {
            return Err(wrong(
                "secure_aggregation.max_dropout_fraction",
                format!(
                    "leaves fewer than {} of the {} participants that a round is expected to have, which the noise counts on",
                    terms.smallest_cohort, terms.cohort
                ),
            ));
        }
        let (amplified, attendance) = (spec.sampling_amplifies(), attendance(spec)?);
        if amplified {
            quantizer.codec = quantizer.codec.with_secret_count();
        }
        Ok(Some(Self {
            spec: spec.privacy.clone(),
            quantizer: Arc::new(quantizer),
            terms,
            least,
            amplified,
            attendance,
        }))
    }

    /// Maximum number of participants in a round: the capacity of the quantizer.
    pub fn largest_cohort(&self) -> u32 {
        self.quantizer.request.largest_cohort()
    }

    /// The cohort size sent to participants: the expected size if the published figure relies on a secret draw, since participants must not
    /// learn its size either.
    pub fn stated_cohort(&self, cohort: u32) -> u32 {
        if self.amplified { self.terms.cohort } else { cohort }
    }

    /// Minimum number of updates in a released sum.
    pub fn smallest_cohort(&self) -> u32 {
        self.terms.smallest_cohort
    }

    /// Minimum number of participants for a round: the allowed dropouts leave the smallest cohort.
    pub fn least_cohort(&self) -> u32 {
        self.least
    }

    /// The round's limits, adjusted for privacy.
    pub fn limits(&self, limits: RoundLimits) -> RoundLimits {
        let smallest = self.smallest_cohort();
        let mut limits = limits;
        limits.collect.min = limits.collect.min.max(smallest);
        if self.amplified {
            // A draw requires enough present members of the population; afterwards all decisions, even whether the round continues, must be
            // independent of the number drawn.
            limits.select.min = self.attendance;
            limits.select.max = self.quantizer.request.population.max(self.attendance);
            limits.collect.min = 0;
            limits.collect.max = self.largest_cohort();
        } else if self.spec.sampling.is_some() {
            // The round waits for all sampled participants; it does not begin with fewer than the noise relies on.
            limits.select.min = self.least;
            limits.select.max = self.largest_cohort();
            limits.collect.min = smallest;
            limits.collect.max = self.largest_cohort();
        } else {
            limits.select.min = limits.select.min.max(self.least);
            limits.select.max = limits.select.max.min(self.largest_cohort());
            limits.collect.max = limits.collect.max.max(limits.collect.min);
        }
        limits
    }

    /// The privacy terms of a round with clipping norm `clip`.
    pub fn terms(&self, clip: f64) -> PrivacyTerms {
        PrivacyTerms { clip, ..self.terms.clone() }
    }

    /// Clipping norm of the first round.
    pub fn initial_clip(&self) -> f64 {
        self.terms.clip
    }

    /// Clipping norm of the next round, if the fraction `within` of the updates was within `clip`.
    pub fn next_clip(&self, clip: f64, within: Option<f64>) -> f64 {
        match (self.spec.clip, within) {
            (Some(Clip::Adaptive(adaptive)), Some(within)) => next_clip(&adaptive, clip, within),
            (Some(Clip::Adaptive(_)), None) | (Some(Clip::Fixed(_)) | None, _) => clip,
        }
    }

    /// The budget, for the ledger.
    pub fn budget(&self) -> Option<Budget> {
        Budget::of(&self.spec)
    }

    /// Whether the coordinator adds the noise, and could remove it with the noise's seed.
    pub fn adds_noise_here(&self) -> bool {
        self.quantizer.shares.is_none()
    }

    /// Whether the noise of a sum is drawn at once, so the sum must be whole in memory. It has at most 2^20 words.
    pub fn draws_at_once(&self) -> bool {
        match self.spec.sampler {
            PrivacySampler::Exact => false,
            PrivacySampler::OpenDp => true,
        }
    }

    /// OpenDP's measurement if the task uses it, checked against the charge for a release.
    ///
    /// # Errors
    /// [`SamplerError`]: the task's noise cannot be drawn.
    pub fn opendp(&self) -> Result<Option<OpenDpGaussian>, SamplerError> {
        if !self.draws_at_once() {
            return Ok(None);
        }
        if self.quantizer.codec.len() > OPENDP_WORDS_MAX {
            return Err(SamplerError::TooLong(self.quantizer.codec.len()));
        }
        let measurement = OpenDpGaussian::new(self.quantizer.codec.sigma())?;
        measurement.check(&self.quantizer.request.release(&self.quantizer.codec)?.sum)?;
        Ok(Some(measurement))
    }

    /// Expected standard deviation, in grid units, of the noise in each coordinate of a sum.
    pub fn noise_of_sum(&self) -> f64 {
        let PrivateQuantizer { codec, shares, .. } = &*self.quantizer;
        shares.map_or(codec.sigma().value(), |shares| (shares.share.variance() * f64::from(self.terms.cohort)).sqrt())
    }

    pub fn mechanism(&self) -> PrivacyMechanism {
        self.spec.mechanism
    }

    /// The planned cost of a round: the release of a sum of the smallest cohort.
    ///
    /// # Errors
    /// The noise is invalid, which a stored task's check rules out.
    pub fn planned(&self, ledger: &Ledger, round: u32, attempt: u32) -> Result<Release, PlanError> {
        let mut release = self.quantizer.request.release(&self.quantizer.codec)?;
        if !self.amplified {
            release = release.without_sampling();
        }
        release.round = round.into();
        release.attempt = attempt;
        Ok(ledger.placed(release))
    }

    /// The release of a sum of `participants` updates.
    ///
    /// # Errors
    /// Fewer participants than the noise relies on.
    pub fn release(&self, ledger: &Ledger, round: u32, attempt: u32, participants: u32) -> Result<Release, PlanError> {
        let mut release = self.planned(ledger, round, attempt)?;
        release.participants = participants;
        if let Some(shares) = self.quantizer.shares
            && self.mechanism().noised_by() != NoisedBy::EachParticipant
        {
            release.sum.noise = shares.noise_of(participants)?;
        }
        Ok(release)
    }
}

/// The sufficient numbers of bits.
fn no_room(request: &PlanRequest, noise_multiplier: f64) -> String {
    let has_room = |bits: &u8| {
        let codec = PlanRequest { modulus_bits: *bits, ..*request }.codec(noise_multiplier);
        codec.is_ok_and(|codec| codec.params().wrap_sigmas.is_none())
    };
    let remedy = match (request.modulus_bits..=MODULUS_BITS_MAX).find(has_room) {
        Some(bits) => format!("{bits} bits would do"),
        None => "no modulus would do: lower the cohort or the noise, or train a smaller model".to_owned(),
    };
    let (bits, cohort) = (request.modulus_bits, request.largest_cohort());
    format!("is {bits}, which leaves no room for sums of {cohort} updates with their noise: {remedy}")
}

/// The field of the setting in force.
fn bits_field(spec: &TaskSpec) -> &'static str {
    let secure = &spec.secure_aggregation;
    let is_its_own = secure.enabled && secure.modulus_bits.is_some();
    if is_its_own { "secure_aggregation.modulus_bits" } else { "aggregation.modulus_bits" }
}

/// The error of a plan, at its field.
fn unplanned(error: &PlanError) -> Vec<SpecError> {
    let field = match error {
        PlanError::Unreachable { .. } => "privacy.epsilon",
        PlanError::Codec(PrivateCodecError::CountNoise { .. }) => "privacy.clip.adaptive",
        PlanError::Codec(PrivateCodecError::Sigma(_)) | PlanError::Noise(_) => "privacy.noise_multiplier",
        PlanError::Range { name: "participations", .. } => "privacy.participations",
        PlanError::Turns(_) | PlanError::Range { name: "population" | "cohort" | "smallest_cohort", .. } => {
            "privacy.population"
        }
        _ => "privacy",
    };
    wrong(field, error)
}

/// Solves for the noise multiplier of a task with only a budget; the solution is stored with the task.
///
/// # Errors
/// Every invalid field, with a valid value.
pub(super) fn solve(spec: &mut TaskSpec, parameters: u64) -> Result<(), Vec<SpecError>> {
    spec.privacy.rounds.get_or_insert(spec.rounds.count);
    spec.privacy.check()?;
    let request = planned(spec, &terms(spec)?, parameters)?;
    let is_sampled = spec.sampling_amplifies();
    let solved = match (spec.privacy.against, spec.privacy.epsilon) {
        (PrivacyView::CohortKnown | PrivacyView::Server, Some(epsilon)) => least_noise(&request, epsilon),
        // Then the published figure is the other one.
        (PrivacyView::Published, Some(epsilon)) if !is_sampled => least_noise(&request, epsilon),
        (PrivacyView::Published, Some(_)) | (_, None) => plan(&request).map(|plan| plan.noise_multiplier),
    };
    spec.privacy.noise_multiplier = Some(solved.map_err(|error| match error {
        PlanError::Codec(PrivateCodecError::Headroom { .. }) => wrong(bits_field(spec), no_room(&request, 1.0)),
        error => unplanned(&error),
    })?);
    Ok(())
}

/// The least noise with which the planned rounds cost at most `epsilon`, to observers who know the cohorts and to the coordinator if it has
/// a figure: sampling protects against neither.
fn least_noise(request: &PlanRequest, epsilon: f64) -> Result<f64, PlanError> {
    let (least, most) = (*NOISE_RANGE.start(), *NOISE_RANGE.end());
    // Noise too small for the mechanism counts as too costly.
    let spent = |z: f64| request.curve(z, 1).map(|points| points.last().map_or(f64::INFINITY, |at| at.1.cohort_known));
    let is_enough = |z: f64| spent(z).is_ok_and(|spent| spent <= epsilon);
    let mut high = 1.0;
    while !is_enough(high) {
        high *= 2.0;
        if high > most {
            return Err(PlanError::Unreachable { wanted: epsilon, most: high / 2.0, best: spent(high / 2.0)? });
        }
    }
    let mut low = least;
    while high - low > 1e-6 * high {
        let middle = 0.5 * (low + high);
        if is_enough(middle) { high = middle } else { low = middle }
    }
    Ok(high)
}

/// The request for a plan. Neighbouring datasets differ by adding or removing one participant; by replacing one if a
/// draw of a fixed size amplifies.
fn planned(spec: &TaskSpec, terms: &PrivacyTerms, parameters: u64) -> Result<PlanRequest, Vec<SpecError>> {
    let mut request = request(terms, parameters, spec.modulus_bits())?;
    if request.sampling == PlanSampling::FixedSize && !spec.sampling_amplifies() {
        request.sampling = PlanSampling::Anyhow;
    }
    Ok(request)
}

/// Expected cohort, smallest cohort, and how many of the smallest may collude.
fn terms(spec: &TaskSpec) -> Result<PrivacyTerms, Vec<SpecError>> {
    let secure = &spec.secure_aggregation;
    let dropouts = secure.max_dropout_fraction;
    let population = spec.privacy.population.unwrap_or_default();
    let (cohort, smallest) = match spec.privacy.sampling {
        Some(Sampling::Poisson(rate)) => {
            let rate = SamplingRate::new(rate).map_err(|error| wrong("privacy.sampling.poisson", error))?;
            (part(population, rate.value()), smallest_draw(population, rate, dropouts, FAILING))
        }
        Some(Sampling::FixedSize(size)) => (size, part_left(size, dropouts)),
        None => {
            let limits = RoundLimits::of(spec);
            let target = spec.selection.cohort.target(limits.select.min);
            (target, if secure.enabled { part_left(target, dropouts) } else { limits.collect.min.min(target) })
        }
    };
    let smallest_cohort = match secure.enabled {
        true => smallest.max(secure.min_cohort.unwrap_or(MIN_SECURE_COHORT)),
        // The sum is released however few are drawn.
        false if spec.sampling_amplifies() => 1,
        false => smallest.max(1),
    };
    if smallest_cohort > cohort {
        return Err(wrong(
            "privacy.sampling",
            format!(
                "draws about {cohort} participants, of whom {smallest_cohort} must be left: raise the population or the rate, \
                 or allow fewer dropouts"
            ),
        ));
    }
    let colluders = if spec.privacy.mechanism.needs_secure_aggregation() {
        part(smallest_cohort, secure.max_corrupt_fraction)
    } else {
        0
    };
    let Some(clip) = spec.privacy.clip.map(|clip| clip.initial()) else {
        return Err(wrong("privacy.clip", "must be given"));
    };
    let rounds = spec.rounds.count;
    Ok(PrivacyTerms { spec: spec.privacy.clone(), cohort, smallest_cohort, colluders, rounds, clip })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the whole")]
fn part(whole: u32, fraction: f64) -> u32 {
    // A decimal fraction may be represented slightly too small.
    (f64::from(whole) * fraction + 1e-9).floor() as u32
}

/// Number of present members of the population for an expected cohort as large as the smallest one left by a draw from all participants
/// after the allowed dropouts. With fewer the budget would be wasted on noise.
fn attendance(spec: &TaskSpec) -> Result<u32, Vec<SpecError>> {
    let population = spec.privacy.population.unwrap_or_default();
    let dropouts = spec.secure_aggregation.max_dropout_fraction;
    let (smallest, rate) = match spec.privacy.sampling {
        Some(Sampling::Poisson(rate)) => {
            let rate = SamplingRate::new(rate).map_err(|error| wrong("privacy.sampling.poisson", error))?;
            (smallest_draw(population, rate, dropouts, FAILING), rate.value())
        }
        Some(Sampling::FixedSize(size)) => (part_left(size, dropouts), f64::from(size) / f64::from(population.max(1))),
        None => return Ok(0),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the population")]
    let needed = (f64::from(smallest.max(1)) / rate).min(f64::from(population)).ceil() as u32;
    Ok(needed)
}

/// The protocol requires of every cohort size from the smallest on that the allowed dropouts leave enough
/// participants.
fn least_cohort(spec: &TaskSpec, smallest: u32) -> u32 {
    if !spec.secure_aggregation.enabled {
        return smallest;
    }
    let dropouts = u64::from(spec.secure_aggregation.max_dropout_millionths());
    let left = |n: u32| u64::from(n) - dropouts * u64::from(n) / 1_000_000;
    (smallest..=MAX_SECURE_COHORT).find(|&n| left(n) >= smallest.into()).unwrap_or(MAX_SECURE_COHORT)
}

fn part_left(whole: u32, lost: f64) -> u32 {
    part(whole, 1.0 - lost).max(1)
}
