//! Biostatistics: regressions, survival and contingency tables.

mod coefficients;
mod contingency;
mod cox;
mod newton;
mod regression;
mod survival;
mod tails;
mod variables;

pub use coefficients::Coefficient;
pub use contingency::{ContingencySpec, ContingencyState, Ratio};
pub use cox::{CoxSpec, CoxState, MAX_COX_ITERATIONS, Ties};
pub use regression::{MAX_COUNT, MAX_REGRESSION_ITERATIONS, OutcomeSpec, RegressionSpec, RegressionState};
pub use survival::{ChiSquareTest, SurvivalCurve, SurvivalPoint, SurvivalSpec, SurvivalState};
pub use variables::{MAX_STEPS, MAX_TERMS, VariableSpec};

pub(super) use contingency::Contingency;
pub(super) use cox::Cox;
pub(super) use regression::Regression;
pub(super) use survival::Survival;
