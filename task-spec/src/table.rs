//! `[model.table]` of a task: the columns of a table that a device learns from.
//!
//! Participants receive it with the model, and those of a secure round agree on it, byte for byte.

mod cell;
mod choice;
mod column;
mod percentage;

use serde::{Deserialize, Serialize};

pub use cell::{CellValue, RawCell};
pub use column::{EmptyCell, Missing, TableColumn};
pub use percentage::Percentage;

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
    /// What it predicts: the classes are the words of `one_of`, in this order; without them, a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<TableColumn>,
    /// Share of a participant's rows that may be left out because a cell cannot be used. Default: every row must be usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_rows_up_to: Option<Percentage>,
}

impl TableSpec {
    /// The latest rules for tables: those of this release.
    pub const LATEST: u32 = 2;

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

    /// Whether statistics of this number of columns take a word's position in `one_of` instead of an input for each word: if there are
    /// as many columns as features, some of which have words.
    #[must_use]
    pub fn counts_words(&self, columns: usize) -> bool {
        columns == self.features.len() && self.features.iter().any(|feature| !feature.one_of.is_empty())
    }

    /// Whether the label is a number.
    #[must_use]
    pub fn predicts_number(&self) -> bool {
        self.label.as_ref().is_some_and(|label| label.one_of.is_empty())
    }

    /// Whether a cell that cannot be used may be replaced, or its row left out.
    pub(crate) fn has_holes(&self) -> bool {
        self.skip_rows_up_to.is_some() || self.features.iter().chain(&self.label).any(TableColumn::has_holes)
    }
}
