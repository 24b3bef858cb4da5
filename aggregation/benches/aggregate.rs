//! How fast this machine sums and unmasks, beside the limits that it shows in the same run: OpenSSL's bare keystream (where
//! the program `openssl` is present), the `chacha20` crate, and a plain `u32` addition over memory.
//!
//! `cargo bench -p aggregation`. Figures are the best of several repetitions; words count as 4 bytes, packed or not.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use aggregation::cpu::{CpuAggregator, Kernel};
use aggregation::{AggregationError, Aggregator, Shape};
use chacha20::cipher::{KeyIvInit, StreamCipher};
use secure_agg::mask::{MaskPlan, MaskSeed, Plane, Sign};
use secure_agg::packing;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Words of the vectors that are to come from memory: 256 MiB of sum.
const LARGE: usize = 1 << 26;

fn main() -> Outcome<()> {
    let cores = std::thread::available_parallelism()?.get();
    println!("kernels here: {}", Kernel::available().map(|kernel| kernel.to_string()).collect::<Vec<_>>().join(", "));
    masks(cores)?;
    additions(cores)?;
    memory()
}

/// Prints a figure and what share of its limit it is; returns it.
fn figure(what: &str, bytes: usize, seconds: f64, limit: Option<(f64, &str)>) -> f64 {
    let rate = bytes as f64 / seconds / 1e9;
    match limit {
        Some((limit, name)) => println!("{what:<58} {rate:7.2} GB/s   {:.2} x {name}", rate / limit),
        None => println!("{what:<58} {rate:7.2} GB/s"),
    }
    rate
}

fn masks(cores: usize) -> Outcome<()> {
    println!("\nmasks: keystream generated and added, each next to its limit, in turns");
    for kernel in Kernel::available() {
        for (words, count) in [(1 << 20, 40), (10_000_000, 20), (10_000_000, 1)] {
            let case = Masks::new(kernel, 1, words, count)?;
            let (mut fastest, mut limit) = (f64::MAX, f64::MAX);
            let before = openssl_chacha20();
            in_turns(|| {
                limit = limit.min(crate_keystream());
                fastest = fastest.min(case.seconds()?);
                Ok(())
            })?;
            let openssl = before.into_iter().chain(openssl_chacha20()).reduce(f64::max);
            let crate_rate = KEYSTREAM as f64 / limit / 1e9;
            let beside_openssl = openssl.map_or("no openssl here".to_owned(), |rate| format!("openssl ({rate:.2})"));
            let what = format!("{kernel}, {words} words, {count} masks, 1 thread");
            let rate =
                figure(&what, 4 * words * count, fastest, Some((crate_rate, &format!("crate ({crate_rate:.2})"))));
            println!("{:<73}   {:.2} x {beside_openssl}", "", rate / openssl.unwrap_or(f64::NAN));
        }
    }
    let (one, all) =
        (Masks::new(Kernel::fastest(), 1, 1 << 20, 20)?, Masks::new(Kernel::fastest(), cores, 1 << 20, 20)?);
    let (mut fastest, mut limit) = (f64::MAX, f64::MAX);
    in_turns(|| {
        limit = limit.min(one.seconds()?);
        fastest = fastest.min(all.seconds()?);
        Ok(())
    })?;
    let bytes = (4 * 20) << 20;
    let single = bytes as f64 / limit / 1e9;
    let what = format!("{}, {} words, 20 masks, {cores} threads", Kernel::fastest(), 1 << 20);
    figure(&what, bytes, fastest, Some((single, &format!("one thread ({single:.2})"))));
    Ok(())
}

/// Calls for about two seconds, and at least three times.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn in_turns(mut call: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let start = Instant::now();
    let mut calls = 0;
    while calls < 3 || start.elapsed() < Duration::from_secs(2) {
        call()?;
        calls += 1;
    }
    Ok(())
}

/// Bytes of one measurement of the crate.
const KEYSTREAM: usize = 1 << 20;

/// Seconds that the `chacha20` crate takes for [`KEYSTREAM`] bytes, 16 KiB at a time and nothing done with them.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn crate_keystream() -> f64 {
    let mut keystream = [0u8; 16 << 10];
    let mut cipher = chacha20::ChaCha20::new(&[7; 32].into(), &[0; 12].into());
    let before = Instant::now();
    for _ in 0..KEYSTREAM / keystream.len() {
        cipher.write_keystream(black_box(&mut keystream));
    }
    before.elapsed().as_secs_f64()
}

/// A sum to unmask, again and again.
struct Masks {
    device: CpuAggregator,
    shape: Shape,
    plan: MaskPlan,
}

impl Masks {
    fn new(kernel: Kernel, threads: usize, words: usize, count: usize) -> Outcome<Self> {
        let shape = Shape::new(words, 32)?;
        let mut plan = MaskPlan::new(Plane::Model, words as u64, shape.modulus())?;
        for number in 0..count {
            let sign = if number % 2 == 0 { Sign::Add } else { Sign::Subtract };
            plan.push(MaskSeed::new(&mut [number.to_le_bytes()[0]; 32]), sign);
        }
        Ok(Self { device: CpuAggregator::with_kernel(kernel, threads)?, shape, plan })
    }

