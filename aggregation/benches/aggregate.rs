//! Throughput of summing and unmasking on this machine, next to reference limits measured in the same run: OpenSSL's
//! keystream alone, by vectors as wide (if the program `openssl` is present), the `chacha20` crate, and a plain `u32`
//! addition over memory.
//!
//! `cargo bench -p aggregation --bench aggregate`, optionally with `-- masks`, `threads`, `additions` or `memory`.
//!
//! A word counts as 4 bytes, packed or not. Single-thread figures use the thread's CPU time (on Linux; OpenSSL does the
//! same), summed over repetitions that alternate with the reference, so that other load affects neither. Multi-thread
//! figures use the wall clock and the best of many repetitions, so they need a quiet machine.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use aggregation::cpu::{CpuAggregator, Kernel};
use aggregation::{AggregationError, Aggregator, Shape};
use chacha20::cipher::{KeyIvInit, StreamCipher};
use secure_agg::mask::{MaskPlan, MaskSeed, Plane, Sign};
use secure_agg::packing;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Length, in words, of vectors that exceed all caches: a sum of 256 MiB.
const LARGE: usize = 1 << 26;

fn main() -> Outcome<()> {
    let cores = std::thread::available_parallelism()?.get();
    println!("kernels here: {}", Kernel::available().map(|kernel| kernel.to_string()).collect::<Vec<_>>().join(", "));
    let named: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    if wanted("masks") {
        masks()?;
    }
    if wanted("threads") {
        threads(cores)?;
    }
    if wanted("additions") {
        additions(cores)?;
    }
    if wanted("memory") {
        memory()?;
    }
    Ok(())
}

/// Prints a figure and its ratio to the limit, and returns the figure.
fn figure(what: &str, bytes: usize, seconds: f64, limit: Option<(f64, &str)>) -> f64 {
    let rate = bytes as f64 / seconds / 1e9;
    match limit {
        Some((limit, name)) => println!("{what:<58} {rate:7.2} GB/s   {:.2} x {name}", rate / limit),
        None => println!("{what:<58} {rate:7.2} GB/s"),
    }
    rate
}

fn masks() -> Outcome<()> {
    println!("\nmasks: keystream generated and added, each next to its limit, in turns");
    for kernel in Kernel::available() {
        for (words, count) in [(1 << 20, 40), (10_000_000, 20), (10_000_000, 1)] {
            let case = Masks::new(kernel, 1, words, count)?;
            let (mut taken, mut limit, mut calls) = (0.0, 0.0, 0);
            let before = openssl_chacha20(kernel);
            in_turns(2, || {
                limit += crate_keystream();
                taken += case.seconds(on_core)?;
                calls += 1;
                Ok(())
            })?;
            let openssl: Vec<f64> = before.into_iter().chain(openssl_chacha20(kernel)).collect();
            let crate_rate = (KEYSTREAM * calls) as f64 / limit / 1e9;
            let what = format!("{kernel}, {words} words, {count} masks, 1 thread");
            let beside = format!("crate ({crate_rate:.2})");
            let rate = figure(&what, 4 * words * count * calls, taken, Some((crate_rate, &beside)));
            match openssl.iter().sum::<f64>() / openssl.len() as f64 {
                openssl if openssl > 0.0 => {
                    println!("{:<73}   {:.2} x openssl, as wide ({openssl:.2})", "", rate / openssl);
                }
                _ => println!("SKIPPED: there is no program openssl to compare with"),
            }
        }
    }
    Ok(())
}

fn threads(cores: usize) -> Outcome<()> {
    println!("\nmasks, as many threads as cores beside one");
    let (one, all) =
        (Masks::new(Kernel::fastest(), 1, 1 << 20, 20)?, Masks::new(Kernel::fastest(), cores, 1 << 20, 20)?);
    let (mut fastest, mut limit) = (f64::MAX, f64::MAX);
    in_turns(10, || {
        limit = limit.min(one.seconds(by_the_clock)?);
        fastest = fastest.min(all.seconds(by_the_clock)?);
        Ok(())
    })?;
    let bytes = (4 * 20) << 20;
    let single = bytes as f64 / limit / 1e9;
    let what = format!("{}, {} words, 20 masks, {cores} threads", Kernel::fastest(), 1 << 20);
    figure(&what, bytes, fastest, Some((single, &format!("one thread ({single:.2})"))));
    Ok(())
}

