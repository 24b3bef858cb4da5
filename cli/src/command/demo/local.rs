//! `--solver`, `--schedule`, `--warmup`, `--budget` and their kin: how participants train, as a task says it.
//!
//! Values are those of the task file, written `NAME,KEY=VALUE,…`; what does not fit is said when the task is created.

use clap::ValueEnum as _;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use task_spec::{AdaptiveMu, Budget, Precision, Schedule, Solver, TrainingPlan, Warmup};

use super::pairs::{field, named, pairs};

/// What participants do at each step; left out: what they did before there was a choice.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LocalArgs {
    /// What keeps participants together that take unequal steps on unlike data: fed_nova, or scaffold; with steps=N (an update's
    /// unit) and for scaffold population=N
    #[arg(long, value_name = "NAME,KEY=VALUE,…", value_parser = kind::<SolverArg>)]
    solver: Option<SolverArg>,
    /// FedProx's rule for --proximal-mu: up while a loss rises, down while it falls; metric=NAME, step=S, patience=N
    #[arg(long, value_name = "KEY=VALUE,…", num_args = 0..=1, default_missing_value = "patience=5", value_parser = fields::<AdaptiveMu>)]
    adaptive_mu: Option<AdaptiveMu>,
    /// Mini-batches whose gradients are averaged into one step
    #[arg(long, default_value_t = 1)]
    accumulate: u32,
    /// L2 norm that the gradient of each step is scaled down to
    #[arg(long, value_name = "NORM")]
    gradient_clip: Option<f64>,
    /// How the learning rate changes: step,every=N,factor=F, exponential,factor=F, or cosine,length=N,floor=F; each over=rounds or
    /// over=steps
    #[arg(long, value_name = "KIND,KEY=VALUE,…", value_parser = kind::<Schedule>)]
    schedule: Option<Schedule>,
    /// How long the learning rate rises: length=N, over=rounds or over=steps
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = fields::<Warmup>)]
    warmup: Option<Warmup>,
    /// When a device stops and sends what it has: steps=N, time_ms=T
    #[arg(long, value_name = "KEY=VALUE,…", value_parser = fields::<Budget>)]
    budget: Option<Budget>,
    /// Numbers to compute with, where the device has them
    #[arg(long, value_enum, default_value_t = PrecisionArg::F32)]
    precision: PrecisionArg,
}

/// A solver whose numbers follow from the federation where they are left out.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SolverArg {
    kind: SolverName,
    #[serde(default)]
    steps: Option<u32>,
    #[serde(default)]
    population: Option<u32>,
}

#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum SolverName {
    FedNova,
    Scaffold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PrecisionArg {
    F32,
    Bf16,
    F16,
}

impl std::fmt::Display for PrecisionArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl LocalArgs {
    /// `plan` with these.
    pub(super) fn apply(&self, plan: TrainingPlan) -> TrainingPlan {
        let Self { accumulate, gradient_clip, schedule, warmup, budget, precision, .. } = *self;
        let solver = self.solver.map(|SolverArg { kind, steps, population }| match kind {
            SolverName::FedNova => Solver::FedNova { steps },
            SolverName::Scaffold => Solver::Scaffold { population: population.unwrap_or_default(), steps },
        });
        let adaptive_mu = self.adaptive_mu.clone();
        let precision = match precision {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::Bf16 => Precision::Bf16,
            PrecisionArg::F16 => Precision::F16,
        };
        TrainingPlan { solver, adaptive_mu, accumulate, gradient_clip, schedule, warmup, budget, precision, ..plan }
    }
}

/// The plan for so many participants, of whom none has more than so many examples: a solver's steps are those of the largest plan,
/// and its population is everybody.
pub(crate) fn complete(plan: TrainingPlan, participants: u32, most_examples: usize) -> TrainingPlan {
    let batch = plan.batch_size.saturating_mul(plan.accumulate).max(1);
    let examples = u32::try_from(most_examples).unwrap_or(u32::MAX);
    let largest = plan.steps.unwrap_or_else(|| plan.epochs.saturating_mul(examples.div_ceil(batch))).max(1);
    let solver = plan.solver().map(|solver| match solver {
        Solver::FedNova { steps } => Solver::FedNova { steps: steps.or(Some(largest)) },
        Solver::Scaffold { population, steps } => Solver::Scaffold {
            population: if population == 0 { participants } else { population },
            steps: steps.or(Some(largest)),
        },
    });
    TrainingPlan { solver, ..plan }
}

