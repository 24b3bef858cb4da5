//! Where the bytes of a table come from, each time it is read.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::command::CommandOutput;
use super::error::TableError;

/// Most bytes of a pipe, which are held in memory.
const MAX_HELD: u64 = 1 << 30;
/// The name of every command in messages: a command line may contain a password.
const COMMAND: &str = "the command";

/// The place that a user names.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Location {
    Path(PathBuf),
    /// A line for the shell, whose output is the table.
    Command(String),
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Command(_) => f.write_str(COMMAND),
        }
    }
}

/// A place that can be read several times.
pub(super) enum Origin {
    /// A regular file, or a folder.
    File(PathBuf),
    /// A pipe, and its bytes.
    Pipe(PathBuf, Bytes),
    Command(String),
}

impl Origin {
    /// Reads a pipe; files are read and commands are run later.
    ///
    /// # Errors
    /// There is no file; the pipe cannot be read, or has too many bytes.
    pub(super) fn open(location: &Location) -> Result<Self, TableError> {
        let path = match location {
            Location::Path(path) => path,
            Location::Command(line) => return Ok(Self::Command(line.clone())),
        };
        let unreadable = TableError::read(path);
        let metadata = std::fs::metadata(path).map_err(&unreadable)?;
        if metadata.is_file() || metadata.is_dir() {
            return Ok(Self::File(path.clone()));
        }
        let mut bytes = Vec::new();
        // Growing copies would take several times as much. Memory that is not written to is not used; without it, the copies do.
        let _ = bytes.try_reserve_exact(usize::try_from(MAX_HELD + 1).unwrap_or_default());
        File::open(path).and_then(|pipe| pipe.take(MAX_HELD + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_HELD {
            return Err(TableError::TooLarge { path: path.clone() });
        }
        Ok(Self::Pipe(path.clone(), bytes.into()))
    }

    /// The path, or a name for messages.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Pipe(path, _) => path,
            Self::Command(_) => Path::new(COMMAND),
        }
    }

    /// The bytes, from the first one.
    ///
    /// # Errors
    /// The file cannot be read or is a folder; the command cannot be started.
    pub(super) fn reader(&self) -> Result<Box<dyn Read>, TableError> {
        match self {
            Self::File(path) => open(path).map(|file| Box::new(file) as _),
            Self::Pipe(_, bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            Self::Command(line) => {
                CommandOutput::start(line).map(|output| Box::new(output) as _).map_err(TableError::read(self.path()))
            }
        }
    }
}

/// Opens a file of a table.
///
/// # Errors
/// It cannot be read, or is a folder.
pub(super) fn open(path: &Path) -> Result<File, TableError> {
    let unreadable = TableError::read(path);
    let file = File::open(path).map_err(&unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(TableError::Folder { path: path.into() });
    }
    Ok(file)
}
