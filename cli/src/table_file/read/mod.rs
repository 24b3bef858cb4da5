//! Readers of tables, one for each format.

mod batch;
pub(super) mod csv;
pub(super) mod format;
pub(super) mod parquet;
mod parts;
mod records;
mod renames;
mod row_names;
mod signature;
mod swallowed;
