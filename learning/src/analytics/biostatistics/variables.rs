//! The columns of a regression or of a survival analysis, and the terms of a linear predictor.

use serde::{Deserialize, Serialize};

use crate::analytics::error::{AnalyticsError, require};
use crate::analytics::table::{Range, Table, check_name};

/// Maximum number of terms of a linear predictor, and of categories.
pub const MAX_TERMS: usize = 256;
/// Maximum number of steps of time.
pub const MAX_STEPS: u32 = 1 << 16;
/// Exposures are between 1 divided by this and this.
const MAX_EXPOSURE: f64 = 1e9;

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum VariableSpec {
    /// A number, clipped to a range.
    Real {
        /// Label for people to read.
        name: String,
        /// Lower end of the range; smaller values are clipped to it.
        low: f64,
        /// Upper end of the range; larger values are clipped to it.
        high: f64,
    },
    /// A category 0, 1, 2…
    Category {
        /// Label for people to read.
        name: String,
        /// Number of categories, at least 2. A predictor has a term for each but the first.
        categories: u32,
    },
    /// What a count is proportional to, for example years under observation: above 0.
    Exposure {
        /// Label for people to read.
        name: String,
    },
    /// Time to an event or to the end of the observation, rounded up to whole steps.
    Time {
        /// Label for people to read.
        name: String,
        /// Length of a step.
        step: f64,
        /// Number of steps. Who is observed for longer has left after the last step, without an event.
        steps: u32,
    },
}

/// A grid of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time {
    pub(super) column: usize,
    pub(super) step: f64,
    pub(super) steps: usize,
}

impl Time {
    /// The step that ends at a time or after it, and whether the time is within the grid. Tolerates the rounding of decimal numbers.
    pub(super) fn index(self, row: &[f64]) -> (usize, bool) {
        let steps = row[self.column] / self.step;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked not to be negative; saturates"
        )]
        let index = (steps * (1.0 - 1e-12)).ceil() as usize;
        (index.min(self.steps), index <= self.steps)
    }

    /// The time at the end of a step.
    pub(super) fn at(self, index: usize) -> f64 {
        index as f64 * self.step
    }
}

/// How a term reads its column, scaled so that its values are within ±1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Real(Range),
    /// 1 for this category, 0 for the others.
    Category(u32),
}

/// A term of a linear predictor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) name: String,
    column: usize,
    scale: Scale,
}

impl Term {
    /// The scaled value is `(value - middle) / half`.
    pub(super) fn middle_and_half(&self) -> (f64, f64) {
        match self.scale {
            Scale::Real(range) => (f64::midpoint(range.low, range.high), range.width() / 2.0),
            Scale::Category(_) => (0.0, 1.0),
        }
    }

    fn value(&self, row: &[f64]) -> f64 {
        let value = row[self.column];
        match self.scale {
            Scale::Real(range) => 2.0 * range.unit(value) - 1.0,
            Scale::Category(category) => f64::from(u8::from(value == f64::from(category))),
        }
    }
}

/// Validated columns, and the terms that they become.
#[derive(Clone, Debug)]
pub(super) struct Variables {
    columns: Vec<VariableSpec>,
    pub(super) terms: Vec<Term>,
    /// The column with an exposure.
    exposure: Option<usize>,
    pub(super) time: Option<Time>,
}

impl Variables {
    pub(super) fn new(columns: &[VariableSpec]) -> Result<Self, AnalyticsError> {
        let mut found = Self { columns: columns.to_vec(), terms: Vec::new(), exposure: None, time: None };
        for (column, variable) in columns.iter().enumerate() {
            check_name("columns", variable.name())?;
            match variable {
                VariableSpec::Real { name, low, high } => {
                    let scale = Scale::Real(Range::new("columns", name, *low, *high)?);
                    found.terms.push(Term { name: name.clone(), column, scale });
                }
                VariableSpec::Category { name, categories } => {
                    require((2..=MAX_TERMS).contains(&(*categories as usize)), "columns", || {
                        format!("{name:?} has {categories} categories; 2 to {MAX_TERMS} are possible")
                    })?;
                    let term = |category| Term {
                        name: format!("{name}[{category}]"),
                        column,
                        scale: Scale::Category(category),
                    };
                    found.terms.extend((1..*categories).map(term));
                }
                VariableSpec::Exposure { name } => {
                    let earlier = found.exposure.replace(column);
                    require(earlier.is_none(), "columns", || format!("{name:?} is a second exposure"))?;
                }
                VariableSpec::Time { name, step, steps } => {
                    require(*step >= 1e-100 && *step <= 1e100, "columns", || {
                        format!("the step of {name:?} is {step}; it must be a number above 0")
                    })?;
                    require((1..=MAX_STEPS).contains(steps), "columns", || {
                        format!("{name:?} has {steps} steps; 1 to {MAX_STEPS} are possible")
                    })?;
                    let earlier = found.time.replace(Time { column, step: *step, steps: *steps as usize });
                    require(earlier.is_none(), "columns", || format!("{name:?} is a second time"))?;
                }
            }
        }
        require(found.terms.len() <= MAX_TERMS, "columns", || {
            format!("have {} terms; at most {MAX_TERMS} are possible", found.terms.len())
        })?;
        Ok(found)
    }

