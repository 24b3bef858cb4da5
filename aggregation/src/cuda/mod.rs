//! NVIDIA GPUs through the CUDA driver, and the kernels' text compiled for the processor.
//!
//! The kernels are committed as PTX, so the build needs no NVIDIA library or compiler. The driver's library is loaded when a device is
//! requested. Without it, the device is reported as unavailable.

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "host-cuda-test")]
pub mod host;
#[cfg(feature = "cuda")]
mod staging;
#[cfg(feature = "cuda")]
mod timeout;

#[cfg(feature = "cuda")]
pub use self::present::{count, open};

#[cfg(feature = "cuda")]
mod present {
    use std::panic::catch_unwind;

    use cudarc::driver::CudaContext;

    use super::gpu::CudaGpu;
    use crate::gpu::{GpuAggregator, GpuError};
    use crate::{AggregationError, Aggregator};

    /// Number of GPUs offered by the driver, at least 1. The driver respects `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// The reason for zero GPUs, for operators.
    pub fn count() -> Result<usize, String> {
        // SAFETY: the library is the NVIDIA driver's; its initialisers have no preconditions.
        #[expect(unsafe_code, reason = "loading a library runs its code")]
        let present = unsafe { cudarc::driver::sys::is_culib_present() };
        if !present {
            return Err("no NVIDIA driver: its library libcuda is not on this machine".to_owned());
        }
        match guarded(CudaContext::device_count) {
            Ok(Ok(count)) if count > 0 => Ok(usize::try_from(count).unwrap_or(0)),
            Ok(Ok(_)) => Err("the NVIDIA driver finds no GPU".to_owned()),
            Ok(Err(error)) => Err(format!("the NVIDIA driver does not start: {error}")),
            Err(reason) => Err(reason),
        }
    }

    /// Catches the panic of the binding library if the driver lacks a function.
    fn guarded<T>(call: impl FnOnce() -> T + std::panic::UnwindSafe) -> Result<T, String> {
        catch_unwind(call).map_err(|_| "the NVIDIA driver is too old, or broken".to_owned())
    }

    /// Opens the GPU with this number, or all of them, which then share each vector.
    ///
    /// # Errors
    /// [`AggregationError::Device`] if it is missing or cannot run the kernels.
    pub fn open(ordinal: Option<usize>) -> Result<impl Aggregator, AggregationError> {
        let asked = ordinal.map_or_else(|| "cuda".to_owned(), |ordinal| format!("cuda:{ordinal}"));
        let failed = |reason| GpuError::Failed(reason).of(&asked, 0);
        let count = count().map_err(failed)?;
        let ordinals = match ordinal {
            Some(ordinal) if ordinal < count => ordinal..ordinal + 1,
            Some(_) => return Err(failed(format!("there are {count} GPUs, counted from 0"))),
            None => 0..count,
        };
        let open = || ordinals.map(CudaGpu::open).collect::<Result<Vec<_>, _>>();
        let gpus = guarded(open).map_err(failed)?.map_err(|error| error.of(&asked, 0))?;
        let names: Vec<String> = gpus.iter().map(CudaGpu::name).collect();
        Ok(GpuAggregator::new(&format!("{asked} ({})", names.join(" + ")), gpus))
    }
}
