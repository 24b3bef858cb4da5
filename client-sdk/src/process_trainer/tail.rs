//! The end of what a program says.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are kept of each stream.
const KEPT: usize = 4096;

/// The last bytes of a stream, which is read to its end on a thread of its own, however long it is.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    pub(super) fn of(mut stream: impl Read + Send + 'static) -> Self {
        let tail = Self::default();
        let kept = tail.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; KEPT];
            // Ends when all have ended who may write.
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                kept.push(&buffer[..read]);
            }
        });
        tail
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }

    /// As text without what would steer a terminal.
    pub(super) fn text(&self) -> String {
        let kept: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
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
        assert_eq!(tail.text().len(), KEPT - 3);
        assert!(tail.text().ends_with("a[31mno memory"), "{}", tail.text());
    }
}
