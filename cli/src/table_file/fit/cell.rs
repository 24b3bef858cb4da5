//! One cell as a task takes it.

use task_spec::{CellValue, EmptyCell, RawCell, TableColumn};

use super::report::ColumnReport;
use crate::table_file::cells::Cell;
use crate::table_file::listed::listed;

/// How a column's cells become numbers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// Inputs of a model: a scaled number or an input for each word, and the indicators.
    Inputs,
    /// One number as it is, or the position of a word; with NaN for an empty cell, if these are counted.
    Plain { counts_empty: bool },
    /// A label: a scaled number or the number of a class.
    Label { is_count: bool },
}

/// A column that a task takes.
pub(super) struct Taken<'a> {
    pub(super) wanted: &'a TableColumn,
    form: Form,
    empty: EmptyCell,
    /// How often each listed word occurs.
    words: Vec<usize>,
    /// Whether the column cannot be read any further.
    pub(super) is_lost: bool,
}

/// Why a cell cannot be used.
pub(super) enum Unusable {
    NotUtf8,
    /// What it is, and what is expected.
    Wrong(String, String),
}

impl<'a> Taken<'a> {
    pub(super) fn new(wanted: &'a TableColumn, form: Form, empty: EmptyCell) -> Self {
        Self { wanted, form, empty, words: vec![0; wanted.one_of.len()], is_lost: false }
    }

    /// Counts a word by its position among those of the task.
    pub(super) fn see_listed(&mut self, position: usize) {
        if let Some(count) = self.words.get_mut(position) {
            *count += 1;
        }
    }

    /// Adds the numbers of listed words to the report.
    pub(super) fn count_words(&self, report: &mut ColumnReport) {
        for (word, count) in self.wanted.one_of.iter().zip(&self.words) {
            *report.words.entry(word.clone()).or_default() += count;
        }
    }

    /// Adds the numbers that a row's cell becomes.
    pub(super) fn push(
        &mut self,
        cell: Cell<'_>,
        report: &mut ColumnReport,
        out: &mut Vec<f64>,
    ) -> Result<(), Unusable> {
        if !self.is_empty(cell) {
            let value = self.value(cell, report)?;
            self.write(Some(value), out);
            return Ok(());
        }
        report.empty += 1;
        match (self.empty, self.form) {
            (_, Form::Plain { counts_empty: true }) => {
                out.push(f64::NAN);
                return Ok(());
            }
            (EmptyCell::Refused, _) | (EmptyCell::Indicated(_), Form::Plain { .. } | Form::Label { .. }) => {
                return Err(self.wrong(cell));
            }
            (EmptyCell::Number(number), _) => self.write(Some(CellValue::Number(number)), out),
            (EmptyCell::Word(position), _) => self.write(Some(CellValue::Word(position)), out),
            (EmptyCell::Indicated(number), _) if self.wanted.one_of.is_empty() => {
                self.write(Some(CellValue::Number(number)), out);
            }
            (EmptyCell::Indicated(_), _) => self.write(None, out),
        }
        if let (EmptyCell::Indicated(_), Form::Inputs, Some(indicator)) = (self.empty, self.form, out.last_mut()) {
            *indicator = 1.0;
        }
        report.imputed += 1;
        Ok(())
    }

    /// Whether a cell is empty, or says so in a column that may have empty cells.
    fn is_empty(&self, cell: Cell<'_>) -> bool {
        let may_be = self.empty != EmptyCell::Refused || self.form == Form::Plain { counts_empty: true };
        match cell {
            Cell::Empty => true,
            Cell::Number(number) => may_be && number.is_nan(),
            Cell::Word(word) => may_be && self.wanted.stands_for_empty(word),
            Cell::NotUtf8 => false,
        }
    }

    fn value(&mut self, cell: Cell<'_>, report: &mut ColumnReport) -> Result<CellValue, Unusable> {
        let Some(raw) = raw(cell) else { return Err(self.wrong(cell)) };
        let value = self.wanted.value(raw);
        if self.wanted.one_of.is_empty() {
            raw.number().into_iter().filter(|number| number.is_finite()).for_each(|number| report.see_number(number));
            let is_count = self.form == Form::Label { is_count: true };
            let fits = |value: &CellValue| !(is_count && matches!(value, CellValue::Number(number) if *number < 0.0));
            return value.filter(fits).ok_or_else(|| self.wrong(cell));
        }
        match value {
            Some(CellValue::Word(position)) => {
                // The class balance counts rows that are used.
                if !matches!(self.form, Form::Label { .. }) {
                    self.see_listed(position);
                }
            }
            Some(CellValue::Number(_) | CellValue::Other) | None => {
                report.unlisted += 1;
                match raw {
                    RawCell::Number(number) => report.see_word(&number.to_string()),
                    RawCell::Text(text) => report.see_word(text),
                }
            }
        }
        value.ok_or_else(|| self.wrong(cell))
    }

    /// Writes the numbers of a value; zeros for none. The indicator of empty cells, if any, is 0.
    fn write(&self, value: Option<CellValue>, out: &mut Vec<f64>) {
        match (self.form, value) {
            (Form::Label { .. }, Some(CellValue::Number(number))) => out.push(self.wanted.scaled(number)),
            (Form::Plain { .. }, Some(CellValue::Number(number))) => out.push(number),
            (Form::Plain { .. } | Form::Label { .. }, Some(CellValue::Word(position))) => out.push(position as f64),
            (Form::Plain { .. } | Form::Label { .. }, Some(CellValue::Other)) => {
                out.push(self.wanted.one_of.len() as f64);
            }
            (Form::Plain { .. } | Form::Label { .. }, None) => out.push(f64::NAN),
            (Form::Inputs, value) => self.wanted.push_inputs(value, false, out),
        }
    }

    fn wrong(&self, cell: Cell<'_>) -> Unusable {
        let found = match cell {
            Cell::Empty => "the cell is empty".to_owned(),
            Cell::Number(number) => format!("the cell is {number}"),
            Cell::Word(word) => format!("the cell is `{word}`"),
            Cell::NotUtf8 => return Unusable::NotUtf8,
        };
        if !self.wanted.one_of.is_empty() {
            let words: Vec<_> = self.wanted.one_of.iter().map(String::as_str).collect();
            return Unusable::Wrong(found, format!("one of {}", listed(&words).join(", ")));
        }
        let range = match (self.wanted.range(), self.form) {
            (Some((low, high)), _) => format!(" from {low} to {high}"),
            (None, Form::Label { is_count: true }) => " of at least 0".to_owned(),
            (None, _) => String::new(),
        };
        let has_comma = matches!(cell, Cell::Word(word) if word.replace(',', ".").parse::<f64>().is_ok());
        let point = if has_comma && raw(cell).and_then(RawCell::number).is_none() {
            ", with a point before decimals,"
        } else {
            ""
        };
        Unusable::Wrong(found, format!("a number{range}{point}"))
    }
}

/// A cell that is there, and text.
fn raw(cell: Cell<'_>) -> Option<RawCell<'_>> {
    match cell {
        Cell::Number(number) => Some(RawCell::Number(number)),
        Cell::Word(word) => Some(RawCell::Text(word)),
        Cell::Empty | Cell::NotUtf8 => None,
    }
}
