//! `--privacy`: what the demo promises its participants, as a task says it.
//!
//! `epsilon=8,delta=1e-5,mechanism=central_gaussian,clip=1.0,…`: read here, judged where a task's `[privacy]` is judged, so that
//! what is wrong is said before anything starts. Nothing here knows what a promise costs.

use std::str::FromStr;

use task_spec::{AdaptiveClip, Clip, Cohort, PrivacyAccounting, PrivacyMechanism, PrivacySpec, Sampling};
use wire::inspect::PrivacyReport;

use super::events::Spent;
use super::pairs::{number, pairs};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::figure;

/// Where nothing is said.
const DELTA: f64 = 1e-5;
const CLIP: f64 = 1.0;
/// The part of updates that should be within an adaptive norm.
const QUANTILE: f64 = 0.5;
/// How fast it moves: as in the paper (Andrew et al. 2021).
const CLIP_RATE: f64 = 0.2;

/// `KEY=VALUE,…`, or the bare default.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrivacyArg {
    epsilon: Option<f64>,
    noise: Option<f64>,
    delta: f64,
    mechanism: Option<PrivacyMechanism>,
    clip: Clip,
    rounds: Option<u32>,
    accounting: PrivacyAccounting,
    sampling: Drawn,
    participations: Option<u32>,
    separation: Option<u32>,
}

/// How cohorts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    Poisson,
    Fixed,
    /// Nothing is assumed of it.
    Anyhow,
    /// Poisson, but for correlated noise, which gains nothing from it.
    Usual,
}

impl FromStr for PrivacyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut arg = Self {
            epsilon: None,
            noise: None,
            delta: DELTA,
            mechanism: None,
            clip: Clip::Fixed(CLIP),
            rounds: None,
            accounting: PrivacyAccounting::default(),
            sampling: Drawn::Usual,
            participations: None,
            separation: None,
        };
        for pair in pairs(text, "epsilon=8") {
            let (key, value) = pair?;
            match key {
                "epsilon" => arg.epsilon = Some(number(key, value)?),
                "noise" => arg.noise = Some(number(key, value)?),
                "delta" => arg.delta = number(key, value)?,
                "mechanism" => arg.mechanism = Some(word(key, value)?),
                "clip" => arg.clip = clip(value)?,
                "rounds" => arg.rounds = Some(number(key, value)?),
                "accounting" => arg.accounting = word(key, value)?,
                "sampling" => arg.sampling = drawn(value)?,
                "participations" => arg.participations = Some(number(key, value)?),
                "separation" => arg.separation = Some(number(key, value)?),
                _ => return Err(format!("there is no `{key}`; there are {KEYS}")),
            }
        }
        if arg.epsilon.is_none() && arg.noise.is_none() {
            return Err("epsilon=E (the noise is solved for) or noise=Z must be given".to_owned());
        }
        Ok(arg)
    }
}

const KEYS: &str =
    "epsilon, delta, noise, mechanism, clip, rounds, sampling, participations, separation and accounting";

/// One of the words that a task file knows as well.
fn word<T: serde::de::DeserializeOwned>(key: &str, value: &str) -> Result<T, String> {
    serde_json::from_value(value.into()).map_err(|_| {
        let known = match key {
            "mechanism" => {
                "distributed_discrete_gaussian, distributed_skellam, central_gaussian, tree, banded_matrix or local"
            }
            _ => "pld or general",
        };
        format!("{key}={value}: it is {known}")
    })
}

fn clip(value: &str) -> Result<Clip, String> {
    let (word, initial) = value.split_once(':').unwrap_or((value, ""));
    if word != "adaptive" {
        return number("clip", value).map(Clip::Fixed).map_err(|_| {
            format!(
                "clip={value}: a norm is expected, or `adaptive`, or `adaptive:NORM` with the norm of the first round"
            )
        });
    }
    let initial = if initial.is_empty() { CLIP } else { number("clip=adaptive", initial)? };
    Ok(Clip::Adaptive(AdaptiveClip { quantile: QUANTILE, initial, learning_rate: CLIP_RATE }))
}

