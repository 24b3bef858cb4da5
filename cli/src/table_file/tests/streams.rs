//! Tables that are larger than the memory that they may take, and pipes.

use std::io::{Read as _, Write as _, repeat};
use std::process::Command;

use flate2::Compression as Level;
use flate2::write::GzEncoder;

use super::*;

/// A named pipe, into which a thread writes once.
fn piped(folder: &Path, bytes: Vec<u8>) -> std::path::PathBuf {
    let path = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let writer = path.clone();
    std::thread::spawn(move || std::fs::write(writer, bytes));
    path
}

#[test]
fn pipe_serves_one_task_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = piped(folder.path(), GOOD.into());
    let table = table_at(&format!("csv:{}", path.display())).unwrap();
    for _ in 0..2 {
        assert_eq!(labelled(&table, &spec(SPEC)).unwrap().1, [0, 1]);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ward.parquet");
    parquet_file(&file, Compression::SNAPPY);
    let path = piped(folder.path(), std::fs::read(file).unwrap());
    assert_eq!(table_at(&format!("parquet:{}", path.display())).unwrap().rows(), 3);
}

#[test]
fn compressed_table_takes_no_memory_for_its_rows() {
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    encoder.write_all(b"sick,age,ward\n").unwrap();
    let rows = b"no,50,icu\n".repeat(1000);
    (0..1000).for_each(|_| encoder.write_all(&rows).unwrap());
    let table = inspected(&encoder.finish().unwrap());
    let (fitted, report) = table.source.fit(&wanted(&spec(SPEC)), Keep::Nothing).unwrap();
    assert_eq!((report.used, fitted.rows()), (1_000_000, 0));
}

#[test]
fn endless_line_is_reported_below_the_other_rows() {
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    encoder.write_all(format!("{GOOD}3,no,999,icu\n4,no,50,\"").as_bytes()).unwrap();
    std::io::copy(&mut repeat(b'x').take(100_000_000), &mut encoder).unwrap();
    let table = inspected(&encoder.finish().unwrap());
    let (_, report) = table.fit(&wanted(&spec(SPEC)));
    let places: Vec<_> = report.problems.iter().map(|problem| problem.place().0).collect();
    assert_eq!((places, report.used), (vec![Some(Place::Line(4)), Some(Place::Line(5))], 2));
    let verdict = chain(&report.verdict().unwrap());
    assert!(verdict.contains("line 5: the row that begins here has more than 16 MiB"), "{verdict}");
}

#[test]
fn task_keeps_so_many_numbers_and_no_more() {
    let mut table = inspected(GOOD.as_bytes());
    let expected = "has more than 1 rows, of each of which the task keeps 4 numbers; it can keep 7 in all: give a table of fewer rows";
    for (most, fits) in [(8, true), (7, false)] {
        table.source.most = most;
        let found = labelled(&table, &spec(SPEC)).map_err(|error| chain(&error));
        assert_eq!(found.is_ok(), fits);
        assert!(found.is_ok() || found.is_err_and(|error| error.ends_with(expected)));
        assert!(table.source.fit(&wanted(&spec(SPEC)), Keep::Nothing).is_ok(), "nothing is kept");
    }
}

#[test]
fn rows_are_dealt_to_training_and_evaluation() {
    let text = "sick,age,ward\nno,10,icu\nyes,20,icu\nno,30,icu\nyes,40,icu\n";
    let (fitted, _) = inspected(text.as_bytes()).fit(&wanted(&spec(SPEC)));
    let (train, held_out) = fitted.datasets(&[0, 2, 3], &[1]);
    let of = |dataset| match dataset {
        Dataset::Labelled { features, labels, .. } => (features, labels),
        other => panic!("{other:?}"),
    };
    let expected = (vec![0.1, 1.0, 0.0, 0.3, 1.0, 0.0, 0.4, 1.0, 0.0], vec![0, 0, 1]);
    assert_eq!((of(train), of(held_out)), (expected, (vec![0.2, 1.0, 0.0], vec![1])));
}

