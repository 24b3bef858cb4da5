//! Files of both kinds, right ones and every wrong one.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{BrotliLevel, Compression, ConvertedType, GzipLevel, Repetition, Type as Physical, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::Type;
use client_sdk::Dataset;
use learning::Table;
use task_spec::TableSpec;

use super::cells::{Cell, ColumnName, RowSink};
use super::fit::Fitted;
use super::*;
use crate::failure::chain;

mod broken;
mod commands;
mod holes;
mod parts;
mod streams;

const SPEC: &str = "features = [{ column = \"age\", low = 0, high = 100 }, { column = \"ward\", one_of = [\"icu\", \"general\"] }]\n\
                    label = { column = \"sick\", one_of = [\"no\", \"yes\"] }";
const GOOD: &str = "id,sick,age,ward\n1,no,50,icu\n2,yes, 25 ,general\n";

fn spec(text: &str) -> TableSpec {
    toml::from_str(text).unwrap()
}

/// A table, and the folder that it may be in.
struct Opened {
    source: TableSource,
    _folder: Option<tempfile::TempDir>,
}

impl Deref for Opened {
    type Target = TableSource;

    fn deref(&self) -> &TableSource {
        &self.source
    }
}

/// Keeps the names of columns.
#[derive(Default)]
struct Names(Vec<String>);

impl RowSink for Names {
    fn select(&mut self, columns: &[ColumnName]) -> Vec<usize> {
        self.0 = cells::names(columns).into_iter().map(str::to_owned).collect();
        Vec::new()
    }

    fn row<'a>(&mut self, _: &Path, _: Place, _: impl Fn(usize) -> Cell<'a>) -> Result<(), TableError> {
        Ok(())
    }

    fn fault(&mut self, _: TableError) {}

    fn lose(&mut self, _: usize, _: String) {}
}

impl Opened {
    fn rows(&self) -> u64 {
        self.count().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names = Names::default();
        self.read(&mut names).unwrap();
        names.0
    }

    /// The rows as a task takes them, and what became of the table.
    fn fit(&self, wanted: &Wanted) -> (Fitted, Report) {
        self.source.fit(wanted, wanted.keep()).unwrap()
    }
}

/// The table at a place, which has been read once, as for a participant.
fn table_at(place: &str) -> Result<Opened, TableError> {
    table_of(&place.parse().unwrap())
}

fn table_of(path: &TablePath) -> Result<Opened, TableError> {
    let source = path.open()?;
    source.count()?;
    Ok(Opened { source, _folder: None })
}

fn csv_of(bytes: &[u8]) -> Result<Opened, TableError> {
    let opened = unread(bytes)?;
    opened.count()?;
    Ok(opened)
}

/// The table of these bytes as far as it can be read.
fn inspected(bytes: &[u8]) -> Opened {
    unread(bytes).unwrap()
}

fn unread(bytes: &[u8]) -> Result<Opened, TableError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.csv");
    std::fs::write(&path, bytes).unwrap();
    let source = format!("csv:{}", path.display()).parse::<TablePath>().unwrap().open()?;
    Ok(Opened { source, _folder: Some(folder) })
}

fn wanted(spec: &TableSpec) -> Wanted {
    Wanted { table: spec.clone(), analysis: None, architecture: None }
}

/// Features and classes of the rows as a task takes them.
fn labelled(table: &TableSource, spec: &TableSpec) -> Result<(Vec<f32>, Vec<u32>), TableError> {
    let (fitted, _) = table.fitted(&wanted(spec), Keep::ForModel)?;
    match fitted.dataset() {
        Dataset::Labelled { features, labels, .. } => Ok((features, labels)),
        other => panic!("{other:?}"),
    }
}

/// Rows and targets of an analysis.
fn rows(table: &TableSource, spec: &TableSpec) -> Result<Table, TableError> {
    table.fitted(&wanted(spec), Keep::ForAnalysis).map(|(fitted, _)| fitted.table().unwrap())
}

