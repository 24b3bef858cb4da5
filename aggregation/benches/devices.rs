//! Throughput of every present device of this build, transfers included: masks taken off, several sums at once, robust statistics. Results
//! of devices are compared with the processor's bit for bit.
//!
//! `cargo bench -p aggregation --bench devices --features cuda,wgpu -- [json] [device=cuda] [what=masks,sums,robust] [words=N] [masks=N]`.
//! `json` prints an object a line. On a GPU the largest case is a round of 1,000 participants, 10^7 words and a complete mask graph with 50
//! dropouts: 950 self masks and 50 × 950 pair masks.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use aggregation::cpu::CpuAggregator;
use aggregation::fallback::Fallback;
use aggregation::robust::{Inputs, RobustStatistics as _};
use aggregation::{Aggregator, Shape};
use secure_agg::mask::{MaskPlan, MaskSeed, Plane, Sign};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The workload sizes of a device.
struct Sizes {
    /// Words and masks.
    masks: &'static [(usize, usize)],
    /// Words and masks of each of several sums.
    sums: (usize, usize),
}

const SOFTWARE: Sizes = Sizes { masks: &[(100_000, 100), (1_000_000, 100)], sums: (100_000, 100) };
#[cfg(any(feature = "cuda", feature = "wgpu"))]
const GPU: Sizes = Sizes {
    masks: &[(100_000, 1000), (1_000_000, 1000), (10_000_000, 1), (10_000_000, 1000), (10_000_000, 950 + 50 * 950)],
    sums: (1_000_000, 1000),
};
/// Number of words compared at each sampled position of a vector too long for a full comparison.
const PLACE: usize = 1 << 16;
/// Maximum masks times words for a full comparison with the processor.
const WHOLE: usize = 1 << 30;

/// The arguments.
struct Wanted {
    device: Option<String>,
    /// All of them if empty.
    what: Vec<String>,
    words: Option<usize>,
    masks: Option<usize>,
    json: bool,
}

impl Wanted {
    /// Cargo adds `--bench`.
    fn read() -> Outcome<Self> {
        let mut wanted = Self { device: None, what: Vec::new(), words: None, masks: None, json: false };
        for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
            match argument.split_once('=') {
                None if argument == "json" => wanted.json = true,
                Some(("device", name)) => wanted.device = Some(name.to_owned()),
                Some(("what", list)) => wanted.what = list.split(',').map(str::to_owned).collect(),
                Some(("words", number)) => wanted.words = Some(number.parse()?),
                Some(("masks", number)) => wanted.masks = Some(number.parse()?),
                _ => return Err(format!("\"{argument}\" is none of json, device=, what=, words=, masks=").into()),
            }
        }
        Ok(wanted)
    }

    fn wants(&self, what: &str) -> bool {
        self.what.is_empty() || self.what.iter().any(|wanted| wanted == what)
    }

    fn cases(&self, sizes: &[(usize, usize)]) -> Vec<(usize, usize)> {
        match (self.words, self.masks) {
            (None, None) => sizes.to_vec(),
            (words, masks) => vec![(words.unwrap_or(1_000_000), masks.unwrap_or(1000))],
        }
    }

    /// Prints one measurement.
    fn tell(&self, device: &str, what: &str, figures: &[(&str, f64)]) {
        let mut line = String::new();
        for (name, figure) in figures {
            let _ = if self.json { write!(line, ",\"{name}\":{figure}") } else { write!(line, "  {name} {figure:.4}") };
        }
        if self.json {
            let device = device.replace(['"', '\\'], "'");
            println!("{{\"what\":\"{what}\",\"device\":\"{device}\"{line}}}");
        } else {
            println!("{device}: {what}{line}");
        }
    }
}

/// A device without fallback, and its workload sizes.
type Device = (Arc<dyn Aggregator>, Sizes);

