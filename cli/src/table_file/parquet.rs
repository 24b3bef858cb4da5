//! Tables in Apache Parquet: columns of numbers, of words, and of yes and no.

use std::fs::File;
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;

use super::error::TableError;
use super::table::{Column, MAX_BYTES, TableFile, Words, check_cells, check_names};

pub(super) fn read(path: &Path) -> Result<TableFile, TableError> {
    let unreadable = |source| TableError::Read { path: path.into(), source };
    let refused = |source| TableError::Parquet { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() > MAX_BYTES {
        return Err(TableError::TooLarge { path: path.into() });
    }
    let reader = SerializedFileReader::new(file).map_err(refused)?;
    let schema = reader.metadata().file_metadata();
    let names: Vec<String> = schema.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    check_names(path, names.iter().map(String::as_str))?;
    let rows = usize::try_from(schema.num_rows()).map_err(|_| refused(ParquetError::General("no rows".to_owned())))?;
    check_cells(path, rows, names.len())?;
    let mut columns: Vec<Option<Column>> = names.iter().map(|_| None).collect();
    let mut count = 0;
    for row in reader.get_row_iter(None).map_err(refused)? {
        let row = row.map_err(refused)?;
        for (column, (name, field)) in columns.iter_mut().zip(row.get_column_iter()) {
            let taken = take(column, field, count);
            taken.map_err(|found| TableError::Kind { path: path.into(), column: name.clone(), found })?;
        }
        count += 1;
        check_cells(path, count, names.len())?;
    }
    let nothing = || Column::Numbers(vec![None; count]);
    let columns = names.into_iter().zip(columns.into_iter().map(|column| column.unwrap_or_else(nothing)));
    Ok(TableFile { path: path.into(), columns: columns.collect(), rows: count, lines: None })
}

/// Appends a cell to its column, whose kind the first cell decides that is not empty; `before` cells were.
///
/// # Errors
/// What the cell is, if that cannot be read.
fn take(column: &mut Option<Column>, field: &Field, before: usize) -> Result<(), &'static str> {
    enum Value<'a> {
        Nothing,
        Number(f64),
        Word(&'a str),
    }
    let value = match field {
        Field::Null => Value::Nothing,
        Field::Bool(yes) => Value::Word(if *yes { "true" } else { "false" }),
        Field::Byte(number) => Value::Number(f64::from(*number)),
        Field::Short(number) => Value::Number(f64::from(*number)),
        Field::Int(number) => Value::Number(f64::from(*number)),
        // Precise up to 2^53.
        Field::Long(number) => Value::Number(*number as f64),
        Field::UByte(number) => Value::Number(f64::from(*number)),
        Field::UShort(number) => Value::Number(f64::from(*number)),
        Field::UInt(number) => Value::Number(f64::from(*number)),
        Field::ULong(number) => Value::Number(*number as f64),
        Field::Float16(number) => Value::Number(f64::from(*number)),
        Field::Float(number) => Value::Number(f64::from(*number)),
        Field::Double(number) => Value::Number(*number),
        Field::Str(word) => Value::Word(word),
        Field::Bytes(bytes) => Value::Word(std::str::from_utf8(bytes.data()).map_err(|_| "bytes that are no text")?),
        Field::Decimal(_) => return Err("decimals; write them as floating-point numbers"),
        Field::Date(_)
        | Field::TimeMillis(_)
        | Field::TimeMicros(_)
        | Field::TimestampMillis(_)
        | Field::TimestampMicros(_) => return Err("times; write them as numbers, for example of days"),
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => return Err("groups or lists"),
    };
    match (value, &mut *column) {
        (Value::Nothing, None) => {}
        (Value::Nothing, Some(Column::Numbers(numbers))) => numbers.push(None),
        (Value::Nothing, Some(Column::Words(words))) => words.push(""),
        (Value::Number(number), None) => {
            let mut numbers = vec![None; before];
            numbers.push(Some(number));
            *column = Some(Column::Numbers(numbers));
        }
        (Value::Number(number), Some(Column::Numbers(numbers))) => numbers.push(Some(number)),
        (Value::Word(word), None) => {
            let mut words = Words::empty(before);
            words.push(word);
            *column = Some(Column::Words(words));
        }
        (Value::Word(word), Some(Column::Words(words))) => words.push(word),
        (Value::Number(_), Some(Column::Words(_))) | (Value::Word(_), Some(Column::Numbers(_))) => {
            return Err("numbers and words");
        }
    }
    Ok(())
}
