//! A folder with the parts of a table, as Spark, Dask and pyarrow write it.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use crate::table_file::error::TableError;

/// The word of a folder for rows without a value (Apache Hive).
const NO_VALUE: &str = "__HIVE_DEFAULT_PARTITION__";
/// Deepest folder that is searched.
const MAX_DEPTH: usize = 16;

/// One file of a table.
pub(super) struct Part {
    pub(super) path: PathBuf,
    /// Columns whose value is in the names of folders, as in `ward=icu`.
    pub(super) columns: Vec<(String, String)>,
}

impl Part {
    /// A table of one file.
    pub(super) fn file(path: &Path) -> Self {
        Self { path: path.into(), columns: Vec::new() }
    }
}

/// The files that end in `.parquet`, in the order of their names. Names that begin with a dot or an underscore are left out, as in
/// Spark.
pub(super) fn of_folder(folder: &Path) -> Result<Vec<Part>, TableError> {
    let mut parts = Vec::new();
    search(folder, &[], 0, &mut parts)?;
    Ok(parts)
}

fn search(folder: &Path, columns: &[(String, String)], depth: usize, parts: &mut Vec<Part>) -> Result<(), TableError> {
    let unreadable = TableError::read(folder);
    let entries = std::fs::read_dir(folder).map_err(&unreadable)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(['.', '_']) {
            continue;
        }
        if path.is_dir() {
            if path.is_symlink() || depth == MAX_DEPTH {
                let (is, right) = ("is a link to a folder, or lies too deep", "give that folder itself");
                return Err(TableError::Other { path, is, right });
            }
            let own = name.split_once('=').map(|(column, value)| (decoded(column), decoded(value)));
            let own = own.map(|(column, value)| (column, if value == NO_VALUE { String::new() } else { value }));
            search(&path, &columns.iter().cloned().chain(own).collect::<Vec<_>>(), depth + 1, parts)?;
        } else if name.ends_with(".parquet") {
            parts.push(Part { path, columns: columns.to_vec() });
        }
    }
    Ok(())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
