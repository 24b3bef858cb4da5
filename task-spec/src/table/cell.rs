//! What a cell of a table means to a model: the same for participants and for servers of the model.

use super::choice;
use super::column::{EmptyCell, TableColumn};

/// Texts that stand for an empty cell in columns that may have them: those of R, pandas and databases.
const ABSENT: [&str; 6] = ["NA", "N/A", "NaN", "nan", "NULL", "null"];

/// A cell that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RawCell<'a> {
    Number(f64),
    Text(&'a str),
}

/// The value of a cell that a task can use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellValue {
    /// A number, before scaling.
    Number(f64),
    /// The word at this position of `one_of`.
    Word(usize),
    /// A word that is not listed, of a column with `other`.
    Other,
}

impl RawCell<'_> {
    /// Its number; truth values are 1 and 0.
    #[must_use]
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Text(text) if text.eq_ignore_ascii_case("true") => Some(1.0),
            Self::Text(text) if text.eq_ignore_ascii_case("false") => Some(0.0),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

impl TableColumn {
    /// Whether a text stands for an empty cell, if the column may have one. A listed word is itself.
    #[must_use]
    pub fn stands_for_empty(&self, text: &str) -> bool {
        text.is_empty() || (ABSENT.contains(&text) && !self.one_of.iter().any(|one| one == text))
    }

    /// The value of a cell; `None` if it cannot be used.
    #[must_use]
    pub fn value(&self, cell: RawCell<'_>) -> Option<CellValue> {
        if self.one_of.is_empty() {
            let is_within = |number: &f64| self.range().is_none_or(|(low, high)| (low..=high).contains(number));
            let fits = |number: &f64| number.abs() <= f64::from(f32::MAX) && is_within(number);
            return cell.number().filter(fits).map(CellValue::Number);
        }
        let position = match cell {
            RawCell::Number(number) => choice::position(&self.one_of, &number.to_string()),
            RawCell::Text(text) => choice::position(&self.one_of, text),
        };
        position.map(CellValue::Word).or(self.other.then_some(CellValue::Other))
    }

    /// A number, scaled from the column's range to 0..1 if it has one.
    #[must_use]
    pub fn scaled(&self, number: f64) -> f64 {
        self.range().map_or(number, |(low, high)| (number - low) / (high - low))
    }

    /// Adds the inputs that a value becomes, [`TableColumn::width`] of them: a scaled number or an input for each word, and the indicator of
    /// empty cells. `None` is none of the words.
    pub fn push_inputs(&self, value: Option<CellValue>, is_indicated: bool, out: &mut Vec<f64>) {
        let chosen = match value {
            Some(CellValue::Number(number)) => {
                out.push(self.scaled(number));
                out.extend(self.has_indicator().then_some(f64::from(u8::from(is_indicated))));
                return;
            }
            Some(CellValue::Word(position)) => Some(position),
            Some(CellValue::Other) => Some(self.one_of.len()),
            None => None,
        };
        let words = self.one_of.len() + usize::from(self.other);
        out.extend((0..words).map(|word| f64::from(u8::from(Some(word) == chosen))));
        out.extend(self.has_indicator().then_some(f64::from(u8::from(is_indicated))));
    }
}

impl TableColumn {
    /// Adds the inputs that an empty cell becomes; returns whether the task says what that is.
    #[must_use]
    pub fn push_empty(&self, out: &mut Vec<f64>) -> bool {
        match self.empty_cell() {
            Err(_) | Ok(EmptyCell::Refused) => return false,
            Ok(EmptyCell::Number(number)) => self.push_inputs(Some(CellValue::Number(number)), false, out),
            Ok(EmptyCell::Word(position)) => self.push_inputs(Some(CellValue::Word(position)), false, out),
            Ok(EmptyCell::Indicated(number)) if self.one_of.is_empty() => {
                self.push_inputs(Some(CellValue::Number(number)), true, out);
            }
            Ok(EmptyCell::Indicated(_)) => self.push_inputs(None, true, out),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(column: &str, cell: RawCell<'_>) -> Option<Vec<f64>> {
        let column: TableColumn = toml::from_str(&format!("column = \"c\"\n{column}")).unwrap();
        let mut out = Vec::new();
        column.push_inputs(Some(column.value(cell)?), false, &mut out);
        assert_eq!(out.len(), column.width());
        Some(out)
    }

    #[test]
    fn cells_become_inputs() {
        use RawCell::{Number, Text};
        let range = "low = 0\nhigh = 50";
        assert_eq!(inputs(range, Number(10.0)), Some(vec![0.2]));
        assert_eq!(inputs(range, Text("10")), Some(vec![0.2]));
        assert_eq!(inputs(range, Number(51.0)), None);
        assert_eq!(inputs("", Text("true")), Some(vec![1.0]));
        assert_eq!(inputs("", Number(f64::NAN)), None);
        let words = "one_of = [\"a\", \"1\"]";
        assert_eq!(inputs(words, Text("a")), Some(vec![1.0, 0.0]));
        assert_eq!(inputs(words, Number(1.0)), Some(vec![0.0, 1.0]));
        assert_eq!(inputs(words, Text("c")), None);
        let open = "one_of = [\"a\", \"b\"]\nother = true\nmissing = \"indicator\"";
        assert_eq!(inputs(open, Text("c")), Some(vec![0.0, 0.0, 1.0, 0.0]));
    }

    #[test]
    fn empty_cells_become_inputs() {
        let empty = |column: &str| {
            let column: TableColumn = toml::from_str(&format!("column = \"c\"\n{column}")).unwrap();
            let mut out = Vec::new();
            column.push_empty(&mut out).then_some(out)
        };
        assert_eq!(empty(""), None);
        assert_eq!(empty("low = 0\nhigh = 10\nmissing = 5"), Some(vec![0.5]));
        assert_eq!(empty("low = 0\nhigh = 10\nmissing = \"indicator\"\nmean = 5"), Some(vec![0.5, 1.0]));
        assert_eq!(empty("one_of = [\"a\", \"b\"]\nmissing = \"b\""), Some(vec![0.0, 1.0]));
        assert_eq!(empty("one_of = [\"a\", \"b\"]\nmissing = \"indicator\""), Some(vec![0.0, 0.0, 1.0]));
    }
}
