//! The specification of trees in a task.

use serde::{Deserialize, Serialize};

use crate::analytics::error::{AnalyticsError, require};
use crate::analytics::table::{ColumnSpec, Range, Table, check_rows, ranges};

/// Maximum number of trees in an ensemble.
pub const MAX_TREES: u32 = 10_000;
pub const MAX_DEPTH: u32 = 10;
/// Maximum number of bins per column.
pub const MAX_BINS: u32 = 256;
pub const MAX_CLASSES: u32 = 1000;

/// An ensemble of decision trees, grown from histograms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreesSpec {
    pub method: Method,
    /// Cap on the rows a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// The columns to predict from; their ranges only bound the search for thresholds.
    pub columns: Vec<ColumnSpec>,
    pub target: TargetSpec,
    pub trees: u32,
    /// Depth: cuts between the root and a leaf, each of which takes a round. 1 to 10.
    pub depth: u32,
    /// Bins per column, with quantiles over all rows as edges. 2 to 256.
    #[serde(default = "thirty_two")]
    pub bins: u32,
    /// Rounds of refining the bin edges. 1 to 10.
    #[serde(default = "two")]
    pub sketch_rounds: u32,
    /// Factor on each boosted tree's values; default 0.3. Not allowed in a forest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// λ, added to the sum of second derivatives: larger values make smaller steps. Default 1, in a forest 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<f64>,
    /// Least sum of second derivatives on each side of a cut; a number of rows in a forest or if the target is a
    /// number.
    #[serde(default = "one")]
    pub min_child_weight: f64,
    /// Least gain of a cut.
    #[serde(default)]
    pub min_gain: f64,
    /// Share of the rows used by each tree. Default 1, in a forest 0.632.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_fraction: Option<f64>,
    /// Share of the columns available to each cut. Default 1, in a forest the square root of their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column_fraction: Option<f64>,
    /// Trees of a forest that grow at the same time, in one sum. Boosted trees grow one at a time.
    #[serde(default = "one_tree")]
    pub trees_per_round: u32,
    /// Seeds the draws of rows and columns.
    #[serde(default)]
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Each tree corrects the errors of those before it (Friedman 2001, with second derivatives as in Chen and Guestrin
    /// 2016).
    Boosting,
    /// Each tree sees a sample of rows and columns; their values are averaged (Breiman 2001).
    Forest,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetSpec {
    /// A number within a range, with squared error as loss.
    Real {
        /// Smaller targets are clipped to it.
        low: f64,
        /// Larger targets are clipped to it.
        high: f64,
    },
    /// One of the classes 0, 1, 2…; boosting minimises the cross-entropy, a forest the Gini impurity.
    Class {
        /// Number of classes, at least 2.
        classes: u32,
    },
}

fn thirty_two() -> u32 {
    32
}

fn two() -> u32 {
    2
}

fn one() -> f64 {
    1.0
}

fn one_tree() -> u32 {
    1
}

impl TargetSpec {
    /// Values per leaf: one per class, or one for two classes or a real target.
    pub(super) fn outputs(self) -> usize {
        match self {
            Self::Class { classes } if classes > 2 => classes as usize,
            Self::Class { .. } | Self::Real { .. } => 1,
        }
    }

    /// Rejects a target that is not a class.
    pub(in crate::analytics) fn check(self, row: usize, value: f64) -> Result<(), AnalyticsError> {
        match self {
            Self::Class { classes } if !(value >= 0.0 && value < f64::from(classes) && value.fract() == 0.0) => {
                Err(AnalyticsError::Class { row, value: value.to_string(), last: classes.saturating_sub(1) })
            }
            Self::Class { .. } | Self::Real { .. } => Ok(()),
        }
    }
}

impl TreesSpec {
    /// Validates the specification and returns the columns' ranges.
    pub(super) fn check(&self) -> Result<Vec<Range>, AnalyticsError> {
        check_rows(self.max_rows)?;
        let ranges = ranges("columns", &self.columns)?;
        match self.target {
            TargetSpec::Real { low, high } => {
                Range::new("target", "target", low, high)?;
            }
            TargetSpec::Class { classes } => require((2..=MAX_CLASSES).contains(&classes), "target.classes", || {
                format!("is {classes}; it must be 2 to {MAX_CLASSES}")
            })?,
        }
        let between = |field: &str, value: u32, least: u32, most: u32| {
            require((least..=most).contains(&value), field, || format!("is {value}; it must be {least} to {most}"))
        };
        between("trees", self.trees, 1, MAX_TREES)?;
        between("depth", self.depth, 1, MAX_DEPTH)?;
        between("bins", self.bins, 2, MAX_BINS)?;
        between("sketch_rounds", self.sketch_rounds, 1, 10)?;
        self.check_reals()?;
        match self.method {
            Method::Forest => {
                between("trees_per_round", self.trees_per_round, 1, self.trees)?;
                require(self.learning_rate.is_none(), "learning_rate", || {
                    "a forest has none: its trees do not build on each other".to_owned()
                })?;
            }
            Method::Boosting => require(self.trees_per_round == 1, "trees_per_round", || {
                format!("is {}; boosted trees grow one after the other", self.trees_per_round)
            })?,
        }
        Ok(ranges)
    }

    /// Rejects a table without a target for each used row, or with a target that is not a class.
    pub(in crate::analytics) fn check_targets(&self, table: &Table) -> Result<(), AnalyticsError> {
        let targets = table.required_targets()?;
        table.counted(self.max_rows).try_for_each(|row| self.target.check(row, targets[row]))
    }

    fn check_reals(&self) -> Result<(), AnalyticsError> {
        for (field, value) in [("min_child_weight", self.min_child_weight), ("min_gain", self.min_gain)] {
            require((0.0..=1e12).contains(&value), field, || format!("is {value}; it must be at least 0"))?;
        }
        require((0.0..=1e12).contains(&self.l2()), "l2", || format!("is {}; it must be at least 0", self.l2()))?;
        let positive = [
            ("learning_rate", self.learning_rate.unwrap_or(1.0)),
            ("row_fraction", self.row_fraction()),
            ("column_fraction", self.column_fraction.unwrap_or(1.0)),
        ];
        for (field, value) in positive {
            require(value > 0.0 && value <= 1.0, field, || format!("is {value}; it must be above 0 and at most 1"))?;
        }
        Ok(())
    }

    pub(super) fn l2(&self) -> f64 {
        self.l2.unwrap_or(if self.method == Method::Forest { 0.0 } else { 1.0 })
    }

    /// The factor on a leaf's values.
    pub(super) fn step(&self) -> f64 {
        match self.method {
            Method::Forest => 1.0,
            Method::Boosting => self.learning_rate.unwrap_or(0.3),
        }
    }

    pub(super) fn row_fraction(&self) -> f64 {
        self.row_fraction.unwrap_or(if self.method == Method::Forest { 0.632 } else { 1.0 })
    }

    /// Number of columns available to a cut.
    pub(super) fn columns_per_cut(&self, columns: usize) -> usize {
        let wanted = match (self.column_fraction, self.method) {
            (Some(fraction), _) => (fraction * columns as f64).ceil(),
            (None, Method::Forest) => (columns as f64).sqrt().ceil(),
            (None, Method::Boosting) => columns as f64,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the columns")]
        let wanted = wanted as usize;
        wanted.clamp(1, columns)
    }
}
