//! The end of a program's output.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that are kept of each stream.
const KEPT: usize = 4096;
/// Time to wait for the end of a stream after its program has ended: another process may hold it open.
const END: Duration = Duration::from_secs(1);

/// The last bytes of a stream, which is read to its end on a thread of its own, however long it is.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Shared>);

#[derive(Default)]
struct Shared {
    read: Mutex<Bytes>,
    ended: Condvar,
}

#[derive(Default)]
struct Bytes {
    kept: VecDeque<u8>,
    has_ended: bool,
}

impl Tail {
    pub(super) fn of(mut stream: impl Read + Send + 'static) -> Self {
        let tail = Self::default();
        let kept = tail.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; KEPT];
            // Ends when all writers have ended.
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                kept.push(&buffer[..read]);
            }
            kept.end();
        });
        tail
    }

    fn push(&self, bytes: &[u8]) {
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.kept.extend(bytes);
        let excess = read.kept.len().saturating_sub(KEPT);
        read.kept.drain(..excess);
    }

    fn end(&self) {
        self.0.read.lock().unwrap_or_else(PoisonError::into_inner).has_ended = true;
        self.0.ended.notify_all();
    }

    /// The output of an ended program as text, without terminal control characters.
    pub(super) fn text(&self) -> String {
        let read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.ended.wait_timeout_while(read, END, |read| !read.has_ended);
        let (read, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<u8> = read.kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&kept);
        text.trim().chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_steers_no_terminal() {
        let tail = Tail::default();
        tail.push(&[b'a'; 10_000]);
        tail.push(b"\x1b[31mno memory\r\n");
        tail.end();
        assert_eq!(tail.text().len(), KEPT - 3);
        assert!(tail.text().ends_with("a[31mno memory"), "{}", tail.text());
    }
}
