//! `[analytics]` of a task: statistics, clusters or trees, or the evaluation of a model, instead of a trained one.
//!
//! `learning::AnalyticsSpec` parses and checks the analysis itself, and participants get it verbatim. This module only checks its
//! requirements on the rest of the task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum length of an analysis, in bytes of JSON.
pub const MAX_ANALYTICS_BYTES: usize = 1 << 20;

/// An analysis, for example `{ kind = "k_means", clusters = 10, max_rows = 1000, columns = […] }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = Object))]
pub struct Analytics(Map<String, Value>);

impl Analytics {
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    fn columns(&self) -> &[Value] {
        self.0.get("columns").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Number of described columns, if these are statistics.
    #[must_use]
    pub fn statistics(&self) -> Option<usize> {
        self.0.get("kind").is_some_and(|kind| kind == "statistics").then(|| self.columns().len())
    }

    /// Whether this evaluates the task's model, which other analyses lack.
    #[must_use]
    pub fn is_evaluation(&self) -> bool {
        self.0.get("kind").is_some_and(|kind| kind == "evaluation")
    }

    /// Adds `target`, what an evaluated model predicts, unless the task states it.
    pub fn default_target(&mut self, target: Value) {
        self.0.entry("target").or_insert(target);
    }

    /// Whether a column counts its empty cells.
    pub(crate) fn counts_missing(&self) -> bool {
        self.columns().iter().any(|column| column["missing"] == true)
    }

    /// JSON bytes: equal for equal analyses, since keys are sorted and numbers keep every bit.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_value().to_string().into_bytes()
    }
}