fn drawn(value: &str) -> Result<Drawn, String> {
    match value {
        "poisson" => Ok(Drawn::Poisson),
        "fixed" => Ok(Drawn::Fixed),
        "none" => Ok(Drawn::Anyhow),
        _ => Err(format!("sampling={value}: it is poisson, fixed or none")),
    }
}

impl PrivacyArg {
    /// The same where participants train ahead of rounds: who is in one depends on who has finished, so usually none is sampled.
    pub(super) fn ahead(self) -> Self {
        let sampling = match self.sampling {
            Drawn::Usual => Drawn::Anyhow,
            asked => asked,
        };
        Self { sampling, ..self }
    }

    /// `[privacy]` of a task that draws `cohort` of `population` participants for each of `rounds` rounds.
    ///
    /// # Errors
    /// Whatever is wrong with it in itself, by the key it was given with.
    pub(super) fn spec(&self, cohort: u32, population: u32, rounds: u32, secure: bool) -> Outcome<PrivacySpec> {
        let usual =
            if secure { PrivacyMechanism::DistributedDiscreteGaussian } else { PrivacyMechanism::CentralGaussian };
        let mechanism = self.mechanism.unwrap_or(usual);
        let sampling = match self.sampling {
            // Nothing would be gained.
            Drawn::Usual if mechanism.is_correlated() || secure => None,
            Drawn::Usual | Drawn::Poisson => Some(Sampling::Poisson(f64::from(cohort) / f64::from(population))),
            Drawn::Fixed => Some(Sampling::FixedSize(cohort)),
            Drawn::Anyhow => None,
        };
        let spec = PrivacySpec {
            mechanism,
            noise_multiplier: self.noise,
            epsilon: self.epsilon,
            delta: Some(self.delta),
            rounds: Some(self.rounds.unwrap_or(rounds)),
            clip: Some(self.clip),
            sampling,
            population: Some(population),
            accounting: self.accounting,
            participations: self.participations,
            separation: self.separation,
            ..PrivacySpec::default()
        };
        let spec = rotated(spec, cohort, population)?;
        check(&spec)?;
        let most = if mechanism == PrivacyMechanism::Tree { Some(1) } else { spec.participations };
        if let Some(most) = most.filter(|most| cohort.saturating_mul(rounds) > population.saturating_mul(*most)) {
            let (times, uploads) = (if most == 1 { "once" } else { "so often" }, u64::from(cohort) * u64::from(rounds));
            let detail = format!(
                "--privacy mechanism={} lets a participant take part {times}: {rounds} rounds of {cohort} need {} participants, not \
                 {population}",
                mechanism.as_str(),
                uploads.div_ceil(most.max(1).into())
            );
            return Err(Failure::new(Exit::Usage, detail));
        }
        if mechanism.needs_secure_aggregation() && !secure {
            let detail = "--insecure-aggregation shows the coordinator every update, and a share of the noise does not hide one: \
                          leave it out, or add mechanism=central_gaussian to --privacy";
            return Err(Failure::new(Exit::Usage, detail));
        }
        Ok(spec)
    }
}

/// With a banded matrix everybody takes part in turn, unless something else was asked for: so many rounds apart as that takes.
fn rotated(spec: PrivacySpec, cohort: u32, population: u32) -> Outcome<PrivacySpec> {
    if spec.mechanism != PrivacyMechanism::BandedMatrix || spec.participations == Some(1) {
        return Ok(spec);
    }
    let longest = (population / cohort.max(1)).max(1);
    let separation = spec.separation.unwrap_or(longest);
    if separation > longest {
        let detail = format!(
            "--privacy separation={separation} leaves too few for a round: cohorts of {cohort} of {population} participants come \
             back after {longest} rounds"
        );
        return Err(Failure::new(Exit::Usage, detail));
    }
    Ok(PrivacySpec { separation: Some(separation), ..spec })
}

