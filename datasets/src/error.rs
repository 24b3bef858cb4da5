//! Errors when data are read, generated or partitioned.

use std::io;
use std::path::PathBuf;

use crate::limits;
use crate::npz::NpzError;

/// Errors when data are read, generated or partitioned. Each message states what was wrong and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The data folder is missing, or is not a folder.
    #[error("{} is not a folder; expected a folder with {expected}", .path.display())]
    MissingFolder {
        path: PathBuf,
        /// Expected content of the folder.
        expected: &'static str,
    },
    /// The folder lacks a file.
    #[error("{} has none of these files: {}", .folder.display(), .looked_for.join(", "))]
    MissingFile {
        folder: PathBuf,
        /// The accepted names.
        looked_for: Vec<String>,
    },
    /// The operating system failed to read a file.
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A gzip file is damaged.
    #[error("{} starts like a gzip file but does not decompress", .path.display())]
    Gzip { path: PathBuf, source: io::Error },
    /// An IDX file starts with the wrong magic number.
    #[error("{} begins with {found:#010x}; an IDX file of {what} begins with {expected:#010x}", .path.display())]
    BadMagic {
        path: PathBuf,
        /// Expected content of the file.
        what: &'static str,
        found: u32,
        expected: u32,
    },
    /// A file is shorter than its header, or than its header announces.
    #[error("{} is truncated: it ends after {found} bytes of {part}, but {expected} were announced", .path.display())]
    Truncated {
        path: PathBuf,
        /// `header` or `content`.
        part: &'static str,
        /// Expected length of that part, in bytes.
        expected: usize,
        /// Actual length of that part, in bytes.
        found: usize,
    },
    /// A file is longer than its header announces.
    #[error("{} continues after the {expected} bytes of content that its header announces", .path.display())]
    TrailingBytes {
        path: PathBuf,
        /// Bytes of content announced in the header.
        expected: usize,
    },
    /// A header announces zero or implausibly many items.
    #[error(
        "the header of {} announces {count} items of {rows} × {columns}; from 1 to {} items, sides from 1 to {} and at \
         most {} bytes altogether are read",
        .path.display(), limits::MAX_ITEMS, limits::MAX_SIDE, limits::MAX_CONTENT_BYTES
    )]
    BadHeader { path: PathBuf, count: u32, rows: u32, columns: u32 },
    /// The two files of a pair differ in length.
    #[error(
        "{} has {images} images but {} has {labels} labels; files of one set belong together",
        .images_path.display(), .labels_path.display()
    )]
    CountMismatch { images_path: PathBuf, images: usize, labels_path: PathBuf, labels: usize },
    /// A label is not below the number of classes.
    #[error("label {label} at position {position} is not below the number of classes, {classes}")]
    LabelOutOfRange {
        label: u32,
        /// Index of the example, from 0.
        position: usize,
        classes: usize,
    },
    /// An NPZ file is damaged, too large or of another format.
    #[error("cannot read the arrays of {}", .path.display())]
    Npz { path: PathBuf, source: NpzError },
    /// A text exceeds the maximum size.
    #[error("{} is larger than {} bytes, the most that is read", .path.display(), limits::MAX_BYTES)]
    TextTooLarge { path: PathBuf },
    /// A text is not UTF-8.
    #[error("{} is not UTF-8 text", .path.display())]
    NotUtf8 { path: PathBuf },
    /// A text without speakers.
    #[error("{} has no speakers; a speech is a line `SPEAKER:` after a blank line, then what is said", .path.display())]
    NoSpeakers { path: PathBuf },
    /// There are fewer speakers with enough text than participants.
    #[error(
        "{asked} participants were requested, but only {found} speakers have the {needed} characters that one training \
         and one test sequence take; ask for fewer participants or shorter sequences"
    )]
    TooFewSpeakers {
        asked: usize,
        found: usize,
        /// Number of characters that a speaker must have.
        needed: usize,
    },
    /// The sequence length is out of range.
    #[error("sequences of {0} characters are not possible; give a length from 1 to {max}", max = limits::MAX_LENGTH)]
    BadLength(usize),
    #[error("there are no participants; ask for at least one")]
    NoParticipants,
    /// There are fewer examples than parts.
    #[error("{examples} examples do not fill {needed} parts; ask for fewer participants or fewer shards")]
    TooFewExamples { examples: usize, needed: usize },
    /// The Dirichlet concentration is out of range.
    #[error(
        "a Dirichlet ALPHA of {0} is not possible; give a number above 0, at most {max:e}",
        max = limits::MAX_ALPHA
    )]
    BadAlpha(f64),
    /// The number of shards per participant is zero.
    #[error("each participant must get at least one shard, `shards:1`")]
    NoShards,
    /// The text does not name a partition.
    #[error(
        "`{0}` is not a partition; use iid, dirichlet:ALPHA (a number above 0) or shards:K (a whole number from 1)"
    )]
    UnknownPartition(String),
    /// A parameter of the synthetic benchmark is out of range.
    #[error("{name} = {value} is not possible for synthetic data; give a number from 0 to {:e}", limits::MAX_SPREAD)]
    BadSpread {
        /// `alpha` or `beta`.
        name: &'static str,
        value: f64,
    },
    /// The data sets cannot be joined: there are none, or their shapes differ.
    #[error("cannot join data sets: {0}")]
    Incompatible(String),
}
