//! A table in the form of a task: numbers, row by row, and a label for each.

mod cell;
mod report;

use client_sdk::models::{Architecture, Loss};
use client_sdk::{Dataset, Elements, Targets, TrainingJob};
use learning::{AnalyticsError, AnalyticsSpec, Table};
use serde_json::Value;
use task_spec::{Analytics, EmptyCell, TableColumn, TableSpec, TaskSpec};

use self::cell::{Form, Taken, Unusable};
use super::error::TableError;
use super::listed::listed;
use super::table::{Column, TableFile};

pub(crate) use self::report::{ColumnReport, Report};

/// What a task takes of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(super) table: TableSpec,
    pub(super) analysis: Option<AnalyticsSpec>,
    pub(super) architecture: Option<Value>,
}

/// The rows of a table as a task takes them.
#[derive(Debug)]
pub(crate) struct Fitted {
    values: Vec<f64>,
    width: usize,
    /// Of each row, if the task names a label: the number of its class, or a number.
    labels: Vec<f64>,
    /// Whether the model predicts a number for each row, not a class.
    predicts_number: bool,
}

impl Wanted {
    fn new(table: TableSpec, analytics: Option<&Analytics>, architecture: Option<Value>) -> Self {
        // The coordinator and the SDK reject an analysis that they cannot read.
        let analysis = analytics.and_then(|analytics| AnalyticsSpec::read(analytics).ok());
        Self { table, analysis, architecture }
    }

    /// What a job takes; `None` if it does not name columns.
    pub(super) fn of_job(job: &TrainingJob) -> Option<Self> {
        Some(Self::new(job.table.clone()?, job.analytics.as_ref(), job.architecture.clone()))
    }

    /// What a task takes; `None` if it does not name columns.
    pub(crate) fn of_task(spec: &TaskSpec) -> Option<Self> {
        Some(Self::new(spec.model.table.clone()?, spec.analytics.as_ref(), spec.model.architecture.clone()))
    }

    pub(super) fn is_analysis(&self) -> bool {
        self.analysis.is_some()
    }

    /// The loss of a graph that predicts numbers.
    fn loss(&self) -> Option<Loss> {
        let architecture = serde_json::from_value(self.architecture.clone()?).ok()?;
        match architecture {
            Architecture::Graph(graph) if graph.classes().is_none() => Some(graph.loss().clone()),
            _ => None,
        }
    }

    /// Length of the range of a label that is scaled.
    pub(crate) fn label_scale(&self) -> Option<f64> {
        let label = self.table.label.as_ref().filter(|_| !self.is_analysis())?;
        label.range().map(|(low, high)| high - low)
    }

    /// Checks the rows against the analysis, if the task is one.
    ///
    /// # Errors
    /// Those of [`AnalyticsSpec::check`]; there are more rows or columns than an analysis takes.
    pub(crate) fn accepts(&self, fitted: Fitted) -> Result<(), AnalyticsError> {
        match &self.analysis {
            Some(analysis) => fitted.table().and_then(|table| analysis.check(&table)),
            None => Ok(()),
        }
    }

    /// The forms of the features, in their order.
    fn forms(&self) -> Vec<Form> {
        let features = self.table.features.len();
        match &self.analysis {
            Some(analysis) if analysis.plain_columns() == Some(features) => {
                (0..features).map(|column| Form::Plain { counts_empty: analysis.counts_missing(column) }).collect()
            }
            Some(_) | None => vec![Form::Inputs; features],
        }
    }
}