/// The message for this file and the task, without the folder.
fn said(bytes: &[u8]) -> String {
    let error = csv_of(bytes).and_then(|table| labelled(&table, &spec(SPEC))).unwrap_err();
    let text = chain(&error);
    let name = text.find("ward.csv").unwrap_or_default();
    text[name..].to_owned()
}

#[test]
fn columns_are_taken_by_name_scaled_and_spread() {
    let (features, classes) = labelled(&csv_of(GOOD.as_bytes()).unwrap(), &spec(SPEC)).unwrap();
    assert_eq!((&features[..], &classes[..]), (&[0.5, 1.0, 0.0, 0.25, 0.0, 1.0][..], &[0, 1][..]));
    let marked = [&b"\xef\xbb\xbf"[..], GOOD.as_bytes()].concat();
    assert_eq!(csv_of(&marked).unwrap().names(), ["id", "sick", "age", "ward"], "a byte order mark is no name");
    let quoted = "sick,age,ward\nno,\"50\",\"icu\"\n";
    assert_eq!(labelled(&csv_of(quoted.as_bytes()).unwrap(), &spec(SPEC)).unwrap().1, [0]);
}

#[test]
fn an_analysis_takes_numbers_as_they_are() {
    let wanted = spec("features = [{ column = \"age\" }]\nlabel = { column = \"id\" }");
    let table = rows(&csv_of(GOOD.as_bytes()).unwrap(), &wanted).unwrap();
    assert_eq!((table.row(0), table.row(1), table.targets()), (&[50.0][..], &[25.0][..], &[1.0, 2.0][..]));
    let alone = rows(&csv_of(GOOD.as_bytes()).unwrap(), &spec("features = [{ column = \"age\" }]")).unwrap();
    assert_eq!(alone.targets(), [0.0; 0]);
}

#[test]
fn each_mistake_in_a_file_is_placed_and_says_what_would_be_right() {
    let header = "id,sick,age,ward\n";
    for (bytes, expected) in [
        (String::new(), "ward.csv is empty; its first line must name the columns, separated by commas"),
        (header.to_owned(), "ward.csv names its columns, and has no row below them; at least one is needed"),
        (
            "id;sick;age\n1;no;50\n".to_owned(),
            "ward.csv, line 1: the header is one column, `id;sick;age`; columns must be separated by commas, and these seem to be \
             separated by ';'",
        ),
        (
            format!("{GOOD}3,no,50\n"),
            "ward.csv, line 4: has 3 cells, and the header names 4: each line must have as many",
        ),
        (
            "age,age\n1,2\n".to_owned(),
            "ward.csv: two columns are named `age`; a column that the task takes must have a name of its own",
        ),
        (
            "sick,Age,ward\nno,50,icu\n".to_owned(),
            "ward.csv: there is no column `age`, which the task takes; its columns are `sick`, `Age`, `ward`",
        ),
        (
            format!("{GOOD}3,no,old,icu\n"),
            "ward.csv, line 4, column `age`: the cell is `old`; a number from 0 to 100 is expected",
        ),
        (
            format!("{GOOD}3,no,\"3,5\",icu\n"),
            "ward.csv, line 4, column `age`: the cell is `3,5`; a number from 0 to 100, with a point before decimals, is expected",
        ),
        (
            format!("{GOOD}3,no,NaN,icu\n"),
            "ward.csv, line 4, column `age`: the cell is `NaN`; a number from 0 to 100 is expected",
        ),
        (
            format!("{GOOD}3,no,999,icu\n"),
            "ward.csv, line 4, column `age`: the cell is `999`; a number from 0 to 100 is expected",
        ),
        (
            format!("{GOOD}3,no,,icu\n"),
            "ward.csv, line 4, column `age`: the cell is empty; a number from 0 to 100 is expected",
        ),
        (
            format!("{GOOD}3,perhaps,50,icu\n"),
            "ward.csv, line 4, column `sick`: the cell is `perhaps`; one of `no`, `yes` is expected",
        ),
        (
            format!("{GOOD}3,no,50,\n"),
            "ward.csv, line 4, column `ward`: the cell is empty; one of `icu`, `general` is expected",
        ),
    ] {
        assert_eq!(said(bytes.as_bytes()), expected);
    }
    assert_eq!(said(b"sick,age,ward\nno,\xff,icu\n"), "ward.csv, line 2: is not UTF-8; save the file as UTF-8");
}

