//! Page-locked memory in pairs of buffers: one is transferred while the other is filled or emptied.
//!
//! Pageable memory would first be copied through a driver's buffer, which we cannot wipe and which delays the caller.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaEvent, CudaSlice, CudaStream, PinnedHostSlice};
use zeroize::Zeroize;

use super::timeout::{DEVICE_TIMEOUT, wait};
use crate::gpu::GpuError;

/// Size of a buffer in words, 4 MiB: large enough to make the cost of starting a copy negligible.
pub(super) const BUFFER: usize = 1 << 20;

/// A pair of buffers for one direction, and the stream of their copies.
pub(super) struct Staging {
    stream: Arc<CudaStream>,
    buffers: [Buffer; 2],
    next: usize,
}

struct Buffer {
    /// `None` once a copy has been given up: the device may still access the memory, so it is never freed.
    words: Option<PinnedHostSlice<u32>>,
    /// Signals the end of the copy in progress.
    busy: Option<CudaEvent>,
}

impl Buffer {
    fn new(context: &Arc<CudaContext>) -> Result<Self, GpuError> {
        // Cached, unlike the default: downloads read it.
        // SAFETY: it is written in full right here, before anything reads it.
        #[expect(unsafe_code, reason = "page-locked memory comes without contents")]
        let mut words = unsafe { context.alloc_pinned_with_flags::<u32>(BUFFER, 0) }?;
        words.as_mut_slice()?.fill(0);
        Ok(Self { words: Some(words), busy: None })
    }

    /// The memory, once the copy in progress is done.
    fn settled(&mut self, patience: Duration) -> Result<&mut PinnedHostSlice<u32>, GpuError> {
        if let Some(busy) = self.busy.take()
            && let Err(error) = wait(patience, || Ok(busy.try_is_complete()?))
        {
            std::mem::forget(self.words.take());
            return Err(error);
        }
        self.words.as_mut().ok_or_else(|| GpuError::Failed("an earlier copy never ended".to_owned()))
    }

    /// Records the start of a copy from or to the buffer. The buffer is given up if the copy's end cannot be determined.
    fn started(&mut self, stream: &CudaStream) -> Result<(), GpuError> {
        match stream.record_event(None) {
            Ok(event) => self.busy = Some(event),
            Err(error) => {
                std::mem::forget(self.words.take());
                return Err(error.into());
            }
        }
        Ok(())
    }
}

impl Drop for Buffer {
    /// Erases the transferred words. A lost device may never end a copy; the memory is then leaked without being erased.
    fn drop(&mut self) {
        if let Ok(words) = self.settled(DEVICE_TIMEOUT)
            && let Ok(words) = words.as_mut_slice()
        {
            words.zeroize();
        }
    }
}

impl Staging {
    pub(super) fn new(context: &Arc<CudaContext>, stream: Arc<CudaStream>) -> Result<Self, GpuError> {
        Ok(Self { stream, buffers: [Buffer::new(context)?, Buffer::new(context)?], next: 0 })
    }

    /// Copies `words` words to the start of `memory`. Returns when the last piece has been queued.
    pub(super) fn upload(
        &mut self,
        memory: &mut CudaSlice<u32>,
        words: usize,
        patience: Duration,
        mut fill: impl FnMut(usize, &mut [u32]),
    ) -> Result<(), GpuError> {
        for at in (0..words).step_by(BUFFER) {
            let end = words.min(at + BUFFER);
            let mut target = memory.try_slice_mut(at..end).ok_or_else(beyond)?;
            let buffer = &mut self.buffers[self.next];
            self.next = 1 - self.next;
            let place = &mut buffer.settled(patience)?.as_mut_slice()?[..end - at];
            fill(at, place);
            // The copy reads `place` later; until the event signals, it has exclusive access.
            self.stream.memcpy_htod(&*place, &mut target)?;
            buffer.started(&self.stream)?;
        }
        Ok(())
    }

    /// Copies the start of `memory` out, waits for it, and erases the transfer buffer.
    pub(super) fn download(
        &mut self,
        memory: &CudaSlice<u32>,
        into: &mut [u32],
        patience: Duration,
    ) -> Result<(), GpuError> {
        let words = into.len();
        let mut under_way = self.fetch(memory, 0..words.min(BUFFER), patience)?;
        for (index, into) in into.chunks_mut(BUFFER).enumerate() {
            let (here, next) = (under_way, (index + 1) * BUFFER);
            if next < words {
                under_way = self.fetch(memory, next..words.min(next + BUFFER), patience)?;
            }
            let place = &mut self.buffers[here].settled(patience)?.as_mut_slice()?[..into.len()];
            into.copy_from_slice(place);
            place.zeroize();
        }
        Ok(())
    }

    /// Starts the copy of some words into the next buffer, and returns its index.
    fn fetch(&mut self, memory: &CudaSlice<u32>, words: Range<usize>, patience: Duration) -> Result<usize, GpuError> {
        let here = self.next;
        self.next = 1 - here;
        let source = memory.try_slice(words.clone()).ok_or_else(beyond)?;
        let buffer = &mut self.buffers[here];
        let place = &mut buffer.settled(patience)?.as_mut_slice()?[..words.len()];
        // The copy writes `place` later; until the event signals, it has exclusive access.
        self.stream.memcpy_dtoh(&source, place)?;
        buffer.started(&self.stream)?;
        Ok(here)
    }
}

fn beyond() -> GpuError {
    GpuError::Failed("a copy beyond a piece".to_owned())
}
