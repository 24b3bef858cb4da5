//! `faults`: runs the coordinator and its participants under injected faults, seed after seed.
//!
//! Standard output follows from the flags alone. The speed of this machine goes to standard error.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a command")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use faults::{Flaws, Profile, Run, Runner, Schedule, SetupError, Violation, search, shrink};

/// The allocator of the executable `tributary`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of violations that ends the search.
const VIOLATIONS_MAX: usize = 10;
/// Runs that shortening one schedule may take.
const TRIES: u32 = 500;
/// How often the progress of a search is printed.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// Run the coordinator and its participants under injected faults, and check what must hold
#[derive(clap::Parser)]
#[command(name = "faults")]
struct Arguments {
    /// Seeds to run
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, value_name = "K")]
    first_seed: u64,
    /// Which faults are frequent: calm, lossy, crashy, skewed or greedy [default: the seed draws it]
    #[arg(long)]
    profile: Option<Profile>,
    /// Threads that run seeds; they change nothing but the speed [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Run the schedule in this file, and print each event
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "first_seed", "profile", "threads"])]
    replay: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match &arguments.replay {
        Some(file) => replay(file),
        None => run_seeds(&arguments),
    }
}

/// Runs one schedule again.
fn replay(file: &Path) -> anyhow::Result<()> {
    let unread = || format!("cannot read the schedule {}", file.display());
    let bytes = std::fs::read(file).with_context(unread)?;
    let schedule: Schedule = serde_json::from_slice(&bytes).with_context(unread)?;
    let run = Runner::new(Flaws::default())?.run(&schedule, Some(&mut |line: &str| println!("{line}")))?;
    println!("{} events, {} rounds", run.events, run.rounds);
    match run.violation {
        None => Ok(()),
        Some(Violation { check, detail, at_ms }) => bail!("after {at_ms} ms of virtual time, {check}: {detail}"),
    }
}

fn run_seeds(arguments: &Arguments) -> anyhow::Result<()> {
    let threads = match arguments.threads {
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    let seeds = arguments.first_seed..arguments.first_seed.saturating_add(arguments.seeds);
    let mut searched = Searched::new(arguments.seeds);
    let mut outcome = Ok(());
    search(seeds, arguments.profile, Flaws::default(), threads, |schedule, run| match searched.add(&schedule, run) {
        Ok(flow) => flow,
        Err(error) => {
            outcome = Err(error);
            ControlFlow::Break(())
        }
    })?;
    outcome?;
    searched.finish(arguments.first_seed, threads)
}

/// The results of a search so far.
struct Searched {
    began: Instant,
    /// Seeds to run.
    of: u64,
    /// Seeds that were run.
    seeds: u64,
    /// Messages, steps, deaths and other events of all runs, and of the shortest.
    events: u64,
    events_min: u64,
    /// Rounds that published a version.
    rounds: u64,
    violations: usize,
    /// When progress was last printed, since `began`.
    printed: Duration,
}

impl Searched {
    fn new(of: u64) -> Self {
        let (began, printed) = (now(), Duration::ZERO);
        Self { began, of, seeds: 0, events: 0, events_min: u64::MAX, rounds: 0, violations: 0, printed }
    }

    /// Counts a run, and shortens its schedule if something did not hold.
    fn add(&mut self, schedule: &Schedule, run: Run) -> anyhow::Result<ControlFlow<()>> {
        self.seeds += 1;
        self.events += run.events;
        self.events_min = self.events_min.min(run.events);
        self.rounds += u64::from(run.rounds);
        if let Some(violation) = run.violation {
            report(schedule, &violation)?;
            self.violations += 1;
            if self.violations == VIOLATIONS_MAX {
                return Ok(ControlFlow::Break(()));
            }
        }
        let took = self.took();
        if took >= self.printed + PROGRESS_EVERY {
            self.printed = took;
            eprintln!("{} of {} seeds, {:.0} a minute", self.seeds, self.of, self.rate());
        }
        Ok(ControlFlow::Continue(()))
    }

    fn took(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Seeds a minute.
    fn rate(&self) -> f64 {
        self.seeds as f64 * 60.0 / self.took().as_secs_f64().max(1e-9)
    }

    fn finish(&self, first_seed: u64, threads: usize) -> anyhow::Result<()> {
        let Self { seeds, events, events_min, rounds, violations, .. } = self;
        println!(
            "{seeds} seeds from {first_seed} on, {events} events ({events_min} at least), {rounds} rounds: {violations} violations"
        );
        let (took, rate) = (self.took().as_secs_f64(), self.rate());
        eprintln!("This machine: {took:.1} s for them on {threads} threads, {rate:.0} a minute.");
        if *violations > 0 {
            bail!("what must hold was broken under {violations} seeds");
        }
        Ok(())
    }
}

/// Shortens a schedule that failed, writes it to a file and prints the command that runs it again.
fn report(schedule: &Schedule, violation: &Violation) -> anyhow::Result<()> {
    let (seed, check) = (schedule.seed, violation.check);
    let mut runner = Runner::new(Flaws::default())?;
    let short = shrink(schedule, check, TRIES, |candidate| {
        Ok::<_, SetupError>(runner.run(candidate, None)?.violation.map(|violation| violation.check))
    })?;
    let file = format!("faults-{seed}.json");
    let text = serde_json::to_string_pretty(&short)?;
    std::fs::write(&file, &text).with_context(|| format!("cannot write {file}"))?;
    println!("Seed {seed}: {check}: {}", violation.detail);
    println!("{} operations of {} are enough:\n{text}", short.operations.len(), schedule.operations.len());
    println!("Again: faults --replay {file}");
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the speed of this machine is measured here, and nothing follows from it"
)]
fn now() -> Instant {
    Instant::now()
}
