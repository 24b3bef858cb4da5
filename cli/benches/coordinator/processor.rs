//! Processor time and memory of processes, from `/proc`.

use std::path::PathBuf;

use crate::Outcome;

/// Ticks of `/proc` in a second, on every Linux.
const TICKS: f64 = 100.0;

/// Processor time of a process itself, in seconds.
pub(crate) fn seconds(process: u32) -> Outcome<f64> {
    Ok(Usage::of(process)?.own)
}

/// Processor time of this thread, in seconds.
pub(crate) fn thread_seconds() -> Outcome<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(told.split_whitespace().next().ok_or("the system tells nothing of threads")?.parse::<f64>()? / 1e9)
}

/// Processor time of a process with all its children, both running and awaited ones, in seconds.
pub(crate) fn family_seconds(process: u32) -> Outcome<f64> {
    let first = Usage::of(process)?;
    let mut sum = first.own + first.ended;
    for entry in std::fs::read_dir("/proc")? {
        let Some(other) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends in between is counted with its parent's next time.
        if let Ok(usage) = Usage::of(other)
            && usage.parent == process
        {
            sum += usage.own;
        }
    }
    Ok(sum)
}

/// `VmRSS` of a process now or `VmHWM`, its peak since [`forget_peak`], in bytes.
pub(crate) fn memory(process: u32, what: &str) -> Outcome<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with(what)).ok_or("the system tells of no such memory")?;
    Ok(line.split_whitespace().nth(1).unwrap_or_default().parse::<f64>()? * 1024.0)
}

pub(crate) fn forget_peak(process: u32) -> Outcome {
    Ok(std::fs::write(format!("/proc/{process}/clear_refs"), "5")?)
}

struct Usage {
    parent: u32,
    own: f64,
    /// Of children that ended and were waited for.
    ended: f64,
}

impl Usage {
    fn of(process: u32) -> Outcome<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name in parentheses may hold blanks; field 4 is the parent, 14 to 17 are user and system time, own and children's.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let seconds = |index: usize| fields[index].parse::<f64>().map(|ticks| ticks / TICKS);
        Ok(Self { parent: fields[1].parse()?, own: seconds(11)? + seconds(12)?, ended: seconds(13)? + seconds(14)? })
    }
}

/// A bound on the processor time of processes, in percent of a core; gone when dropped, after them.
pub(crate) struct Quota(PathBuf);

impl Quota {
    /// A control group with this bound. `None` if this process may not create one.
    pub(crate) fn new(percent: u32) -> Option<Self> {
        const PERIOD_US: u32 = 10_000;
        let quota = PERIOD_US * percent / 100;
        let name = format!("tributary-load-{}", std::process::id());
        let first = PathBuf::from("/sys/fs/cgroup/cpu");
        let (folder, settings) = if first.exists() {
            let settings = [("cpu.cfs_period_us", PERIOD_US.to_string()), ("cpu.cfs_quota_us", quota.to_string())];
            (first.join(name), settings.to_vec())
        } else {
            (PathBuf::from("/sys/fs/cgroup").join(name), vec![("cpu.max", format!("{quota} {PERIOD_US}"))])
        };
        let folder = (0..).map(|number| folder.with_extension(number.to_string())).find(|folder| !folder.exists())?;
        std::fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        settings.iter().all(|(name, value)| std::fs::write(group.0.join(name), value).is_ok()).then_some(group)
    }

    /// Bounds a process, and all that it starts.
    pub(crate) fn bound(&self, process: u32) -> Outcome {
        Ok(std::fs::write(self.0.join("cgroup.procs"), process.to_string())?)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Refused while a process is in it: one that was killed may still be ending.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
