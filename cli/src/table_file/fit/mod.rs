//! A table in the form of a task: numbers, row by row, and a label for each.

mod cell;
mod fitted;
mod report;

use std::path::Path;

use client_sdk::TrainingJob;
use client_sdk::models::{Architecture, Loss};
use learning::AnalyticsSpec;
use serde_json::Value;
use task_spec::{Analytics, EmptyCell, TableSpec, TaskSpec};

use self::cell::{Form, Taken, Unusable};
pub(crate) use self::fitted::{Fitted, Keep};
pub(crate) use self::report::{ColumnReport, Report};
use super::cells::{Cell, ColumnName, RowSink, names};
use super::error::{Place, TableError};
use super::listed::listed;

/// What a task takes of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(super) table: TableSpec,
    /// Of rows, not of a model.
    pub(super) analysis: Option<AnalyticsSpec>,
    pub(super) architecture: Option<Value>,
}

impl Wanted {
    fn new(table: TableSpec, analytics: Option<&Analytics>, architecture: Option<Value>) -> Self {
        // The coordinator and the SDK reject an analysis that they cannot read. An evaluation takes what its model does.
        let analysis = analytics.and_then(|analytics| AnalyticsSpec::read(analytics).ok());
        let analysis = analysis.filter(|analysis| !analysis.is_evaluation());
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

    /// What this task keeps of a table.
    pub(super) fn keep(&self) -> Keep {
        if self.is_analysis() { Keep::ForAnalysis } else { Keep::ForModel }
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

/// Takes the columns that a task names, while the table is read.
pub(super) struct Fitting<'a> {
    path: &'a Path,
    wanted: &'a Wanted,
    forms: Vec<Form>,
    taken: Vec<Taken<'a>>,
    has_label: bool,
    /// Whether all columns of the task can be read. Otherwise no row is of use.
    is_whole: bool,
    fitted: Fitted,
    report: Report,
    /// The numbers of a row.
    numbers: Vec<f64>,
}

impl<'a> Fitting<'a> {
    /// Keeps at most `most` numbers.
    pub(super) fn new(wanted: &'a Wanted, keep: Keep, path: &'a Path, most: usize) -> Self {
        let (mut forms, loss) = (wanted.forms(), wanted.loss());
        let width = forms.iter().zip(&wanted.table.features).map(|(form, feature)| match form {
            Form::Inputs => feature.width(),
            Form::Plain { .. } | Form::Label { .. } => 1,
        });
        let width = width.sum();
        forms.push(Form::Label { is_count: matches!(loss, Some(Loss::Poisson)) });
        let fitted = Fitted::new(keep, wanted.analysis.as_ref(), width, loss.is_some(), most);
        let report = Report { path: path.into(), may_skip: wanted.table.skip_rows_up_to, ..Report::default() };
        let numbers = Vec::with_capacity(width + 1);
        Self { path, wanted, forms, taken: Vec::new(), has_label: false, is_whole: true, fitted, report, numbers }
    }

    /// The rows, and what became of the table. If a column cannot be read, what the others have is reported, and no row is used.
    pub(super) fn end(mut self) -> (Fitted, Report) {
        if !self.is_whole {
            (self.report.used, self.report.skipped) = (0, self.report.rows);
            self.fitted.clear();
        }
        self.taken.iter().zip(&mut self.report.columns).for_each(|(taken, report)| taken.count_words(report));
        (self.fitted, self.report)
    }

    /// The position of a column of the task.
    fn find(&self, columns: &[ColumnName], name: &str) -> Result<usize, TableError> {
        let (path, column) = (self.path.to_owned(), name.to_owned());
        let mut found = columns.iter().enumerate().filter(|(_, (own, _))| own == name);
        match (found.next(), found.next()) {
            (Some((at, (_, Ok(())))), None) => Ok(at),
            (Some((_, (_, Err(why)))), None) => Err(TableError::Unreadable { path, column, why: why.clone() }),
            (Some(_), Some(_)) => Err(TableError::SameName { path, name: column }),
            (None, _) => Err(TableError::Missing { path, column, found: listed(&names(columns)) }),
        }
    }
}

impl RowSink for Fitting<'_> {
    fn select(&mut self, columns: &[ColumnName]) -> Vec<usize> {
        let mut selected = Vec::new();
        let table = &self.wanted.table;
        for (wanted, &form) in table.features.iter().chain(&table.label).zip(&self.forms) {
            match self.find(columns, &wanted.column) {
                Ok(at) => {
                    selected.push(at);
                    // The coordinator accepted the rule.
                    let empty = wanted.empty_cell().unwrap_or(EmptyCell::Refused);
                    self.taken.push(Taken::new(wanted, form, empty));
                    self.has_label = matches!(form, Form::Label { .. });
                    self.report.columns.push(ColumnReport::new(wanted, self.has_label));
                }
                Err(problem) => {
                    self.is_whole = false;
                    self.report.add(problem);
                }
            }
        }
        selected
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes count from 0")]
    fn row<'a>(&mut self, file: &Path, place: Place, cell: impl Fn(usize) -> Cell<'a>) -> Result<(), TableError> {
        self.report.rows += 1;
        self.numbers.clear();
        let mut is_good = true;
        for (at, taken) in self.taken.iter_mut().enumerate().filter(|(_, taken)| !taken.is_lost) {
            let Err(why) = taken.push(cell(at), &mut self.report.columns[at], &mut self.numbers) else { continue };
            is_good = false;
            let (path, column) = (file.to_owned(), taken.wanted.column.clone());
            self.report.add(match why {
                Unusable::NotUtf8 => TableError::NotUtf8 { path, place, column },
                Unusable::Wrong(found, expected) => TableError::Cell { path, place, column, found, expected },
            });
        }
        if !is_good {
            self.report.skipped += 1;
            return Ok(());
        }
        self.report.used += 1;
        let label = if self.has_label && self.taken.last().is_some_and(|last| !last.is_lost) {
            self.numbers.pop()
        } else {
            None
        };
        if let (Some(label), Some(taken)) = (label, self.taken.last_mut()) {
            taken.see_listed(label as usize);
        }
        if self.is_whole { self.fitted.push(self.path, &self.numbers, label) } else { Ok(()) }
    }

    fn fault(&mut self, fault: TableError) {
        if fault.is_of_row() {
            self.report.rows += 1;
            self.report.skipped += 1;
        }
        self.report.add(fault);
    }

    fn lose(&mut self, column: usize, why: String) {
        let taken = &mut self.taken[column];
        taken.is_lost = true;
        let column = taken.wanted.column.clone();
        self.is_whole = false;
        self.report.add(TableError::Unreadable { path: self.path.into(), column, why });
    }
}
