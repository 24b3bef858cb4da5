//! What a task keeps of a table's rows.

use std::path::Path;

use client_sdk::{Dataset, Elements, Targets};
use learning::{AnalyticsError, AnalyticsSpec, Table};

use crate::table_file::error::TableError;

/// Rows that are checked at once against an analysis.
const CHECKED: usize = 4096;

/// What to keep of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The rows, in 32 bits.
    ForModel,
    /// The rows, in 64 bits.
    ForAnalysis,
    /// Whether the analysis accepts the rows, if the task is one.
    Nothing,
}

/// The rows of a table as a task takes them.
#[derive(Debug)]
pub(crate) struct Fitted {
    kept: Kept,
    width: usize,
    /// Whether the model predicts a number for each row, not a class.
    predicts_number: bool,
    /// Most numbers that are kept.
    most: usize,
}

#[derive(Debug)]
enum Kept {
    ForModel(Rows<f32>),
    ForAnalysis(Rows<f64>),
    Nothing(Option<Box<Check>>),
}

/// Numbers, row by row, and a label for each row if the task names one: the number of its class, or a number.
#[derive(Debug)]
struct Rows<T> {
    values: Vec<T>,
    labels: Vec<T>,
}

/// The rows since the latest check against an analysis.
#[derive(Debug)]
struct Check {
    analysis: AnalyticsSpec,
    rows: Rows<f64>,
    /// Number of rows that were checked before these.
    checked: usize,
    failed: Option<AnalyticsError>,
}

impl<T: Copy> Rows<T> {
    fn new() -> Self {
        Self { values: Vec::new(), labels: Vec::new() }
    }

    /// The rows at these positions.
    fn at(&self, rows: &[usize], width: usize) -> Self {
        let values = rows.iter().flat_map(|row| &self.values[row * width..(row + 1) * width]).copied().collect();
        Self { values, labels: rows.iter().map(|row| self.labels[*row]).collect() }
    }

    /// Keeps the rows at these positions, which ascend.
    fn retain(&mut self, rows: &[usize], width: usize) {
        for (to, &from) in rows.iter().enumerate() {
            self.values.copy_within(from * width..(from + 1) * width, to * width);
            self.labels[to] = self.labels[from];
        }
        self.values.truncate(rows.len() * width);
        self.labels.truncate(rows.len());
        self.values.shrink_to_fit();
    }
}

impl Rows<f32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes are few and count from 0")]
    fn dataset(self, width: usize, predicts_number: bool) -> Dataset {
        let Self { values, labels } = self;
        if predicts_number {
            let (count, targets) = (labels.len(), Targets::Numbers(labels));
            return Dataset::Tensors { inputs: vec![Elements::F32(values)], targets, count, length: 1 };
        }
        Dataset::Labelled { features: values, labels: labels.into_iter().map(|class| class as u32).collect(), width }
    }
}

impl Rows<f64> {
    /// The table of an analysis, with the values to predict, if any.
    fn table(self, width: usize) -> Result<Table, AnalyticsError> {
        let table = Table::with_holes(width, self.values)?;
        if self.labels.is_empty() { Ok(table) } else { table.with_targets(self.labels) }
    }
}

impl Check {
    /// Checks the rows since the latest check.
    fn check(&mut self, width: usize) {
        let rows = std::mem::replace(&mut self.rows, Rows::new());
        let count = rows.values.len() / width.max(1);
        if self.failed.is_none() {
            let checked = rows.table(width).and_then(|table| self.analysis.check(&table));
            self.failed = checked.err().map(|error| error.below(self.checked));
        }
        self.checked += count;
    }
}

impl Fitted {
    pub(super) fn new(
        keep: Keep,
        analysis: Option<&AnalyticsSpec>,
        width: usize,
        predicts_number: bool,
        most: usize,
    ) -> Self {
        let check = |analysis: &AnalyticsSpec| {
            Box::new(Check { analysis: analysis.clone(), rows: Rows::new(), checked: 0, failed: None })
        };
        let kept = match keep {
            Keep::ForModel => Kept::ForModel(Rows::new()),
            Keep::ForAnalysis => Kept::ForAnalysis(Rows::new()),
            Keep::Nothing => Kept::Nothing(analysis.map(check)),
        };
        Self { kept, width, predicts_number, most }
    }