fn main() -> Outcome<()> {
    let wanted = Wanted::read()?;
    let cpu = Arc::new(CpuAggregator::new(0)?);
    let (devices, mut failed) = (devices(wanted.device.as_deref(), &cpu)?, 0);
    if devices.is_empty() {
        return Err("there is no such device here".into());
    }
    for (device, sizes) in devices {
        if let Err(error) = measure(&wanted, &device, &sizes, &cpu) {
            println!("{} failed: {error}", device.name());
            failed += 1;
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} devices failed").into()) }
}

/// The available devices, or those with this prefix of their name. Software devices are only opened by name.
fn devices(asked: Option<&str>, cpu: &Arc<CpuAggregator>) -> Outcome<Vec<Device>> {
    let is_asked = |name: &str| asked.is_none_or(|asked| name.to_lowercase().starts_with(&asked.to_lowercase()));
    let mut found: Vec<Device> = Vec::new();
    if is_asked("cpu") {
        found.push((Arc::clone(cpu) as Arc<dyn Aggregator>, SOFTWARE));
    }
    #[cfg(feature = "cuda")]
    if is_asked("cuda") {
        match aggregation::cuda::count() {
            Ok(_) => found.push((Arc::new(aggregation::cuda::open(None)?), GPU)),
            Err(reason) => println!("cuda: {reason}"),
        }
    }
    #[cfg(feature = "wgpu")]
    for adapter in aggregation::wgpu::adapters() {
        let sizes = if adapter.is_software() { SOFTWARE } else { GPU };
        if is_asked(&format!("wgpu:{}", adapter.name())) && !(adapter.is_software() && asked == Some("wgpu")) {
            found.push((Arc::new(adapter.open()?), sizes));
        }
    }
    Ok(found)
}

fn measure(wanted: &Wanted, device: &Arc<dyn Aggregator>, sizes: &Sizes, cpu: &Arc<CpuAggregator>) -> Outcome<()> {
    // As a coordinator has it, with the processor behind it.
    let whole: Arc<dyn Aggregator> = Arc::new(Fallback::new(Arc::clone(device), Arc::clone(cpu)));
    if wanted.wants("masks") {
        for (words, masks) in wanted.cases(sizes.masks) {
            take_off(wanted, &*whole, cpu, words, masks)?;
        }
    }
    if wanted.wants("sums") {
        for (words, masks) in wanted.cases(&[sizes.sums]) {
            for at_once in [1, 2, 4, 8] {
                several(wanted, &*whole, cpu, (words, masks), at_once)?;
            }
        }
    }
    if wanted.wants("robust") {
        let sizes = wanted.words.map_or_else(|| vec![100_000, 1_000_000], |words| vec![words]);
        for words in sizes {
            robust(wanted, &**device, cpu, words)?;
        }
    }
    Ok(())
}

fn plan(words: usize, masks: usize) -> Outcome<MaskPlan> {
    let mut plan = MaskPlan::new(Plane::Model, words as u64, Shape::new(words, 32)?.modulus())?;
    for number in 0..masks as u64 {
        let mut key = [0x5a; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        plan.push(MaskSeed::new(&mut key), if number % 2 == 0 { Sign::Add } else { Sign::Subtract });
    }
    Ok(plan)
}

/// The unmasked words of an empty sum, and the seconds that it took; an error if the processor had to take over.
fn finish(device: &dyn Aggregator, plan: &MaskPlan, words: usize) -> Outcome<(Vec<u32>, f64)> {
    let sum = device.begin(Shape::new(words, 32)?)?;
    let start = Instant::now();
    let finished = sum.finish(plan)?;
    let seconds = start.elapsed().as_secs_f64();
    match finished.fallback {
        Some(event) => Err(format!("{} failed: {}", event.device, event.reason).into()),
        None => Ok((finished.words, seconds)),
    }
}

/// Compares with the processor's bits and returns how many words were compared.
fn verify(cpu: &CpuAggregator, plan: &MaskPlan, found: &[u32], masks: usize) -> Outcome<usize> {
    let (words, place) = (found.len(), PLACE.min(found.len()));
    let whole = words.saturating_mul(masks) <= WHOLE || words <= 3 * PLACE;
    let (starts, length) = if whole { (vec![0], words) } else { (vec![0, words / 2, words - place], place) };
    let zeros = vec![0; length];
    let mut expected = vec![0; length];
    for start in &starts {
        cpu.unmask_slice(plan, *start as u64, &zeros, &mut expected)?;
        if found[*start..*start + length] != expected {
            return Err(format!("other bits than the processor's within {length} words from {start} on").into());
        }
    }
    Ok(starts.len() * length)
}

fn take_off(wanted: &Wanted, device: &dyn Aggregator, cpu: &CpuAggregator, words: usize, masks: usize) -> Outcome<()> {
    let plan = plan(words, masks)?;
    let (mut best, mut found) = (f64::MAX, Vec::new());
    for _ in 0..3 {
        let (words, seconds) = finish(device, &plan, words)?;
        best = best.min(seconds);
        found = words;
    }
    let verified = verify(cpu, &plan, &found, masks)?;
    let rate = plan.keystream_bytes() as f64 / best / 1e9;
    let figures = [
        ("words", words as f64),
        ("masks", masks as f64),
        ("seconds", best),
        ("gb_per_s", rate),
        ("verified_words", verified as f64),
    ];
    wanted.tell(device.name(), "masks", &figures);
    Ok(())
}

/// Several rounds that end at the same time on one device.
fn several(
    wanted: &Wanted,
    device: &dyn Aggregator,
    cpu: &CpuAggregator,
    (words, masks): (usize, usize),
    at_once: usize,
) -> Outcome<()> {
    let plan = plan(words, masks)?;
    let mut best = f64::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let outcomes: Vec<Result<Vec<u32>, String>> = std::thread::scope(|scope| {
            let one = || finish(device, &plan, words).map(|(words, _)| words).map_err(|error| error.to_string());
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("it panicked".to_owned()))).collect()
        });
        best = best.min(start.elapsed().as_secs_f64());
        let first = outcomes.iter().find_map(|outcome| outcome.as_ref().ok()).cloned().unwrap_or_default();
        for outcome in outcomes {
            if outcome? != first {
                return Err("two sums of the same inputs differ".into());
            }
        }
        verify(cpu, &plan, &first, masks)?;
    }
    let rate = at_once as f64 * plan.keystream_bytes() as f64 / best / 1e9;
    let figures = [
        ("sums", at_once as f64),
        ("words", words as f64),
        ("masks", masks as f64),
        ("seconds", best),
        ("gb_per_s", rate),
    ];
    wanted.tell(device.name(), "sums", &figures);
    Ok(())
}

