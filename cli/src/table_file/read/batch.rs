//! The cells of some rows of a Parquet column.

use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::record::Field;
use parquet::schema::types::ColumnDescPtr;

use crate::table_file::cells::Cell;

/// Most digits of a decimal, those of 256 bits.
const MAX_DIGITS: i32 = 76;
const DECIMALS: &str = "decimals; write them as floating-point numbers";
const NO_TEXT: &str = "bytes that are no text";
const TIMES: &str = "times; write them as numbers, for example of days";
const OTHERS: &str = "values of another kind";

/// Cells of one column.
#[derive(Default)]
pub(super) struct Batch {
    kinds: Vec<Kind>,
    numbers: Vec<f64>,
    /// Words, one after the other.
    text: String,
    /// Where the word of each cell ends.
    ends: Vec<usize>,
    /// Whether the column has had numbers, and words.
    had: (bool, bool),
}

#[derive(Clone, Copy)]
enum Kind {
    Empty,
    Number,
    Word,
}

/// A value of a Parquet file.
enum Value<'a> {
    Number(f64),
    Word(&'a str),
}

pub(super) fn holds(found: &str) -> String {
    format!("holds {found}; numbers, words and yes or no can be read")
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.kinds.clear();
        self.numbers.clear();
        self.text.clear();
        self.ends.clear();
    }

    pub(super) fn cell(&self, row: usize) -> Cell<'_> {
        match self.kinds[row] {
            Kind::Empty => Cell::Empty,
            Kind::Number => Cell::Number(self.numbers[row]),
            Kind::Word => {
                let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
                Cell::of_text(&self.text.as_bytes()[begin..self.ends[row]])
            }
        }
    }

    /// Adds a word for each of so many rows.
    pub(super) fn repeat(&mut self, word: &str, rows: usize) -> Result<(), String> {
        (0..rows).try_for_each(|_| self.push(Some(Value::Word(word))))
    }

    fn push(&mut self, value: Option<Value<'_>>) -> Result<(), String> {
        let (kind, number) = match value {
            None | Some(Value::Word("")) => (Kind::Empty, 0.0),
            Some(Value::Number(number)) => {
                self.had.0 = true;
                (Kind::Number, number)
            }
            Some(Value::Word(word)) => {
                self.had.1 = true;
                self.text.push_str(word);
                (Kind::Word, 0.0)
            }
        };
        self.kinds.push(kind);
        self.numbers.push(number);
        self.ends.push(self.text.len());
        if self.had == (true, true) { Err(holds("numbers and words")) } else { Ok(()) }
    }

    /// Reads so many rows of a column.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(super) fn read(
        &mut self,
        reader: &mut ColumnReader,
        column: &ColumnDescPtr,
        rows: usize,
    ) -> Result<(), String> {
        let is_decimal = column.converted_type() == ConvertedType::DECIMAL;
        let is_half = column.logical_type_ref() == Some(&LogicalType::Float16);
        let of_bytes = |bytes: ByteArray| Field::convert_byte_array(column, bytes).map_err(|_| DECIMALS);
        let has_digits = (0..=MAX_DIGITS).contains(&column.type_scale()) && column.type_precision() <= MAX_DIGITS;
        // Their text has as many digits as their scale says.
        let decimal = |field: Field| {
            let number = if has_digits { field.to_string().parse().ok() } else { None };
            number.map(Value::Number).ok_or(DECIMALS)
        };
        match reader {
            ColumnReader::BoolColumnReader(reader) => {
                self.read_values(reader, rows, |yes| Ok(Value::Word(if *yes { "true" } else { "false" })))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                self.read_values(reader, rows, |&value| match Field::convert_int32(column, value) {
                    field @ Field::Decimal(_) => decimal(field),
                    field => number(&field),
                })
            }
            ColumnReader::Int64ColumnReader(reader) => {
                self.read_values(reader, rows, |&value| match Field::convert_int64(column, value) {
                    field @ Field::Decimal(_) => decimal(field),
                    field => number(&field),
                })
            }
            ColumnReader::Int96ColumnReader(reader) => self.read_values(reader, rows, |_| Err(TIMES)),
            ColumnReader::FloatColumnReader(reader) => {
                self.read_values(reader, rows, |value| Ok(Value::Number(f64::from(*value))))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.read_values(reader, rows, |value| Ok(Value::Number(*value)))
            }
            ColumnReader::ByteArrayColumnReader(reader) if is_decimal => {
                self.read_values(reader, rows, |bytes| decimal(of_bytes(bytes.clone())?))
            }
            ColumnReader::ByteArrayColumnReader(reader) => self.read_values(reader, rows, |bytes| word(bytes.data())),
            ColumnReader::FixedLenByteArrayColumnReader(reader) if is_decimal || is_half => {
                self.read_values(reader, rows, |bytes| match of_bytes(bytes.clone().into())? {
                    Field::Float16(value) => Ok(Value::Number(f64::from(value))),
                    other => decimal(other),
                })
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                self.read_values(reader, rows, |bytes| word(bytes.data()))
            }
        }
    }

    fn read_values<T: DataType>(
        &mut self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        value: impl for<'a> Fn(&'a T::T) -> Result<Value<'a>, &'static str>,
    ) -> Result<(), String> {
        let cannot = |error: ParquetError| format!("cannot be read: {error}");
        let (mut levels, mut values) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (count, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values).map_err(cannot)?;
        if count != rows {
            return Err(format!("ends {} cells before the table", rows - count));
        }
        let mut values = values.iter();
        // A column that is required has no levels.
        for row in 0..rows {
            let is_there = levels.get(row).is_none_or(|level| *level > 0);
            let cell = if is_there { values.next().map(&value) } else { None };
            self.push(cell.transpose().map_err(holds)?)?;
        }
        Ok(())
    }
}

fn word(bytes: &[u8]) -> Result<Value<'_>, &'static str> {
    std::str::from_utf8(bytes).map(Value::Word).map_err(|_| NO_TEXT)
}

fn number(field: &Field) -> Result<Value<'static>, &'static str> {
    match field {
        Field::Byte(number) => Ok(f64::from(*number)),
        Field::Short(number) => Ok(f64::from(*number)),
        Field::Int(number) => Ok(f64::from(*number)),
        // Precise up to 2^53.
        Field::Long(number) => Ok(*number as f64),
        Field::UByte(number) => Ok(f64::from(*number)),
        Field::UShort(number) => Ok(f64::from(*number)),
        Field::UInt(number) => Ok(f64::from(*number)),
        Field::ULong(number) => Ok(*number as f64),
        Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => Err(TIMES),
        Field::Null
        | Field::Bool(_)
        | Field::Float16(_)
        | Field::Float(_)
        | Field::Double(_)
        | Field::Str(_)
        | Field::Bytes(_)
        | Field::Decimal(_)
        | Field::Group(_)
        | Field::ListInternal(_)
        | Field::MapInternal(_) => Err(OTHERS),
    }
    .map(Value::Number)
}
