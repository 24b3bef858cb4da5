//! Throughput of every device of this build that is present, for unmasking and for robust statistics, transfers
//! included.
//!
//! `cargo bench -p aggregation --bench devices --features cuda,wgpu`. On a GPU the largest case is a round of 1,000
//! participants, 10^7 words and a complete mask graph with 50 dropouts: 950 self masks and 50 × 950 pair masks.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use aggregation::cpu::CpuAggregator;
use aggregation::fallback::Fallback;
use aggregation::robust::Inputs;
use aggregation::{Aggregator, Shape};
use secure_agg::mask::{MaskPlan, MaskSeed, Plane, Sign};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Words and masks that take a processor or a GPU seconds.
const SOFTWARE: &[(usize, usize)] = &[(100_000, 100), (1_000_000, 100)];
const GPU: &[(usize, usize)] = &[(100_000, 1000), (1_000_000, 1000), (10_000_000, 1000), (10_000_000, 950 + 50 * 950)];

fn main() -> Outcome<()> {
    let cpu = Arc::new(CpuAggregator::new(0)?);
    let processor: Arc<dyn Aggregator> = Arc::clone(&cpu) as Arc<dyn Aggregator>;
    measure(&processor, SOFTWARE)?;
    robust(&*processor, &processor)?;
    for (device, cases) in gpus()? {
        let device: Arc<dyn Aggregator> = Arc::new(Fallback::new(device, Arc::clone(&cpu)));
        measure(&device, cases)?;
        robust(&*device, &processor)?;
    }
    Ok(())
}

/// 100 vectors; the results must equal the processor's.
fn robust(device: &dyn Aggregator, processor: &Arc<dyn Aggregator>) -> Outcome<()> {
    for words in [100_000, 1_000_000] {
        let word = |number: i32| i16::try_from(number.wrapping_mul(0x09e3_779b) >> 16);
        let vector = |seed: i32| (0..words).map(|i| word(i ^ (seed << 20))).collect::<Result<Vec<_>, _>>();
        let vectors: Vec<Vec<i16>> = (0..100).map(vector).collect::<Result<_, _>>()?;
        let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
        let inputs = Inputs::new(&vectors)?;
        let (mut median, mut gram) = (f64::MAX, f64::MAX);
        for _ in 0..3 {
            let start = Instant::now();
            let medians = device.median(inputs)?;
            median = median.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let products = device.gram(inputs)?;
            gram = gram.min(start.elapsed().as_secs_f64());
            assert!(medians == processor.median(inputs)? && products == processor.gram(inputs)?, "the same bits");
        }
        println!("{words:>10} words of 100 vectors: median {median:8.4} s, Gram matrix {gram:8.4} s");
    }
    Ok(())
}

type Gpu = (Arc<dyn Aggregator>, &'static [(usize, usize)]);

/// Every device that is present, except the processor.
fn gpus() -> Outcome<Vec<Gpu>> {
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        expect(unused_mut, reason = "this build has no other device")
    )]
    let mut found: Vec<Gpu> = Vec::new();
    #[cfg(feature = "cuda")]
    match aggregation::cuda::count() {
        Ok(_) => found.push((Arc::new(aggregation::cuda::open(None)?), GPU)),
        Err(reason) => println!("cuda: {reason}"),
    }
    #[cfg(feature = "wgpu")]
    for adapter in aggregation::wgpu::adapters() {
        let cases = if adapter.is_software() { SOFTWARE } else { GPU };
        found.push((Arc::new(adapter.open()?), cases));
    }
    if found.is_empty() {
        println!("no GPU ({} larger cases wait for one)", GPU.len());
    }
    Ok(found)
}

fn measure(device: &Arc<dyn Aggregator>, cases: &[(usize, usize)]) -> Outcome<()> {
    println!("\n{}", device.name());
    for &(words, masks) in cases {
        let shape = Shape::new(words, 32)?;
        let mut plan = MaskPlan::new(Plane::Model, words as u64, shape.modulus())?;
        for number in 0..masks as u64 {
            let mut key = [0x5a; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            plan.push(MaskSeed::new(&mut key), if number % 2 == 0 { Sign::Add } else { Sign::Subtract });
        }
        let mut best = f64::MAX;
        for _ in 0..3 {
            let sum = device.begin(shape)?;
            let start = Instant::now();
            let finished = sum.finish(&plan)?;
            best = best.min(start.elapsed().as_secs_f64());
            if let Some(event) = finished.fallback {
                return Err(format!("{} failed: {}", event.device, event.reason).into());
            }
        }
        let rate = plan.keystream_bytes() as f64 / best / 1e9;
        println!("{words:>10} words, {masks:>6} masks: {best:8.4} s, {rate:8.2} GB/s of keystream applied");
    }
    Ok(())
}
