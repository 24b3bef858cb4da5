//! Evaluates a given model on everybody's examples, without training: accuracy, calibration, AUC and their like over all
//! rows, and how the figure of a single site varies among sites.
//!
//! The state before the round holds the model. A device predicts each of its examples, and counts: classes that are
//! confused, and rows in bins of predicted probability or of error. Everything published follows from the sums of these
//! counts, so a federation gets the figures of one table with all rows, as finely as the bins. A site's own figure
//! enters as one of 100 bins.

mod bins;
mod classes;
mod numbers;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

pub use bins::BinnedQuantile;
pub use classes::{CalibrationGroup, ClassFigures, ClassesFigures};
pub use numbers::NumberFigures;

use super::error::{AnalyticsError, counts, require, sound};
use super::private::{Part, floor};
use super::procedure::{Advanced, MAX_STATE_BYTES, Procedure};
use super::sum_codec::Field;
use super::table::{Table, check_rows};
use super::trees::TargetSpec;
use bins::{SITE_BINS, quantiles};
use classes::Classes;
use numbers::Numbers;

/// Largest model that an evaluation can carry, in bytes of its safetensors file.
pub const MAX_EVALUATED_BYTES: u64 = (MAX_STATE_BYTES as u64 - 4096) / 4 * 3;
/// Maximum number of bins of an evaluation.
pub const MAX_EVALUATION_BINS: u32 = 1000;

/// An evaluation of the task's model. A row of a participant's table is the model's prediction: the probability of each
/// class, or one number. The target is the true class or number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationSpec {
    /// Cap on the examples a participant contributes; of more, evenly spaced ones are used.
    pub max_rows: u32,
    /// What the model predicts. By default the coordinator derives it from the label of `model.table` or the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// Which examples of a participant count.
    #[serde(default)]
    pub examples: EvaluatedExamples,
    /// Bins of probabilities or errors, 2 to 1000. More of them bound AUC and quantiles more tightly, and make contributions longer.
    #[serde(default = "hundred")]
    pub bins: u32,
    /// Figures of fewer rows or sites than this are not published.
    #[serde(default = "five")]
    pub min_count: u32,
}

/// Which examples of a participant an evaluation counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluatedExamples {
    /// All of them: for a model that was not trained on them.
    #[default]
    All,
    /// Those that a participant keeps out of training.
    HeldOut,
}

fn hundred() -> u32 {
    100
}

fn five() -> u32 {
    5
}

/// The model before the round, and the figures after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationState {
    /// Number of completed rounds.
    pub round: u32,
    /// Before the round, the model as a safetensors file in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Number of rows that counted.
    pub rows: u64,
    /// Number of sites; in a private task the expected one.
    pub participants: u32,
    /// In a private task: standard deviation of the noise in the number of rows, and in each number of confused rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_noise: Option<f64>,
    /// The figures, unless there are fewer rows than `min_count`.
    pub figures: Option<EvaluationFigures>,
    /// Quartiles over sites of each site's accuracy or root mean squared error. Empty for fewer sites than
    /// `min_count`, and in a private task.
    pub sites: Vec<BinnedQuantile>,
    /// What is not published, and why.
    pub problem: Option<String>,
}

/// What the model predicts, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationFigures {
    /// Of a model of classes.
    Classes(ClassesFigures),
    /// Of a model of numbers.
    Number(NumberFigures),
}

/// The procedure of a validated specification.
#[derive(Clone, Debug)]
pub(super) struct Evaluation {
    spec: EvaluationSpec,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Classes(Classes),
    Number(Numbers),
}

impl EvaluationSpec {
    fn kind(&self) -> Result<Kind, AnalyticsError> {
        match self.target {
            Some(TargetSpec::Class { classes }) => Classes::new(classes, self.bins).map(Kind::Classes),
            Some(TargetSpec::Real { low, high }) => Numbers::new(low, high, self.bins).map(Kind::Number),
            None => Err(AnalyticsError::spec(
                "target",
                "must say what the model predicts: { type = \"class\", classes = N } or { type = \"real\", low = …, high = … }",
            )),
        }
    }

