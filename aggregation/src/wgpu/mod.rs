//! GPUs of any vendor through Vulkan, Metal or Direct3D 12.
//!
//! Drivers are loaded at run time; without one, the list of adapters is empty. A software rasteriser such as Mesa's llvmpipe is an adapter
//! too; it is slower than the processor's own code and is used only if chosen by name. Tests use it to run the kernels without a GPU.

mod gpu;
mod queue;

use ::wgpu::{Adapter, AdapterInfo, Backends, DeviceType, Instance, InstanceDescriptor};

use self::gpu::WgpuGpu;
use crate::gpu::GpuAggregator;
use crate::{AggregationError, Aggregator};

/// An adapter before opening.
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

    /// Opens the adapter, to sum and unmask on it.
    ///
    /// # Errors
    /// [`AggregationError::Device`] when its driver refuses, or cannot run the kernels.
    pub fn open(self) -> Result<impl Aggregator, AggregationError> {
        let name = format!("wgpu ({}, {})", self.info.name, self.info.backend);
        match WgpuGpu::open(&self.adapter, &self.info) {
            Ok(gpu) => Ok(GpuAggregator::new(&name, vec![gpu])),
            Err(error) => Err(error.of(&name, 0)),
        }
    }
}
