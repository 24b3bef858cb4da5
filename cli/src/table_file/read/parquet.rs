//! Tables in Apache Parquet: columns of numbers, of words, and of booleans. Only the columns that are selected are read, some rows at once.
//!
//! A column that cannot be read matters only to a task that takes it.

use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType};
use parquet::column::reader::ColumnReader;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, TypePtr};

use super::batch::{Batch, holds};
use super::format::Format;
use super::parts::{self, Part};
use super::renames;
use super::signature::{LENGTH, recognized};
use crate::table_file::cells::{Cell, ColumnName, RowSink};
use crate::table_file::error::{Place, TableError};
use crate::table_file::origin::{Origin, open};

/// Rows that are read at once.
const BATCH: usize = 1024;

/// Where the cells of a column are.
enum Cells {
    /// The position of a column of the file.
    Column(usize),
    /// In the name of a folder, the same for all rows.
    Word(String),
}

type PartColumn = (String, Result<Cells, String>);

/// Reads a Parquet file, or the files of a folder as one table.
pub(in crate::table_file) fn read(
    origin: &Origin,
    own_names: &[(String, String)],
    rows: &mut impl RowSink,
) -> Result<(), TableError> {
    let path = origin.path();
    let parts = match origin {
        Origin::File(folder) if folder.is_dir() => parts::of_folder(folder)?,
        Origin::File(_) | Origin::Pipe(..) | Origin::Command(_) => vec![Part::file(path)],
    };
    let (mut table, mut has_rows): (Option<Vec<ColumnName>>, _) = (None, false);
    for part in &parts {
        let file = open_part(origin, part)?;
        has_rows |= file.metadata().file_metadata().num_rows() > 0;
        let columns = columns(file.metadata(), part);
        table = Some(match table {
            None => columns.into_iter().map(|(name, cells)| (name, cells.map(drop))).collect(),
            Some(table) => joined(table, columns, &part.path),
        });
    }
    let table = table.ok_or_else(|| TableError::NoParts { path: path.into() })?;
    if !has_rows {
        return Err(TableError::NoRows { path: path.into() });
    }
    let mut renamed = table.clone();
    renames::apply(path, &mut renamed, own_names)?;
    let selected =
        rows.select(&renamed).into_iter().map(|at| Selected { name: table[at].0.clone(), ..Selected::default() });
    let mut selected: Vec<Selected> = selected.collect();
    parts.iter().try_for_each(|part| read_part(&*open_part(origin, part)?, part, &mut selected, rows))
}

/// The columns of a table and of one more of its files.
fn joined(table: Vec<ColumnName>, mut part: Vec<PartColumn>, path: &Path) -> Vec<ColumnName> {
    let mut columns = Vec::with_capacity(table.len());
    for (name, state) in table {
        let own = part.iter().position(|(other, _)| *other == name).map(|at| part.remove(at).1.map(drop));
        let own = own.unwrap_or_else(|| Err(format!("is not in {}", path.display())));
        columns.push((name, state.and(own)));
    }
    let missing = |(name, _): PartColumn| (name, Err(format!("is in {} and not in all files", path.display())));
    columns.extend(part.into_iter().map(missing));
    columns
}

fn open_part(origin: &Origin, part: &Part) -> Result<Box<dyn FileReader>, TableError> {
    let path = &part.path;
    let unreadable = TableError::read(path);
    let refused = |source| TableError::Parquet { path: path.clone(), source: Arc::new(source) };
    let check = |start: &[u8]| match recognized(start, Format::Parquet) {
        Some((is, right)) => Err(TableError::Other { path: path.clone(), is, right }),
        None => Ok(()),
    };
    if let Origin::Pipe(_, bytes) = origin {
        check(&bytes[..bytes.len().min(LENGTH)])?;
        return SerializedFileReader::new(bytes.clone()).map(|reader| Box::new(reader) as _).map_err(refused);
    }
    let mut file = open(path)?;
    let mut start = Vec::with_capacity(LENGTH);
    file.by_ref().take(LENGTH as u64).read_to_end(&mut start).map_err(&unreadable)?;
    file.rewind().map_err(unreadable)?;
    check(&start)?;
    SerializedFileReader::new(file).map(|reader| Box::new(reader) as _).map_err(refused)
}

/// The columns of a file, and those in the names of its folders.
fn columns(metadata: &ParquetMetaData, part: &Part) -> Vec<PartColumn> {
    let fields = metadata.file_metadata().schema().get_fields();
    let columns = fields.iter().map(|field| (field.name().to_owned(), column(metadata, fields, field)));
    let words = part.columns.iter().map(|(name, word)| (name.clone(), Ok(Cells::Word(word.clone()))));
    columns.chain(words).collect()
}

