//! The quality gate: whether a round's base version is good enough to build on.

use federation::gate::{self, GateVerdict};
use federation::model_version::ModelVersion;
use federation::round::Round;
use store::entity::round::RoundMetric;
use store::entity::task::TaskRow;

use super::{Environment, StepError};
use crate::maintenance::retention::{measured, measurements};
use crate::privacy::rounding::Figures;

/// The version to republish in place of the round's result, if the base failed the task's gate.
pub(super) async fn restored(
    env: &Environment,
    row: &TaskRow,
    round: &Round,
    metrics: &[RoundMetric],
) -> Result<Option<ModelVersion>, StepError> {
    let Some(gate) = &row.spec.aggregation.gate else { return Ok(None) };
    let Some(present) = measured(&gate.metric, round, metrics) else { return Ok(None) };
    let key = round.key;
    let past = env
        .store
        .read("metrics of earlier rounds", |tx| Box::pin(measurements(tx, row, &gate.metric, Some(key.round))))
        .await?;
    let past: Vec<_> = past.into_iter().flatten().collect();
    let GateVerdict::RollBack { to, fell } = gate::judge(gate, &past, present) else { return Ok(None) };
    let (task, number, version, metric) = (key.task, key.round, round.base_version, &gate.metric);
    let measured_on = metrics.iter().find(|measured| measured.name == *metric).map_or(0, |measured| measured.count);
    let fell = Figures::of(&row.spec).mean(fell, measured_on);
    let good = env
        .store
        .read("version to go back to", |tx| Box::pin(async move { tx.stored_version(key.task, to).await }))
        .await?;
    let good = good.ok_or_else(|| StepError::unworkable(format!("model version {to} of {task} has no row")))?;
    if good.removed_at.is_some() {
        tracing::error!(%task, round = number, version, back_to = to, "model version {to} is removed: there is nothing to go back to");
        return Ok(None);
    }
    tracing::warn!(%task, round = number, version, metric, fell, back_to = to, "a model version did not pass the gate");
    metrics::counter!("tributary_versions_rolled_back_total").increment(1);
    Ok(Some(good.model))
}
