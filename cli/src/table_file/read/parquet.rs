//! Tables in Apache Parquet: columns of numbers, of words, and of booleans.
//!
//! A column that cannot be read matters only to a task that takes it.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};

use super::format::Format;
use super::parts;
use super::signature::{LENGTH, recognized};
use crate::table_file::error::TableError;
use crate::table_file::table::{Column, Places, TableFile, Words, check_cells, open};

type Reader = SerializedFileReader<File>;

/// Most digits of a decimal, those of 256 bits.
const MAX_DIGITS: i32 = 76;
const DECIMALS: &str = "decimals; write them as floating-point numbers";

/// Reads a Parquet file, or the files of a folder as one table.
pub(in crate::table_file) fn read(path: &Path) -> Result<TableFile, TableError> {
    if !path.is_dir() {
        return read_file(path);
    }
    let mut table: Option<TableFile> = None;
    for part in parts::of_folder(path)? {
        let mut next = read_file(&part.path)?;
        part.add_columns(&mut next)?;
        table = Some(match table {
            None => next,
            Some(table) => joined(table, next)?,
        });
    }
    let table = table.ok_or_else(|| TableError::NoParts { path: path.into() })?;
    Ok(TableFile { path: path.into(), ..table })
}

/// A table with the rows of another one below its own.
fn joined(table: TableFile, mut part: TableFile) -> Result<TableFile, TableError> {
    let mut columns = Vec::with_capacity(table.columns.len());
    for (name, cells) in table.columns {
        let own = part.columns.iter().position(|(other, _)| *other == name).map(|at| part.columns.swap_remove(at).1);
        let own = own.unwrap_or_else(|| Err(format!("is not in {}", part.path.display())));
        let cells = cells.and_then(|cells| cells.append(own?).map_err(holds));
        columns.push((name, cells));
    }
    let missing = |(name, _): (String, _)| (name, Err(format!("is in {} and not in all files", part.path.display())));
    columns.extend(part.columns.drain(..).map(missing));
    let (rows, mut places) = (table.rows + part.rows, table.places);
    if let Places::Parts(parts) = &mut places {
        parts.push((table.rows, part.path));
    }
    check_cells(&table.path, rows, columns.len())?;
    Ok(TableFile { path: table.path, columns, rows, places, faults: table.faults, more_faults: 0 })
}

fn read_file(path: &Path) -> Result<TableFile, TableError> {
    let unreadable = TableError::read(path);
    let refused = |source| TableError::Parquet { path: path.into(), source: Arc::new(source) };
    let mut file = open(path)?;
    let mut start = Vec::with_capacity(LENGTH);
    file.by_ref().take(LENGTH as u64).read_to_end(&mut start).map_err(&unreadable)?;
    file.rewind().map_err(unreadable)?;
    if let Some((is, right)) = recognized(&start, Format::Parquet) {
        return Err(TableError::Other { path: path.into(), is, right });
    }
    let reader = SerializedFileReader::new(file).map_err(refused)?;
    let schema = reader.metadata().file_metadata();
    let fields = schema.schema().get_fields().to_vec();
    let rows = usize::try_from(schema.num_rows()).map_err(|_| refused(ParquetError::General("no rows".to_owned())))?;
    check_cells(path, rows, fields.len())?;
    let columns = fields.iter().map(|field| (field.name().to_owned(), column(&reader, &fields, field, rows)));
    let places = Places::Parts(vec![(0, path.into())]);
    Ok(TableFile { path: path.into(), columns: columns.collect(), rows, places, faults: Vec::new(), more_faults: 0 })
}

/// Reads a column.
///
/// # Errors
/// Why it cannot be read.
fn column(reader: &Reader, fields: &[TypePtr], field: &TypePtr, rows: usize) -> Result<Column, String> {
    if fields.iter().filter(|other| other.name() == field.name()).count() > 1 {
        return Err("another column has the same name".to_owned());
    }
    if !field.is_primitive() {
        return Err(holds("groups or lists"));
    }
    if field.get_basic_info().converted_type() == ConvertedType::INTERVAL {
        return Err(holds("spans of time; write them as numbers, for example of days"));
    }
    check_compression(reader, field.name())?;
    let cannot = |error: ParquetError| format!("cannot be read: {error}");
    let schema = reader.metadata().file_metadata().schema();
    let alone = Type::group_type_builder(schema.name()).with_fields(vec![Arc::clone(field)]).build().map_err(cannot)?;
    let (mut cells, mut count) = (None, 0);
    for row in reader.get_row_iter(Some(alone)).map_err(cannot)? {
        let row = row.map_err(cannot)?;
        if count == rows {
            return Err(format!("has more cells than the table's {rows} rows"));
        }
        let (_, cell) = row.get_column_iter().next().ok_or("cannot be read: a row has no cell")?;
        take(&mut cells, cell, count).map_err(holds)?;
        count += 1;
    }
    if count != rows {
        return Err(format!("has {count} cells, and the table {rows} rows"));
    }
    Ok(cells.unwrap_or_else(|| Column::Numbers(vec![None; count])))
}

fn holds(found: &str) -> String {
    format!("holds {found}; numbers, words and yes or no can be read")
}

fn check_compression(reader: &Reader, name: &str) -> Result<(), String> {
    let chunks = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    let own = chunks.filter(|chunk| chunk.column_path().parts().first().is_some_and(|first| first == name));
    for chunk in own {
        match chunk.compression() {
            Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::BROTLI(_)
            | Compression::ZSTD(_) => {}
            other @ (Compression::LZO | Compression::LZ4 | Compression::LZ4_RAW) => {
                let codec = format!("{other:?}");
                let codec = codec.split('(').next().unwrap_or_default();
                return Err(format!(
                    "is compressed with {codec}, and a column must be compressed with Snappy, gzip, Brotli or \
                     Zstandard, or not compressed; write the file so, for example with `compression=\"snappy\"`"
                ));
            }
        }
    }
    Ok(())
}

/// Appends a cell to its column. The first cell that is not empty decides the column's type; `before` cells were empty.
///
/// # Errors
/// The type of the cell, if that cannot be read.
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
        // Their text has as many digits as their scale says.
        Field::Decimal(decimal) if (0..=MAX_DIGITS).contains(&decimal.scale()) && decimal.precision() <= MAX_DIGITS => {
            Value::Number(field.to_string().parse().map_err(|_| DECIMALS)?)
        }
        Field::Decimal(_) => return Err(DECIMALS),
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
        (Value::Nothing, Some(Column::Words(words))) => words.push(b""),
        (Value::Number(number), None) => {
            let mut numbers = vec![None; before];
            numbers.push(Some(number));
            *column = Some(Column::Numbers(numbers));
        }
        (Value::Number(number), Some(Column::Numbers(numbers))) => numbers.push(Some(number)),
        (Value::Word(word), None) => {
            let mut words = Words::empty(before);
            words.push(word.as_bytes());
            *column = Some(Column::Words(words));
        }
        (Value::Word(word), Some(Column::Words(words))) => words.push(word.as_bytes()),
        (Value::Number(_), Some(Column::Words(_))) | (Value::Word(_), Some(Column::Numbers(_))) => {
            return Err("numbers and words");
        }
    }
    Ok(())
}
