//! `tributary privacy plan`: the noise for an epsilon or the epsilons of a noise, and how much of the signal is left.
//!
//! Uses the same request as a task with this `[privacy]`, so the answers are the task's.

use std::path::PathBuf;
use task_spec::{
    AdaptiveClip, Clip, PrivacyAccounting, PrivacyMechanism, PrivacySpec, Sampling, SecureAggregationSpec, SpecError,
    Turns,
};

use learning::privacy::plan::smallest_draw;
use learning::privacy::{Choice, Plan, PlanError, PlanRequest, SamplingRate, TaskFacts, plan};

use super::chart;
use super::tables::{choices_table, epsilons};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, check_writable, figure, number};
use crate::privacy_notes::LifetimeRoom;

/// Poisson cohorts are sometimes small: noise shares rely on the size that all but this fraction of rounds reach.
const SMALL_COHORTS: f64 = 0.01;
/// Points of a curve.
const CURVE_POINTS: u32 = 240;

/// Arguments of `tributary privacy plan`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("goal").required(true).args(["epsilon", "noise"])))]
pub(crate) struct PlanArgs {
    /// Participants enrolled
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    population: u32,
    /// Participants that a round is expected to have
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    cohort: u32,
    /// Number of rounds that the promise covers
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Probability with which the promise may fail; well below one over the population
    #[arg(long, value_name = "D", allow_negative_numbers = true)]
    delta: f64,
    /// The published epsilon to keep: finds the least noise that keeps it
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    epsilon: Option<f64>,
    /// The noise multiplier, noise over sensitivity, instead of --epsilon
    #[arg(long, value_name = "Z", allow_negative_numbers = true)]
    noise: Option<f64>,
    /// How cohorts are drawn: poisson (each with probability M/N), fixed (exactly M) or none (anyhow) [default: poisson]
    #[arg(long, value_enum, hide_possible_values = true)]
    sampling: Option<CohortDraw>,
    /// central_gaussian, distributed_discrete_gaussian, distributed_skellam, tree, banded_matrix or local
    #[arg(long, default_value = "central_gaussian", value_parser = parse_mechanism)]
    mechanism: PrivacyMechanism,
    /// What epsilon rests on: pld (privacy loss distributions, where they are proven), or general (Rényi bounds alone)
    #[arg(long, default_value = "pld", value_parser = parse_accounting)]
    accounting: PrivacyAccounting,
    /// Shared parameters of the model; the default is `linear` on MNIST
    #[arg(long, value_name = "P", default_value_t = 7850)]
    parameters: u64,
    /// Bits of the modulus that sums are taken by, 16 to 32
    #[arg(long, value_name = "BITS", default_value_t = 32)]
    modulus_bits: u8,
    /// Let the clipping norm adapt, which takes a part of the noise
    #[arg(long)]
    adaptive_clip: bool,
    /// Part of a cohort that may drop out, where shares of noise are added [default: as in a task]
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    dropouts: Option<f64>,
    /// Part of a cohort that may tell the coordinator their shares of the noise [default: as in a task]
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    colluders: Option<f64>,
    /// With banded_matrix or distributed noise: in how many rounds one participant takes part at most [default: as --separation
    /// allows; all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    participations: Option<u32>,
    /// With --participations or banded_matrix: rounds from one participation to the next, at least [default for
    /// banded_matrix: N/M, so that all take turns]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    separation: Option<u32>,
    /// Find the cohort that would reduce epsilon to this [default: half of what it is]
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    want_epsilon: Option<f64>,
    /// Compare other cohorts and numbers of rounds for the same epsilon, with at most this many updates sent in total
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    uploads: Option<u64>,
    /// Plot epsilon over rounds into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// How cohorts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CohortDraw {
    /// Everybody with the same probability.
    Poisson,
    /// Exactly the expected number.
    Fixed,
    /// No assumption about the draw.
    None,
}

/// The basis of the published figure, relative to known cohorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum PublishedRestsOn {
    /// Both figures rely on noise and clipping alone.
    NoiseAlone,
    /// A secret draw, in a task without secure aggregation; with it, cohorts count as known.
    SecretDrawInTheClear,
}

#[derive(serde::Serialize)]
struct Planned {
    #[serde(flatten)]
    plan: Plan,
    mechanism: PrivacyMechanism,
    accounting: PrivacyAccounting,
    population: u32,
    cohort: u32,
    rounds: u32,
    delta: f64,
    parameters: u64,
    sampling: CohortDraw,
    /// M/N, where that is the probability of being drawn.
    sampling_rate: Option<f64>,
    /// Which setting the published figure is charged under.
    published_rests_on: PublishedRestsOn,
    /// Assumptions of the noise shares; `None` without shares.
    shares: Option<Shares>,
    cohort_for: CohortFor,
    /// The part of it that the SDK's default lifetime limit allows.
    lifetime: LifetimeRoom,
    /// Alternative cohorts and rounds, least total noise first, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<Choice>>,
    svg: Option<PathBuf>,
}

