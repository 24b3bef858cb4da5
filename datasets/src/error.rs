//! Why data could not be read, generated or partitioned.

use std::io;
use std::path::PathBuf;

use crate::{idx, partition, synthetic, text};

/// Why data could not be read, generated or partitioned. The messages say what was wrong and what would be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The data folder is absent, or is not a folder.
    #[error("{} is not a folder; expected a folder with {expected}", .path.display())]
    MissingFolder {
        /// The path that was given.
        path: PathBuf,
        /// What such a folder holds.
        expected: &'static str,
    },
    /// The folder lacks a file.
    #[error("{} has none of these files: {}", .folder.display(), .looked_for.join(", "))]
    MissingFile {
        /// The folder that was searched.
        folder: PathBuf,
        /// Names any one of which would have done.
        looked_for: Vec<String>,
    },
    /// The operating system refused to read a file.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A gzip file whose content is damaged.
    #[error("{} starts like a gzip file but does not decompress", .path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// What the decompressor said.
        source: io::Error,
    },
    /// An IDX file that begins with the wrong four bytes.
    #[error("{} begins with {found:#010x}; an IDX file of {what} begins with {expected:#010x}", .path.display())]
    BadMagic {
        /// The file.
        path: PathBuf,
        /// What the file should hold.
        what: &'static str,
        /// The number at its start.
        found: u32,
        /// The number that should be there.
        expected: u32,
    },
    /// A file shorter than its header, or than its header says.
    #[error("{} is truncated: it ends after {found} bytes of {part}, {expected} were announced", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// `header` or `content`.
        part: &'static str,
        /// Bytes that part should have.
        expected: usize,
        /// Bytes that part has.
        found: usize,
    },
    /// A file longer than its header says.
    #[error("{} goes on after the {expected} bytes of content that its header announces", .path.display())]
    TrailingBytes {
        /// The file.
        path: PathBuf,
        /// Bytes of content that the header announces.
        expected: usize,
    },
    /// A header with zero or implausibly many items.
    #[error(
        "the header of {} announces {count} items of {rows} × {columns}; from 1 to {} items, sides from 1 to {} and at \
         most {} bytes altogether are read",
        .path.display(), idx::MAX_ITEMS, idx::MAX_SIDE, idx::MAX_CONTENT_BYTES
    )]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// Items announced.
        count: u32,
        /// Rows of each.
        rows: u32,
        /// Columns of each.
        columns: u32,
    },
    /// Two files of a pair disagree on their length.
    #[error(
        "{} has {images} images but {} has {labels} labels; files of one set belong together",
        .images_path.display(), .labels_path.display()
    )]
    CountMismatch {
        /// The file of images.
        images_path: PathBuf,
        /// Images in it.
        images: usize,
        /// The file of labels.
        labels_path: PathBuf,
        /// Labels in it.
        labels: usize,
    },
    /// A label that is no class.
    #[error("label {label} at position {position} is not below the number of classes, {classes}")]
    LabelOutOfRange {
        /// The label.
        label: u32,
        /// Index of the example, from 0.
        position: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A text larger than the loader reads.
    #[error("{} is larger than {} bytes, the most that is read", .path.display(), text::MAX_BYTES)]
    TextTooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A text that is not UTF-8.
    #[error("{} is not UTF-8 text", .path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
    },
    /// A text in which nobody speaks.
    #[error("{} has no speakers; a speech is a line `SPEAKER:` after a blank line, then what is said", .path.display())]
    NoSpeakers {
        /// The file.
        path: PathBuf,
    },
    /// More participants than speakers with enough to say.
    #[error(
        "{asked} participants were asked for, but only {found} speakers have the {needed} characters that one training \
         and one test sequence take; ask for fewer participants or shorter sequences"
    )]
    TooFewSpeakers {
        /// Participants asked for.
        asked: usize,
        /// Speakers with enough text.
        found: usize,
        /// Characters a speaker must have.
        needed: usize,
    },
    /// A sequence length outside its range.
    #[error("sequences of {0} characters are not possible; give a length from 1 to {max}", max = text::MAX_LENGTH)]
    BadLength(usize),
    /// Zero participants.
    #[error("there are no participants; ask for at least one")]
    NoParticipants,
    /// Fewer examples than the partition has places for.
    #[error("{examples} examples do not fill {needed} parts; ask for fewer participants or fewer shards")]
    TooFewExamples {
        /// Examples there are.
        examples: usize,
        /// Parts that each need one.
        needed: usize,
    },
    /// A Dirichlet concentration outside its range.
    #[error(
        "a Dirichlet ALPHA of {0} is not possible; give a number above 0, at most {max:e}",
        max = partition::MAX_ALPHA
    )]
    BadAlpha(f64),
    /// Zero shards for each participant.
    #[error("each participant must get at least one shard, `shards:1`")]
    NoShards,
    /// A text that names no partition.
    #[error("`{0}` is no partition; use iid, dirichlet:ALPHA (a number above 0) or shards:K (a whole number from 1)")]
    UnknownPartition(String),
    /// A parameter of the synthetic benchmark outside its range.
    #[error("{name} = {value} is not possible for synthetic data; give a number from 0 to {:e}", synthetic::MAX_SPREAD)]
    BadSpread {
        /// `alpha` or `beta`.
        name: &'static str,
        /// The number that was given.
        value: f64,
    },
    /// Data sets that cannot be one: none at all, or of different shape.
    #[error("cannot join data sets: {0}")]
    Incompatible(String),
}
