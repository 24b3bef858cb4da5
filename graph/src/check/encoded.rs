//! The size of a graph as JSON.

use std::io;

use crate::model::Graph;

/// Whether a graph has more bytes than this as JSON.
pub(super) fn is_longer(graph: &Graph, most: usize) -> bool {
    serde_json::to_writer(Remaining(most), graph).is_err()
}

/// Counts what is written, and fails where it is too much.
struct Remaining(usize);

impl io::Write for Remaining {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
