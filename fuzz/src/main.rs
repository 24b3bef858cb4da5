//! `drive TARGET SECONDS [SEED]` replays the target's corpus, then tries mutated inputs for that long. On a panic it
//! stores the input under `artifacts/TARGET/` and exits with 1. `drive TARGET FILE` runs one input, `drive list` lists
//! the targets, and `drive seed TARGET` writes a corpus's initial inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fuzz::mutate::{Dice, mutate};
use fuzz::{TARGETS, Target, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            ExitCode::SUCCESS
        }
        ["seed", name] => with(name, |target| {
            write_seeds(target);
            ExitCode::SUCCESS
        }),
        [name, what] | [name, what, _] => with(name, |target| match what.parse() {
            Ok(seconds) => {
                let seed = arguments.get(2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
                drive(target, Duration::from_secs(seconds), seed)
            }
            Err(_) => {
                (target.run)(&std::fs::read(what).expect("the file can be read"));
                ExitCode::SUCCESS
            }
        }),
        _ => {
            eprintln!("drive list | drive seed TARGET | drive TARGET SECONDS [SEED] | drive TARGET FILE");
            ExitCode::from(2)
        }
    }
}

fn with(name: &str, action: impl FnOnce(&Target) -> ExitCode) -> ExitCode {
    target(name).map_or_else(
        || {
            eprintln!("there is no target {name}; `drive list` names them");
            ExitCode::from(2)
        },
        action,
    )
}

fn folder(kind: &str, target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name)
}

fn write_seeds(target: &Target) {
    let folder = folder("corpus", target);
    std::fs::create_dir_all(&folder).expect("the corpus can be written");
    for (number, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number:02}")), seed).expect("the corpus can be written");
    }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder("corpus", target))
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default();
    // Sorted, so that a run is a function of its seed.
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("the corpus can be read")).collect()
}

fn drive(target: &Target, time: Duration, seed: u64) -> ExitCode {
    let mut inputs = corpus(target);
    assert!(!inputs.is_empty(), "the corpus of {} is empty; `drive seed {0}` writes a first one", target.name);
    let replayed = inputs.len();
    for input in &inputs {
        if !survives(target, input) {
            return ExitCode::FAILURE;
        }
    }
    inputs.extend((target.seeds)());
    let mut dice = Dice::new(seed, target.name);
    let (started, mut tried, mut slowest) = (Instant::now(), 0u64, Duration::ZERO);
    while started.elapsed() < time {
        let (one, other) = (dice.below(inputs.len()), dice.below(inputs.len()));
        let input = mutate(&inputs[one], &inputs[other], &mut dice);
        let before = Instant::now();
        if !survives(target, &input) {
            println!("{:20} failed after {tried} changed inputs of seed {seed}", target.name);
            return ExitCode::FAILURE;
        }
        slowest = slowest.max(before.elapsed());
        tried += 1;
    }
    println!("{:20} {replayed:4} of the corpus, {tried:9} changed inputs, slowest {slowest:.1?}", target.name);
    ExitCode::SUCCESS
}

/// Whether the target accepts the input without a panic; stores it otherwise.
fn survives(target: &Target, input: &[u8]) -> bool {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_ok() {
        return true;
    }
    let folder = folder("artifacts", target);
    std::fs::create_dir_all(&folder).expect("the input can be stored");
    let file = folder.join(format!("crash-{:016x}", Dice::new(0, &format!("{input:?}")).next()));
    std::fs::write(&file, input).expect("the input can be stored");
    eprintln!("{}: the input is in {}", target.name, file.display());
    false
}
