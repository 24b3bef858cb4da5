//! Calls to one device: each either succeeds or returns an error. The underlying interface panics by default.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::wgpu::{
    Buffer, BufferAsyncError, BufferDescriptor, BufferUsages, CommandEncoder, Device, Error, ErrorFilter, MapMode,
    PollType, Queue, SubmissionIndex,
};

use crate::gpu::GpuError;

/// Maximum wait for one piece of work, normally milliseconds on a GPU and a second on a software rasteriser. A slower device is considered
/// lost.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(120);

/// A device and its queue.
pub(super) struct Line {
    pub(super) device: Device,
    pub(super) queue: Queue,
    /// The reason the device was lost, if it was.
    lost: Arc<OnceLock<String>>,
}

impl Line {
    pub(super) fn new(device: Device, queue: Queue) -> Self {
        let lost = Arc::new(OnceLock::new());
        let note = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| {
            // Only the first loss is recorded.
            drop(note.set(format!("the device is lost ({reason:?}): {message}")));
        });
        // Errors outside `checked`: the next call that waits will fail anyway.
        device.on_uncaptured_error(Arc::new(|error| tracing::error!(%error, "an error of a wgpu device")));
        Self { device, queue, lost }
    }

    /// Runs `work` and returns the first error that the device reported during it. A lost device accepts calls
    /// silently, so its loss is checked too.
    pub(super) fn checked<T>(&self, work: impl FnOnce() -> T) -> Result<T, GpuError> {
        let filters = [ErrorFilter::Internal, ErrorFilter::Validation, ErrorFilter::OutOfMemory];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let outcome = work();
        let mut errors = Vec::new();
        for scope in scopes.into_iter().rev() {
            errors.extend(pollster::block_on(scope.pop()));
        }
        if let Some(reason) = self.lost.get() {
            return Err(GpuError::Failed(reason.clone()));
        }
        match errors.into_iter().next() {
            None => Ok(outcome),
            Some(Error::OutOfMemory { .. }) => Err(GpuError::OutOfMemory),
            Some(error) => Err(GpuError::Failed(error.to_string())),
        }
    }

    /// A buffer of zeros.
    pub(super) fn buffer(&self, bytes: u64, usage: BufferUsages) -> Result<Buffer, GpuError> {
        let descriptor = BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
        self.checked(|| self.device.create_buffer(&descriptor))
    }

    /// A buffer with these bytes, a multiple of four.
    pub(super) fn filled(&self, bytes: &[u8], usage: BufferUsages) -> Result<Buffer, GpuError> {
        let descriptor = BufferDescriptor { label: None, size: bytes.len() as u64, usage, mapped_at_creation: true };
        let buffer = self.checked(|| self.device.create_buffer(&descriptor))?;
        put(&buffer, bytes)?;
        Ok(buffer)
    }

    /// Submits the recorded commands.
    pub(super) fn submit(&self, record: impl FnOnce(&mut CommandEncoder)) -> Result<SubmissionIndex, GpuError> {
        self.checked(|| {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            record(&mut encoder);
            self.queue.submit([encoder.finish()])
        })
    }

    /// Waits until the work of `submission` is done.
    pub(super) fn wait(&self, submission: SubmissionIndex) -> Result<(), GpuError> {
        let wait = PollType::Wait { submission_index: Some(submission), timeout: Some(DEVICE_TIMEOUT) };
        match self.checked(|| self.device.poll(wait))? {
            Ok(_) => Ok(()),
            Err(error) => Err(GpuError::Failed(format!("it did not finish: {error}"))),
        }
    }

    /// Maps the whole of `buffer` once `submission` is done, and passes it to `work`.
    pub(super) fn mapped<T>(
        &self,
        buffer: &Buffer,
        mode: MapMode,
        submission: SubmissionIndex,
        work: impl FnOnce(&Buffer) -> Result<T, GpuError>,
    ) -> Result<T, GpuError> {
        let told = self.asked(buffer, mode)?;
        self.given_back(&told, submission)?;
        let outcome = work(buffer);
        buffer.unmap();
        outcome
    }

    /// Requests mapping of the whole of `buffer`; the receiver is notified when it is mapped.
    fn asked(&self, buffer: &Buffer, mode: MapMode) -> Result<Receiver<Result<(), BufferAsyncError>>, GpuError> {
        let (tell, told) = mpsc::channel();
        self.checked(|| {
            buffer.map_async(mode, .., move |outcome| {
                // The receiver is gone if the wait has failed.
                drop(tell.send(outcome));
            });
        })?;
        Ok(told)
    }

    /// Waits until `submission` is done and the buffer requested after it is mapped.
    ///
    /// The two are not the same: every thread that waits or submits receives the driver's notifications for all buffers
    /// and forwards them one by one. The one for this buffer may still be in another thread's hands when the wait here
    /// is over.
    fn given_back(
        &self,
        told: &Receiver<Result<(), BufferAsyncError>>,
        submission: SubmissionIndex,
    ) -> Result<(), GpuError> {
        self.wait(submission)?;
        match told.recv_timeout(DEVICE_TIMEOUT) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(GpuError::Failed(error.to_string())),
            Err(_) => Err(GpuError::Failed("it did not give its memory back".to_owned())),
        }
    }
}

/// Writes `bytes` to the mapped buffer of that length, and unmaps it.
fn put(buffer: &Buffer, bytes: &[u8]) -> Result<(), GpuError> {
    match buffer.get_mapped_range_mut(..) {
        Ok(mut view) => view.copy_from_slice(bytes),
        Err(error) => return Err(GpuError::Failed(error.to_string())),
    }
    buffer.unmap();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::wgpu::adapters;

    /// Another thread receives the notifications for two buffers and is delayed at the first.
    #[test]
    fn memory_comes_back_even_when_another_thread_brings_it() {
        let Some(found) = adapters().pop() else {
            println!("SKIPPED: no adapter");
            return;
        };
        let (device, queue) = pollster::block_on(found.adapter.request_device(&Default::default())).unwrap();
        let line = Line::new(device, queue);
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let (first, second) = (line.buffer(4, usage).unwrap(), line.buffer(4, usage).unwrap());
        let submission = line.submit(|encoder| encoder.clear_buffer(&second, 0, None)).unwrap();
        let (reached, at_the_first) = mpsc::channel();
        first.map_async(MapMode::Read, .., move |_| {
            reached.send(()).unwrap();
            thread::sleep(Duration::from_millis(300));
        });
        let told = line.asked(&second, MapMode::Read).unwrap();
        thread::scope(|scope| {
            let other = submission.clone();
            scope.spawn(|| line.wait(other).unwrap());
            at_the_first.recv().unwrap();
            line.given_back(&told, submission).unwrap();
        });
    }
}
