//! Throughput of robust statistics next to numpy on the same cores, if `python3` with numpy is in the path; otherwise
//! prints a notice.
//!
//! `PATH=venv/bin:$PATH cargo bench -p aggregation --bench robust`. 100 vectors of 10^6 words; figures are the best of
//! several repetitions, single-thread ones in CPU time. Goals: the median in a fifth of `numpy.median`'s time, the
//! products at 0.8 of the speed of `X @ X.T`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use aggregation::AggregationError;
use aggregation::cpu::{CpuAggregator, Kernel};
use aggregation::robust::{Inputs, RobustStatistics};

const VECTORS: usize = 100;
const WORDS: usize = 1_000_000;

/// Prints the seconds of `numpy.median` (the faster of two types) and of `X @ X.T` in float32.
const NUMPY: &str = "
import numpy as np, sys, time
clock = time.process_time if sys.argv[1] == '1' else time.perf_counter
def best(work, times):
    seconds = []
    for _ in range(times):
        start = clock(); work(); seconds.append(clock() - start)
    return min(seconds)
X = np.random.default_rng(1).integers(-32768, 32768, (100, 1000000), dtype=np.int16)
F = X.astype(np.float32)
print(min(best(lambda: np.median(X, axis=0), 1), best(lambda: np.median(F, axis=0), 1)), best(lambda: F @ F.T, 5))
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cores = std::thread::available_parallelism()?.get();
    let vectors: Vec<Vec<i16>> = (0..VECTORS as u64).map(vector).collect();
    let all: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
    let small: Vec<Vec<i16>> = vectors.iter().map(|vector| vector.iter().map(|word| word >> 5).collect()).collect();
    let small: Vec<&[i16]> = small.iter().map(Vec::as_slice).collect();
    for threads in if cores > 1 { vec![1, cores] } else { vec![1] } {
        let numpy = numpy(threads);
        println!("\n{VECTORS} vectors of {WORDS} words, {threads} threads");
        match &numpy {
            Ok((median, gram)) => println!("numpy: median {median:.4} s, X @ X.T in float32 {gram:.4} s"),
            Err(reason) => println!("SKIPPED: the comparison with numpy did not happen: {reason}"),
        }
        let numpy = numpy.ok();
        for kernel in Kernel::available() {
            let device = CpuAggregator::with_kernel(kernel, threads)?;
            let (inputs, small) = (Inputs::new(&all)?, Inputs::new(&small)?);
            let gigabytes = (2 * VECTORS * WORDS) as f64 / 1e9;
            let line = |what: &str, seconds: f64, beside: Option<f64>| {
                let beside = beside.map_or_else(String::new, |numpy| format!("{:.2} x numpy", numpy / seconds));
                println!(
                    "{:<40} {seconds:8.4} s {:7.2} GB/s   {beside}",
                    format!("{kernel}: {what}"),
                    gigabytes / seconds
                );
            };
            line("median", seconds(threads, || device.median(inputs))?, numpy.map(|(median, _)| median));
            line("trimmed mean, 10 at either end", seconds(threads, || device.trimmed_mean(inputs, 10))?, None);
            line("gram, words of 16 bits", seconds(threads, || device.gram(inputs))?, numpy.map(|(_, gram)| gram));
            line("gram, words of 11 bits", seconds(threads, || device.gram(small))?, numpy.map(|(_, gram)| gram));
        }
    }
    Ok(())
}

/// Arbitrary words: no code branches on them.
fn vector(seed: u64) -> Vec<i16> {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = state.to_le_bytes();
        i16::from_le_bytes([bytes[6], bytes[7]])
    };
    (0..WORDS).map(|_| word()).collect()
}

fn seconds<T>(threads: usize, work: impl Fn() -> Result<T, AggregationError>) -> Result<f64, AggregationError> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let (start, on_core) = (Instant::now(), on_core());
        black_box(work()?);
        let elapsed = start.elapsed().as_secs_f64();
        let had = on_core.zip(self::on_core()).map(|(before, after)| after - before);
        best = best.min(had.filter(|_| threads == 1).unwrap_or(elapsed));
    }
    Ok(best)
}

/// CPU time of this thread in seconds, on Linux.
fn on_core() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(told.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// Seconds of the median and of the product with this many threads.
fn numpy(threads: usize) -> Result<(f64, f64), String> {
    let limit = threads.to_string();
    let limits = [("OPENBLAS_NUM_THREADS", &*limit), ("OMP_NUM_THREADS", &*limit), ("MKL_NUM_THREADS", &*limit)];
    let output = Command::new("python3").args(["-c", NUMPY, &*limit]).envs(limits).output();
    let output = output.map_err(|error| format!("no python3 ({error})"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<f64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    match *figures {
        [median, gram] => Ok((median, gram)),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("no figures").to_owned()),
    }
}