#[test]
fn what_is_no_path_of_a_table_or_no_file_is_said() {
    for text in ["", "csv", "csv:", "xlsx:a", "mnits", "command:", "command: "] {
        assert!(text.parse::<TablePath>().is_err(), "{text}");
    }
    let missing = table_at("parquet:/no/such.parquet").err().unwrap();
    assert!(chain(&missing).starts_with("cannot read /no/such.parquet: "), "{missing:?}");
    let empty = tempfile::tempdir().unwrap();
    for (kind, expected) in [
        ("csv", "is a folder; give one CSV file that holds the whole table"),
        ("parquet", "is a folder without a file of its own that ends in .parquet"),
    ] {
        let folder = table_at(&format!("{kind}:{}", empty.path().display())).err().unwrap();
        assert!(chain(&folder).ends_with(expected), "{folder:?}");
    }
}

#[test]
fn quotes_that_swallow_rows_are_errors_with_the_line() {
    let rest = "4,no,50,general\n5,no,30,icu\n";
    for (bytes, expected) in [
        (format!("{GOOD}3,no,20,\"icu\n{rest}"), "ward.csv, line 4: a quote opens a cell and is never closed"),
        (
            format!("{GOOD}3,no,20,\"icu\n{rest}6,no,7,\"icu\n"),
            "ward.csv, line 4: a quote opens a cell, and its closing quote on line 7 is followed by 'i'; a comma",
        ),
        (
            format!("{GOOD}3,no,20,\"icu\n{rest}6,no,7,icu\"\n{rest}"),
            "ward.csv, line 4: a quote opens a cell and closes on line 7, and each line of the cell looks like a row",
        ),
        (
            "\"id\";\"sick\"\n".to_owned(),
            "ward.csv, line 1: a quote opens a cell, and its closing quote on line 1 is followed by ';'; cells seem to be \
             separated by ';'",
        ),
    ] {
        let said = said(bytes.as_bytes());
        assert!(said.starts_with(expected), "{said}");
    }
    // The rows above a wrong quote are still looked at, and the columns are known.
    for (text, places) in [
        ("sick,age,ward\nno,999,icu\nno,50,\"x\"y\n", vec![Some(Place::Line(2)), Some(Place::Line(3))]),
        ("sick,age,ward\n\"no,50,icu\n", vec![Some(Place::Line(2))]),
    ] {
        let (_, report) = inspected(text.as_bytes()).fit(&wanted(&spec(SPEC)));
        assert_eq!(report.problems.iter().map(|problem| problem.place().0).collect::<Vec<_>>(), places, "{text}");
    }
    let text = "sick,age,ward,note\r\n\r\nno,50,icu,\"fell, twice,\r\nand \"\"rose\"\"\"\r\nno,999,icu,\r\n";
    let read = csv_of(text.as_bytes()).unwrap();
    assert_eq!(read.rows(), 2);
    let error = chain(&labelled(&read, &spec(SPEC)).unwrap_err());
    assert!(error.contains("ward.csv, line 5, column `age`"), "{error}");
}

