//! Federated analytics: statistics, clusters, trees, biostatistics, and evaluations of a model.
//!
//! Each kind of analysis has three parts: a state, published as a model version; a pure function that maps the state
//! and a participant's local rows to a vector of integers, run on the device; and a pure function that maps the state
//! and the *sum* of all vectors to the next state, run by the coordinator. Only the sum is needed, so a contribution is
//! masked, added modulo 2^b and released like any update. Declared bounds prove that no sum can wrap ([`SumCodec`]).
//! Counts are exact, and so is every sum of numbers on its declared grid.
//!
//! An analysis must not use a participant's rows for anything but that vector, nor derive a range from data.

mod biostatistics;
mod branching;
mod error;
mod evaluation;
mod k_means;
mod private;
mod procedure;
mod statistics;
mod sum_codec;
mod table;
mod trees;

pub use biostatistics::{
    ChiSquareTest, Coefficient, ContingencySpec, ContingencyState, CoxSpec, CoxState, MAX_COUNT, MAX_COX_ITERATIONS,
    MAX_REGRESSION_ITERATIONS, MAX_STEPS, MAX_TERMS, OutcomeSpec, Ratio, RegressionSpec, RegressionState,
    SurvivalCurve, SurvivalPoint, SurvivalSpec, SurvivalState, Ties, VariableSpec,
};
pub use branching::{Branching, Cut, Next};
pub use error::AnalyticsError;
pub use evaluation::{
    BinnedQuantile, CalibrationGroup, ClassFigures, ClassesFigures, EvaluatedExamples, EvaluationFigures,
    EvaluationSpec, EvaluationState, MAX_EVALUATED_BYTES, MAX_EVALUATION_BINS, NumberFigures,
};
pub use k_means::{KMeansSpec, KMeansState, MAX_CLUSTERS, MAX_ITERATIONS};
pub use private::{NoisedForms, PrivateForm};
pub use procedure::{Advanced, MAX_STATE_BYTES};
pub use statistics::{
    ColumnStatistics, MAX_CELLS, MAX_QUANTILES, Quantile, StatisticSpec, StatisticsSpec, StatisticsState,
};
pub use sum_codec::{Field, ImplausibleContribution, MAX_SUM_WORDS, SumCodec, SumInspector};
pub use table::{ColumnSpec, MAX_COLUMNS, MAX_ROWS, Table};
pub use trees::{
    Ensemble, MAX_BINS, MAX_CLASSES, MAX_DEPTH, MAX_TREES, Method, Prediction, TargetSpec, Tree, TreesSpec, TreesState,
};

use serde::{Deserialize, Serialize};

use crate::privacy::NoisedSum;
use biostatistics::{Contingency, Cox, Regression, Survival};
use evaluation::Evaluation;
use k_means::KMeans;
use procedure::{Procedure, Terms};
use statistics::Statistics;
use trees::Trees;

/// An analysis as the operator writes it, for example `{ kind = "k_means", clusters = 10, … }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AnalyticsSpec {
    /// Count, mean, variance, histograms, quantiles and categories.
    Statistics(StatisticsSpec),
    KMeans(KMeansSpec),
    /// Gradient-boosted trees or a random forest.
    Trees(TreesSpec),
    /// Linear, logistic and Poisson regression.
    Regression(RegressionSpec),
    /// Kaplan-Meier curves and the log-rank test.
    Survival(SurvivalSpec),
    /// Cox's regression of survival.
    Cox(CoxSpec),
    /// A table of two categories, with tests.
    Contingency(ContingencySpec),
    /// The quality of a given model.
    Evaluation(EvaluationSpec),
}

impl AnalyticsSpec {
    /// Parses the analysis of a task. Participants get the text of the task file verbatim.
    ///
    /// # Errors
    /// [`AnalyticsError::Words`].
    pub fn read(words: &task_spec::Analytics) -> Result<Self, AnalyticsError> {
        serde_json::from_value(words.to_value()).map_err(|error| AnalyticsError::Words(error.to_string()))
    }

    /// Number of columns in a participant's table, without the target.
    #[must_use]
    pub fn width(&self) -> usize {
        match self {
            Self::Statistics(spec) => spec.columns.len(),
            Self::KMeans(KMeansSpec { columns, .. }) | Self::Trees(TreesSpec { columns, .. }) => table::width(columns),
            Self::Regression(RegressionSpec { columns, .. })
            | Self::Survival(SurvivalSpec { columns, .. })
            | Self::Cox(CoxSpec { columns, .. })
            | Self::Contingency(ContingencySpec { columns, .. }) => columns.len(),
            Self::Evaluation(spec) => spec.width(),
        }
    }