    /// Seconds of one unmasking; the sum itself is made before.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
    fn seconds(&self) -> Outcome<f64> {
        let sum = self.device.begin(self.shape)?;
        let before = Instant::now();
        black_box(sum.unmask(&self.plan)?);
        Ok(before.elapsed().as_secs_f64())
    }
}

/// GB/s that `openssl speed` reports for ChaCha20 on 16 KiB blocks.
fn openssl_chacha20() -> Option<f64> {
    let arguments = ["speed", "-evp", "chacha20", "-bytes", "16384", "-seconds", "1", "-mr"];
    let output = Command::new("openssl").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.lines().find(|line| line.starts_with("+F:"))?.rsplit(':').next()?.trim().parse::<f64>().ok()?;
    Some(rate / 1e9)
}

fn additions(cores: usize) -> Outcome<()> {
    println!("\nadditions: words of the sum, from memory; each next to a plain u32 addition, in turns");
    let words: Vec<u32> = (0..u32::try_from(LARGE)?).collect();
    let mut plain = vec![1u32; LARGE];
    for bits in [32, 20, 24, 16, 17, 31] {
        let shape = Shape::new(LARGE, bits)?;
        let packed = packing::pack(&words, shape.modulus());
        for threads in [1, cores] {
            let mut sum = CpuAggregator::new(threads)?.begin(shape)?;
            let what = format!("add_packed, b = {bits}, threads: {threads}");
            beside_plain(&what, threads, &mut plain, &words, || sum.add_packed(&packed))?;
        }
        let mut sum = CpuAggregator::new(1)?.begin(shape)?;
        let what = format!("add_stream from memory, b = {bits}");
        let length = packed.len() as u64;
        beside_plain(&what, 1, &mut plain, &words, || sum.add_stream(&mut &packed[..], length))?;
    }
    Ok(())
}

/// Times `call` and the plain addition in turns, so that what else the machine does slows both, and prints the best of each.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn beside_plain(
    what: &str,
    threads: usize,
    sum: &mut [u32],
    words: &[u32],
    mut call: impl FnMut() -> Result<(), AggregationError>,
) -> Outcome<()> {
    let (mut limit, mut fastest) = (Duration::MAX, Duration::MAX);
    for _ in 0..12 {
        let before = Instant::now();
        plain_add(black_box(sum), words, threads);
        limit = limit.min(before.elapsed());
        let before = Instant::now();
        call()?;
        fastest = fastest.min(before.elapsed());
    }
    let limit = 4.0 * words.len() as f64 / limit.as_secs_f64() / 1e9;
    figure(what, 4 * words.len(), fastest.as_secs_f64(), Some((limit, &format!("plain ({limit:.2})"))));
    Ok(())
}

/// What a compiler makes of the plainest loop.
fn plain_add(sum: &mut [u32], words: &[u32], threads: usize) {
    let share = words.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (sum, words) in sum.chunks_mut(share).zip(words.chunks(share)) {
            scope.spawn(move || {
                for (sum, word) in sum.iter_mut().zip(words) {
                    *sum = sum.wrapping_add(*word);
                }
            });
        }
    });
}

/// Peak memory of 500 inputs of a million words, each a stream that is made up as it is read.
fn memory() -> Outcome<()> {
    println!("\nmemory: 500 inputs of 10^6 words");
    let (words, inputs) = (1_000_000, 500u64);
    let shape = Shape::new(words, 20)?;
    let device = CpuAggregator::new(0)?;
    reset_peak();
    let idle = status_kib("VmRSS:");
    let mut sum = device.begin(shape)?;
    let length = shape.packed_len() as u64;
    for _ in 0..inputs {
        sum.add_stream(&mut std::io::Read::take(std::io::repeat(0x5a), length), length)?;
    }
    let partial = sum.partial()?;
    let plan = MaskPlan::new(Plane::Model, words as u64, shape.modulus())?;
    let words_of_sum = sum.unmask(&plan)?;
    assert_eq!(partial, words_of_sum, "an empty plan changes nothing");
    match (idle, status_kib("VmHWM:")) {
        (Some(idle), Some(peak)) => {
            let models = (peak.saturating_sub(idle) * 1024) as f64 / (4 * words) as f64;
            println!("idle {idle} KiB, peak {peak} KiB: {models:.2} model sizes above idle (at most 4)");
            assert!(models <= 4.0, "memory must not grow with the number of inputs");
        }
        _ => println!("this system does not tell a process its memory"),
    }
    Ok(())
}

/// Sets the peak that Linux reports back to what is used now.
fn reset_peak() {
    // Where this is not Linux or not allowed, the peak of the whole run is compared, which can only be worse.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn status_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}