#[test]
fn check_of_an_analysis_names_the_wrong_row() {
    let column = |name| serde_json::json!({ "type": "category", "name": name, "categories": 2 });
    let columns = [column("ward"), column("sick")];
    let analysis = serde_json::json!({ "kind": "contingency", "max_rows": 20_000, "columns": columns });
    let table = spec(
        "features = [{ column = \"ward\", one_of = [\"a\", \"b\", \"c\"] }, { column = \"sick\", one_of = [\"0\", \"1\"] }]",
    );
    let wanted = Wanted { analysis: Some(serde_json::from_value(analysis).unwrap()), ..wanted(&table) };
    let checked = |wrong: usize| {
        let rows: String = (0..10_000).map(|row| if row == wrong { "c,0\n" } else { "a,1\n" }).collect();
        let table = inspected(format!("ward,sick\n{rows}").as_bytes());
        table.source.fit(&wanted, Keep::Nothing).unwrap().0.accepted().map_err(|error| error.to_string())
    };
    assert_eq!(checked(10_000), Ok(()));
    for wrong in [0, 4096, 9_999] {
        let error = checked(wrong).unwrap_err();
        assert!(error.starts_with(&format!("row {wrong}, column 0 is 2")), "{error}");
    }
}

/// A Parquet file with a number and a word in each row, in groups of rows. Every tenth number is missing.
fn groups(path: &Path, groups: usize, rows: usize) {
    let column = |name: &str, kind, converted, repetition| {
        let column = Type::primitive_type_builder(name, kind).with_repetition(repetition);
        Arc::new(column.with_converted_type(converted).build().unwrap())
    };
    let fields = vec![
        column("age", Physical::DOUBLE, ConvertedType::NONE, Repetition::OPTIONAL),
        column("ward", Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED),
    ];
    let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build().unwrap());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::default()).unwrap();
    for group in 0..groups {
        let all = group * rows..(group + 1) * rows;
        let mut writer = file.next_row_group().unwrap();
        let mut column = writer.next_column().unwrap().unwrap();
        let ages: Vec<_> = all.clone().filter(|row| row % 10 != 3).map(|row| row as f64).collect();
        let levels: Vec<_> = all.clone().map(|row| i16::from(row % 10 != 3)).collect();
        column.typed::<DoubleType>().write_batch(&ages, Some(&levels), None).unwrap();
        column.close().unwrap();
        let mut column = writer.next_column().unwrap().unwrap();
        let words: Vec<_> = all.map(|row| ByteArray::from(if row % 2 == 0 { "icu" } else { "general" })).collect();
        column.typed::<ByteArrayType>().write_batch(&words, None, None).unwrap();
        column.close().unwrap();
        writer.close().unwrap();
    }
    file.close().unwrap();
}

#[test]
fn parquet_is_read_by_groups_and_batches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.parquet");
    groups(&path, 2, 2500);
    let table = table_at(&format!("parquet:{}", path.display())).unwrap();
    let columns =
        "features = [{ column = \"ward\", one_of = [\"general\", \"icu\"] }, { column = \"age\", missing = -1 }]";
    let found = rows(&table, &spec(columns)).unwrap();
    assert_eq!((table.rows(), found.rows()), (5000, 5000));
    for row in 0..5000 {
        let age = if row % 10 == 3 { -1.0 } else { row as f64 };
        let is_icu = f64::from(u8::from(row % 2 == 0));
        assert_eq!(found.row(row), [1.0 - is_icu, is_icu, age], "{row}");
    }
    let error = chain(&rows(&table, &spec("features = [{ column = \"age\" }]")).unwrap_err());
    assert!(error.ends_with("ward.parquet, row 4, column `age`: the cell is empty; a number is expected"), "{error}");
}
