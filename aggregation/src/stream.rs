//! Reading inputs from streams.

use std::io::{self, ErrorKind, Read};

/// Reads until `buffer` is full or the stream ends, and returns the number of bytes.
pub(crate) fn read_full(stream: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
