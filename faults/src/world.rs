//! The parts of a run: a clock, a queue of events, coordinators over the same rows and blobs, and devices.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::participant::machine::{Input, ModelFile};
use client_sdk::transport::{Request, TransportError};
use coordinator::Coordinator;
use coordinator::config::Config;
use federation::id::{Digest, TaskId};
use federation::time::Timestamp;
use store::{Store, WakeSubscription};
use tokio::task::JoinHandle;
use wire::participant::ModelRef;

use super::checks::Facts;
use super::device::Device;
use super::disk::Disk;
use super::leases::LeaseWatch;
use super::outcome::{Check, Flaws, Violation};
use super::private::Draws;
use super::process::{Changes, MachineClock, Process};
use super::schedule::{Operation, Schedule};
use simulation::clock::{Moment, VirtualClock};
use simulation::in_process::{Exchange, Network};
use simulation::queue::Queue;

/// How often garbage is collected.
pub(super) const GARBAGE: Duration = Duration::from_secs(30);

/// Something that happens at a moment.
pub(super) enum Event {
    /// A request reaches its server.
    Arrive {
        device: u32,
        current: u64,
        number: u64,
        is_repeated: bool,
        message: Box<Message>,
    },
    /// An answer reaches the device.
    Answer {
        device: u32,
        current: u64,
        input: Box<Input>,
    },
    /// A wait of the device is over.
    Tick {
        device: u32,
        current: u64,
    },
    /// The device gives up waiting for an answer.
    GiveUp {
        device: u32,
        current: u64,
        input: Box<Input>,
    },
    /// There may be a result for an open poll.
    Look {
        device: u32,
        current: u64,
    },
    /// An open poll ends without one.
    PollEnds {
        device: u32,
        current: u64,
    },
    /// A killed device starts again.
    Return {
        device: u32,
    },
    /// The coordinator's work is due, or it looks now and then.
    Step {
        coordinator: usize,
        life: u64,
    },
    Poll {
        coordinator: usize,
        life: u64,
    },
    /// The coordinator's clock sets out to collect garbage.
    Garbage {
        coordinator: usize,
        life: u64,
    },
    /// It goes on after it hung.
    Resume {
        coordinator: usize,
        life: u64,
    },
    /// It starts again.
    Start {
        coordinator: usize,
    },
    /// An operation of the schedule that has a time, or its end.
    Scheduled(Operation),
    Resumed,
}

/// A request on its way.
#[derive(Clone)]
pub(super) enum Message {
    Request(Request),
    Model { task: TaskId, model: ModelRef },
}

/// Outcome of a call.
pub(super) enum Reply {
    Answered {
        device: u32,
        current: u64,
        number: u64,
        is_repeated: bool,
        /// The blob that an upload stored.
        stored: Option<Digest>,
        exchange: Box<Exchange>,
    },
    Looked {
        device: u32,
        current: u64,
        exchange: Box<Exchange>,
    },
    Fetched {
        device: u32,
        current: u64,
        number: u64,
        fetched: Result<Arc<ModelFile>, TransportError>,
    },
    Started(Result<(), String>),
    Stepped {
        is_poll: bool,
        stepped: Result<(usize, Option<Timestamp>), String>,
    },
    Collected(Result<(), String>),
    Commanded {
        what: &'static str,
        done: Result<(), String>,
    },
}

/// The folder of a run's files, and the flaws of its surroundings.
pub(super) struct Place {
    pub(super) folder: PathBuf,
    pub(super) flaws: Flaws,
}

/// Parts of every coordinator's process.
pub(super) struct Site {
    pub(super) seed: u64,
    pub(super) config: Config,
    pub(super) place: Place,
    pub(super) real: Arc<VirtualClock>,
    pub(super) rows: Store,
    pub(super) disk: Arc<Disk>,
    /// Seeds of noise that coordinators drew, with which released sums are explained.
    pub(super) draws: Draws,
    /// The operator's.
    pub(super) token: String,
    /// Whether others use the same rows.
    pub(super) is_shared: bool,
}

/// A coordinator over all its lives.
pub(super) struct Slot {
    pub(super) changes: Arc<Mutex<Changes>>,
    pub(super) clock: Arc<MachineClock>,
    pub(super) lives: u64,
    pub(super) running: Option<Running>,
    pub(super) wakes_lost_until: Moment,
    /// When it last collected garbage: by its own clock, and in fact.
    pub(super) collected: Option<(i64, Moment)>,
}

