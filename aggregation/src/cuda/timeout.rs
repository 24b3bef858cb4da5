//! Timeouts for a GPU.

use std::thread::sleep;
use std::time::Duration;

use crate::gpu::GpuError;

/// Timeout for a GPU without queued launches, plus about 50 ms for each launch: other programs may use the GPU too. A slower GPU is
/// considered hung.
pub(super) const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const PATIENCE_PER_LAUNCH: Duration = Duration::from_secs(1);

/// Polling interval: negligible next to the work, and long enough to leave the core idle.
const PAUSE: Duration = Duration::from_micros(100);

/// Polls until the work is done.
pub(super) fn wait(patience: Duration, done: impl Fn() -> Result<bool, GpuError>) -> Result<(), GpuError> {
    let mut waited = Duration::ZERO;
    while !done()? {
        if waited >= patience {
            return Err(GpuError::Failed(format!("it did not finish within {} s", patience.as_secs())));
        }
        sleep(PAUSE);
        waited += PAUSE;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_gpu_that_hangs_is_given_up_and_one_that_is_slow_is_not() {
        let looks = Cell::new(0);
        let slow = || Ok(looks.replace(looks.get() + 1) == 5);
        wait(Duration::from_secs(1), slow).unwrap();
        let message = wait(10 * PAUSE, || Ok(false)).unwrap_err().to_string();
        assert_eq!(message, "it did not finish within 0 s");
        assert!(wait(PAUSE, || Err(GpuError::OutOfMemory)).is_err());
    }
}
