//! The baseline: the same model, trainer and number of passes on the pooled data.

use client_sdk::models::Architecture;
use client_sdk::train::{self, Device, Sgd};
use datasets::Dataset;
use learning::Parameters;
use task_spec::TrainingPlan;

use crate::command::model::{Score, examples};
use crate::failure::{Exit, Failure, Outcome, of_data};

/// Trains on the pooled `shards` for as many passes as all rounds together, and evaluates on `test`.
pub(super) fn train(
    architecture: &Architecture,
    shards: &[Dataset],
    test: &Dataset,
    plan: &TrainingPlan,
    rounds: u32,
    seed: u64,
) -> Outcome<Score> {
    let pooled = Dataset::concat(shards).map_err(of_data)?;
    let start = architecture.initial(seed).map_err(Failure::because(Exit::Training, "the model's sizes"))?;
    // A proximal term would need a received model, and schedules by round stay at the first.
    let plan = plan.in_round(1);
    let plan = TrainingPlan { epochs: plan.epochs.saturating_mul(rounds), proximal_mu: 0.0, ..plan };
    let trained = train::train(architecture, &start, examples(&pooled), Sgd { plan: &plan, seed }, &Device::Cpu)
        .map_err(Failure::because(Exit::Training, "training on the pooled data"))?;
    let values = start.values().iter().zip(&trained.delta).map(|(start, delta)| start + delta).collect();
    let parameters = Parameters::new(start.layout().clone(), values)
        .map_err(Failure::because(Exit::Internal, "a trained model keeps its layout"))?;
    Score::of_parameters(architecture, &parameters, test)
}
