//! NVIDIA GPUs through the CUDA driver, and the kernels' text compiled for the processor.

#[cfg(feature = "host-cuda-test")]
pub mod host;