#[test]
fn columns_without_a_name_and_those_the_task_leaves_out_do_not_matter() {
    for text in [
        ",sick,age,ward\n0,no,50,icu\n1,yes,25,general\n",
        "\"\",\"sick\",\"age\",\"ward\"\n\"1\",\"no\",50,\"icu\"\n\"2\",\"yes\",25,\"general\"\n",
        "sick,age,ward\n1,no,50,icu\n2,yes,25,general\n",
        "\"sick\",\"age\",\"ward\"\n\"Ann\",\"no\",50,\"icu\"\n\"Bob\",\"yes\",25,\"general\"\n",
        "sick,age,ward,\nno,50,icu,\nyes,25,general,\n",
        "sick,age,ward,\nno,50,icu\nyes,25,general\n",
        "sick,age,ward\nno,50,icu,\nyes,25,general,\n",
        "sick,age,ward,note,note\nno,50,icu,a,b\nyes,25,general,c,d\n",
    ] {
        let labelled = labelled(&csv_of(text.as_bytes()).unwrap(), &spec(SPEC)).unwrap();
        assert_eq!(labelled, (vec![0.5, 1.0, 0.0, 0.25, 0.0, 1.0], vec![0, 1]), "{text}");
    }
    let latin = csv_of(b"sick,age,ward,n\xf3te\nno,50,icu,\xff\n").unwrap();
    assert_eq!(labelled(&latin, &spec(SPEC)).unwrap().1, [0]);
    for (text, line) in [
        ("sick,age,ward\nno,50,icu,x\nyes,25,general,y\n", 2),
        ("sick,age,ward\n1,no,50,icu\nyes,25,general\n", 2),
        ("sick,age,ward\nno,50,icu\nyes,25,general,\n", 3),
        ("sick,age,ward,\nno,50\n", 2),
        ("sick,age,ward\n7,no,50,icu\n7,yes,25,general\n", 2),
    ] {
        let said = said(text.as_bytes());
        assert!(said.starts_with(&format!("ward.csv, line {line}: has ")), "{text}: {said}");
    }
}