/// Asks those who judge a task's `[privacy]` as well.
fn check(spec: &PrivacySpec) -> Outcome {
    if !spec.is_private() {
        return Err(Failure::new(Exit::Usage, "--privacy mechanism=none promises nothing: leave --privacy out"));
    }
    spec.check().map_err(|problems| {
        let key = |field: &str| match field.trim_start_matches("privacy.") {
            "noise_multiplier" => "noise".to_owned(),
            field => field.split('.').next().unwrap_or_default().to_owned(),
        };
        let words: Vec<_> =
            problems.iter().map(|problem| format!("--privacy {} {}", key(&problem.field), problem.problem)).collect();
        Failure::new(Exit::Usage, words.join("\n"))
    })
}

/// What the promise is, for people.
pub(super) fn words(report: &PrivacyReport) -> Vec<String> {
    let spec = &report.spec;
    let mechanism = spec.mechanism.as_str();
    let noise = spec.noise_multiplier.map_or_else(String::new, |z| format!(", noise multiplier {}", figure(z)));
    let adapts = if matches!(spec.clip, Some(Clip::Adaptive(_))) { " at first" } else { "" };
    let budget = match (spec.epsilon, spec.rounds) {
        (Some(epsilon), Some(rounds)) => format!("epsilon {} for {rounds} rounds", figure(epsilon)),
        (Some(epsilon), None) => format!("epsilon {}", figure(epsilon)),
        (None, _) => "no limit on epsilon".to_owned(),
    };
    let drawn = match spec.sampling {
        Some(Sampling::Poisson(rate)) => format!("each is drawn with probability {}", figure(rate)),
        Some(Sampling::FixedSize(size)) => format!("exactly {size} are drawn"),
        None => "nothing is gained from how they are drawn".to_owned(),
    };
    let mut lines = vec![
        format!("Privacy      of a participant's whole data: {mechanism}{noise}, updates clipped to L2 norm {}{adapts}", figure(report.clip)),
        format!("             {budget} at delta {:e}, published; of {} participants {drawn}", spec.delta.unwrap_or_default(), spec.population.unwrap_or_default()),
        "             EPSILON is what has been spent on those who see the models and not who took part. Participants report no".to_owned(),
        "             metrics: ACCURACY is the demo's own, of each published model on data that nobody trained on.".to_owned(),
    ];
    lines.push(
        "             Its devices live for this one task: they have no limit over all tasks, as those of an app do."
            .to_owned(),
    );
    if spec.mechanism.needs_secure_aggregation() {
        lines.push(format!(
            "             A sum has at least {} updates, of whose noise {} may tell the coordinator their share.",
            report.smallest_cohort, report.colluders
        ));
    }
    lines
}

/// Where the ledger stands, for people.
pub(super) fn spent_words(spent: &Spent) -> Vec<String> {
    let of = spent.budget.map_or_else(String::new, |budget| format!(" of {}", figure(budget)));
    let server = match spent.epsilon.server {
        Some(server) => format!("{} to the coordinator itself", figure(server)),
        None => "no figure for the coordinator, which adds the noise and is trusted".to_owned(),
    };
    vec![format!(
        "Privacy: epsilon {}{of} at delta {:e}, published; {} to those who also know who took part; {server}.",
        figure(spent.epsilon.published),
        spent.delta,
        figure(spent.epsilon.cohort_known)
    )]
}