/// What an update weighs at most: as `most` says, or 1 where a control variate has everybody count alike.
pub(crate) fn weight_cap(plan: &TrainingPlan, most: u32) -> u32 {
    if matches!(plan.solver, Some(Solver::Scaffold { .. })) { 1 } else { most }
}

/// Such a pair, for whom gave none.
const EXAMPLE: &str = "length=10";

/// What a task file would hold for `KEY=VALUE,…`.
fn fields<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    table(pairs(text, EXAMPLE), Map::new())
}

/// The same for `KIND,KEY=VALUE,…`.
fn kind<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let (kind, pairs) = named(text, EXAMPLE);
    table(pairs, Map::from_iter([("kind".to_owned(), kind.into())]))
}

fn table<'a, T: DeserializeOwned>(
    pairs: impl Iterator<Item = Result<(&'a str, &'a str), String>>,
    mut table: Map<String, Value>,
) -> Result<T, String> {
    for pair in pairs {
        let (key, value) = pair?;
        table.insert(key.to_owned(), field(value));
    }
    serde_json::from_value(Value::Object(table)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use task_spec::Over;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        local: LocalArgs,
    }

    fn plan(words: &[&str]) -> Result<TrainingPlan, String> {
        let line = Line::try_parse_from([&["demo"], words].concat()).map_err(|error| error.to_string())?;
        Ok(line.local.apply(TrainingPlan::default()))
    }

    #[test]
    fn nothing_said_changes_nothing() {
        assert_eq!(plan(&[]), Ok(TrainingPlan::default()));
    }

    #[test]
    fn flags_are_the_task_files_words() {
        let said = plan(&[
            "--accumulate=4",
            "--gradient-clip=1.5",
            "--schedule=cosine,length=60,floor=0.1",
            "--warmup=length=3,over=steps",
            "--budget=steps=20,time_ms=500",
            "--precision=bf16",
            "--adaptive-mu",
            "--solver=scaffold,steps=40",
        ]);
        let expected = TrainingPlan {
            accumulate: 4,
            gradient_clip: Some(1.5),
            schedule: Some(Schedule::Cosine { length: 60, floor: 0.1, over: Over::Rounds }),
            warmup: Some(Warmup { length: 3, over: Over::Steps }),
            budget: Some(Budget { steps: Some(20), time_ms: Some(500) }),
            precision: Precision::Bf16,
            adaptive_mu: Some(AdaptiveMu::default()),
            solver: Some(Solver::Scaffold { population: 0, steps: Some(40) }),
            ..TrainingPlan::default()
        };
        assert_eq!(said, Ok(expected));
    }

    #[test]
    fn what_a_solver_does_not_say_follows_from_the_federation() {
        let complete = |words: &[&str]| super::complete(plan(words).unwrap(), 20, 95).solver;
        // One epoch of 95 examples in batches of 32.
        assert_eq!(complete(&["--solver=fed_nova"]), Some(Solver::FedNova { steps: Some(3) }));
        let everybody = Solver::Scaffold { population: 20, steps: Some(7) };
        assert_eq!(complete(&["--solver=scaffold,steps=7"]), Some(everybody));
        assert_eq!(complete(&[]), None);
        assert_eq!(weight_cap(&plan(&["--solver=scaffold"]).unwrap(), 95), 1);
        assert_eq!(weight_cap(&plan(&[]).unwrap(), 95), 95);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (words, expected) in [
            (["--schedule=triangle"], "triangle"),
            (["--schedule=cosine"], "length"),
            (["--schedule=cosine,length=x"], "x"),
            (["--warmup=length=3,rounds"], "rounds"),
            (["--budget=hours=1"], "hours"),
            (["--budget=inf"], "no KEY=VALUE"),
            (["--adaptive-mu=patience"], "no KEY=VALUE"),
            (["--solver=fednova"], "unknown variant `fednova`, expected `fed_nova` or `scaffold`"),
            (["--solver=steps=7"], "unknown variant `steps=7`"),
            (["--solver=fed_nova,step=7"], "unknown field `step`"),
            (["--solver=fed_nova,steps"], "`steps` is no KEY=VALUE"),
            (["--solver=fed_nova,steps="], "invalid type: string"),
            (["--solver=fed_nova,steps=inf"], "invalid type: string"),
        ] {
            let error = plan(&words).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