/// CPU time of this thread in seconds, on Linux; elsewhere, wall time.
fn on_core() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.as_deref().and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(by_the_clock, |nanoseconds| nanoseconds / 1e9)
}

/// Seconds since the first call.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn by_the_clock() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Repeats `call` for about this many seconds, at least three times.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn in_turns(seconds: u64, mut call: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    let start = Instant::now();
    let mut calls = 0;
    while calls < 3 || start.elapsed() < Duration::from_secs(seconds) {
        call()?;
        calls += 1;
    }
    Ok(())
}

/// Bytes per measurement of the crate.
const KEYSTREAM: usize = 1 << 26;

/// Seconds that the `chacha20` crate takes to generate [`KEYSTREAM`] bytes, 16 KiB at a time.
fn crate_keystream() -> f64 {
    let mut keystream = [0u8; 16 << 10];
    let mut cipher = chacha20::ChaCha20::new(&[7; 32].into(), &[0; 12].into());
    let before = on_core();
    for _ in 0..KEYSTREAM / keystream.len() {
        cipher.write_keystream(black_box(&mut keystream));
    }
    on_core() - before
}

/// A repeatedly unmasked sum.
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

    /// Seconds of one unmasking, without building the sum.
    fn seconds(&self, clock: fn() -> f64) -> Outcome<f64> {
        let sum = self.device.begin(self.shape)?;
        let before = clock();
        let words = black_box(sum.unmask(&self.plan)?);
        let seconds = clock() - before;
        drop(words);
        Ok(seconds)
    }
}

/// GB/s reported by `openssl speed` for ChaCha20 on 16 KiB blocks, with no wider vectors than those of `kernel`.
fn openssl_chacha20(kernel: Kernel) -> Option<f64> {
    let mut command = Command::new("openssl");
    command.args(["speed", "-evp", "chacha20", "-bytes", "16384", "-seconds", "1", "-mr"]);
    #[cfg(target_arch = "x86_64")]
    if !matches!(kernel, Kernel::Avx512) {
        // OPENSSL_ia32cap(3): without AVX512F, DQ, IFMA, CD, BW and VL.
        command.env("OPENSSL_ia32cap", ":~0xd0230000");
    }
    let output = command.output().ok()?;
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

/// Alternates `call` and the plain addition, so that other load slows both, and prints the best time of each.
fn beside_plain(
    what: &str,
    threads: usize,
    sum: &mut [u32],
    words: &[u32],
    mut call: impl FnMut() -> Result<(), AggregationError>,
) -> Outcome<()> {
    let clock = if threads == 1 { on_core } else { by_the_clock };
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let before = clock();
        plain_add(black_box(sum), words, threads);
        plain.push(clock() - before);
        let before = clock();
        call()?;
        ours.push(clock() - before);
    }
    // CPU time is updated only now and then, so its mean counts.
    let figure_of = |times: &[f64]| match threads {
        1 => times.iter().sum::<f64>() / times.len() as f64,
        _ => times.iter().copied().fold(f64::MAX, f64::min),
    };
    let limit = 4.0 * words.len() as f64 / figure_of(&plain) / 1e9;
    figure(what, 4 * words.len(), figure_of(&ours), Some((limit, &format!("plain ({limit:.2})"))));
    Ok(())
}

/// The plainest loop, as the compiler optimizes it.
fn plain_add(sum: &mut [u32], words: &[u32], threads: usize) {
    let add = |sum: &mut [u32], words: &[u32]| {
        for (sum, word) in sum.iter_mut().zip(words) {
            *sum = sum.wrapping_add(*word);
        }
    };
    if threads == 1 {
        return add(sum, words);
    }
    let share = words.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (sum, words) in sum.chunks_mut(share).zip(words.chunks(share)) {
            scope.spawn(move || add(sum, words));
        }
    });
}

/// Peak memory of 500 inputs of a million words, each a stream generated while it is read.
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

/// Resets the peak memory that Linux reports to the current value.
fn reset_peak() {
    // Elsewhere, or without permission, the peak of the whole run is compared, which can only be higher.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
}

fn status_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?.parse().ok()
}
