//! The quality gate: whether a round's base version is good enough to build on.

use federation::gate::{self, GateVerdict, Measured};
use federation::model_version::ModelVersion;
use federation::round::{Round, RoundState};
use store::entity::round::RoundMetric;
use task_spec::{GateSpec, TaskSpec};

use super::{Environment, StepError};

/// Number of earlier rounds examined.
const LOOK_BACK: u32 = 1024;

/// The version to publish again instead of what the round made, if the task has a gate and the base did not pass it.
pub(super) async fn restored(
    env: &Environment,
    spec: &TaskSpec,
    round: &Round,
    metrics: &[RoundMetric],
) -> Result<Option<ModelVersion>, StepError> {
    let Some(gate) = &spec.aggregation.gate else { return Ok(None) };
    let Some(present) = measured(gate, round, metrics) else { return Ok(None) };
    let key = round.key;
    let rows = env
        .store
        .read("metrics of earlier rounds", |tx| {
            Box::pin(async move { tx.rounds(key.task, Some(key.round), LOOK_BACK).await })
        })
        .await?;
    let completed = rows.iter().rev().filter(|row| row.round.state == RoundState::Completed);
    let past: Vec<_> = completed.filter_map(|row| measured(gate, &row.round, &row.metrics)).collect();
    let GateVerdict::RollBack { to, fell } = gate::judge(gate, &past, present) else { return Ok(None) };
    let (task, number, version, metric) = (key.task, key.round, round.base_version, &gate.metric);
    tracing::warn!(%task, round = number, version, metric, fell, back_to = to, "a model version did not pass the gate");
    metrics::counter!("tributary_versions_rolled_back_total").increment(1);
    let good = env
        .store
        .read("version to go back to", |tx| Box::pin(async move { tx.model_version(key.task, to).await }))
        .await?;
    good.map(Some).ok_or_else(|| StepError::unworkable(format!("model version {to} of {task} has no row")))
}

fn measured(gate: &GateSpec, round: &Round, metrics: &[RoundMetric]) -> Option<Measured> {
    let metric = metrics.iter().find(|metric| metric.name == gate.metric)?;
    Some(Measured { version: round.base_version, value: metric.value })
}
