//! `--privacy` of the commands that make a task for a population that they know: the flag, and the defaults of its
//! omitted keys.

use serde_json::{Value, json};
use task_spec::{Clip, Cohort, PrivacyMechanism, PrivacySpec, Sampling, TaskSpec, Turns};

use crate::failure::{Exit, Failure, Outcome};
use crate::task_input::{Flag, FlagForm, FlagKeys, TaskInput, layered, plain, word};

/// `--privacy sampling=…` chooses how cohorts are drawn; the command fills in the numbers.
const SAMPLING: &str = ".sampling";

/// The flag `--privacy`, which sets the task's `[privacy]` section.
pub(crate) const PRIVACY: &[Flag] = &[Flag {
    name: "privacy",
    path: "privacy",
    form: FlagForm::Table(
        FlagKeys {
            example: "epsilon=8",
            names: &[],
            words: &[
                ("noise", "privacy.noise_multiplier", plain),
                ("clip", "privacy.clip", clip),
                ("sampling", SAMPLING, sampling),
            ],
        },
        None,
    ),
    help: "Differential privacy: epsilon=E or noise=Z, and delta=D, mechanism=M, clip=S or clip=adaptive, sampling=poisson or \
               fixed, rounds=T, participations=K, accounting=general; for example epsilon=8,delta=1e-5",
}];

/// `NORM`, `adaptive` or `adaptive:NORM`.
fn clip(text: &str) -> Result<Value, String> {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let (word, initial) = text.split_once(':').unwrap_or((text, "1"));
    let clip = match word {
        "adaptive" => number(initial).map(|initial| json!({ "adaptive": { "initial": initial } })),
        norm => number(norm).map(|norm| json!({ "fixed": norm })),
    };
    clip.ok_or_else(|| {
        format!("clip={text}: a norm is expected, or `adaptive`, or `adaptive:NORM` with the norm of the first round")
    })
}

fn sampling(text: &str) -> Result<Value, String> {
    match text {
        "poisson" | "fixed" | "none" => word(text),
        _ => Err(format!("sampling={text}: it is poisson, fixed or none")),
    }
}

/// The delta that `--privacy` defaults to.
const DELTA: f64 = 1e-5;
const CLIP: f64 = 1.0;

/// Defaults of `[privacy]` for a task that draws `drawn` of `population` participants: noise by participants if
/// updates are hidden, else by the coordinator, and a sampling that amplifies.
fn usual(task: &TaskSpec, input: &TaskInput, drawn: u32, population: u32) -> Value {
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

/// The task with its implied values and with these defaults if `--privacy` was given.
///
/// # Errors
/// As [`TaskInput::draft`]; a population that is too small for its mechanism's limits on participations.
pub(crate) fn complete(
    input: &TaskInput,
    mut implied: Value,
    spec: TaskSpec,
    drawn: u32,
    population: u32,
) -> Outcome<(TaskSpec, Value)> {
    let mut spec = spec;
    if input.has("privacy") {
        implied = layered([implied, usual(&spec, input, drawn, population)]);
        spec = input.draft(&implied)?;
        spec.privacy.complete(Turns::longest_separation(population, drawn));
        implied["privacy"]["separation"] = json!(spec.privacy.separation);
    }
    check_turns(&spec, drawn, population)?;
    Ok((spec, implied))
}

/// `selection` of a private task, as its privacy settings have it: without a seed, since privacy may rely on a secret draw.
pub(crate) fn selection(privacy: &PrivacySpec, drawn: u32) -> Value {
    let (gap, most) = privacy.limits();
    let require = json!({ "min_gap_rounds": gap, "max_participations": most });
    json!({ "cohort": cohort(privacy, drawn), "require": require })
}

/// Rejects mechanisms that limit participants to fewer rounds than planned.
fn check_turns(task: &TaskSpec, drawn: u32, population: u32) -> Outcome {
    let turns = Turns::of(&task.privacy, drawn.max(1), task.rounds.count.max(1));
    turns.map_or(Ok(()), |turns| turns.check(population)).map_err(|problem| {
        Failure::new(Exit::Usage, format!("privacy.mechanism {}: {problem}", task.privacy.mechanism.as_str()))
    })
}

/// The draw of cohorts, as `selection.cohort` of the same task.
fn cohort(spec: &PrivacySpec, count: u32) -> Cohort {
    match spec.sampling {
        Some(Sampling::Poisson(rate)) => Cohort::Fraction(rate),
        Some(Sampling::FixedSize(size)) => Cohort::Count(size),
        None => Cohort::Count(count),
    }
}
