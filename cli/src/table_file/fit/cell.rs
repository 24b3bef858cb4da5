//! One cell as a task takes it.

use task_spec::{EmptyCell, TableColumn};

use super::choice;
use super::report::ColumnReport;
use crate::table_file::listed::listed;
use crate::table_file::table::{Cell, Column};

/// Texts that stand for an empty cell in columns that may have them: those of R, pandas and databases.
const ABSENT: [&str; 6] = ["NA", "N/A", "NaN", "nan", "NULL", "null"];

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
    pub(super) column: &'a Column,
    pub(super) form: Form,
    pub(super) empty: EmptyCell,
}

/// Why a cell cannot be used.
pub(super) enum Unusable {
    NotUtf8,
    /// What it is, and what is expected.
    Wrong(String, String),
}

/// The value of a cell that is there.
enum Value {
    Number(f64),
    Word(usize),
    Other,
}

impl Taken<'_> {
    /// Adds the numbers that a row's cell becomes.
    pub(super) fn push(&self, row: usize, report: &mut ColumnReport, out: &mut Vec<f64>) -> Result<(), Unusable> {
        let cell = self.column.cell(row);
        if !self.is_empty(cell) {
            let value = self.value(cell, report)?;
            self.write(Some(&value), out);
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
            (EmptyCell::Number(number), _) => self.write(Some(&Value::Number(number)), out),
            (EmptyCell::Word(position), _) => self.write(Some(&Value::Word(position)), out),
            (EmptyCell::Indicated(number), _) if self.wanted.one_of.is_empty() => {
                self.write(Some(&Value::Number(number)), out);
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
            Cell::Word(word) => may_be && ABSENT.contains(&word) && !self.wanted.one_of.iter().any(|one| one == word),
            Cell::NotUtf8 => false,
        }
    }

    fn value(&self, cell: Cell<'_>, report: &mut ColumnReport) -> Result<Value, Unusable> {
        if self.wanted.one_of.is_empty() {
            let number = number(cell);
            number.into_iter().filter(|number| number.is_finite()).for_each(|number| report.see_number(number));
            let is_count = self.form == Form::Label { is_count: true };
            let fits = |number: &f64| {
                let is_within = self.wanted.range().is_none_or(|(low, high)| (low..=high).contains(number));
                is_within && number.abs() <= f64::from(f32::MAX) && !(is_count && *number < 0.0)
            };
            return number.filter(fits).map(Value::Number).ok_or_else(|| self.wrong(cell));
        }
        let text = match cell {
            Cell::Number(number) => number.to_string(),
            Cell::Word(word) => word.to_owned(),
            Cell::Empty | Cell::NotUtf8 => return Err(self.wrong(cell)),
        };
        match choice::position(&self.wanted.one_of, &text) {
            Some(position) => {
                // The class balance counts rows that are used.
                if !matches!(self.form, Form::Label { .. }) {
                    report.see_word(&self.wanted.one_of[position]);
                }
                Ok(Value::Word(position))
            }
            None => {
                report.unlisted += 1;
                report.see_word(&text);
                if self.wanted.other { Ok(Value::Other) } else { Err(self.wrong(cell)) }
            }
        }
    }

    /// Writes the numbers of a value; zeros for none. The indicator of empty cells, if any, is 0.
    fn write(&self, value: Option<&Value>, out: &mut Vec<f64>) {
        let TableColumn { one_of, other, .. } = self.wanted;
        let scaled = |number: f64| self.wanted.range().map_or(number, |(low, high)| (number - low) / (high - low));
        let position = |value: Option<&Value>| match value {
            Some(Value::Word(position)) => Some(*position),
            Some(Value::Other) => Some(one_of.len()),
            Some(Value::Number(_)) | None => None,
        };
        match (self.form, value) {
            (Form::Label { .. }, Some(Value::Number(number))) => out.push(scaled(*number)),
            (Form::Plain { .. }, Some(Value::Number(number))) => out.push(*number),
            (Form::Plain { .. } | Form::Label { .. }, value) => {
                out.push(position(value).map_or(f64::NAN, |position| position as f64));
            }
            (Form::Inputs, Some(Value::Number(number))) => {
                out.push(scaled(*number));
                out.extend(self.wanted.has_indicator().then_some(0.0));
            }
            (Form::Inputs, value) => {
                let chosen = position(value);
                let words = one_of.len() + usize::from(*other);
                out.extend((0..words).map(|word| f64::from(u8::from(Some(word) == chosen))));
                out.extend(self.wanted.has_indicator().then_some(0.0));
            }
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
        let point = if has_comma && number(cell).is_none() { ", with a point before decimals," } else { "" };
        Unusable::Wrong(found, format!("a number{range}{point}"))
    }
}

/// The number of a cell; truth values are 1 and 0.
fn number(cell: Cell<'_>) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(number),
        Cell::Word(word) if word.eq_ignore_ascii_case("true") => Some(1.0),
        Cell::Word(word) if word.eq_ignore_ascii_case("false") => Some(0.0),
        Cell::Word(word) => word.parse().ok(),
        Cell::Empty | Cell::NotUtf8 => None,
    }
}
