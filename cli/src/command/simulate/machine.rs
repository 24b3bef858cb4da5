//! Measurements of this machine.

use std::time::{Duration, Instant};

/// Real time, for measurements of this machine.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the speed of this machine is measured here, and nothing follows from it"
    )]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Peak memory of this process, in bytes; `None` if the system does not report it.
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Processor time of this process until now, in its threads and in the system for it, in seconds; `None` if the system
/// does not report it.
pub(super) fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything: fields 3 and on; 14 and 15 are hundredths of a second.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut hundredths = fields.split_whitespace().skip(11).map_while(|field| field.parse::<f64>().ok());
    Some((hundredths.next()? + hundredths.next()?) / 100.0)
}
