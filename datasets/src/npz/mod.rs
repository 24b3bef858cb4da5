//! Arrays by name in NumPy's NPZ files: a ZIP archive of NPY files, as `numpy.savez` and `numpy.savez_compressed` write
//! it (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).
//!
//! Files are untrusted: announced sizes are bounded before anything is decompressed, memory grows only with bytes that
//! are present, checksums are verified, and arrays of Python objects are rejected.

mod array;
mod error;
mod zip;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use self::array::{Array, Elements};
pub use self::error::NpzError;
use crate::DataError;
pub use crate::limits::{MAX_ARRAYS, MAX_CONTENT_BYTES};

/// Reads all arrays of an NPZ file, by the names that `numpy.savez` got as keywords.
///
/// # Errors
/// [`DataError::Read`], or [`DataError::Npz`] for a file or array that is damaged, too large or of another format.
pub fn load(path: &Path) -> Result<BTreeMap<String, Array>, DataError> {
    let failed = |source| DataError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_CONTENT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    arrays(&bytes).map_err(|source| DataError::Npz { path: path.to_owned(), source })
}

/// Reads all arrays from the content of an NPZ file.
///
/// # Errors
/// As [`DataError::Npz`].
pub fn arrays(file: &[u8]) -> Result<BTreeMap<String, Array>, NpzError> {
    let mut arrays = BTreeMap::new();
    for member in zip::members(file)? {
        let Some(name) = member.name.strip_suffix(".npy") else {
            return Err(NpzError::Member(member.name));
        };
        let array = array::read(name, &member.content()?)?;
        if arrays.insert(name.to_owned(), array).is_some() {
            return Err(NpzError::Duplicate(name.to_owned()));
        }
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests;