    /// Rejects rows that are not predictions of the model's kind.
    pub(super) fn check_table(&self, table: &Table) -> Result<(), AnalyticsError> {
        match self.kind()? {
            Kind::Classes(classes) => classes.check_table(table),
            Kind::Number(numbers) => numbers.check_table(table),
        }
    }

    /// Number of values in a prediction.
    pub(super) fn width(&self) -> usize {
        match self.target {
            Some(TargetSpec::Class { classes }) => classes as usize,
            Some(TargetSpec::Real { .. }) | None => 1,
        }
    }
}

impl Evaluation {
    pub(super) fn new(spec: EvaluationSpec) -> Result<Self, AnalyticsError> {
        check_rows(spec.max_rows)?;
        require((2..=MAX_EVALUATION_BINS).contains(&spec.bins), "bins", || {
            format!("are {}; 2 to {MAX_EVALUATION_BINS} are possible", spec.bins)
        })?;
        require(spec.min_count > 0, "min_count", || "is 0; it must be at least 1".to_owned())?;
        Ok(Self { kind: spec.kind()?, spec })
    }

    /// Number of values before those of sites.
    fn of_rows(&self) -> usize {
        self.fields().iter().map(|field| field.len).sum::<usize>() - SITE_BINS
    }

    fn next(&self, state: &EvaluationState, sum: &[i64], participants: u32) -> Result<EvaluationState, AnalyticsError> {
        let rows = counts(&sum[..1])?[0];
        let (of_rows, of_sites) = sum.split_at(self.of_rows());
        let least = u64::from(self.spec.min_count);
        let mut problem = None;
        let mut note = |text: String| problem.get_or_insert_with(String::new).push_str(&text);
        let figures = if rows < least.max(1) {
            note(format!("fewer than {} rows (min_count): no figures are published", least.max(1)));
            None
        } else {
            Some(match &self.kind {
                Kind::Classes(classes) => {
                    let (figures, problem) = classes.figures(rows, of_rows, least)?;
                    problem.into_iter().for_each(&mut note);
                    EvaluationFigures::Classes(figures)
                }
                Kind::Number(numbers) => EvaluationFigures::Number(numbers.figures(rows, of_rows, least)?),
            })
        };
        let sites = match u64::from(participants) >= least {
            true => quantiles(&counts(of_sites)?, &[0.25, 0.5, 0.75], |edge| match &self.kind {
                Kind::Classes(_) => edge,
                Kind::Number(numbers) => numbers.error_at(edge),
            }),
            false => Vec::new(),
        };
        let model = None;
        Ok(EvaluationState { round: 1, model, rows, participants, figures, sites, problem, ..state.clone() })
    }
}

impl EvaluationState {
    /// The state before the round, with a model's safetensors file.
    ///
    /// # Errors
    /// [`AnalyticsError::State`] for a file of more than [`MAX_EVALUATED_BYTES`].
    pub fn of_model(file: &[u8]) -> Result<Self, AnalyticsError> {
        let bytes = file.len() as u64;
        sound(bytes <= MAX_EVALUATED_BYTES, "its model is too large")?;
        Ok(Self { model: Some(STANDARD.encode(file)), ..Self::empty() })
    }

    /// The model's safetensors file.
    ///
    /// # Errors
    /// [`AnalyticsError::State`]: there is none, or it is not in base64.
    pub fn model_file(&self) -> Result<Vec<u8>, AnalyticsError> {
        let text = self.model.as_ref().ok_or_else(|| AnalyticsError::state("it has no model"))?;
        STANDARD.decode(text).map_err(|error| AnalyticsError::state(format!("its model is not in base64: {error}")))
    }

    fn empty() -> Self {
        Self {
            round: 0,
            model: None,
            rows: 0,
            participants: 0,
            count_noise: None,
            figures: None,
            sites: Vec::new(),
            problem: None,
        }
    }
}

impl Procedure for Evaluation {
    type State = EvaluationState;

