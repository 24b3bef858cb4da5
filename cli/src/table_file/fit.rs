//! A table in the form of a task: numbers, row by row, and a label for each.

use datasets::Labelled;
use learning::{AnalyticsError, Table};
use task_spec::{TableColumn, TableSpec};

use super::choice;
use super::error::TableError;
use super::table::{Cell, Column, TableFile};

/// Most words that a message lists.
const SHOWN: usize = 12;

/// The rows of a table as a task takes them.
#[derive(Debug)]
pub(super) struct Fitted {
    values: Vec<f64>,
    width: usize,
    /// Of each row, if the task names a label: the number of its class, or a number.
    labels: Vec<f64>,
    classes: usize,
}

impl TableFile {
    /// Takes the columns that a task names, in its order.
    ///
    /// # Errors
    /// The first column or cell that violates the task's table.
    pub(super) fn fit(&self, spec: &TableSpec) -> Result<Fitted, TableError> {
        let features = spec.features.iter().map(|wanted| self.column(wanted)).collect::<Result<Vec<_>, _>>()?;
        let label = spec.label.as_ref().map(|wanted| self.column(wanted)).transpose()?;
        let mut values = Vec::with_capacity(self.rows * spec.width());
        let mut labels = Vec::new();
        for row in 0..self.rows {
            for &(wanted, column) in &features {
                if wanted.one_of.is_empty() {
                    let number = self.number(row, wanted, column.cell(row))?;
                    values.push(wanted.range().map_or(number, |(low, high)| (number - low) / (high - low)));
                } else {
                    let chosen = self.word(row, wanted, column.cell(row))?;
                    values.extend((0..wanted.one_of.len()).map(|word| f64::from(u8::from(word == chosen))));
                }
            }
            if let Some((wanted, column)) = label {
                labels.push(if wanted.one_of.is_empty() {
                    self.number(row, wanted, column.cell(row))?
                } else {
                    self.word(row, wanted, column.cell(row))? as f64
                });
            }
        }
        Ok(Fitted { values, width: spec.width(), labels, classes: spec.classes().unwrap_or_default() })
    }

    /// The rows with their classes, for a task whose label has classes.
    ///
    /// # Errors
    /// As [`Self::fit`].
    pub(crate) fn labelled(&self, spec: &TableSpec) -> Result<Labelled, TableError> {
        self.fit(spec).map(Fitted::labelled)
    }

    fn column<'a>(&'a self, wanted: &'a TableColumn) -> Result<(&'a TableColumn, &'a Column), TableError> {
        let (path, column) = (|| self.path.clone(), || wanted.column.clone());
        let mut found = self.columns.iter().filter(|(name, _)| *name == wanted.column).map(|(_, cells)| cells);
        match (found.next(), found.next()) {
            (Some(Ok(cells)), None) => Ok((wanted, cells)),
            (Some(Err(why)), None) => Err(TableError::Unreadable { path: path(), column: column(), why: why.clone() }),
            (Some(_), Some(_)) => Err(TableError::SameName { path: path(), name: column() }),
            (None, _) => Err(TableError::Missing { path: path(), column: column(), found: listed(&self.names()) }),
        }
    }

    fn number(&self, row: usize, wanted: &TableColumn, cell: Cell<'_>) -> Result<f64, TableError> {
        let number = match cell {
            Cell::Number(number) => Some(number),
            Cell::Word(word) => word.parse().ok(),
            Cell::Empty | Cell::NotUtf8 => None,
        };
        let fits = |number: &f64| {
            let is_within = wanted.range().is_none_or(|(low, high)| (low..=high).contains(number));
            is_within && number.abs() <= f64::from(f32::MAX)
        };
        number.filter(fits).ok_or_else(|| {
            let range = wanted.range().map(|(low, high)| format!(" from {low} to {high}")).unwrap_or_default();
            let has_comma = matches!(cell, Cell::Word(word) if word.replace(',', ".").parse::<f64>().is_ok());
            let point = if has_comma && number.is_none() { ", with a point before decimals," } else { "" };
            self.wrong(row, wanted, cell, format!("a number{range}{point}"))
        })
    }

    fn word(&self, row: usize, wanted: &TableColumn, cell: Cell<'_>) -> Result<usize, TableError> {
        let position = match cell {
            Cell::Number(number) => choice::position(&wanted.one_of, &number.to_string()),
            Cell::Word(word) => choice::position(&wanted.one_of, word),
            Cell::Empty | Cell::NotUtf8 => None,
        };
        position.ok_or_else(|| {
            let words: Vec<_> = wanted.one_of.iter().map(String::as_str).collect();
            self.wrong(row, wanted, cell, format!("one of {}", listed(&words).join(", ")))
        })
    }

    fn wrong(&self, row: usize, wanted: &TableColumn, cell: Cell<'_>, expected: String) -> TableError {
        let (path, column, place) = (self.path.clone(), wanted.column.clone(), self.place(row));
        let found = match cell {
            Cell::Empty => "the cell is empty".to_owned(),
            Cell::Number(number) => format!("the cell is {number}"),
            Cell::Word(word) => format!("the cell is `{word}`"),
            Cell::NotUtf8 => return TableError::NotUtf8 { path, place },
        };
        TableError::Cell { path, place, column, found, expected }
    }
}

/// The first of these, and how many more there are.
fn listed(words: &[&str]) -> Vec<String> {
    let mut shown: Vec<_> = words.iter().take(SHOWN).map(|word| format!("`{word}`")).collect();
    if words.len() > SHOWN {
        shown.push(format!("{} more", words.len() - SHOWN));
    }
    shown
}

impl Fitted {
    /// For a model: each row with its class.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant, and classes are few")]
    #[expect(clippy::cast_sign_loss, reason = "classes count from 0")]
    pub(super) fn labelled(self) -> Labelled {
        Labelled {
            features: self.values.iter().map(|&value| value as f32).collect(),
            labels: self.labels.iter().map(|&class| class as u32).collect(),
            width: self.width,
            classes: self.classes,
        }
    }

    /// For an analysis: rows, and the values to predict, if any.
    ///
    /// # Errors
    /// There are more columns or rows than an analysis takes.
    pub(super) fn table(self) -> Result<Table, AnalyticsError> {
        let table = Table::new(self.width, self.values)?;
        if self.labels.is_empty() { Ok(table) } else { table.with_targets(self.labels) }
    }
}
