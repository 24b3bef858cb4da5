//! Compressed files, folders of files, and columns with other names.

use std::io::Write as _;

use flate2::Compression as Level;
use flate2::write::GzEncoder;

use super::*;

#[test]
fn compressed_csv_is_read_and_a_broken_one_is_named() {
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    encoder.write_all(GOOD.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    let rows = labelled(&csv_of(&bytes).unwrap(), &spec(SPEC)).unwrap();
    assert_eq!(rows.1, [0, 1]);
    // Two members, as of files that were compressed apart and then put together.
    let mut more = GzEncoder::new(bytes.clone(), Level::fast());
    more.write_all(b"3,no,10,icu\n").unwrap();
    assert_eq!(csv_of(&more.finish().unwrap()).unwrap().rows(), 3);
    for broken in [&bytes[..bytes.len() - 4], &bytes[..12], b"\x1f\x8b\x08\0\0"] {
        let error = chain(&csv_of(broken).err().unwrap());
        assert!(error.starts_with("cannot read ") && error.contains("ward.csv: "), "{error}");
    }
    let mut inner = GzEncoder::new(Vec::new(), Level::fast());
    inner.write_all(b"PAR1\x15\x04").unwrap();
    let error = chain(&csv_of(&inner.finish().unwrap()).err().unwrap());
    assert!(error.contains("is a Parquet file"), "{error}");
}

#[test]
fn folder_of_parts_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("table");
    for (part, compression) in
        [("site=north", Compression::SNAPPY), ("site=s%C3%BCd", Compression::BROTLI(BrotliLevel::default()))]
    {
        std::fs::create_dir_all(root.join(part)).unwrap();
        parquet_file(&root.join(part).join("part-0.parquet"), compression);
    }
    std::fs::write(root.join("_SUCCESS"), b"").unwrap();
    let path = format!("parquet:{}", root.display()).parse::<TablePath>().unwrap();
    let table = table_of(&path).unwrap();
    let words = "features = [{ column = \"site\", one_of = [\"north\", \"süd\"] }]\nlabel = { column = \"sick\" }";
    let found = rows(&table, &spec(words)).unwrap();
    assert_eq!((table.rows(), found.targets()), (6, &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0][..]));
    assert_eq!((found.row(2), found.row(3)), (&[1.0, 0.0][..], &[0.0, 1.0][..]));
    let error = chain(&rows(&table, &spec("features = [{ column = \"age\" }]")).unwrap_err());
    assert!(error.contains("site=north/part-0.parquet, row 3, column `age`: the cell is empty"), "{error}");
    let (_, report) = table.fit(&wanted(&spec("features = [{ column = \"age\" }]")));
    assert!(chain(&report.problems[1]).contains("site=s%C3%BCd/part-0.parquet, row 3"), "{:?}", report.problems);
    #[cfg(unix)]
    {
        let link = root.join("latest");
        std::os::unix::fs::symlink(root.join("site=north"), &link).unwrap();
        assert!(
            chain(&table_of(&path).err().unwrap()).contains("latest is a link to a folder"),
            "its rows would count twice"
        );
        std::fs::remove_file(link).unwrap();
    }
    std::fs::write(root.join("extra.parquet"), b"PAR1 and no more").unwrap();
    assert!(chain(&table_of(&path).err().unwrap()).contains("extra.parquet is no Parquet file that can be read"));
}

#[test]
fn columns_have_the_names_of_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ward.csv");
    std::fs::write(&path, GOOD.replace("age", "Alter").replace("sick", "krank")).unwrap();
    let path = format!("csv:{}", path.display()).parse::<TablePath>().unwrap();
    let pair = |(own, of_task): (&str, &str)| (own.to_owned(), of_task.to_owned());
    assert_eq!(parse_rename("Alter=age"), Ok(pair(("Alter", "age"))));
    let renamed = path.renamed(&[("Alter", "age"), ("krank", "sick")].map(pair));
    assert_eq!(labelled(&table_of(&renamed).unwrap(), &spec(SPEC)).unwrap().1, [0, 1]);
    let error = chain(&table_of(&path.renamed(&[pair(("Jahre", "age"))])).err().unwrap());
    assert!(
        error.ends_with(
            "--map names the column `Jahre`, which is not there; the file's columns are `id`, `krank`, `Alter`, `ward`"
        ),
        "{error}"
    );
    for text in ["", "age", "=age", "Alter="] {
        assert!(parse_rename(text).is_err(), "{text}");
    }
}

#[test]
fn truth_values_and_numbers_mix_in_columns_of_numbers() {
    let wanted = spec(
        "features = [{ column = \"smokes\", low = 0, high = 1 }]\nlabel = { column = \"sick\", one_of = [\"0\", \"1\"] }",
    );
    for cells in [["0", "1"], ["False", "True"], ["0.0", "1.0"], ["false", "TRUE"]] {
        let [no, yes] = cells;
        let text = format!("smokes,sick\n{no},{yes}\n{yes},{no}\n");
        let found = labelled(&csv_of(text.as_bytes()).unwrap(), &wanted).unwrap();
        assert_eq!(found, (vec![0.0, 1.0], vec![1, 0]), "{cells:?}");
    }
}
