//! What `[analytics]` of a task means: the analysis, and the step from a released sum to its next state.

use learning::analytics::{Advanced, Analysis, AnalyticsError, AnalyticsSpec};
use learning::{MetricValue, NoisedSum};
use store::entity::round::RoundMetric;
use task_spec::{SpecError, TaskSpec};
use wire::participant::Encoding;

use crate::step_error::StepError;

/// The analysis of a task, if it has one in place of a model.
///
/// # Errors
/// Every field that cannot work.
pub(crate) fn derive(spec: &TaskSpec, encoding: &Encoding) -> Result<Option<Analysis>, Vec<SpecError>> {
    let Some(analytics) = &encoding.analytics else { return Ok(None) };
    let analysis =
        AnalyticsSpec::read(analytics).and_then(|read| Analysis::new(read, encoding.modulus_bits, encoding.max_cohort));
    let analysis = analysis.map_err(|error| match error {
        AnalyticsError::Spec { field, problem } => wrong(&field_of(spec, &field), problem),
        other => wrong("analytics", other),
    })?;
    let (count, rounds) = (spec.rounds.count, analysis.rounds());
    if count == rounds {
        Ok(Some(analysis))
    } else {
        Err(wrong(
            "rounds.count",
            format!("is {count}, but this analysis takes {rounds} rounds, so it must be {rounds}"),
        ))
    }
}

/// Where an operator mends it.
fn field_of(spec: &TaskSpec, field: &str) -> String {
    match field {
        "modulus_bits" if spec.secure_aggregation.enabled => "secure_aggregation.modulus_bits".to_owned(),
        "modulus_bits" => "aggregation.modulus_bits".to_owned(),
        "max_cohort" => "rounds.select_max".to_owned(),
        "size" => "analytics".to_owned(),
        field => format!("analytics.{field}"),
    }
}

/// What a round of an analysis made.
pub(crate) struct Next {
    /// The state, as it is published.
    pub(crate) bytes: Vec<u8>,
    /// What the round showed.
    pub(crate) metrics: Vec<RoundMetric>,
}

/// The next state. The inner error: no honest participants made this sum.
///
/// # Errors
/// [`StepError::Unworkable`] where the state cannot be read.
pub(crate) fn advance(analysis: &Analysis, sum: &NoisedSum, base: &[u8]) -> Result<Result<Next, String>, StepError> {
    let unworkable = |error: AnalyticsError| StepError::unworkable(format!("the state cannot be advanced: {error}"));
    let state = analysis.read(base).map_err(unworkable)?;
    let Advanced { state, metrics } = match analysis.advance(&state, sum) {
        Ok(advanced) => advanced,
        Err(AnalyticsError::Sum(problem)) => return Ok(Err(problem)),
        Err(other) => return Err(unworkable(other)),
    };
    let bytes = state.to_bytes().map_err(unworkable)?;
    let named = |(name, MetricValue { value, count }): (String, MetricValue)| RoundMetric { name, value, count };
    let measured = metrics.into_iter().filter(|(_, value)| value.count > 0);
    Ok(Ok(Next { bytes, metrics: measured.map(named).collect() }))
}

fn wrong(field: &str, error: impl std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: field.to_owned(), problem: error.to_string() }]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::TaskModel;

    fn task(change: impl FnOnce(&mut serde_json::Value)) -> TaskSpec {
        let mut text = json!({
            "name": "clusters",
            "rounds": { "count": 8, "select_max": 20 },
            "analytics": {
                "kind": "k_means", "max_rows": 100, "clusters": 3, "iterations": 1,
                "columns": [{ "name": "x", "low": -1.0, "high": 1.0, "repeat": 2 }],
            },
        });
        change(&mut text);
        serde_json::from_value(text).unwrap()
    }

    fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> SpecError {
        TaskModel::new(&task(change)).unwrap_err().remove(0)
    }

    #[test]
    fn a_session_agrees_on_the_sums_of_the_analysis() {
        let model = TaskModel::new(&task(|_| ())).unwrap();
        let codec = model.analysis.as_ref().unwrap().codec();
        let session = model.session.as_ref().unwrap();
        assert_eq!(session.model.words, codec.len() as u64);
        assert_eq!(session.model.input_bound, codec.input_bound());
        assert_eq!(model.shared.len(), codec.values());
        let other = TaskModel::new(&task(|text| text["analytics"]["seed"] = json!(1))).unwrap();
        assert_ne!(other.session.unwrap().application, session.application, "participants agree on the analysis, too");
        assert!(model.first_version(&task(|_| ())).unwrap().starts_with(b"{\"k_means\":"));
    }

    #[test]
    fn what_cannot_work_names_the_key_to_mend() {
        let error = refusal(|text| text["rounds"]["count"] = json!(10));
        assert_eq!(error.to_string(), "rounds.count: is 10, but this analysis takes 8 rounds, so it must be 8");
        let error = refusal(|text| text["analytics"]["clusters"] = json!(0));
        assert_eq!(error.to_string(), "analytics.clusters: is 0; it must be 1 to 1024");
        assert_eq!(refusal(|text| text["analytics"]["kind"] = json!("medians")).field, "analytics");
        assert_eq!(refusal(|text| text["analytics"]["columns"][0]["repeat"] = json!(9999)).field, "analytics.columns");
        let narrow = |text: &mut serde_json::Value| {
            text["rounds"]["select_max"] = json!(1024);
            text["aggregation"] = json!({ "modulus_bits": 16 });
            text["secure_aggregation"] = json!({ "modulus_bits": 16 });
            text["analytics"]["max_rows"] = json!(1);
        };
        assert!(TaskModel::new(&task(narrow)).is_ok(), "five bits of a word are enough");
        let wide = |text: &mut serde_json::Value| {
            narrow(text);
            text["secure_aggregation"] = json!({ "enabled": false });
            text["rounds"]["select_max"] = json!(60_000);
        };
        assert_eq!(refusal(wide).field, "aggregation.modulus_bits");
    }
}
