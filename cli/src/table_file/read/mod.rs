//! Readers of tables, one for each format.

pub(super) mod csv;
pub(super) mod format;
pub(super) mod parquet;
mod parts;
mod quotes;
mod record;
mod signature;