/// 100 vectors; the results must equal the processor's.
fn robust(wanted: &Wanted, device: &dyn Aggregator, cpu: &CpuAggregator, words: usize) -> Outcome<()> {
    let words = i32::try_from(words)?;
    let word = |number: i32| i16::try_from(number.wrapping_mul(0x09e3_779b) >> 16);
    let vector = |seed: i32| (0..words).map(|i| word(i ^ (seed << 20))).collect::<Result<Vec<_>, _>>();
    let vectors: Vec<Vec<i16>> = (0..100).map(vector).collect::<Result<_, _>>()?;
    let vectors: Vec<&[i16]> = vectors.iter().map(Vec::as_slice).collect();
    let inputs = Inputs::new(&vectors)?;
    let (mut median, mut trimmed, mut gram) = (f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..3 {
        let start = Instant::now();
        let medians = device.median(inputs)?;
        median = median.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let means = device.trimmed_mean(inputs, 10)?;
        trimmed = trimmed.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let products = device.gram(inputs)?;
        gram = gram.min(start.elapsed().as_secs_f64());
        let same = medians == cpu.median(inputs)? && means == cpu.trimmed_mean(inputs, 10)?;
        if !same || products != cpu.gram(inputs)? {
            return Err("other statistics than the processor's".into());
        }
    }
    let figures = [
        ("vectors", 100.0),
        ("words", f64::from(words)),
        ("median_s", median),
        ("trimmed_mean_s", trimmed),
        ("gram_s", gram),
    ];
    wanted.tell(device.name(), "robust", &figures);
    Ok(())
}
