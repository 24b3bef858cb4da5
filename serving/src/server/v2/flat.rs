//! Numbers in JSON: one array, or nested arrays. Columns of a table also have words and empty cells.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::signatures::Datatype;

/// The numbers of a tensor in JSON: flat, or as nested arrays in row-major order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Flat {
    numbers: Vec<f64>,
    /// How many of them are truth values.
    truths: usize,
    /// Nesting depth of the numbers.
    depth: Option<usize>,
    /// Lengths of the arrays, outermost first; 0 until an array of that depth has ended.
    sizes: Vec<usize>,
    /// Arrays of the same depth have different lengths, or numbers have different depths.
    is_ragged: bool,
    /// Positions among the numbers of texts and of nulls, which are NaN there. Small, because a request may have as many as bytes.
    others: Vec<(u32, Option<Box<str>>)>,
}

/// A cell of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Number(f64),
    Text(&'a str),
    Empty,
}

/// The cells of a column, which are read from the first row to the last.
#[derive(Debug)]
pub(super) struct Column {
    flat: Flat,
    /// Number of texts and empty cells that have been read.
    read: usize,
}

impl Column {
    /// The cell of a row; no earlier one can be read after it.
    pub(super) fn cell(&mut self, row: usize) -> Cell<'_> {
        match self.flat.others.get(self.read) {
            Some((at, text)) if *at as usize == row => {
                self.read += 1;
                text.as_deref().filter(|text| !text.is_empty()).map_or(Cell::Empty, Cell::Text)
            }
            _ => self.flat.numbers.get(row).map_or(Cell::Empty, |number| Cell::Number(*number)),
        }
    }
}

impl Flat {
    fn push(&mut self, number: f64, depth: usize) {
        self.is_ragged |= *self.depth.get_or_insert(depth) != depth;
        self.numbers.push(number);
    }

    /// A text, or a null.
    fn push_other(&mut self, text: Option<&str>, depth: usize) {
        // A body has fewer bytes.
        let at = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.others.push((at, text.map(Box::from)));
        self.push(f64::NAN, depth);
    }

    /// An array of numbers.
    pub(super) fn of_numbers(numbers: Vec<f64>) -> Self {
        Self { sizes: vec![numbers.len()], depth: Some(1), numbers, ..Self::default() }
    }

    /// The cells of a column of `rows` rows, flat or each in an array of its own.
    pub(super) fn column(self, name: &str, rows: usize) -> Result<Column, String> {
        let is_nested = self.sizes.len() == 2 && self.sizes[1] == 1;
        if self.is_ragged || !(self.sizes.len() == 1 || is_nested) || self.numbers.len() != rows {
            return Err(format!("{name}: data is one array of {rows} cells"));
        }
        Ok(Column { flat: self, read: 0 })
    }

    /// Records the end of an array at `depth`.
    fn end(&mut self, depth: usize, length: usize) {
        self.sizes.resize(self.sizes.len().max(depth + 1), 0);
        self.is_ragged |= length == 0 || ![0, length].contains(&self.sizes[depth]);
        self.sizes[depth] = length;
    }

    /// The numbers of a tensor, if they are flat or nested in this shape.
    pub(super) fn of_shape(self, name: &str, datatype: Datatype, shape: &[u64]) -> Result<Vec<f64>, String> {
        let truths = if datatype == Datatype::Bool { self.numbers.len() } else { 0 };
        if self.truths != truths {
            return Err(format!("{name}: BOOL data are true and false, and data of other datatypes are numbers"));
        }
        let is_nested = || self.sizes.iter().map(|&size| u64::try_from(size).ok()).eq(shape.iter().copied().map(Some));
        if let Some((place, _)) = self.others.first() {
            return Err(format!("{name}: element {place} is no number"));
        }
        if self.is_ragged || (self.sizes.len() > 1 && !is_nested()) {
            return Err(format!("{name}: data is one array, or arrays nested by the shape {shape:?}"));
        }
        Ok(self.numbers)
    }
}

/// Visitor of an array at `depth`.
struct Numbers<'a> {
    into: &'a mut Flat,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Numbers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[expect(clippy::cast_precision_loss, reason = "what a model takes is far below 2^53, and checked afterwards")]
impl<'de> Visitor<'de> for Numbers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, or arrays of numbers")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.into.truths += 1;
        self.into.push(f64::from(u8::from(value)), self.depth);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.into.push(value, self.depth);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.into.push(value as f64, self.depth);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.into.push(value as f64, self.depth);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.into.push_other(Some(value), self.depth);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.into.push_other(None, self.depth);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { into, depth } = self;
        let mut length = 0;
        while items.next_element_seed(Numbers { into: &mut *into, depth: depth + 1 })?.is_some() {
            length += 1;
        }
        into.end(depth, length);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Array;
        impl<'de> Visitor<'de> for Array {
            type Value = Flat;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Flat, A::Error> {
                let mut all = Flat::default();
                Numbers { into: &mut all, depth: 0 }.visit_seq(items)?;
                Ok(all)
            }
        }
        deserializer.deserialize_seq(Array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow_of_the_stack() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(serde_json::from_str::<Flat>(&deep).unwrap_err().to_string().contains("recursion limit"));
    }
}