    /// Adds the numbers of a row and its label.
    ///
    /// # Errors
    /// [`TableError::TooManyKept`].
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    pub(super) fn push(&mut self, path: &Path, values: &[f64], label: Option<f64>) -> Result<(), TableError> {
        let (width, most) = (self.width + usize::from(label.is_some()), self.most);
        let kept = match &mut self.kept {
            Kept::ForModel(rows) => {
                rows.values.extend(values.iter().map(|&value| value as f32));
                rows.labels.extend(label.map(|label| label as f32));
                rows.values.len() + rows.labels.len()
            }
            Kept::ForAnalysis(rows) => {
                rows.values.extend_from_slice(values);
                rows.labels.extend(label);
                rows.values.len() + rows.labels.len()
            }
            Kept::Nothing(None) => 0,
            Kept::Nothing(Some(check)) => {
                check.rows.values.extend_from_slice(values);
                check.rows.labels.extend(label);
                if check.rows.values.len() >= CHECKED * self.width {
                    check.check(self.width);
                }
                0
            }
        };
        if kept <= most {
            return Ok(());
        }
        Err(TableError::TooManyKept { path: path.into(), width, rows: most / width.max(1), most })
    }

    pub(super) fn clear(&mut self) {
        match &mut self.kept {
            Kept::ForModel(rows) => *rows = Rows::new(),
            Kept::ForAnalysis(rows) => *rows = Rows::new(),
            Kept::Nothing(_) => {}
        }
    }

    /// Number of rows that are kept.
    pub(crate) fn rows(&self) -> usize {
        let values = match &self.kept {
            Kept::ForModel(rows) => rows.values.len(),
            Kept::ForAnalysis(rows) => rows.values.len(),
            Kept::Nothing(_) => 0,
        };
        values / self.width.max(1)
    }

    /// All rows, for a model.
    pub(crate) fn dataset(self) -> Dataset {
        let (width, predicts_number) = (self.width, self.predicts_number);
        self.into_model().dataset(width, predicts_number)
    }

    /// The rows at the positions of two lists, for a model. The positions ascend.
    pub(crate) fn datasets(self, some: &[usize], others: &[usize]) -> (Dataset, Dataset) {
        let (width, predicts_number) = (self.width, self.predicts_number);
        let mut rows = self.into_model();
        let others = rows.at(others, width);
        // In place: there may be no memory for a copy.
        rows.retain(some, width);
        (rows.dataset(width, predicts_number), others.dataset(width, predicts_number))
    }

    fn into_model(self) -> Rows<f32> {
        match self.kept {
            Kept::ForModel(rows) => rows,
            Kept::ForAnalysis(_) | Kept::Nothing(_) => Rows::new(),
        }
    }

    /// For an analysis: rows, and the values to predict, if any.
    ///
    /// # Errors
    /// There are more columns or rows than an analysis takes.
    pub(crate) fn table(self) -> Result<Table, AnalyticsError> {
        match self.kept {
            Kept::ForAnalysis(rows) => rows.table(self.width),
            Kept::ForModel(_) | Kept::Nothing(_) => Rows::new().table(self.width),
        }
    }

    /// Whether the analysis, if the task is one, accepts the rows that are not kept.
    ///
    /// # Errors
    /// Those of [`AnalyticsSpec::check`]; there are more rows or columns than an analysis takes.
    pub(crate) fn accepted(self) -> Result<(), AnalyticsError> {
        let Kept::Nothing(Some(mut check)) = self.kept else { return Ok(()) };
        if check.checked == 0 || !check.rows.values.is_empty() {
            check.check(self.width);
        }
        check.failed.map_or(Ok(()), Err)
    }
}
