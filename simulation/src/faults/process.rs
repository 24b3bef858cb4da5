//! One coordinator's process: how far it gets, and what its clock shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use federation::time::{Clock, Timestamp};
use store::{Interruption, WriteFate};
use tokio::sync::watch;

use crate::clock::VirtualClock;

/// What happens at one durable change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeFault {
    Crash { takes_effect: bool, away: Duration },
    Stall { away: Duration },
    Fail { takes_effect: bool },
}

/// Whether a process goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Running,
    /// It hangs for this long.
    Stalled(Duration),
    /// It is dead for this long.
    Dead(Duration),
}

/// The durable changes of a coordinator over all its processes, and what is to happen at them.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) made: u64,
    pub(super) faults: BTreeMap<u64, ChangeFault>,
}

/// One process. Rows and blobs ask it before each change.
pub(super) struct Process {
    changes: Arc<Mutex<Changes>>,
    standing: watch::Sender<Standing>,
}

impl Process {
    pub(super) fn new(changes: Arc<Mutex<Changes>>) -> Self {
        Self { changes, standing: watch::Sender::new(Standing::Running) }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// Returns when it hangs or is dead.
    pub(super) async fn halted(&self) {
        self.wait_for(|standing| standing != Standing::Running).await;
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
            let stalled = matches!(standing, Standing::Stalled(_));
            if stalled {
                *standing = Standing::Running;
            }
            stalled
        });
    }

    /// Nothing it was about to do is done any more.
    pub(super) fn die(&self) {
        self.standing.send_replace(Standing::Dead(Duration::ZERO));
    }

    async fn wait_for(&self, mut is: impl FnMut(Standing) -> bool) {
        // The sender lives as long as this.
        let _ = self.standing.subscribe().wait_for(|standing| is(*standing)).await;
    }
}

#[async_trait]
impl Interruption for Process {
    async fn may_go_on(&self, changes: bool) {
        if changes && self.standing() == Standing::Running {
            let mut all = self.changes();
            let next = all.made + 1;
            if let Some(&ChangeFault::Stall { away }) = all.faults.get(&next) {
                all.faults.remove(&next);
                self.standing.send_replace(Standing::Stalled(away));
            }
        }
        self.wait_for(|standing| standing == Standing::Running).await;
    }

    fn commits(&self) -> WriteFate {
        let mut all = self.changes();
        all.made += 1;
        let next = all.made;
        match all.faults.remove(&next) {
            // Whoever found another change in the way hangs at the one after it.
            Some(stall @ ChangeFault::Stall { .. }) => {
                all.faults.entry(next + 1).or_insert(stall);
                WriteFate::Done
            }
            Some(ChangeFault::Fail { takes_effect: false }) => WriteFate::Fails,
            Some(ChangeFault::Fail { takes_effect: true }) => WriteFate::FailsAfter,
            Some(ChangeFault::Crash { takes_effect, away }) => {
                self.standing.send_replace(Standing::Dead(away));
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
