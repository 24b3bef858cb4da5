//! `[analytics]` of a task: statistics, clusters or trees instead of a trained model.
//!
//! What an analysis may ask for is `learning`'s to say (`learning::AnalyticsSpec` reads the same words), and the participants
//! are told in these very words; here is what it asks of the rest of the task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::check::Checks;
use super::{ModelSpec, TaskSpec, TrainingPlan};

/// Longest description of an analysis, as bytes of JSON.
pub const MAX_ANALYTICS_BYTES: usize = 1 << 20;

/// An analysis, for example `{ kind = "k_means", clusters = 10, max_rows = 1000, columns = […] }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = Object))]
pub struct Analytics(Map<String, Value>);

impl Analytics {
    /// As JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// As bytes: the same for the same analysis, since keys are in order and numbers keep every bit.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_value().to_string().into_bytes()
    }
}

impl TaskSpec {
    /// What an analysis cannot do, and what means nothing beside one.
    pub(super) fn check_analytics(&self, analytics: &Analytics, checks: &mut Checks) {
        checks.require(
            analytics.to_bytes().len() <= MAX_ANALYTICS_BYTES,
            "analytics",
            "must be at most 1 MiB; `repeat` describes many equal columns at once",
        );
        checks.require(
            self.model == ModelSpec::default(),
            "model",
            "must be left out: an analysis has no model, its state is what is published",
        );
        checks.require(
            self.training == TrainingPlan::default(),
            "training",
            "must be left out: an analysis trains nothing",
        );
        checks.require(
            !self.privacy.is_private(),
            "privacy.mechanism",
            "must be left out: noise is calibrated to the norm of a clipped update, and the counts and sums of an analysis have \
             none that is declared",
        );
        for (field, given) in [
            ("aggregation.robust", self.aggregation.robust.is_some()),
            ("aggregation.gate", self.aggregation.gate.is_some()),
        ] {
            checks.require(!given, field, "must be left out: an analysis is the sum of what everybody has");
        }
        checks.require(
            !self.selection.strategy.follows_the_loss(),
            "selection.strategy",
            "cannot follow losses: an analysis trains nothing; \"uniform\" and \"round_robin\" do for it",
        );
    }
}