    /// Number of columns, if each is one number or the position of a category. Others may have an input for each word.
    #[must_use]
    pub fn plain_columns(&self) -> Option<usize> {
        match self {
            Self::Statistics(_) | Self::Regression(_) | Self::Survival(_) | Self::Cox(_) | Self::Contingency(_) => {
                Some(self.width())
            }
            Self::KMeans(_) | Self::Trees(_) | Self::Evaluation(_) => None,
        }
    }

    /// Whether each row has a target.
    #[must_use]
    pub fn has_target(&self) -> bool {
        match self {
            Self::Trees(_) | Self::Regression(_) | Self::Survival(_) | Self::Cox(_) | Self::Evaluation(_) => true,
            Self::Statistics(_) | Self::KMeans(_) | Self::Contingency(_) => false,
        }
    }

    /// Whether this evaluates a model, whose predictions are then the rows of [`Analysis::contribution`].
    #[must_use]
    pub fn is_evaluation(&self) -> bool {
        matches!(self, Self::Evaluation(_))
    }

    /// Number of categories of a column, if it has categories.
    #[must_use]
    pub fn categories(&self, column: usize) -> Option<u32> {
        match self {
            Self::Statistics(spec) => match spec.columns.get(column)? {
                StatisticSpec::Category { categories, .. } => Some(*categories),
                StatisticSpec::Real { .. } => None,
            },
            Self::KMeans(_) | Self::Trees(_) | Self::Evaluation(_) => None,
            Self::Regression(RegressionSpec { columns, .. })
            | Self::Survival(SurvivalSpec { columns, .. })
            | Self::Cox(CoxSpec { columns, .. })
            | Self::Contingency(ContingencySpec { columns, .. }) => match columns.get(column)? {
                VariableSpec::Category { categories, .. } => Some(*categories),
                VariableSpec::Real { .. } | VariableSpec::Exposure { .. } | VariableSpec::Time { .. } => None,
            },
        }
    }

    /// Whether a column counts its empty cells.
    #[must_use]
    pub fn counts_missing(&self, column: usize) -> bool {
        match self {
            Self::Statistics(spec) => spec.columns.get(column).is_some_and(StatisticSpec::counts_missing),
            Self::KMeans(_)
            | Self::Trees(_)
            | Self::Regression(_)
            | Self::Survival(_)
            | Self::Cox(_)
            | Self::Contingency(_)
            | Self::Evaluation(_) => false,
        }
    }

    /// Checks a participant's rows before any computation: [`Analysis::contribution`] requires a checked table.
    ///
    /// # Errors
    /// [`AnalyticsError::Shape`], [`AnalyticsError::NoRows`], [`AnalyticsError::Class`] or [`AnalyticsError::Value`].
    pub fn check(&self, table: &Table) -> Result<(), AnalyticsError> {
        match self {
            Self::Statistics(spec) => table.check(self.width(), |column| spec.columns[column].counts_missing()),
            Self::KMeans(_) => table.check(self.width(), |_| false),
            Self::Trees(spec) => table.check(self.width(), |_| false).and_then(|()| spec.check_targets(table)),
            Self::Regression(spec) => spec.check_table(table),
            Self::Survival(spec) => spec.check_table(table),
            Self::Cox(spec) => spec.check_table(table),
            Self::Contingency(spec) => spec.check_table(table),
            Self::Evaluation(spec) => spec.check_table(table),
        }
    }
}

/// The state of an analysis; after the last round, its result. Published as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AnalyticsState {
    Statistics(StatisticsState),
    KMeans(KMeansState),
    Trees(TreesState),
    Regression(RegressionState),
    Survival(SurvivalState),
    Cox(CoxState),
    Contingency(ContingencyState),
    Evaluation(EvaluationState),
}

#[derive(Clone, Debug)]
enum Kind {
    Statistics(Statistics),
    KMeans(KMeans),
    Trees(Box<Trees>),
    Regression(Regression),
    Survival(Survival),
    Cox(Cox),
    Contingency(Contingency),
    Evaluation(Evaluation),
}

/// A validated analysis: the code of both sides.
#[derive(Clone, Debug)]
pub struct Analysis {
    kind: Kind,
    codec: SumCodec,
}

/// Runs `$body` with the procedure.
macro_rules! with_procedure {
    ($kind:expr, $procedure:ident => $body:expr) => {
        match $kind {
            Kind::Statistics($procedure) => $body,
            Kind::KMeans($procedure) => $body,
            Kind::Trees($procedure) => $body,
            Kind::Regression($procedure) => $body,
            Kind::Survival($procedure) => $body,
            Kind::Cox($procedure) => $body,
            Kind::Contingency($procedure) => $body,
            Kind::Evaluation($procedure) => $body,
        }
    };
}