/// Assumptions of noise shares.
#[derive(Clone, Copy, serde::Serialize)]
pub(super) struct Shares {
    /// Minimum number of survivors.
    smallest_cohort: u32,
    /// Number of survivors that may collude with the coordinator.
    colluders: u32,
}

/// The cohort needed for a smaller epsilon.
#[derive(serde::Serialize)]
struct CohortFor {
    /// The target for the published epsilon.
    epsilon: f64,
    /// Smallest cohort that meets the target at the same noise on the mean; `None` if all cohorts miss it.
    cohort: Option<u32>,
}

fn parse_mechanism(text: &str) -> Result<PrivacyMechanism, String> {
    PrivacyMechanism::ALL.into_iter().find(|mechanism| mechanism.as_str() == text).ok_or_else(|| {
        "a mechanism is central_gaussian, distributed_discrete_gaussian, distributed_skellam, tree, banded_matrix or local".to_owned()
    })
}

fn parse_accounting(text: &str) -> Result<PrivacyAccounting, String> {
    match text {
        "general" => Ok(PrivacyAccounting::General),
        // As it was called.
        "pld" | "close" => Ok(PrivacyAccounting::Pld),
        _ => Err("an accounting is pld or general".to_owned()),
    }
}

/// What mechanisms are compared for.
#[derive(Clone, Copy)]
pub(super) struct Compared {
    pub(super) population: u32,
    pub(super) cohort: u32,
    pub(super) rounds: u32,
    pub(super) delta: f64,
    pub(super) epsilon: f64,
    pub(super) parameters: u64,
}

impl PlanArgs {
    /// The plan of a mechanism, with the usual values of all else.
    pub(super) fn of(
        compared: Compared,
        mechanism: PrivacyMechanism,
        sampling: CohortDraw,
        participations: Option<u32>,
    ) -> Self {
        let Compared { population, cohort, rounds, delta, epsilon, parameters } = compared;
        Self {
            population,
            cohort,
            rounds,
            delta,
            epsilon: Some(epsilon),
            noise: None,
            sampling: Some(sampling),
            mechanism,
            accounting: PrivacyAccounting::default(),
            parameters,
            modulus_bits: 32,
            adaptive_clip: false,
            dropouts: None,
            colluders: None,
            participations,
            separation: None,
            want_epsilon: None,
            uploads: None,
            svg: None,
        }
    }