    fn fields(&self) -> Vec<Field> {
        let rows = u64::from(self.spec.max_rows);
        let mut fields = vec![Field { len: 1, bound: rows }];
        match &self.kind {
            Kind::Classes(classes) => fields.extend(classes.fields(rows)),
            Kind::Number(numbers) => fields.extend(numbers.fields(rows)),
        }
        fields.push(Field { len: SITE_BINS, bound: 1 });
        fields
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn done(&self, state: &EvaluationState) -> u32 {
        state.round
    }

    /// Without a model, which only the task has.
    fn initial(&self) -> EvaluationState {
        EvaluationState::empty()
    }

    fn check(&self, state: &EvaluationState) -> Result<(), AnalyticsError> {
        sound(state.round <= 1, "it is past the last round")?;
        let is_finite = match (&state.figures, &self.kind) {
            (None, _) => true,
            (Some(EvaluationFigures::Classes(figures)), Kind::Classes(classes)) => classes.is_sound(figures),
            (Some(EvaluationFigures::Number(figures)), Kind::Number(_)) => figures.is_sound(),
            (Some(EvaluationFigures::Classes(_)), Kind::Number(_))
            | (Some(EvaluationFigures::Number(_)), Kind::Classes(_)) => false,
        };
        sound(is_finite && state.sites.iter().all(BinnedQuantile::is_sound), "its figures are not those of the task")
    }

    fn private_parts(&self, _state: &EvaluationState) -> Option<Vec<Part>> {
        let rows = f64::from(self.spec.max_rows);
        let mut parts = vec![Part::new(1, rows, 1.0)];
        match &self.kind {
            Kind::Classes(classes) => parts.extend(classes.private_parts(rows)),
            Kind::Number(numbers) => parts.extend(numbers.private_parts(rows)),
        }
        parts.push(Part::new(SITE_BINS, 1.0, 1.0));
        Some(parts)
    }

    fn repair(&self, _state: &EvaluationState, sum: &mut [i64], _noise: &[f64]) {
        match &self.kind {
            Kind::Classes(_) => floor(sum),
            Kind::Number(numbers) => numbers.repair(sum),
        }
    }

    fn contribution(&self, _state: &EvaluationState, table: &Table, out: &mut [i64]) -> Result<(), AnalyticsError> {
        self.spec.check_table(table)?;
        let chosen: Vec<usize> = table.counted(self.spec.max_rows).collect();
        let (of_rows, of_sites) = out.split_at_mut(self.of_rows());
        #[expect(clippy::cast_possible_wrap, reason = "at most 2^24")]
        let rows = chosen.len() as i64;
        of_rows[0] = rows;
        let place = match &self.kind {
            Kind::Classes(classes) => classes.count(table, &chosen, &mut of_rows[1..]),
            Kind::Number(numbers) => numbers.count(table, &chosen, &mut of_rows[1..]),
        };
        of_sites[place] = 1;
        Ok(())
    }

    fn advance(
        &self,
        state: &EvaluationState,
        sum: &[i64],
        participants: u32,
    ) -> Result<Advanced<EvaluationState>, AnalyticsError> {
        let state = self.next(state, sum, participants)?;
        let metrics = match &state.figures {
            Some(EvaluationFigures::Classes(figures)) => figures.metrics(state.rows),
            Some(EvaluationFigures::Number(figures)) => figures.metrics(state.rows),
            None => Vec::new(),
        };
        Ok(Advanced { state, metrics })
    }

    fn advance_noised(
        &self,
        state: &EvaluationState,
        sum: &[i64],
        participants: u32,
        noise: &[f64],
    ) -> Result<Advanced<EvaluationState>, AnalyticsError> {
        let mut next = self.advance(state, sum, participants)?;
        next.state.count_noise = noise.first().copied();
        // The bins bound what a site or a row has, and noise does not keep to them.
        next.state.sites = Vec::new();
        if let Some(EvaluationFigures::Classes(figures)) = &mut next.state.figures {
            figures.classes.iter_mut().for_each(|class| class.auc_error = None);
        }
        Ok(next)
    }
}
