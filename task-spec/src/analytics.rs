//! `[analytics]` of a task: statistics, clusters or trees instead of a trained model.
//!
//! What an analysis may ask for is `learning`'s to say (`learning::AnalyticsSpec` reads the same words), and the participants
//! are told in these very words; here is what it asks of the rest of the task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
