//! Errors of NPZ files.

use crate::limits::{MAX_ARRAYS, MAX_CONTENT_BYTES};

/// Errors of an NPZ file. Each message states what was wrong and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The file is no ZIP archive, or a truncated one.
    #[error("it is no whole ZIP archive ({0}); `numpy.savez` writes the right format")]
    Archive(&'static str),
    /// The file or the sum of its arrays exceeds the limit.
    #[error("the file, or the sum of its arrays, is larger than {MAX_CONTENT_BYTES} bytes, the most that is read")]
    Large,
    /// The archive holds too many arrays.
    #[error("it holds {0} arrays; at most {MAX_ARRAYS} are read")]
    Many(usize),
    /// A member of the archive is no NPY file.
    #[error("its member `{0}` is no array; arrays have names that end in .npy")]
    Member(String),
    /// Two arrays have the same name.
    #[error("it holds the array `{0}` twice")]
    Duplicate(String),
    /// A member is damaged.
    #[error("its member `{name}` is damaged: {detail}")]
    Damaged {
        /// Name in the archive, or of the array.
        name: String,
        detail: &'static str,
    },
    /// The elements have a type that is not read.
    #[error(
        "the array `{name}` has the type `{descr}`; float32, float64, bool and integers up to int64, in little-endian order, \
         are read: convert with `.astype`"
    )]
    Type {
        name: String,
        /// The type as NumPy writes it.
        descr: String,
    },
    /// The elements are in column-major order.
    #[error("the array `{0}` is in Fortran order; save `numpy.ascontiguousarray` of it")]
    FortranOrder(String),
    /// The length does not fit the shape.
    #[error("the array `{name}` has {found} bytes of elements, and its shape {shape:?} needs another number")]
    Length {
        name: String,
        shape: Vec<usize>,
        /// Bytes after the header.
        found: usize,
    },
}
