//! The kernels and the memory of one adapter.

use std::sync::Arc;

use ::wgpu::{
    Adapter, AdapterInfo, BindGroupEntry, Buffer, BufferUsages, ComputePipeline, ComputePipelineDescriptor,
    DeviceDescriptor, DeviceType, MapMode, MemoryHints, SubmissionIndex, include_wgsl,
};
use zeroize::{Zeroize, Zeroizing};

use super::queue::Line;
use crate::gpu::{Gpu, GpuError, LONGEST_PIECE, Launch, Limits, Products, Rows, SEED_WORDS, SHORTEST_PIECE, SeedList};

/// Workgroup size, as in `kernels.wgsl`.
const WORKGROUP: usize = 64;
/// Number of words written at a time.
const WRITTEN: usize = 1 << 20;

pub(super) struct WgpuGpu {
    line: Arc<Line>,
    unmask: ComputePipeline,
    unmask_split: ComputePipeline,
    add_packed: ComputePipeline,
    trimmed_sum: ComputePipeline,
    gram: ComputePipeline,
    limits: Limits,
}

/// Words in a buffer, and the last submission using them.
pub(super) struct Memory {
    words: Buffer,
    last: Option<SubmissionIndex>,
}

impl Memory {
    fn holds(&self, words: usize) -> bool {
        4 * words as u64 <= self.words.size()
    }
}

/// Seeds in a buffer, wiped when dropped.
pub(super) struct Seeds {
    line: Arc<Line>,
    records: Buffer,
}

impl Drop for Seeds {
    fn drop(&mut self) {
        // The queue is ordered: the kernels reading the seeds come first. If a device rejects this, it is lost together with its memory.
        drop(self.line.submit(|encoder| encoder.clear_buffer(&self.records, 0, None)));
    }
}

/// A kernel's parameters, in its order.
type KernelParams = [u32; 8];

/// Parameters of the summing kernels.
#[derive(Default)]
struct Params {
    len: u32,
    at: u32,
    bits: u32,
    first_seed: u32,
    n_seeds: u32,
    first_block: u32,
    nonce: [u32; 2],
}

impl Params {
    fn told(self) -> KernelParams {
        let Self { len, at, bits, first_seed, n_seeds, first_block, nonce: [nonce0, nonce1] } = self;
        [len, at, bits, first_seed, n_seeds, first_block, nonce0, nonce1]
    }
}

impl WgpuGpu {
    pub(super) fn open(adapter: &Adapter, info: &AdapterInfo) -> Result<Self, GpuError> {
        let descriptor = DeviceDescriptor {
            label: None,
            required_limits: adapter.limits(),
            memory_hints: MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| GpuError::Failed(error.to_string()))?;
        let line = Line::new(device, queue);
        let device = &line.device;
        let module = line.checked(|| device.create_shader_module(include_wgsl!("kernels.wgsl")))?;
        let pipeline = |entry_point| {
            let descriptor = ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &module,
                entry_point: Some(entry_point),
                compilation_options: Default::default(),
                cache: None,
            };
            line.checked(|| device.create_compute_pipeline(&descriptor))
        };
        Ok(Self {
            unmask: pipeline("unmask")?,
            unmask_split: pipeline("unmask_split")?,
            add_packed: pipeline("add_packed")?,
            trimmed_sum: pipeline("trimmed_sum")?,
            gram: pipeline("gram")?,
            limits: limits(&device.limits(), info.device_type),
            line: Arc::new(line),
        })
    }

    /// Runs a kernel over `threads` threads in each of `parts` parts.
    fn run(
        &self,
        pipeline: &ComputePipeline,
        told: KernelParams,
        input: &Buffer,
        memory: &mut Memory,
        threads: usize,
        parts: u32,
    ) -> Result<(), GpuError> {
        let uniform = self.line.filled(bytemuck::cast_slice(&told), BufferUsages::UNIFORM)?;
        let groups = u32::try_from(threads.div_ceil(WORKGROUP)).map_err(|_| too_long())?;
        let layout = pipeline.get_bind_group_layout(0);
        let entries = [&uniform, input, &memory.words].map(Buffer::as_entire_binding);
        let [params, input, sum] = entries;
        let entries = [
            BindGroupEntry { binding: 0, resource: params },
            BindGroupEntry { binding: 1, resource: input },
            BindGroupEntry { binding: 2, resource: sum },
        ];
        let descriptor = ::wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries };
        let bound = self.line.checked(|| self.line.device.create_bind_group(&descriptor))?;
        let submission = self.line.submit(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bound, &[]);
            pass.dispatch_workgroups(groups, parts, 1);
        })?;
        // One launch runs while the next is prepared; the queue is never longer.
        match memory.last.replace(submission) {
            Some(before) => self.line.wait(before),
            None => Ok(()),
        }
    }
}