    pub(super) fn run(self, output: Output) -> Outcome {
        self.svg.as_deref().map_or(Ok(()), check_writable)?;
        let shares = self.shares()?;
        let request = self.request(shares)?;
        let plan = plan(&request).map_err(|error| no_plan(&error))?;
        let cohort_for = self.cohort_for(&request, &plan)?;
        let lifetime = LifetimeRoom::of(&request, plan.noise_multiplier).map_err(|error| no_plan(&error))?;
        let choices = self.uploads.map(|uploads| request.choices(uploads)).transpose();
        let choices = choices.map_err(|error| no_plan(&error))?;
        if let Some(path) = &self.svg {
            let curve = request.curve(plan.noise_multiplier, CURVE_POINTS).map_err(|error| no_plan(&error))?;
            std::fs::write(path, chart::epsilon_over("rounds", &curve, &self.subject(), self.delta))
                .map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))?;
        }
        let sampling = self.sampling();
        let published_rests_on = if plan.release.sampled.is_secret() {
            PublishedRestsOn::SecretDrawInTheClear
        } else {
            PublishedRestsOn::NoiseAlone
        };
        let planned = Planned {
            plan,
            published_rests_on,
            mechanism: self.mechanism,
            accounting: self.accounting,
            population: self.population,
            cohort: self.cohort,
            rounds: self.rounds,
            delta: self.delta,
            parameters: self.parameters,
            sampling,
            sampling_rate: (sampling == CohortDraw::Poisson).then(|| self.rate()),
            shares: self.mechanism.needs_secure_aggregation().then_some(shares),
            cohort_for,
            lifetime,
            choices,
            svg: self.svg.clone(),
        };
        output.answer(&planned, || self.words(&planned, output.width()));
        Ok(())
    }

    /// The mechanism, and how often a participant takes part at most.
    pub(super) fn mechanism(&self) -> (PrivacyMechanism, Option<u32>) {
        (self.mechanism, self.participations)
    }

    pub(super) fn sampling(&self) -> CohortDraw {
        let gains = !self.mechanism.is_correlated() && !self.counts_participations();
        self.sampling.unwrap_or(if gains { CohortDraw::Poisson } else { CohortDraw::None })
    }

    /// Whether releases are charged by a participant's number of them.
    fn counts_participations(&self) -> bool {
        self.mechanism.needs_secure_aggregation() && self.participations.is_some()
    }

    /// With a banded matrix: all participants take turns, unless the flags set another separation.
    fn separation(&self) -> Option<u32> {
        let takes_turns = self.mechanism == PrivacyMechanism::BandedMatrix && self.participations != Some(1);
        self.separation.or_else(|| takes_turns.then(|| Turns::longest_separation(self.population, self.cohort)))
    }

    fn rate(&self) -> f64 {
        f64::from(self.cohort) / f64::from(self.population)
    }

    fn sampling_rate(&self) -> Outcome<SamplingRate> {
        SamplingRate::new(self.rate()).map_err(Failure::because(Exit::Usage, "--cohort over --population"))
    }

    /// Of the smallest cohort that is drawn, since a larger one has more survivors to make up for more colluders.
    pub(super) fn shares(&self) -> Outcome<Shares> {
        if self.cohort > self.population {
            let (cohort, population) = (self.cohort, self.population);
            return Err(misused("--cohort", format!("must be at most --population, {population}, not {cohort}")));
        }
        let usual = SecureAggregationSpec::default();
        let dropouts = part("--dropouts", self.dropouts, usual.max_dropout_fraction)?;
        let colluders = part("--colluders", self.colluders, usual.max_corrupt_fraction)?;
        let poisson = self.sampling() == CohortDraw::Poisson;
        let drawn = if poisson {
            smallest_draw(self.population, self.sampling_rate()?, 0.0, SMALL_COHORTS).clamp(1, self.cohort)
        } else {
            self.cohort
        };
        Ok(Shares { smallest_cohort: part_of(drawn, 1.0 - dropouts).max(1), colluders: part_of(drawn, colluders) })
    }

    /// The request of a task.
    pub(super) fn request(&self, shares: Shares) -> Outcome<PlanRequest> {
        let clip = if self.adaptive_clip {
            Clip::Adaptive(AdaptiveClip { quantile: 0.5, initial: 1.0, learning_rate: 0.2 })
        } else {
            Clip::Fixed(1.0)
        };
        let spec = PrivacySpec {
            mechanism: self.mechanism,
            noise_multiplier: self.noise,
            epsilon: self.epsilon,
            delta: Some(self.delta),
            rounds: Some(self.rounds),
            clip: Some(clip),
            sampling: match self.sampling() {
                CohortDraw::Poisson => Some(Sampling::Poisson(self.rate())),
                CohortDraw::Fixed => Some(Sampling::FixedSize(self.cohort)),
                CohortDraw::None => None,
            },
            population: Some(self.population),
            accounting: self.accounting,
            participations: self.participations,
            separation: self.separation(),
            ..PrivacySpec::default()
        };
        let facts = TaskFacts {
            cohort: self.cohort,
            parameters: self.parameters,
            modulus_bits: self.modulus_bits,
            smallest_cohort: shares.smallest_cohort,
            colluders: if self.mechanism.needs_secure_aggregation() { shares.colluders } else { 0 },
            rounds: self.rounds,
        };
        PlanRequest::of(&spec, &facts).map_err(|problems| impossible(&problems))
    }

    fn cohort_for(&self, request: &PlanRequest, plan: &Plan) -> Outcome<CohortFor> {
        let epsilon = self.want_epsilon.unwrap_or(0.5 * plan.epsilon.published);
        if self.want_epsilon.is_some_and(|wanted| !(wanted.is_finite() && wanted > 0.0)) {
            return Err(misused("--want-epsilon", format!("must be finite and above 0, not {epsilon}")));
        }
        let cohort = request.cohort_for(plan, epsilon).map_err(|error| no_plan(&error))?;
        Ok(CohortFor { epsilon, cohort })
    }

    /// The plan in one line.
    fn subject(&self) -> String {
        let (cohort, population) = (number(self.cohort.into()), number(self.population.into()));
        let drawn = match self.sampling() {
            CohortDraw::Poisson => {
                format!("about {cohort} of {population} participants (Poisson, q = {})", figure(self.rate()))
            }
            CohortDraw::Fixed => format!("exactly {cohort} of {population} participants"),
            CohortDraw::None => format!("{cohort} of {population} participants, drawn anyhow"),
        };
        let rounds =
            if self.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", number(self.rounds.into())) };
        let often = match (self.participations, self.separation()) {
            (Some(most), Some(separation)) => format!(", each in {most} at most and {separation} rounds apart"),
            (Some(1), None) => ", each in one at most".to_owned(),
            (Some(most), None) if self.counts_participations() => format!(", each in {most} at most"),
            (None, Some(separation)) => format!(", each {separation} rounds apart"),
            (Some(_) | None, None) => String::new(),
        };
        format!("{rounds} of {drawn}{often}, {}", self.mechanism.as_str())
    }

    fn words(&self, planned: &Planned, terminal: Option<usize>) -> String {
        let plan = &planned.plan;
        let mut lines = vec![
            format!("{}, {} parameters", self.subject(), number(self.parameters)),
            String::new(),
            format!("noise multiplier   {}", figure(plan.noise_multiplier)),
            format!("noise on the mean  {} times the clipping norm", figure(plan.noise_to_signal)),
            format!("noise on the sum   {} times, of the means so far, over the rounds", figure(plan.noise_on_sums)),
            format!("delta              {:e}", self.delta),
        ];
        if let Some(Shares { smallest_cohort, colluders }) = planned.shares {
            lines.push(format!(
                "shares of noise    {smallest_cohort} survivors are enough, {colluders} of them may collude"
            ));
        }
        lines.extend([String::new(), epsilons(plan, terminal)]);
        match planned.published_rests_on {
            PublishedRestsOn::SecretDrawInTheClear => lines.push(format!(
                "Published counts a secret draw: tasks with secure_aggregation.enabled = false are charged so. Under secure aggregation\n\
                 cohorts count as known, and the published figure is {} as well.",
                figure(plan.epsilon.cohort_known)
            )),
            PublishedRestsOn::NoiseAlone => {}
        }
        if let Some(closeness) = plan.epsilon.closeness {
            lines.push(format!(
                "By loss distribution. Of published, {:.1e}, and of delta, {:.1e}, are the distance of discrete from continuous noise.",
                closeness.epsilon, closeness.delta
            ));
        }
        let pld = plan.accountant.pld.map_or_else(|| "in the hundreds".to_owned(), figure);
        lines.push(format!(
            "For comparison, the textbook's Poisson-subsampled continuous Gaussian with this multiplier:\n\
             epsilon {} by Rényi divergence (RDP), {pld} by loss distribution (PLD).\n",
            figure(plan.accountant.rdp)
        ));
        let wanted = figure(planned.cohort_for.epsilon);
        lines.push(match planned.cohort_for.cohort {
            Some(cohort) => format!(
                "With the same noise on the mean, a cohort of {} brings the published epsilon to {wanted}.",
                number(cohort.into())
            ),
            None => format!(
                "With the same noise on the mean, no cohort of this population brings the published epsilon to {wanted}."
            ),
        });
        lines.extend([String::new(), planned.lifetime.words()]);
        if let Some(choices) = &planned.choices {
            lines.extend([String::new(), choices_table(choices, terminal)]);
        }
        if let Some(path) = &planned.svg {
            lines.push(format!("Epsilon over rounds is plotted in {}.", path.display()));
        }
        lines.extend(plan.warnings.iter().map(|warning| format!("warning: {warning}")));
        lines.join("\n")
    }
}

