//! GPUs of any vendor through Vulkan, Metal or Direct3D 12.
//!
//! Nothing is linked: without a driver there are no adapters. A software rasteriser such as Mesa's llvmpipe is an
//! adapter too; it is slower than the processor's own code and only used if chosen by name, which is how tests run the
//! kernels without a GPU.

mod gpu;
mod queue;

use ::wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Instance, InstanceDescriptor};
use secure_agg::mask::MaskPlan;

use self::gpu::WgpuGpu;
use crate::gpu::GpuAggregator;
use crate::robust::robust_from;
use crate::{Accumulator, AggregationError, Aggregator, Shape};

/// An adapter that was found, not opened.
pub struct Found {
    adapter: Adapter,
    info: AdapterInfo,
}

/// Every adapter of this machine, GPUs before software rasterisers, discrete ones first.
#[must_use]
pub fn adapters() -> Vec<Found> {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    let adapters = pollster::block_on(Instance::new(descriptor).enumerate_adapters(Backends::all()));
    let mut found: Vec<Found> =
        adapters.into_iter().map(|adapter| Found { info: adapter.get_info(), adapter }).collect();
    found.sort_by_key(|found| match found.info.device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::VirtualGpu => 1,
        DeviceType::IntegratedGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    found
}

impl Found {
    /// The driver's name for the adapter.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Whether it renders in software.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.info.device_type == DeviceType::Cpu
    }

    /// Whether an operator's `name` selects this adapter: its name contains it, ignoring case.
    #[must_use]
    pub fn answers_to(&self, name: &str) -> bool {
        self.info.name.to_lowercase().contains(&name.to_lowercase())
    }

    /// Opens the adapter.
    ///
    /// # Errors
    /// [`AggregationError::Device`] if its driver fails, or cannot run the kernels.
    pub fn open(self) -> Result<WgpuAggregator, AggregationError> {
        let name = format!("wgpu ({}, {})", self.info.name, self.info.backend);
        match WgpuGpu::open(&self.adapter, &self.info) {
            Ok(gpu) => Ok(WgpuAggregator(GpuAggregator::new(&name, vec![gpu]))),
            Err(error) => Err(error.of(&name, 0)),
        }
    }
}

/// Sums and unmasks on one adapter.
pub struct WgpuAggregator(GpuAggregator<WgpuGpu>);

robust_from!(WgpuAggregator, 0);

impl Aggregator for WgpuAggregator {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
        self.0.begin(shape)
    }

    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError> {
        self.0.unmask_slice(plan, offset, sum, out)
    }
}