impl Gpu for WgpuGpu {
    type Memory = Memory;
    type Seeds = Seeds;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn zeros(&self, words: usize) -> Result<Memory, GpuError> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        Ok(Memory { words: self.line.buffer(4 * words as u64, usage)?, last: None })
    }

    fn write(
        &self,
        memory: &mut Memory,
        words: usize,
        mut fill: impl FnMut(usize, &mut [u32]),
    ) -> Result<(), GpuError> {
        let mut piece = vec![0; words.min(WRITTEN)];
        for at in (0..words).step_by(WRITTEN) {
            let place = &mut piece[..WRITTEN.min(words - at)];
            fill(at, place);
            let bytes = bytemuck::cast_slice(place);
            self.line.checked(|| self.line.queue.write_buffer(&memory.words, 4 * at as u64, bytes))?;
        }
        Ok(())
    }

    fn add_packed(
        &self,
        memory: &mut Memory,
        at: usize,
        packed: &[u8],
        words: usize,
        bits: u8,
    ) -> Result<(), GpuError> {
        let mut padded = Vec::with_capacity(packed.len() + 8);
        padded.extend_from_slice(packed);
        padded.resize(packed.len().next_multiple_of(4) + 4, 0);
        let input = self.line.filled(&padded, BufferUsages::STORAGE)?;
        let len = u32::try_from(words).map_err(|_| too_long())?;
        let at = u32::try_from(at).map_err(|_| too_long())?;
        let params = Params { len, at, bits: bits.into(), ..Params::default() };
        self.run(&self.add_packed, params.told(), &input, memory, words, 1)
    }

    /// Copies the seeds through our own buffer, to avoid other copies of them.
    fn load(&self, seeds: &SeedList) -> Result<Seeds, GpuError> {
        let mut words = Zeroizing::new(Vec::with_capacity(SEED_WORDS * seeds.records().len()));
        for record in seeds.records() {
            let mut record = record.words();
            words.extend_from_slice(&record);
            record.zeroize();
        }
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let len = bytes.len() as u64;
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let records = Seeds { line: Arc::clone(&self.line), records: self.line.buffer(len, usage)? };
        let staging = self.line.filled(bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?;
        let copied =
            self.line.submit(|encoder| encoder.copy_buffer_to_buffer(&staging, 0, &records.records, 0, len))?;
        self.line.mapped(&staging, MapMode::Write, copied, |staging| {
            let mut view = staging.get_mapped_range_mut(..).map_err(|error| GpuError::Failed(error.to_string()))?;
            view.slice(..).fill(0);
            Ok(())
        })?;
        Ok(records)
    }

    fn apply(&self, memory: &mut Memory, seeds: &Seeds, launch: &Launch) -> Result<(), GpuError> {
        let params = Params {
            len: u32::try_from(launch.words).map_err(|_| too_long())?,
            first_seed: launch.seeds.start,
            n_seeds: launch.seeds.end - launch.seeds.start,
            first_block: launch.first_block,
            nonce: launch.nonce,
            ..Params::default()
        };
        let pipeline = if launch.parts == 1 { &self.unmask } else { &self.unmask_split };
        self.run(pipeline, params.told(), &seeds.records, memory, launch.blocks(), launch.parts)
    }

    fn trimmed_sum(&self, rows: &Memory, shape: Rows, trim: u32, out: &mut Memory) -> Result<(), GpuError> {
        let Rows { vectors, width } = shape;
        assert!(rows.holds(shape.words()) && out.holds(2 * width as usize), "it fits");
        let told = [vectors, width, trim, 0, 0, 0, 0, 0];
        self.run(&self.trimmed_sum, told, &rows.words, out, width as usize, 1)
    }

    fn gram(&self, rows: &Memory, products: &Products, sums: &mut Memory) -> Result<(), GpuError> {
        let Products { rows: Rows { vectors, width }, ref tiles, first_row } = *products;
        assert!(rows.holds(products.rows.words()) && sums.holds(products.words()), "it fits");
        let told = [vectors, width, 0, tiles.start, first_row, 0, 0, 0];
        self.run(&self.gram, told, &rows.words, sums, products.threads(), products.parts())
    }

    fn read(&self, memory: &mut Memory, into: &mut [u32]) -> Result<(), GpuError> {
        let bytes = 4 * into.len() as u64;
        let staging = self.line.buffer(bytes, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        let copied = self.line.submit(|encoder| encoder.copy_buffer_to_buffer(&memory.words, 0, &staging, 0, bytes))?;
        self.line.mapped(&staging, MapMode::Read, copied, |staging| {
            let view = staging.get_mapped_range(..).map_err(|error| GpuError::Failed(error.to_string()))?;
            let (words, _) = view.as_chunks::<4>();
            for (into, word) in into.iter_mut().zip(words) {
                *into = u32::from_le_bytes(*word);
            }
            Ok(())
        })
    }
}

fn too_long() -> GpuError {
    GpuError::Failed("a piece is longer than a device's index".to_owned())
}

/// A device does not report its speed, so launches are sized by its kind: about 50 ms on a slow one of each.
fn limits(limits: &::wgpu::Limits, kind: DeviceType) -> Limits {
    let bytes = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size);
    let words = usize::try_from(bytes / 4).unwrap_or(usize::MAX).clamp(SHORTEST_PIECE, LONGEST_PIECE);
    let (threads, launch_bytes) = match kind {
        DeviceType::DiscreteGpu | DeviceType::VirtualGpu => (1 << 16, 1 << 31),
        DeviceType::IntegratedGpu | DeviceType::Other => (1 << 13, 1 << 28),
        DeviceType::Cpu => (1 << 6, 1 << 26),
    };
    // The largest power of two that fits.
    Limits { piece_words: 1 << words.ilog2(), threads, launch_bytes }
}

