//! One column of a table, and what its empty cells become.

use serde::{Deserialize, Serialize};

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
    /// Whether all words that are not in `one_of` share one more input. Default: a row with such a word cannot be used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
    /// What an empty cell becomes. Default: its row cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Mean of the column's numbers over all participants, as a statistics task has published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Median of the column's numbers over all participants, as a statistics task has published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
}

/// What a task writes about a column's empty cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be \"refuse\", \"mean\", \"median\", \"indicator\", a number or a word of the column"
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Missing {
    /// This number takes its place.
    Number(f64),
    /// `refuse`, `mean`, `median`, `indicator`, or the word that takes its place.
    Word(String),
}

/// What a column's empty cells become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EmptyCell {
    /// The row cannot be used.
    Refused,
    /// This number, before scaling.
    Number(f64),
    /// The word at this position of `one_of`.
    Word(usize),
    /// The column's last input is 1. Its number, before scaling, is this one; none of its words is 1.
    Indicated(f64),
}

impl TableColumn {
    /// Number of inputs encoding the column: its number or its words, `other`, and the indicator of empty cells.
    #[must_use]
    pub fn width(&self) -> usize {
        self.one_of.len().max(1) + usize::from(self.other) + usize::from(self.has_indicator())
    }

    /// Whether the last input is 1 for an empty cell, and otherwise 0.
    #[must_use]
    pub fn has_indicator(&self) -> bool {
        matches!(&self.missing, Some(Missing::Word(word)) if word == "indicator")
    }

    /// The least and greatest number, if both are given.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        Some((self.low?, self.high?))
    }

    /// What an empty cell becomes.
    ///
    /// # Errors
    /// Why `missing` does not say so, with a valid alternative.
    pub fn empty_cell(&self) -> Result<EmptyCell, String> {
        let is_words = !self.one_of.is_empty();
        let stated = |name: &str, value: Option<f64>| {
            value.map(EmptyCell::Number).ok_or_else(|| {
                format!(
                    "missing = \"{name}\" needs `{name} = NUMBER`, that of all participants: `tributary task table --from \
                     TASK` prints it from a task of statistics"
                )
            })
        };
        match &self.missing {
            None => Ok(EmptyCell::Refused),
            Some(Missing::Word(word)) => match word.as_str() {
                "refuse" => Ok(EmptyCell::Refused),
                "indicator" => Ok(EmptyCell::Indicated(self.mean.or(self.median).or(self.low).unwrap_or_default())),
                "mean" if !is_words => stated("mean", self.mean),
                "median" if !is_words => stated("median", self.median),
                word if is_words => self.listed(word),
                word => Err(format!(
                    "missing = {word:?} must be \"refuse\", \"mean\", \"median\", \"indicator\" or a number"
                )),
            },
            Some(Missing::Number(number)) if is_words => self.listed(&number.to_string()),
            Some(Missing::Number(number)) => Ok(EmptyCell::Number(*number)),
        }
    }

    fn listed(&self, word: &str) -> Result<EmptyCell, String> {
        let position = self.one_of.iter().position(|listed| listed == word);
        position.map(EmptyCell::Word).ok_or_else(|| {
            format!("missing = {word:?} must be \"refuse\", \"indicator\" or a word of one_of: the column has words")
        })
    }

    /// Whether anything but a number or a listed word can be used.
    pub(crate) fn has_holes(&self) -> bool {
        self.other || self.missing.is_some() || self.mean.is_some() || self.median.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> TableColumn {
        toml::from_str(&format!("column = \"c\"\n{text}")).unwrap()
    }

    #[test]
    fn empty_cells_become_what_the_task_says() {
        for (text, expected, width) in [
            ("", EmptyCell::Refused, 1),
            ("missing = \"refuse\"", EmptyCell::Refused, 1),
            ("missing = 7", EmptyCell::Number(7.0), 1),
            ("missing = \"mean\"\nmean = 2.5", EmptyCell::Number(2.5), 1),
            ("missing = \"median\"\nmean = 2.5\nmedian = 3", EmptyCell::Number(3.0), 1),
            ("missing = \"indicator\"", EmptyCell::Indicated(0.0), 2),
            ("missing = \"indicator\"\nlow = 1\nhigh = 3", EmptyCell::Indicated(1.0), 2),
            ("missing = \"indicator\"\nlow = 1\nhigh = 3\nmedian = 2", EmptyCell::Indicated(2.0), 2),
            ("one_of = [\"a\", \"b\"]\nmissing = \"b\"\nother = true", EmptyCell::Word(1), 3),
            ("one_of = [\"0\", \"1\"]\nmissing = 1", EmptyCell::Word(1), 2),
            ("one_of = [\"a\", \"b\"]\nmissing = \"indicator\"\nother = true", EmptyCell::Indicated(0.0), 4),
        ] {
            let column = column(text);
            assert_eq!((column.empty_cell(), column.width()), (Ok(expected), width), "{text}");
        }
    }

    #[test]
    fn rules_without_a_value_are_refused() {
        for (text, words) in [
            ("missing = \"mean\"", "`mean = NUMBER`"),
            ("missing = \"median\"\nmean = 1", "`median = NUMBER`"),
            ("missing = \"average\"", "or a number"),
            ("one_of = [\"a\"]\nmissing = \"mean\"", "a word of one_of"),
            ("one_of = [\"a\"]\nmissing = 1", "a word of one_of"),
        ] {
            let said = column(text).empty_cell().unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
        let said = toml::from_str::<TableColumn>("column = \"c\"\nmissing = true").unwrap_err().to_string();
        assert!(said.contains("must be \"refuse\", \"mean\""), "{said}");
    }
}
