//! One coordinator's process: its progress, and its clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use federation::time::{Clock, Timestamp};
use store::{Interruption, WriteFate};
use tokio::sync::watch;

use simulation::clock::VirtualClock;

/// Fault at one durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeFault {
    Crash { takes_effect: bool, away: Duration },
    Stall { away: Duration },
    Fail { takes_effect: bool },
}

/// Whether a process goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessStatus {
    Running,
    /// It hangs for this long.
    Stalled(Duration),
    /// It is dead for this long.
    Dead(Duration),
}

/// The durable changes of a coordinator over all its processes, and the faults at them.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) made: u64,
    faults: BTreeMap<u64, ChangeFault>,
    /// Those that background work made.
    worked: u64,
    /// Before which of them it hangs, and for how long.
    work_stalls: BTreeMap<u64, Duration>,
}

impl Changes {
    /// Changes before the first, with these faults to come.
    pub(super) fn with(faults: BTreeMap<u64, ChangeFault>, work_stalls: BTreeMap<u64, Duration>) -> Self {
        Self { faults, work_stalls, ..Self::default() }
    }

    /// Removes the faults to come.
    pub(super) fn calm_down(&mut self) {
        self.faults.clear();
        self.work_stalls.clear();
    }

    /// For how long the process is to hang before the next change.
    fn stall(&mut self) -> Option<Duration> {
        let stalled_work = if is_work() { self.work_stalls.remove(&(self.worked + 1)) } else { None };
        let next = self.made + 1;
        if let Some(&ChangeFault::Stall { away }) = self.faults.get(&next) {
            self.faults.remove(&next);
            return Some(away.max(stalled_work.unwrap_or_default()));
        }
        stalled_work
    }
}

tokio::task_local! {
    static WORK: ();
}

/// Runs background work of a coordinator: its durable changes are counted separately as well.
pub(super) async fn as_work<T>(work: impl Future<Output = T>) -> T {
    WORK.scope((), work).await
}

fn is_work() -> bool {
    WORK.try_with(|()| ()).is_ok()
}

/// One process. Rows and blobs ask it before each change.
pub(super) struct Process {
    changes: Arc<Mutex<Changes>>,
    standing: watch::Sender<ProcessStatus>,
}

impl Process {
    pub(super) fn new(changes: Arc<Mutex<Changes>>) -> Self {
        Self { changes, standing: watch::Sender::new(ProcessStatus::Running) }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> ProcessStatus {
        *self.standing.borrow()
    }

    /// Returns when it hangs or is dead.
    pub(super) async fn halted(&self) {
        self.wait_for(|standing| standing != ProcessStatus::Running).await;
    }

    /// It hangs for a moment before the change after the next one.
    pub(super) fn hang_after_the_next_change(&self) {
        let mut all = self.changes();
        let then = all.made + 2;
        all.faults.entry(then).or_insert(ChangeFault::Stall { away: Duration::from_millis(1) });
    }

    /// Lets it go on if it hangs.
    pub(super) fn resume(&self) {
        self.standing.send_if_modified(|standing| {
            let stalled = matches!(standing, ProcessStatus::Stalled(_));
            if stalled {
                *standing = ProcessStatus::Running;
            }
            stalled
        });
    }

    /// Stops the process before its next action.
    pub(super) fn die(&self) {
        self.standing.send_replace(ProcessStatus::Dead(Duration::ZERO));
    }

    async fn wait_for(&self, mut is: impl FnMut(ProcessStatus) -> bool) {
        // The sender lives as long as this.
        let _ = self.standing.subscribe().wait_for(|standing| is(*standing)).await;
    }
}

#[async_trait]
impl Interruption for Process {
    async fn may_go_on(&self, changes: bool) {
        if changes && self.standing() == ProcessStatus::Running {
            let stall = self.changes().stall();
            if let Some(away) = stall {
                self.standing.send_replace(ProcessStatus::Stalled(away));
            }
        }
        self.wait_for(|standing| standing == ProcessStatus::Running).await;
    }

    fn commits(&self) -> WriteFate {
        let mut all = self.changes();
        all.made += 1;
        all.worked += u64::from(is_work());
        let next = all.made;
        match all.faults.remove(&next) {
            // A stall that was not applied before this change moves to the next one.
            Some(stall @ ChangeFault::Stall { .. }) => {
                all.faults.entry(next + 1).or_insert(stall);
                WriteFate::Done
            }
            Some(ChangeFault::Fail { takes_effect: false }) => WriteFate::Fails,
            Some(ChangeFault::Fail { takes_effect: true }) => WriteFate::FailsAfter,
            Some(ChangeFault::Crash { takes_effect, away }) => {
                self.standing.send_replace(ProcessStatus::Dead(away));
                if takes_effect { WriteFate::StopsAfter } else { WriteFate::StopsBefore }
            }
            None => WriteFate::Done,
        }
    }
}

/// The clock of one machine.
pub(super) struct MachineClock {
    pub(super) real: Arc<VirtualClock>,
    pub(super) offset_ms: AtomicI64,
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.real.now().0 + self.offset_ms.load(Ordering::SeqCst))
    }
}