impl TableFile {
    /// Takes the columns that a task names, in its order. Rows with a cell that cannot be used are left out; the report says why.
    pub(crate) fn fit(&self, wanted: &Wanted) -> (Fitted, Report) {
        let table = &wanted.table;
        let (rows, may_skip) = (self.rows + self.unusable_lines(), table.skip_rows_up_to);
        let mut report = Report { path: self.path.clone(), rows, may_skip, ..Report::default() };
        let (mut columns, mut forms) = (Vec::new(), wanted.forms());
        let loss = wanted.loss();
        forms.push(Form::Label { is_count: matches!(loss, Some(Loss::Poisson)) });
        for (wanted, form) in table.features.iter().chain(&table.label).zip(forms) {
            let is_label = matches!(form, Form::Label { .. });
            match self.column(wanted) {
                // The coordinator accepted the rule.
                Ok(column) => {
                    let empty = wanted.empty_cell().unwrap_or(EmptyCell::Refused);
                    columns.push(Taken { wanted, column, form, empty });
                    report.columns.push(ColumnReport::new(wanted, is_label));
                }
                Err(problem) => report.add(problem),
            }
        }
        let width = wanted.forms().into_iter().zip(&table.features).map(|(form, feature)| match form {
            Form::Inputs => feature.width(),
            Form::Plain { .. } | Form::Label { .. } => 1,
        });
        let mut fitted =
            Fitted { values: Vec::new(), width: width.sum(), labels: Vec::new(), predicts_number: loss.is_some() };
        self.take_rows(&columns, &mut fitted, &mut report);
        if columns.len() < table.features.len() + usize::from(table.label.is_some()) {
            // What the other columns have is reported, and nothing is learned.
            (report.used, report.skipped) = (0, report.rows);
            fitted = Fitted { values: Vec::new(), labels: Vec::new(), ..fitted };
        }
        (fitted, report)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes count from 0")]
    fn take_rows(&self, columns: &[Taken<'_>], fitted: &mut Fitted, report: &mut Report) {
        let mut faults = self.faults.iter().peekable();
        let mut numbers = Vec::with_capacity(fitted.width + 1);
        let has_label = columns.last().is_some_and(|last| matches!(last.form, Form::Label { .. }));
        for row in 0..self.rows {
            let (path, place) = self.place(row);
            while let Some(fault) = faults.next_if(|fault| fault.place().0 < Some(place)) {
                report.skipped += usize::from(fault.is_of_row());
                report.add(fault.clone());
            }
            numbers.clear();
            let mut is_good = true;
            for (at, taken) in columns.iter().enumerate() {
                let Err(why) = taken.push(row, &mut report.columns[at], &mut numbers) else { continue };
                is_good = false;
                let (path, column) = (path.to_owned(), taken.wanted.column.clone());
                report.add(match why {
                    Unusable::NotUtf8 => TableError::NotUtf8 { path, place, column },
                    Unusable::Wrong(found, expected) => TableError::Cell { path, place, column, found, expected },
                });
            }
            if !is_good {
                report.skipped += 1;
                continue;
            }
            report.used += 1;
            if has_label && let Some(label) = numbers.pop() {
                if let (Some(taken), Some(seen)) = (columns.last(), report.columns.last_mut()) {
                    taken.wanted.one_of.get(label as usize).into_iter().for_each(|word| seen.see_word(word));
                }
                fitted.labels.push(label);
            }
            fitted.values.extend_from_slice(&numbers);
        }
        for fault in faults {
            report.skipped += usize::from(fault.is_of_row());
            report.add(fault.clone());
        }
        report.skipped += self.more_faults;
        report.count += self.more_faults;
    }

    /// Number of lines that are not rows, and which a task may allow to be left out.
    fn unusable_lines(&self) -> usize {
        self.faults.iter().filter(|fault| fault.is_of_row()).count() + self.more_faults
    }

    /// The rows, if the task accepts what was left out.
    ///
    /// # Errors
    /// The first problem, if the task does not allow so many rows to be left out.
    pub(crate) fn fitted(&self, wanted: &Wanted) -> Result<(Fitted, Report), TableError> {
        let (fitted, report) = self.fit(wanted);
        match report.verdict() {
            None => Ok((fitted, report)),
            Some(error) => Err(error),
        }
    }

    fn column(&self, wanted: &TableColumn) -> Result<&Column, TableError> {
        let (path, column) = (|| self.path.clone(), || wanted.column.clone());
        let mut found = self.columns.iter().filter(|(name, _)| *name == wanted.column).map(|(_, cells)| cells);
        match (found.next(), found.next()) {
            (Some(Ok(cells)), None) => Ok(cells),
            (Some(Err(why)), None) => Err(TableError::Unreadable { path: path(), column: column(), why: why.clone() }),
            (Some(_), Some(_)) => Err(TableError::SameName { path: path(), name: column() }),
            (None, _) => Err(TableError::Missing { path: path(), column: column(), found: listed(&self.names()) }),
        }
    }
}

impl Fitted {
    pub(crate) fn rows(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// The rows at these positions, for a model.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant, and classes are few")]
    #[expect(clippy::cast_sign_loss, reason = "classes count from 0")]
    pub(crate) fn dataset(&self, rows: &[usize]) -> Dataset {
        let of_row = |row: &usize| &self.values[row * self.width..(row + 1) * self.width];
        let features: Vec<f32> = rows.iter().flat_map(of_row).map(|&value| value as f32).collect();
        let labels = rows.iter().map(|&row| self.labels[row]);
        if self.predicts_number {
            let targets = Targets::Numbers(labels.map(|label| label as f32).collect());
            return Dataset::Tensors { inputs: vec![Elements::F32(features)], targets, count: rows.len(), length: 1 };
        }
        Dataset::Labelled { features, labels: labels.map(|class| class as u32).collect(), width: self.width }
    }

    /// For an analysis: rows, and the values to predict, if any.
    ///
    /// # Errors
    /// There are more columns or rows than an analysis takes.
    pub(super) fn table(self) -> Result<Table, AnalyticsError> {
        let table = Table::with_holes(self.width, self.values)?;
        if self.labels.is_empty() { Ok(table) } else { table.with_targets(self.labels) }
    }
}
