//! Runs the schedules of many seeds, several at once.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use super::outcome::{Flaws, Run};
use super::runner::Runner;
use super::schedule::{Profile, Schedule};
use crate::SetupError;

/// Runs that may wait to be heard of, for each thread.
const WAITING: usize = 4;

/// Runs the schedules that `seeds` write, on so many threads, and passes each with its outcome to `heard`, as they end,
/// until that returns break. A seed's run is a world of its own, independent of the threads and of other seeds. Without
/// a profile each seed draws its own.
///
/// # Errors
/// [`SetupError`] if a run cannot be set up, or a thread cannot be started.
pub fn search(
    seeds: Range<u64>,
    profile: Option<Profile>,
    flaws: Flaws,
    threads: usize,
    mut heard: impl FnMut(Schedule, Run) -> ControlFlow<()>,
) -> Result<(), SetupError> {
    let next = AtomicU64::new(seeds.start);
    let (tell, told) = mpsc::sync_channel(WAITING * threads.max(1));
    let work = |tell: &mpsc::SyncSender<Result<(Schedule, Run), SetupError>>| {
        let mut runner = Runner::new(flaws)?;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return Ok(());
            }
            let schedule = Schedule::draw(seed, profile);
            let run = runner.run(&schedule, None)?;
            if tell.send(Ok((schedule, run))).is_err() {
                // The receiver is gone.
                return Ok(());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let tell = tell.clone();
            let run = move || {
                if let Err(error) = work(&tell) {
                    let _ = tell.send(Err(error));
                }
            };
            let started = thread::Builder::new().name("seeds".to_owned()).spawn_scoped(scope, run);
            started.map_err(|error| SetupError::Threads(error.to_string()))?;
        }
        drop(tell);
        for ended in &told {
            let (schedule, run) = ended?;
            if heard(schedule, run).is_break() {
                break;
            }
        }
        // Threads that still have something to tell are to end.
        drop(told);
        Ok(())
    })
}
