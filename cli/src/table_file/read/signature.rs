//! Recognizes by their first bytes files of other formats, and CSV and Parquet files given as each other.

use super::format::Format;

/// Bytes that [`recognized`] looks at.
pub(super) const LENGTH: usize = 512;

/// First bytes of a file that gzip has compressed.
pub(super) const GZIP: &[u8] = b"\x1f\x8b";

/// First bytes, the description of such files, and the remedy.
const SIGNATURES: &[(&[u8], &str, &str)] = &[
    (GZIP, "is compressed with gzip", "decompress it first, with `gunzip`"),
    (b"\x28\xb5\x2f\xfd", "is compressed with Zstandard", "decompress it first, with `unzstd`"),
    (b"\xfd7zXZ\0", "is compressed with xz", "decompress it first, with `unxz`"),
    (b"\x04\x22\x4d\x18", "is compressed with LZ4", "decompress it first, with `unlz4`"),
    (
        b"PK\x03\x04",
        "is a ZIP archive, as Excel's workbooks (.xlsx) are",
        "save the sheet as CSV in UTF-8, or unpack the archive",
    ),
    (b"PK\x05\x06", "is an empty ZIP archive", "give the table itself"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook (.xls)", "save the sheet as CSV in UTF-8"),
    (b"\xff\xfe", "is text in UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "is text in UTF-16", "save it as UTF-8"),
    (b"ARROW1", "is an Arrow (Feather) file", "write the table as Parquet or CSV"),
    (b"PARE", "is an encrypted Parquet file", "write it without encryption"),
    (b"Obj\x01", "is an Avro file", "write the table as Parquet or CSV"),
    (b"\x89HDF\r\n\x1a\n", "is an HDF5 file", "write the table as Parquet or CSV"),
    (b"SQLite format 3\0", "is an SQLite database", "write the table as Parquet or CSV"),
    (b"%PDF-", "is a PDF document", "give the table as CSV or Parquet"),
];

/// The description of a file that cannot be read as this format, and the remedy; `None` if its first bytes fit.
pub(super) fn recognized(start: &[u8], wanted: Format) -> Option<(&'static str, &'static str)> {
    let known = SIGNATURES.iter().find(|(bytes, ..)| start.starts_with(bytes)).map(|&(_, is, right)| (is, right));
    known.or_else(|| is_bzip2(start).then_some(("is compressed with bzip2", "decompress it first, with `bunzip2`"))).or(
        match wanted {
            Format::Csv if start.starts_with(b"PAR1") => {
                Some(("is a Parquet file", "give it as `parquet:FILE` instead of `csv:FILE`"))
            }
            Format::Parquet if is_text(start) => {
                Some(("is text, not a Parquet file", "give a CSV file as `csv:FILE` instead of `parquet:FILE`"))
            }
            Format::Csv | Format::Parquet => None,
        },
    )
}

fn is_bzip2(start: &[u8]) -> bool {
    start.starts_with(b"BZh") && start.get(4..10) == Some(b"1AY&SY")
}

/// Whether these are the first bytes of a text; the last letter may be incomplete.
fn is_text(start: &[u8]) -> bool {
    let whole = match std::str::from_utf8(start) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !start.starts_with(b"PAR1")
        && !whole.is_empty()
        && !whole.contains(|letter: char| letter.is_control() && !letter.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signature_is_recognized_in_both_formats() {
        for (bytes, is, _) in SIGNATURES {
            for format in [Format::Csv, Format::Parquet] {
                let start = [*bytes, &b"and more"[..]].concat();
                assert_eq!(recognized(&start, format).map(|(is, _)| is), Some(*is));
            }
        }
        assert!(recognized(b"BZh91AY&SY\x01", Format::Csv).is_some_and(|(is, _)| is.contains("bzip2")));
    }

    #[test]
    fn csv_and_parquet_are_recognized_as_each_other() {
        assert!(recognized(b"PAR1\x15\x04", Format::Csv).is_some_and(|(_, right)| right.contains("parquet:FILE")));
        assert!(
            recognized("größe,\u{e9}".as_bytes(), Format::Parquet).is_some_and(|(_, right)| right.contains("csv:FILE"))
        );
        for start in [&b"BZhours,age\n1,2"[..], b"age,ward\n", b"", b"\xe9t\xe9,age\n", b"\xef\xbb\xbfage\n"] {
            assert_eq!(recognized(start, Format::Csv), None);
        }
        assert_eq!(recognized(b"PAR1\x15\x04", Format::Parquet), None);
        assert_eq!(recognized(b"", Format::Parquet), None);
    }
}
