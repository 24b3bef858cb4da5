//! Processes left behind by a program, including those outside its process group.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::job_folder::{JOB_VARIABLE, JOBS_VARIABLE};

/// How often, and after which pause, it is looked whether one has gone.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Kills all processes whose job folder, or folder of all jobs, is this folder or one below it. Fails if some remain after
/// several attempts.
///
/// Linux only. On other systems, processes outside the group are missed.
pub(super) fn end_all(folder: &Path) -> io::Result<()> {
    for _ in 0..LOOKS {
        let left = find(folder);
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
    match find(folder).as_slice() {
        [] => Ok(()),
        left => Err(io::Error::other(format!("processes that the program left behind cannot be killed: {left:?}"))),
    }
}

#[cfg(target_os = "linux")]
pub(super) fn find(folder: &Path) -> Vec<Pid> {
    use std::os::unix::ffi::OsStrExt as _;

    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let wanted =
        [JOB_VARIABLE, JOBS_VARIABLE].map(|name| [name.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat());
    let is_wanted = |variable: &[u8]| {
        let rest = wanted.iter().find_map(|wanted| variable.strip_prefix(wanted.as_slice()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| {
            let own = u32::try_from(pid.as_raw_nonzero().get()).is_ok_and(|pid| pid == std::process::id());
            if own {
                return false;
            }
            // Fails for processes of other users and for ended processes.
            let variables = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(is_wanted)
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn find(_: &Path) -> Vec<Pid> {
    Vec::new()
}
