//! The process and its machine: files, locks, limits and version.

pub(crate) mod cores;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod lock;
pub(crate) mod open_files;
