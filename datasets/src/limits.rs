//! Largest files and settings, named by the errors about them.

/// Maximum number of images or labels in a file.
pub const MAX_ITEMS: u32 = 1_000_000;
/// Maximum number of rows and of columns of an image.
pub const MAX_SIDE: u32 = 4096;
/// Maximum content of a file in bytes, also of all arrays of an NPZ file: MNIST has 47 million, EMNIST 639 million.
pub const MAX_CONTENT_BYTES: u64 = 1 << 30;
/// Maximum number of arrays in an NPZ file.
pub const MAX_ARRAYS: usize = 1024;
/// Largest Dirichlet concentration, at which the partition is even to one part in ten thousand.
pub const MAX_ALPHA: f64 = 1e9;
/// Largest α and β, so that every feature is a finite `f32`.
pub const MAX_SPREAD: f64 = 1e6;
/// Maximum size of a text, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;
/// Maximum length of a sequence, in characters.
pub const MAX_LENGTH: usize = 4096;