#[cfg(test)]
mod tests {
    use secure_agg::mask::{MaskPlan, MaskSeed, Plane, Sign};
    use secure_agg::modular::Modulus;

    use super::*;
    use crate::wgpu::adapters;

    /// A kernel's view of the seeds' buffer, in use and afterwards.
    #[test]
    fn seeds_are_wiped_from_device_memory() {
        let Some(found) = adapters().pop() else {
            println!("SKIPPED: no adapter");
            return;
        };
        let gpu = WgpuGpu::open(&found.adapter, &found.info).unwrap();
        let mut plan = MaskPlan::new(Plane::Model, 100, Modulus::WORD).unwrap();
        plan.push(MaskSeed::new(&mut [0xee; 32]), Sign::Add);
        let seeds = gpu.load(&SeedList::of(&plan, 0)).unwrap();
        let buffer = seeds.records.clone();
        let seen = || {
            let (mut memory, mut words) = (gpu.zeros(11).unwrap(), [0; 11]);
            let params = Params { len: 11, bits: 32, ..Params::default() };
            gpu.run(&gpu.add_packed, params.told(), &buffer, &mut memory, 11, 1).unwrap();
            gpu.read(&mut memory, &mut words).unwrap();
            words
        };
        assert_eq!(seen(), [0xeeee_eeee; 8].into_iter().chain([1, 0, 0]).collect::<Vec<_>>()[..]);
        drop(seeds);
        assert_eq!(seen(), [0; 11]);
    }

    #[test]
    fn a_device_that_is_lost_fails_without_a_panic() {
        let Some(found) = adapters().pop() else {
            println!("SKIPPED: no adapter");
            return;
        };
        let gpu = WgpuGpu::open(&found.adapter, &found.info).unwrap();
        let mut plan = MaskPlan::new(Plane::Model, 100, Modulus::WORD).unwrap();
        plan.push(MaskSeed::new(&mut [1; 32]), Sign::Add);
        let list = SeedList::of(&plan, 0);
        let (mut memory, seeds) = (gpu.zeros(100).unwrap(), gpu.load(&list).unwrap());
        gpu.line.device.destroy();
        let launch = Launch::all(Plane::Model, 0, 100, 1, gpu.limits()).remove(0);
        let outcomes = [
            gpu.add_packed(&mut memory, 0, &[0; 400], 100, 32),
            gpu.apply(&mut memory, &seeds, &launch),
            gpu.read(&mut memory, &mut [0; 100]),
            gpu.load(&list).map(drop),
        ];
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(GpuError::Failed(_)))), "{outcomes:?}");
        // The driver reports the loss at the next poll.
        gpu.line.device.poll(::wgpu::PollType::Poll).unwrap();
        for outcome in [gpu.zeros(100).map(drop), gpu.write(&mut memory, 100, |_, place| place.fill(1))] {
            let reason = outcome.unwrap_err().to_string();
            assert!(reason.starts_with("the device is lost"), "{reason}");
        }
    }
}
