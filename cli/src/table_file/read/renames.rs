//! Names that a task has for a table's columns.

use std::path::Path;

use crate::table_file::cells::{ColumnName, names};
use crate::table_file::error::TableError;
use crate::table_file::listed::listed;

/// Gives columns the names that the task has for them.
///
/// # Errors
/// There is no column with the name to be replaced.
pub(super) fn apply(path: &Path, columns: &mut [ColumnName], renames: &[(String, String)]) -> Result<(), TableError> {
    for (own, of_task) in renames {
        let Some((name, _)) = columns.iter_mut().find(|(name, _)| name == own) else {
            let found = listed(&names(columns));
            return Err(TableError::Unmapped { path: path.into(), column: own.clone(), found });
        };
        name.clone_from(of_task);
    }
    Ok(())
}
