//! `--privacy`: the demo's privacy defaults, and its description of the promise.

use serde_json::{Value, json};
use task_spec::{Clip, Cohort, PrivacyMechanism, PrivacySpec, Sampling, TaskSpec};
use wire::inspect::PrivacyReport;

use super::events::Spent;
use super::flags::SAMPLING;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::figure;
use crate::task_input::TaskInput;

/// Used where `--privacy` names no other.
const DELTA: f64 = 1e-5;
const CLIP: f64 = 1.0;

/// Defaults of `[privacy]` for a task that draws `drawn` of `population` participants: noise by participants if
/// updates are hidden, else by the coordinator, and a sampling that amplifies.
pub(super) fn usual(task: &TaskSpec, input: &TaskInput, drawn: u32, population: u32) -> Value {
    let secure = task.secure_aggregation.enabled;
    let mechanism = match input.value_of("privacy.mechanism") {
        Some(_) => task.privacy.mechanism,
        None if secure => PrivacyMechanism::DistributedDiscreteGaussian,
        None => PrivacyMechanism::CentralGaussian,
    };
    let gains = !mechanism.is_correlated() && !secure && task.ahead().is_none();
    let word = input.own(SAMPLING).and_then(Value::as_str).unwrap_or(if gains { "poisson" } else { "none" });
    let sampling = match word {
        "poisson" => Some(Sampling::Poisson(f64::from(drawn) / f64::from(population))),
        "fixed" => Some(Sampling::FixedSize(drawn)),
        _ => None,
    };
    json!({ "privacy": {
        "mechanism": mechanism,
        "delta": DELTA,
        "clip": Clip::Fixed(CLIP),
        "rounds": task.rounds.count,
        "sampling": sampling,
        "population": population,
    }})
}

/// Rejects mechanisms that limit participants to fewer rounds than planned.
pub(super) fn check_turns(task: &TaskSpec, drawn: u32, population: u32) -> Outcome {
    let refuse = |detail: String| Err(Failure::new(Exit::Usage, detail));
    let (gap, most) = task.privacy.limits();
    let longest = (population / drawn.max(1)).max(1);
    if most != 1 && gap >= longest {
        return refuse(format!(
            "privacy.separation {} leaves too few for a round: cohorts of {drawn} of {population} participants come back after \
             {longest} rounds",
            gap + 1
        ));
    }
    let rounds = task.rounds.count;
    if most > 0 && drawn.saturating_mul(rounds) > population.saturating_mul(most) {
        let (times, uploads) = (if most == 1 { "once" } else { "so often" }, u64::from(drawn) * u64::from(rounds));
        return refuse(format!(
            "privacy.mechanism {} lets a participant take part {times}: {rounds} rounds of {drawn} need {} participants, not \
             {population}",
            task.privacy.mechanism.as_str(),
            uploads.div_ceil(most.into())
        ));
    }
    Ok(())
}

/// The promise, as text for people.
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
        "             metrics: TEST ACC is the demo's own, of each published model on data that nobody trained on.".to_owned(),
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

/// The ledger's state, as text for people.
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

/// The draw of cohorts, as `selection.cohort` of the same task.
pub(super) fn cohort(spec: &PrivacySpec, count: u32) -> Cohort {
    match spec.sampling {
        Some(Sampling::Poisson(rate)) => Cohort::Fraction(rate),
        Some(Sampling::FixedSize(size)) => Cohort::Count(size),
        None => Cohort::Count(count),
    }
}
