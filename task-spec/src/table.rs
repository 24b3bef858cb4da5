//! `[model.table]` of a task: the columns of a table that a device learns from.
//!
//! Participants receive it with the model, and those of a secure round agree on it, byte for byte.

use serde::{Deserialize, Serialize};

/// Maximum number of columns in a task.
pub const MAX_TABLE_COLUMNS: usize = 4096;
/// Most words of one column.
pub const MAX_TABLE_WORDS: usize = 1024;

/// The columns of a table, for participants whose data are one. Other columns of their tables are not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TableSpec {
    /// What the model takes, in this order: a number is one input, a word of n is n inputs, of which one is 1.
    pub features: Vec<TableColumn>,
    /// What it predicts: the classes are the words of `one_of`, in this order. A number only in an analysis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<TableColumn>,
}

/// One column: numbers, or words if there is `one_of`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TableColumn {
    /// Name of the column, exactly as in the table's header.
    pub column: String,
    /// Least number; with `high`, numbers are scaled from `low..high` to 0..1. Default: numbers are taken as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Greatest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The words that the column has, if it has words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
}

impl TableSpec {
    /// Number of inputs of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.features.iter().map(TableColumn::width).sum()
    }

    /// Number of classes; `None` without a label, or for a numeric label.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        let label = self.label.as_ref()?;
        (!label.one_of.is_empty()).then_some(label.one_of.len())
    }
}

impl TableColumn {
    /// Number of inputs encoding the column.
    #[must_use]
    pub fn width(&self) -> usize {
        self.one_of.len().max(1)
    }

    /// The least and greatest number, if both are given.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }
}
