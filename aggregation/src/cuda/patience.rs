//! How long to wait for a GPU.

use std::thread::sleep;
use std::time::Duration;

use crate::gpu::GpuError;

/// How long to wait for a GPU that has nothing queued by us, and how much longer for each launch, which takes about 50 ms:
/// others may use it too. One that takes longer is taken for hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const PATIENCE_PER_LAUNCH: Duration = Duration::from_secs(1);

/// Between two looks at whether it is done: nothing beside what is waited for, and no core is kept busy by waiting.
const PAUSE: Duration = Duration::from_micros(100);

/// Looks again and again until something is done.
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
