//! `tributary simulate --faults`: the coordinator and its participants under faults, seed after seed.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;
use simulation::SimulationError;
use simulation::faults::{Flaws, Profile, Run, Runner, Schedule, Violation, search, shrink};

use super::machine::Stopwatch;
use super::refused::failure;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, duration, number};

/// Violations after which no further seed is tried.
const VIOLATIONS_MAX: usize = 10;
/// Runs that shortening one schedule may take.
const TRIES: u32 = 500;
/// How often it is told how far the search is, where no bar can be drawn.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What may be said with `--faults`.
#[derive(clap::Args)]
pub(super) struct FaultArgs {
    /// Let messages, processes, disks and clocks fail as seeds have it, and check what must hold all the same; of the options of
    /// a simulation only --threads counts then
    #[arg(long)]
    pub(super) faults: bool,
    /// Seeds to run
    #[arg(long, default_value_t = 100, requires = "faults", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, requires = "faults", value_name = "K")]
    first_seed: u64,
    /// Which faults are frequent: calm, lossy, crashy, skewed or greedy [default: the seed draws it]
    #[arg(long, requires = "faults")]
    profile: Option<Profile>,
    /// Run the schedule in this file, and tell each event
    #[arg(long, requires = "faults", value_name = "FILE", conflicts_with_all = ["seeds", "first_seed", "profile"])]
    replay: Option<PathBuf>,
}

/// What is answered to programs.
#[derive(Serialize)]
struct FaultsOutput {
    seeds: u64,
    first_seed: u64,
    /// Messages, steps, deaths and other events of all runs, and of the shortest.
    events: u64,
    events_min: u64,
    /// Rounds that published a version.
    rounds: u64,
    violations: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    violation: Violation,
    /// As few operations as fail by the same check.
    schedule: Schedule,
    replay: String,
}

impl FaultArgs {
    /// Searches on so many threads, or runs one schedule again.
    pub(super) fn run(&self, threads: usize, output: Output) -> Outcome {
        match &self.replay {
            Some(file) => replay(file, output),
            None => self.search(threads, output),
        }
    }

    fn search(&self, threads: usize, output: Output) -> Outcome {
        let mut searched = Searched::new(self.seeds, output);
        let mut outcome = Ok(());
        let seeds = self.first_seed..self.first_seed.saturating_add(self.seeds);
        search(seeds, self.profile, Flaws::default(), threads, |schedule, run| match searched.hear(&schedule, run) {
            Ok(flow) => flow,
            Err(failed) => {
                outcome = Err(failed);
                ControlFlow::Break(())
            }
        })
        .map_err(failure)?;
        outcome?;
        searched.answer(self.first_seed, threads)
    }
}

/// What a search has come to until now.
struct Searched {
    output: Output,
    stopwatch: Stopwatch,
    bar: ProgressBar,
    of: u64,
    totals: Totals,
    violations: Vec<Found>,
    /// When it was last told how far it is.
    told: Duration,
}

impl Searched {
    fn new(of: u64, output: Output) -> Self {
        let bar = if output.is_live() { ProgressBar::new(of) } else { ProgressBar::hidden() };
        let (totals, violations) = (Totals::default(), Vec::new());
        Self { output, stopwatch: Stopwatch::start(), bar, of, totals, violations, told: Duration::ZERO }
    }