/// Runs `$body` with the procedure and its state, or reports a state of another analysis.
macro_rules! with_state {
    ($kind:expr, $state:expr, ($procedure:ident, $own:ident, $wrap:ident) => $body:expr) => {
        match ($kind, $state) {
            (Kind::Statistics($procedure), AnalyticsState::Statistics($own)) => {
                let $wrap = AnalyticsState::Statistics;
                $body
            }
            (Kind::KMeans($procedure), AnalyticsState::KMeans($own)) => {
                let $wrap = AnalyticsState::KMeans;
                $body
            }
            (Kind::Trees($procedure), AnalyticsState::Trees($own)) => {
                let $wrap = AnalyticsState::Trees;
                $body
            }
            (Kind::Regression($procedure), AnalyticsState::Regression($own)) => {
                let $wrap = AnalyticsState::Regression;
                $body
            }
            (Kind::Survival($procedure), AnalyticsState::Survival($own)) => {
                let $wrap = AnalyticsState::Survival;
                $body
            }
            (Kind::Cox($procedure), AnalyticsState::Cox($own)) => {
                let $wrap = AnalyticsState::Cox;
                $body
            }
            (Kind::Contingency($procedure), AnalyticsState::Contingency($own)) => {
                let $wrap = AnalyticsState::Contingency;
                $body
            }
            (Kind::Evaluation($procedure), AnalyticsState::Evaluation($own)) => {
                let $wrap = AnalyticsState::Evaluation;
                $body
            }
            _ => Err(AnalyticsError::state("it is of another kind of analysis")),
        }
    };
}

impl Analysis {
    /// Validates a specification and proves that the sums of a cohort of at most `max_cohort` fit words modulo
    /// 2^`modulus_bits`.
    ///
    /// # Errors
    /// [`AnalyticsError::Spec`].
    pub fn new(spec: AnalyticsSpec, modulus_bits: u8, max_cohort: u32) -> Result<Self, AnalyticsError> {
        let terms = Terms { modulus_bits, max_cohort };
        let kind = match spec {
            AnalyticsSpec::Statistics(spec) => Kind::Statistics(Statistics::new(spec)?),
            AnalyticsSpec::KMeans(spec) => Kind::KMeans(KMeans::new(spec, terms)?),
            AnalyticsSpec::Trees(spec) => Kind::Trees(Box::new(Trees::new(spec, terms)?)),
            AnalyticsSpec::Regression(spec) => Kind::Regression(Regression::new(spec, terms)?),
            AnalyticsSpec::Survival(spec) => Kind::Survival(Survival::new(spec)?),
            AnalyticsSpec::Cox(spec) => Kind::Cox(Cox::new(spec, terms)?),
            AnalyticsSpec::Contingency(spec) => Kind::Contingency(Contingency::new(spec)?),
            AnalyticsSpec::Evaluation(spec) => Kind::Evaluation(Evaluation::new(spec)?),
        };
        let fields = with_procedure!(&kind, procedure => procedure.fields());
        let codec = SumCodec::new(&fields, modulus_bits, max_cohort)?;
        Ok(Self { kind, codec })
    }

    /// The encoding of a contribution as words.
    #[must_use]
    pub fn codec(&self) -> &SumCodec {
        &self.codec
    }