    /// Rejects columns of a type that the analysis has no use for.
    pub(super) fn allow(&self, allowed: &[&str], analysis: &str) -> Result<(), AnalyticsError> {
        let strange = self.columns.iter().find(|column| !allowed.contains(&column.kind()));
        strange.map_or(Ok(()), |column| {
            require(false, "columns", || {
                let (name, kind) = (column.name(), column.kind());
                format!("{name:?} is of the type {kind}; {analysis} takes {}", allowed.join(" and "))
            })
        })
    }

    /// The grid of time that a survival analysis must have.
    pub(super) fn required_time(&self) -> Result<Time, AnalyticsError> {
        self.time.ok_or_else(|| AnalyticsError::Spec {
            field: "columns".to_owned(),
            problem: "must have one of the type time, for example { type = \"time\", name = \"days\", step = 1, steps = 365 }"
                .to_owned(),
        })
    }

    /// Number of a category's column, and of its categories; only the first such column.
    pub(super) fn groups(&self) -> Option<(usize, usize)> {
        self.columns.iter().enumerate().find_map(|(column, variable)| match variable {
            VariableSpec::Category { categories, .. } => Some((column, *categories as usize)),
            VariableSpec::Real { .. } | VariableSpec::Exposure { .. } | VariableSpec::Time { .. } => None,
        })
    }

    /// Rejects values that no column of this type has.
    pub(super) fn check_rows(&self, table: &Table) -> Result<(), AnalyticsError> {
        table.check(self.columns.len(), |_| false)?;
        for row in 0..table.rows() {
            for (column, (&value, variable)) in table.row(row).iter().zip(&self.columns).enumerate() {
                let (is_good, expected) = match variable {
                    VariableSpec::Real { .. } => continue,
                    VariableSpec::Category { categories, .. } => (
                        value >= 0.0 && value < f64::from(*categories) && value.fract() == 0.0,
                        format!("a category, 0 to {}", categories - 1),
                    ),
                    VariableSpec::Exposure { .. } => (
                        (1.0 / MAX_EXPOSURE..=MAX_EXPOSURE).contains(&value),
                        format!("from {:e} to {MAX_EXPOSURE:e}", 1.0 / MAX_EXPOSURE),
                    ),
                    VariableSpec::Time { .. } => (value >= 0.0, "at least 0".to_owned()),
                };
                if !is_good {
                    return Err(AnalyticsError::Value { row, column, value: value.to_string(), expected });
                }
            }
        }
        Ok(())
    }

    /// The scaled values of the terms.
    pub(super) fn values(&self, row: &[f64], out: &mut [f64]) {
        for (value, term) in out.iter_mut().zip(&self.terms) {
            *value = term.value(row);
        }
    }

    /// Logarithm of the exposure; 0 without one.
    pub(super) fn offset(&self, row: &[f64]) -> f64 {
        self.exposure.map_or(0.0, |column| libm::log(row[column]))
    }
}

impl VariableSpec {
    fn name(&self) -> &str {
        match self {
            Self::Real { name, .. }
            | Self::Category { name, .. }
            | Self::Exposure { name }
            | Self::Time { name, .. } => name,
        }
    }

    /// The value of `type`.
    fn kind(&self) -> &'static str {
        match self {
            Self::Real { .. } => "real",
            Self::Category { .. } => "category",
            Self::Exposure { .. } => "exposure",
            Self::Time { .. } => "time",
        }
    }
}

/// Rejects targets that are not 0 (no) or 1 (yes).
pub(super) fn check_binary(table: &Table) -> Result<(), AnalyticsError> {
    table.required_targets()?.iter().enumerate().try_for_each(|(row, &value)| {
        let is_good = value == 0.0 || value == 1.0;
        if is_good { Ok(()) } else { Err(AnalyticsError::Class { row, value: value.to_string(), last: 1 }) }
    })
}