#[test]
fn files_of_other_kinds_are_named() {
    for (bytes, expected) in [
        (&b"\x28\xb5\x2f\xfd\0"[..], "ward.csv is compressed with Zstandard; decompress it first, with `unzstd`"),
        (b"PAR1\x15\x04", "ward.csv is a Parquet file; give it as `parquet:FILE` instead of `csv:FILE`"),
        (b"\xff\xfei\0d\0", "ward.csv is text in UTF-16; save it as UTF-8"),
    ] {
        assert_eq!(said(bytes), expected);
    }
    assert!(said(b"PK\x03\x04\x14").contains("Excel's workbooks (.xlsx)"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.parquet");
    std::fs::write(&path, GOOD).unwrap();
    let text = table_at(&format!("parquet:{}", path.display())).err().unwrap();
    assert!(
        chain(&text).ends_with("is text, not a Parquet file; give a CSV file as `csv:FILE` instead of `parquet:FILE`")
    );
}

#[test]
fn labels_of_csv_and_parquet_mean_the_same_classes() {
    let wanted = spec(&SPEC.replace("[\"no\", \"yes\"]", "[\"0\", \"1\"]"));
    for cells in [["0", "1"], ["0.0", "1.0"], ["False", "True"], ["false", "TRUE"]] {
        let [no, yes] = cells;
        let text = format!("sick,age,ward\n{no},50,icu\n{yes},25,general\n");
        assert_eq!(labelled(&csv_of(text.as_bytes()).unwrap(), &wanted).unwrap().1, [0, 1], "{cells:?}");
    }
}

/// A Parquet file of a word, a number and a whole number in each row, without a number in the last. Two more columns
/// have times and bytes that are not text.
fn parquet_file(path: &Path, compression: Compression) {
    let column = |name: &str, kind, converted| {
        let column = Type::primitive_type_builder(name, kind).with_repetition(Repetition::OPTIONAL);
        Arc::new(column.with_converted_type(converted).build().unwrap())
    };
    let fields = vec![
        column("ward", Physical::BYTE_ARRAY, ConvertedType::UTF8),
        column("age", Physical::DOUBLE, ConvertedType::NONE),
        column("sick", Physical::INT64, ConvertedType::NONE),
        column("admitted", Physical::INT64, ConvertedType::TIMESTAMP_MICROS),
        column("photo", Physical::BYTE_ARRAY, ConvertedType::NONE),
    ];
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build().unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let words = ["icu", "general", "icu"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&words, Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[50.0, 25.0], Some(&[1, 1, 0]), None).unwrap();
    column.close().unwrap();
    for _ in 0..2 {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[0, 1, 1], Some(&[1, 1, 1]), None).unwrap();
        column.close().unwrap();
    }
    let mut column = group.next_column().unwrap().unwrap();
    let bytes = [b"\xff\xd8"; 3].map(|bytes| ByteArray::from(bytes.to_vec()));
    column.typed::<ByteArrayType>().write_batch(&bytes, Some(&[1, 1, 1]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

#[test]
fn parquet_is_read_as_pandas_writes_it_and_its_rows_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.parquet");
    let wanted = spec(&SPEC.replace("[\"no\", \"yes\"]", "[\"0\", \"1\"]"));
    let words =
        spec("features = [{ column = \"ward\", one_of = [\"general\", \"icu\"] }]\nlabel = { column = \"sick\" }");
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
    ] {
        parquet_file(&path, compression);
        let table = table_at(&format!("parquet:{}", path.display())).unwrap();
        assert_eq!(
            (table.rows(), table.names()),
            (3, ["ward", "age", "sick", "admitted", "photo"].map(str::to_owned).to_vec())
        );
        let fitted = rows(&table, &words).unwrap();
        assert_eq!((fitted.row(0), fitted.targets()), (&[0.0, 1.0][..], &[0.0, 1.0, 1.0][..]));
        let empty = chain(&labelled(&table, &wanted).unwrap_err());
        assert!(
            empty.ends_with("row 3, column `age`: the cell is empty; a number from 0 to 100 is expected"),
            "{empty}"
        );
    }
    for (column, found) in
        [("admitted", "times; write them as numbers, for example of days"), ("photo", "bytes that are no text")]
    {
        let wanted = spec(&format!("features = [{{ column = \"{column}\" }}]"));
        let table = table_at(&format!("parquet:{}", path.display())).unwrap();
        let error = chain(&rows(&table, &wanted).unwrap_err());
        let expected = format!("column `{column}`: holds {found}; numbers, words and yes or no can be read");
        assert!(error.ends_with(&expected), "{error}");
    }
    std::fs::write(&path, b"PAR1 and no more").unwrap();
    let broken = table_at(&format!("parquet:{}", path.display())).err().unwrap();
    assert!(chain(&broken).contains("is no Parquet file that can be read: "), "{broken:?}");
}

#[test]
fn column_of_another_compression_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.parquet");
    parquet_file(&path, Compression::UNCOMPRESSED);
    // This build does not write LZ4. The footer states the codec of a column after the column's path.
    let mut bytes = std::fs::read(&path).unwrap();
    let uncompressed = b"\x04sick\x15\x00";
    let at = bytes.windows(uncompressed.len()).position(|part| part == uncompressed).unwrap();
    bytes[at + uncompressed.len() - 1] = 0x0e;
    std::fs::write(&path, bytes).unwrap();
    let table = table_at(&format!("parquet:{}", path.display())).unwrap();
    let words = "features = [{ column = \"ward\", one_of = [\"general\", \"icu\"] }]";
    assert_eq!(rows(&table, &spec(words)).unwrap().row(0), [0.0, 1.0], "a column of the usual compression");
    let told = chain(&rows(&table, &spec(&format!("{words}\nlabel = {{ column = \"sick\" }}"))).unwrap_err());
    assert!(told.contains("column `sick`: is compressed with LZ4_RAW, and a column must be"), "{told}");
    assert!(told.ends_with("with `compression=\"snappy\"`"), "{told}");
}