    /// Number of rounds until the result; the task must have exactly as many.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        with_procedure!(&self.kind, procedure => procedure.rounds())
    }

    /// Whether this evaluates a model.
    #[must_use]
    pub fn is_evaluation(&self) -> bool {
        matches!(self.kind, Kind::Evaluation(_))
    }

    /// The state before the first round; of an evaluation without the model ([`EvaluationState::of_model`]).
    #[must_use]
    pub fn initial(&self) -> AnalyticsState {
        match &self.kind {
            Kind::Statistics(procedure) => AnalyticsState::Statistics(procedure.initial()),
            Kind::KMeans(procedure) => AnalyticsState::KMeans(procedure.initial()),
            Kind::Trees(procedure) => AnalyticsState::Trees(procedure.initial()),
            Kind::Regression(procedure) => AnalyticsState::Regression(procedure.initial()),
            Kind::Survival(procedure) => AnalyticsState::Survival(procedure.initial()),
            Kind::Cox(procedure) => AnalyticsState::Cox(procedure.initial()),
            Kind::Contingency(procedure) => AnalyticsState::Contingency(procedure.initial()),
            Kind::Evaluation(procedure) => AnalyticsState::Evaluation(procedure.initial()),
        }
    }

    /// Reads a published state.
    ///
    /// # Errors
    /// [`AnalyticsError::State`], in particular for more than [`MAX_STATE_BYTES`] bytes.
    pub fn read(&self, bytes: &[u8]) -> Result<AnalyticsState, AnalyticsError> {
        if bytes.len() > MAX_STATE_BYTES {
            let problem = format!("{} bytes; at most {MAX_STATE_BYTES} are possible", bytes.len());
            return Err(AnalyticsError::State(problem));
        }
        let state = serde_json::from_slice(bytes).map_err(|error| AnalyticsError::State(error.to_string()))?;
        with_state!(&self.kind, &state, (procedure, own, _wrap) => procedure.check(own))?;
        Ok(state)
    }

    /// As [`Self::read`], but accepts only the exact bytes of [`AnalyticsState::to_bytes`], so that a state has one
    /// digest.
    ///
    /// # Errors
    /// [`AnalyticsError::State`].
    pub fn read_published(&self, bytes: &[u8]) -> Result<AnalyticsState, AnalyticsError> {
        let state = self.read(bytes)?;
        if state.to_bytes()? == bytes {
            Ok(state)
        } else {
            Err(AnalyticsError::State("it is not in the one form that a published state has".to_owned()))
        }
    }

    /// A participant's contribution, to be encoded with [`Self::codec`] and sent like any update.
    ///
    /// # Errors
    /// An unsuitable table, which concerns only the participant; [`AnalyticsError::Done`]; [`AnalyticsError::State`].
    pub fn contribution(&self, state: &AnalyticsState, table: &Table) -> Result<Vec<i64>, AnalyticsError> {
        let mut values = vec![0; self.codec.values()];
        with_state!(&self.kind, state, (procedure, own, _wrap) => {
            procedure.check(own)?;
            self.not_done(procedure.done(own))?;
            procedure.contribution(own, table, &mut values)
        })?;
        Ok(values)
    }

    /// The next state, given the released sum of all contributions. Pure: every replica gets the same bytes.
    ///
    /// # Errors
    /// [`AnalyticsError::Sum`] if honest participants cannot have produced the sum; [`AnalyticsError::Done`];
    /// [`AnalyticsError::State`].
    pub fn advance(&self, state: &AnalyticsState, sum: &NoisedSum) -> Result<Advanced<AnalyticsState>, AnalyticsError> {
        let values = self.codec.decode(sum)?;
        with_state!(&self.kind, state, (procedure, own, wrap) => {
            procedure.check(own)?;
            self.not_done(procedure.done(own))?;
            let Advanced { state, metrics } = procedure.advance(own, &values, sum.participants())?;
            Ok(Advanced { state: wrap(state), metrics })
        })
    }

    /// The private form of contributions to this state.
    ///
    /// # Errors
    /// [`AnalyticsError::NotPrivate`]; [`AnalyticsError::State`].
    pub fn private_form(&self, state: &AnalyticsState) -> Result<PrivateForm, AnalyticsError> {
        with_state!(&self.kind, state, (procedure, own, _wrap) => {
            procedure.check(own)?;
            let parts = procedure.private_parts(own);
            parts.map(|parts| PrivateForm::new(&parts)).ok_or(AnalyticsError::NotPrivate)
        })
    }

    /// As [`Self::advance`], from the noised sum of private forms. Estimates that no participants can have are moved to the nearest that
    /// they can.
    ///
    /// # Errors
    /// [`AnalyticsError::NotPrivate`]; [`AnalyticsError::Done`]; [`AnalyticsError::State`]; [`AnalyticsError::Shape`].
    pub fn advance_noised(
        &self,
        state: &AnalyticsState,
        sum: &NoisedForms<'_>,
    ) -> Result<Advanced<AnalyticsState>, AnalyticsError> {
        let (mut values, noise) = self.private_form(state)?.decode(sum)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cohort")]
        let cohort = sum.cohort.round() as u32;
        self.codec.clamp(&mut values, cohort);
        with_state!(&self.kind, state, (procedure, own, wrap) => {
            self.not_done(procedure.done(own))?;
            procedure.repair(own, &mut values, &noise);
            let Advanced { state, metrics } = procedure.advance_noised(own, &values, cohort, &noise)?;
            Ok(Advanced { state: wrap(state), metrics })
        })
    }

    fn not_done(&self, done: u32) -> Result<(), AnalyticsError> {
        let rounds = self.rounds();
        if done >= rounds { Err(AnalyticsError::Done(rounds)) } else { Ok(()) }
    }
}

impl AnalyticsState {
    /// The published form: JSON that preserves every bit of every number.
    ///
    /// # Errors
    /// [`AnalyticsError::State`] if the state cannot be serialized or is too large to be read back.
    pub fn to_bytes(&self) -> Result<Vec<u8>, AnalyticsError> {
        let bytes = serde_json::to_vec(self).map_err(|error| AnalyticsError::State(error.to_string()))?;
        if bytes.len() > MAX_STATE_BYTES {
            let problem = format!("{} bytes; at most {MAX_STATE_BYTES} are possible", bytes.len());
            return Err(AnalyticsError::State(problem));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