/// Where a column is.
///
/// # Errors
/// Why it cannot be read.
fn column(metadata: &ParquetMetaData, fields: &[TypePtr], field: &TypePtr) -> Result<Cells, String> {
    if fields.iter().filter(|other| other.name() == field.name()).count() > 1 {
        return Err("another column has the same name".to_owned());
    }
    let leaves = metadata.file_metadata().schema_descr().columns();
    let is_own = |leaf: &ColumnDescPtr| matches!(leaf.path().parts(), [name] if name == field.name());
    let at = leaves.iter().position(is_own).filter(|&at| field.is_primitive() && leaves[at].max_rep_level() == 0);
    let at = at.ok_or_else(|| holds("groups or lists"))?;
    if field.get_basic_info().converted_type() == ConvertedType::INTERVAL {
        return Err(holds("spans of time; write them as numbers, for example of days"));
    }
    let rows = metadata.file_metadata().num_rows();
    let mut cells = 0;
    for group in metadata.row_groups() {
        let chunk = group.columns().get(at).ok_or("is not in all parts of the file")?;
        check_compression(chunk)?;
        cells += chunk.num_values();
        if chunk.num_values() != group.num_rows() {
            return Err(format!("has {} cells in {} rows", chunk.num_values(), group.num_rows()));
        }
    }
    if cells == rows { Ok(Cells::Column(at)) } else { Err(format!("has {cells} cells, and the table {rows} rows")) }
}

fn check_compression(chunk: &ColumnChunkMetaData) -> Result<(), String> {
    match chunk.compression() {
        Compression::UNCOMPRESSED
        | Compression::SNAPPY
        | Compression::GZIP(_)
        | Compression::BROTLI(_)
        | Compression::ZSTD(_) => Ok(()),
        other @ (Compression::LZO | Compression::LZ4 | Compression::LZ4_RAW) => {
            let codec = format!("{other:?}");
            let codec = codec.split('(').next().unwrap_or_default();
            Err(format!(
                "is compressed with {codec}, and a column must be compressed with Snappy, gzip, Brotli or Zstandard, or not \
                 compressed; write the file so, for example with `compression=\"snappy\"`"
            ))
        }
    }
}

/// A column that a task takes.
#[derive(Default)]
struct Selected {
    /// In the files.
    name: String,
    batch: Batch,
    is_lost: bool,
}

/// The cells of a column in a group of rows.
enum GroupReader {
    Column(Box<ColumnReader>, ColumnDescPtr),
    Word(String),
    Lost,
}

fn read_part(
    file: &dyn FileReader,
    part: &Part,
    selected: &mut [Selected],
    rows: &mut impl RowSink,
) -> Result<(), TableError> {
    let refused = |source| TableError::Parquet { path: part.path.clone(), source: Arc::new(source) };
    let columns = columns(file.metadata(), part);
    let mut row = 0;
    for at in 0..file.num_row_groups() {
        let group = file.get_row_group(at).map_err(refused)?;
        let reader = |one: &Selected| match columns.iter().find(|(name, _)| *name == one.name) {
            Some((_, Ok(Cells::Word(word)))) if !one.is_lost => Ok(GroupReader::Word(word.clone())),
            Some((_, Ok(Cells::Column(at)))) if !one.is_lost => {
                let descriptor = group.metadata().schema_descr().column(*at);
                group.get_column_reader(*at).map(|reader| GroupReader::Column(Box::new(reader), descriptor))
            }
            Some(_) | None => Ok(GroupReader::Lost),
        };
        let mut readers = selected.iter().map(reader).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
        while left > 0 {
            let count = left.min(BATCH);
            for (at, (column, reader)) in selected.iter_mut().zip(&mut readers).enumerate() {
                column.batch.clear();
                let read = match reader {
                    GroupReader::Column(reader, descriptor) => column.batch.read(reader, descriptor, count),
                    GroupReader::Word(word) => column.batch.repeat(word, count),
                    GroupReader::Lost => continue,
                };
                if let Err(why) = read {
                    (column.is_lost, *reader) = (true, GroupReader::Lost);
                    rows.lose(at, why);
                }
            }
            for of_batch in 0..count {
                row += 1;
                let cell = |at: usize| {
                    let column = &selected[at];
                    if column.is_lost { Cell::Empty } else { column.batch.cell(of_batch) }
                };
                rows.row(&part.path, Place::Row(row), cell)?;
            }
            left -= count;
        }
    }
    Ok(())
}