fn part(flag: &str, given: Option<f64>, usual: f64) -> Outcome<f64> {
    let part = given.unwrap_or(usual);
    if (0.0..1.0).contains(&part) {
        Ok(part)
    } else {
        Err(misused(flag, format!("must be a part of the cohort, from 0 to below 1, not {part}")))
    }
}

fn part_of(count: u32, part: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a count is one")]
    let part = (f64::from(count) * part + 1e-9).floor() as u32;
    part
}

fn misused(flag: &str, problem: String) -> Failure {
    Failure::new(Exit::Usage, format!("{flag} {problem}"))
}

/// The flag that sets a field of a task or a plan.
fn flag(field: &str) -> String {
    match field {
        "noise_multiplier" => "--noise".to_owned(),
        "max_cohort" => "the largest cohort that is drawn".to_owned(),
        field if field.starts_with("clip") => "--adaptive-clip".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}

fn impossible(problems: &[SpecError]) -> Failure {
    let words: Vec<String> = problems
        .iter()
        .map(|problem| format!("{} {}", flag(problem.field.trim_start_matches("privacy.")), problem.problem))
        .collect();
    Failure::new(Exit::Usage, words.join("\n"))
}

pub(super) fn no_plan(error: &PlanError) -> Failure {
    use learning::privacy::PrivateCodecError;
    match error {
        PlanError::Range { name, range, value } | PlanError::Codec(PrivateCodecError::Range { name, range, value }) => {
            misused(&flag(name), format!("must be {range}, not {value}"))
        }
        error => Failure::new(Exit::Usage, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_cohort_are_not_lost_to_rounding() {
        assert_eq!((part_of(100, 1.0 - 0.3), part_of(10, 0.1), part_of(9, 0.1)), (70, 1, 0));
        assert!(part("--dropouts", Some(1.0), 0.3).is_err() && part("--dropouts", Some(f64::NAN), 0.3).is_err());
    }
}