    /// Counts a run, and shortens its schedule if something did not hold.
    fn hear(&mut self, schedule: &Schedule, run: Run) -> Outcome<ControlFlow<()>> {
        self.totals.count(run.events, run.rounds);
        self.bar.inc(1);
        if let Some(violation) = run.violation {
            let output = self.output;
            let found = self.bar.suspend(|| found(schedule, violation, output))?;
            self.violations.push(found);
            if self.violations.len() == VIOLATIONS_MAX {
                return Ok(ControlFlow::Break(()));
            }
        }
        let took = self.stopwatch.elapsed();
        if self.bar.is_hidden() && took >= self.told + TOLD_EVERY {
            self.told = took;
            self.output.note(format!("{} of {} seeds, {}", number(self.totals.seeds), number(self.of), self.rate()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn rate(&self) -> String {
        let rate = self.totals.seeds as f64 * 60.0 / self.stopwatch.elapsed().as_secs_f64().max(1e-9);
        format!("{rate:.0} a minute")
    }

    fn answer(mut self, first_seed: u64, threads: usize) -> Outcome {
        self.bar.finish_and_clear();
        self.violations.sort_by_key(|found| found.schedule.seed);
        let (rate, took, output) = (self.rate(), self.stopwatch.elapsed(), self.output);
        let Totals { seeds, events, events_min, rounds } = self.totals;
        let broken = self.violations.len();
        let answer = FaultsOutput { seeds, first_seed, events, events_min, rounds, violations: self.violations };
        output.answer(&answer, || {
            format!(
                "{} seeds from {first_seed} on, {} events ({} at least), {} rounds: {broken} violations",
                number(seeds),
                number(events),
                number(events_min),
                number(rounds)
            )
        });
        output.note(format!("This machine: {} for them on {threads} threads, {rate}.", duration(took)));
        if broken == 0 {
            return Ok(());
        }
        Err(Failure::new(Exit::Internal, format!("what must hold was broken under {broken} seeds")))
    }
}

#[derive(Clone, Copy)]
struct Totals {
    seeds: u64,
    events: u64,
    events_min: u64,
    rounds: u64,
}

impl Default for Totals {
    fn default() -> Self {
        Self { seeds: 0, events: 0, events_min: u64::MAX, rounds: 0 }
    }
}

impl Totals {
    fn count(&mut self, events: u64, rounds: u32) {
        self.seeds += 1;
        self.events += events;
        self.events_min = self.events_min.min(events);
        self.rounds += u64::from(rounds);
    }
}

/// Shortens a schedule that failed, keeps it in a file and tells how to run it again.
fn found(schedule: &Schedule, violation: Violation, output: Output) -> Outcome<Found> {
    let check = violation.check;
    let mut runner = Runner::new(Flaws::default()).map_err(failure)?;
    let tried = |candidate: &Schedule| {
        let run = runner.run(candidate, None)?;
        Ok::<_, SimulationError>(run.violation.map(|violation| violation.check))
    };
    let short = shrink(schedule, check, TRIES, tried).map_err(failure)?;
    let file = PathBuf::from(format!("faults-{}.json", schedule.seed));
    let text = serde_json::to_string_pretty(&short).map_err(Failure::because(Exit::Internal, "a schedule is JSON"))?;
    std::fs::write(&file, &text).map_err(Failure::because(Exit::Io, format!("cannot write {}", file.display())))?;
    let replay = format!("tributary simulate --faults --replay {}", file.display());
    output.line(format!("Seed {}: {check}: {}", schedule.seed, violation.detail));
    output.line(format!("{} operations of {} are enough:\n{text}", short.operations.len(), schedule.operations.len()));
    output.line(format!("Again: {replay}"));
    Ok(Found { violation, schedule: short, replay })
}

fn replay(file: &Path, output: Output) -> Outcome {
    let unread = || format!("cannot read the schedule {}", file.display());
    let bytes = std::fs::read(file).map_err(Failure::because(Exit::Data, unread()))?;
    let schedule: Schedule = serde_json::from_slice(&bytes).map_err(Failure::because(Exit::Data, unread()))?;
    let mut runner = Runner::new(Flaws::default()).map_err(failure)?;
    let run = runner.run(&schedule, Some(&mut |line: &str| output.line(line))).map_err(failure)?;
    output.answer(&run, || format!("{} events, {} rounds", number(run.events), run.rounds));
    match run.violation {
        None => Ok(()),
        Some(Violation { check, detail, at_ms }) => {
            let at = duration(Duration::from_millis(at_ms));
            Err(Failure::new(Exit::Internal, format!("after {at} of virtual time, {check}: {detail}")))
        }
    }
}
