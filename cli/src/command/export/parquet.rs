//! A table in Apache Parquet, without compression: optional columns of UTF-8, INT64, DOUBLE and timestamps in milliseconds, UTC.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::records::{Cell, Kind, Records};

/// Writes the table as one group of rows.
pub(super) fn write(records: &Records, out: impl Write + Send) -> io::Result<()> {
    try_write(records, out).map_err(io::Error::other)
}

fn try_write(records: &Records, out: impl Write + Send) -> Result<(), ParquetError> {
    let fields = records.columns.iter().map(|(name, kind)| field(name, *kind)).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("rounds").with_fields(fields).build()?);
    let mut file = SerializedFileWriter::new(out, schema, Arc::new(WriterProperties::new()))?;
    let mut group = file.next_row_group()?;
    for (column, (_, kind)) in records.columns.iter().enumerate() {
        let cells = records.rows.iter().filter_map(|row| row.get(column));
        match kind {
            Kind::Text => put::<ByteArrayType>(&mut group, cells, |cell| match cell {
                Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                Cell::Empty | Cell::Integer(_) | Cell::Float(_) | Cell::Time(_) => None,
            })?,
            Kind::Integer | Kind::Time => put::<Int64Type>(&mut group, cells, |cell| match cell {
                Cell::Integer(number) => Some(*number),
                Cell::Time(at) => Some(at.0),
                Cell::Empty | Cell::Text(_) | Cell::Float(_) => None,
            })?,
            Kind::Float => put::<DoubleType>(&mut group, cells, |cell| match cell {
                Cell::Float(number) => Some(*number),
                Cell::Empty | Cell::Text(_) | Cell::Integer(_) | Cell::Time(_) => None,
            })?,
        }
    }
    group.close()?;
    file.close().map(drop)
}

fn field(name: &str, kind: Kind) -> Result<TypePtr, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (Physical::INT64, None),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MILLIS))),
    };
    let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    field.with_logical_type(logical).build().map(Arc::new)
}

/// Writes the next column: its values, and for each row whether it has one.
fn put<'a, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    cells: impl Iterator<Item = &'a Cell>,
    value: impl Fn(&Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for cell in cells {
        let value = value(cell);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("a column too many".to_owned()))?;
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()
}