/// How a cohort is drawn, for `selection.cohort` of the same task.
pub(super) fn cohort(spec: &PrivacySpec, count: u32) -> Cohort {
    match spec.sampling {
        Some(Sampling::Poisson(rate)) => Cohort::Fraction(rate),
        Some(Sampling::FixedSize(size)) => Cohort::Count(size),
        None => Cohort::Count(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> Outcome<PrivacySpec> {
        let arg = text.parse::<PrivacyArg>().map_err(|error| Failure::new(Exit::Usage, error))?;
        arg.spec(50, 200, 60, true)
    }

    #[test]
    fn becomes_what_a_task_file_says() {
        let found = spec("epsilon=8,delta=1e-5").unwrap();
        assert_eq!(found.mechanism, PrivacyMechanism::DistributedDiscreteGaussian);
        assert_eq!((found.epsilon, found.delta, found.rounds), (Some(8.0), Some(1e-5), Some(60)));
        assert_eq!((found.sampling, found.population), (None, Some(200)), "it would gain nothing");
        assert_eq!(cohort(&found, 50), Cohort::Count(50));
        assert_eq!(found.clip, Some(Clip::Fixed(1.0)));

        let found = spec("noise=1.1, mechanism=central_gaussian, clip=adaptive:0.3, sampling=fixed, rounds=7").unwrap();
        assert_eq!((found.noise_multiplier, found.rounds), (Some(1.1), Some(7)));
        assert_eq!(found.clip, Some(Clip::Adaptive(AdaptiveClip { quantile: 0.5, initial: 0.3, learning_rate: 0.2 })));
        assert_eq!(cohort(&found, 50), Cohort::Count(50));
        let open = "epsilon=8".parse::<PrivacyArg>().unwrap().spec(50, 200, 60, false).unwrap();
        assert_eq!(open.mechanism, PrivacyMechanism::CentralGaussian);
        assert_eq!(open.sampling, Some(Sampling::Poisson(0.25)));
        assert_eq!(cohort(&open, 50), Cohort::Fraction(0.25));
    }

    #[test]
    fn with_a_banded_matrix_everybody_takes_turns() {
        let found = spec("epsilon=8,mechanism=banded_matrix").unwrap();
        assert_eq!((found.separation, found.participations, found.sampling), (Some(4), None, None));
        let found = spec("epsilon=8,mechanism=banded_matrix,separation=3,participations=15").unwrap();
        assert_eq!((found.separation, found.participations), (Some(3), Some(15)));
    }

    #[test]
    fn says_what_is_wrong_by_the_key_it_was_given_with() {
        for (text, words) in [
            ("epsilon=0", "--privacy epsilon must be finite and above 0"),
            ("epsilon=8,delta=1", "--privacy delta must be above 0 and below 1"),
            ("epsilon=8,noise=0", "without noise every budget is exceeded"),
            ("epsilon=8,clip=0", "--privacy clip must be a normal number above 0"),
            ("epsilon=8,clip=NaN", "a norm is expected"),
            ("epsilon=8,clip=wide", "`adaptive`"),
            ("delta=1e-5", "epsilon=E"),
            ("epsilon=inf", "a number is expected"),
            ("epsilon=much", "a number is expected"),
            ("epsilon", "no KEY=VALUE"),
            ("epsilon=8,sigma=2", "there is no `sigma`"),
            ("epsilon=8,mechanism=gaussian", "central_gaussian, tree, banded_matrix or local"),
            ("epsilon=8,mechanism=none", "promises nothing"),
            ("epsilon=8,accounting=exact", "pld or general"),
            ("epsilon=8,sampling=often", "poisson, fixed or none"),
            ("epsilon=8,mechanism=tree", "need 3000 participants"),
            ("epsilon=8,mechanism=tree,sampling=poisson", "gains nothing with a tree"),
            ("epsilon=8,mechanism=banded_matrix,separation=5", "come back after 4 rounds"),
            ("epsilon=8,mechanism=banded_matrix,separation=0", "--privacy separation must be at least 1"),
            ("epsilon=8,mechanism=banded_matrix,participations=1", "need 3000 participants"),
            ("epsilon=8,mechanism=banded_matrix,participations=14", "need 215 participants"),
            ("epsilon=8,separation=4", "is for mechanism \"banded_matrix\""),
            ("epsilon=8,mechanism=local,clip=adaptive", "local noise drowns"),
        ] {
            let failure = spec(text).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.detail.contains(words), "{text}: {}", failure.detail);
        }
        let bare = "epsilon=8,mechanism=distributed_skellam".parse::<PrivacyArg>().unwrap();
        assert!(bare.spec(5, 5, 2, false).unwrap_err().detail.contains("--insecure-aggregation"));
    }
}