/// A coordinator from one start to its death, with the state of that life.
pub(super) struct Running {
    pub(super) life: u64,
    pub(super) coordinator: Coordinator,
    pub(super) network: Arc<Network>,
    pub(super) process: Arc<Process>,
    pub(super) events: WakeSubscription,
    /// Calls that hang with it.
    pub(super) hanging: Vec<JoinHandle<Reply>>,
    pub(super) is_told_to_resume: bool,
    /// The token of the task's lease when it began to hang.
    pub(super) stalled_at: Option<u64>,
    pub(super) step_at: Option<Moment>,
    /// When a round's deadline makes work due.
    pub(super) deadline: Option<Moment>,
}

pub(super) struct World<'a> {
    pub(super) schedule: Schedule,
    pub(super) site: Site,
    pub(super) clock: Arc<VirtualClock>,
    pub(super) queue: Queue<Event>,
    pub(super) slots: Vec<Slot>,
    pub(super) devices: Vec<Device>,
    /// Faults of requests, by device and number.
    pub(super) messages: BTreeMap<(u32, u64), Vec<Operation>>,
    /// Devices cut off, until when.
    pub(super) partitions: Vec<(Vec<u32>, Moment)>,
    pub(super) facts: Facts,
    pub(super) leases: LeaseWatch,
    pub(super) events: u64,
    /// Durable changes so far when rows were last checked; `None` if something was removed since.
    pub(super) checked: Option<u64>,
    /// Whether faults have stopped.
    pub(super) is_calm: bool,
    pub(super) violation: Option<Violation>,
    pub(super) trace: std::hash::DefaultHasher,
    tell: Option<&'a mut dyn FnMut(&str)>,
}

/// Parts of a world.
pub(super) struct Made {
    pub(super) schedule: Schedule,
    pub(super) site: Site,
    pub(super) slots: Vec<Slot>,
    pub(super) devices: Vec<Device>,
    pub(super) facts: Facts,
}

impl<'a> World<'a> {
    pub(super) fn new(made: Made, tell: Option<&'a mut dyn FnMut(&str)>) -> Self {
        let Made { schedule, site, slots, devices, facts } = made;
        let clock = Arc::clone(&site.real);
        let mut messages: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for operation in &schedule.operations {
            if let Operation::LoseRequest { device, request }
            | Operation::LoseAnswer { device, request }
            | Operation::DelayRequest { device, request, .. }
            | Operation::RepeatRequest { device, request, .. }
            | Operation::DamageInput { device, request } = operation
            {
                messages.entry((*device, *request)).or_default().push(operation.clone());
            }
        }
        let trace = std::hash::DefaultHasher::new();
        let (queue, partitions) = (Queue::default(), Vec::new());
        let (events, is_calm, violation) = (0, false, None);
        Self {
            schedule,
            site,
            clock,
            queue,
            slots,
            devices,
            messages,
            partitions,
            facts,
            leases: LeaseWatch::default(),
            events,
            checked: None,
            is_calm,
            violation,
            trace,
            tell,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// Durable changes of all coordinators.
    pub(super) fn made(&self) -> u64 {
        self.slots.iter().map(|slot| slot.changes.lock().unwrap_or_else(PoisonError::into_inner).made).sum()
    }

    pub(super) fn plan(&mut self, after: Duration, event: Event) {
        self.queue.plan(self.now().plus(after), event);
    }

    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        let line = format!("{:>10.3} {what}", self.now().elapsed().as_secs_f64());
        line.hash(&mut self.trace);
        if let Some(tell) = &mut self.tell {
            tell(&line);
        }
    }

    /// Something did not hold; the first one counts.
    pub(super) fn violate(&mut self, check: Check, detail: String) {
        self.note(format_args!("VIOLATION {check}: {detail}"));
        let at_ms = u64::try_from(self.now().elapsed().as_millis()).unwrap_or(u64::MAX);
        self.violation.get_or_insert(Violation { check, detail, at_ms });
    }

    /// Ends the rest of a process, whose connections break.
    pub(super) fn bury(&mut self, coordinator: usize, away: Duration) {
        let Some(running) = self.slots[coordinator].running.take() else { return };
        running.process.die();
        running.hanging.iter().for_each(JoinHandle::abort);
        if self.site.place.flaws.forgets_to_flush {
            self.site.disk.power_cut(coordinator);
        }
        self.note(format_args!("coordinator {coordinator} died"));
        self.break_polls(coordinator);
        self.plan(away.max(Duration::from_millis(1)), Event::Start { coordinator });
    }

    /// Where the keys of releases lie.
    pub(super) fn keys(&self) -> PathBuf {
        self.site.place.folder.join("seal.releases")
    }
}
