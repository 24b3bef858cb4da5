//! One run: a clock, a queue of events, coordinators over the same rows and blobs, and devices.
//!
//! The loop takes the earliest event, moves the clock there, performs it, passes wake-ups on and checks what must hold.
//! A coordinator is driven by one call at a time; where a call hangs, it stays with its process until that goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::participant::machine::Input;
use client_sdk::transport::Request;
use coordinator::Coordinator;
use federation::id::TaskId;
use store::WakeSubscription;
use tokio::task::JoinHandle;
use wire::participant::ModelRef;

use super::build::{Place, Site, build};
use super::checks::Facts;
use super::device::Device;
use super::process::{Changes, MachineClock, Process, Standing};
use super::schedule::{HORIZON_MS, Operation, Schedule};
use super::work::Reply;
use super::{Check, Run, Violation};
use crate::SimulationError;
use crate::clock::{Moment, VirtualClock};
use crate::in_process::Network;
use crate::queue::Queue;

/// Fewest events before faults stop.
const EVENTS_MIN: u64 = 200;
/// Longest that faults go on, whatever happens.
const FAULTS_MAX: Duration = Duration::from_secs(300);
/// How long a task may take to end once faults have stopped.
pub(super) const PATIENCE: Duration = Duration::from_secs(900);
/// How often garbage is collected.
pub(super) const GARBAGE: Duration = Duration::from_secs(30);

/// Something that happens at a moment.
pub(super) enum Event {
    /// A request reaches whoever serves it.
    Arrive {
        device: u32,
        current: u64,
        number: u64,
        is_repeated: bool,
        message: Message,
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

/// A coordinator's process.
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
    /// What happens to requests, by device and number.
    pub(super) messages: BTreeMap<(u32, u64), Vec<Operation>>,
    /// Devices cut off, until when.
    pub(super) partitions: Vec<(Vec<u32>, Moment)>,
    pub(super) facts: Facts,
    pub(super) events: u64,
    /// Durable changes so far when rows were last checked; none if something was removed since.
    pub(super) checked: Option<u64>,
    /// Whether faults have stopped.
    pub(super) is_calm: bool,
    pub(super) violation: Option<Violation>,
    trace: std::hash::DefaultHasher,
    tell: Option<&'a mut dyn FnMut(&str)>,
}

/// Performs a schedule.
pub(super) async fn perform(
    schedule: &Schedule,
    place: Place,
    tell: Option<&mut dyn FnMut(&str)>,
) -> Result<Run, SimulationError> {
    let mut world = build(schedule, place, tell).await?;
    world.run().await;
    let rounds = world.facts.rounds();
    Ok(Run { events: world.events, rounds, trace: world.trace.finish(), violation: world.violation })
}

/// Everything that [`build`] has made.
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

    pub(super) fn plan(&mut self, after: Duration, event: Event) {
        self.queue.plan(self.now().plus(after), event);
    }

    /// Notes what happened.
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

    async fn run(&mut self) {
        for operation in self.schedule.operations.clone() {
            let at_ms = match operation {
                Operation::Partition { at_ms, .. }
                | Operation::SetClock { at_ms, .. }
                | Operation::LoseWakes { at_ms, .. }
                | Operation::CollectGarbage { at_ms, .. }
                | Operation::Pause { at_ms, .. }
                | Operation::Cancel { at_ms }
                | Operation::Revoke { at_ms, .. } => at_ms,
                _ => continue,
            };
            self.plan(Duration::from_millis(at_ms), Event::Scheduled(operation));
        }
        for coordinator in 0..self.slots.len() {
            self.begin(coordinator);
        }
        for device in 0..self.schedule.devices {
            self.plan(Duration::from_millis(200 * u64::from(device)), Event::Return { device });
        }
        let horizon = Moment::at(Duration::from_millis(HORIZON_MS));
        let latest = Moment::at(FAULTS_MAX);
        self.go_until(|world| {
            let over = world.now() >= horizon && world.events >= EVENTS_MIN;
            over || world.now() >= latest || world.facts.is_over()
        })
        .await;
        self.calm_down().await;
        let end = self.now().plus(PATIENCE);
        self.go_until(|world| world.now() >= end || world.facts.is_over()).await;
        self.finish().await;
    }

    /// Performs events until `is_over`, or something did not hold.
    pub(super) async fn go_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        while self.violation.is_none() && !is_over(self) {
            let Some((at, event)) = self.queue.next() else { return };
            self.clock.advance(at);
            self.perform(event).await;
            self.pass_wakes_on();
            self.look_after_the_halted();
            self.check().await;
        }
    }

    async fn check(&mut self) {
        let made = |slot: &Slot| slot.changes.lock().unwrap_or_else(PoisonError::into_inner).made;
        let made = self.slots.iter().map(made).sum();
        // Nothing was written, removed or told since.
        if !self.facts.is_new() && self.checked == Some(made) {
            return;
        }
        self.checked = Some(made);
        let standing = self.facts.check(&self.site.rows, &self.site.disk).await;
        if let Err(violation) = standing {
            self.violate(violation.0, violation.1);
        }
    }

    async fn perform(&mut self, event: Event) {
        match event {
            Event::Arrive { device, current, number, is_repeated, message } => {
                self.arrive(device, current, number, is_repeated, message).await;
            }
            Event::Answer { device, current, input } | Event::GiveUp { device, current, input } => {
                self.go_on(device, current, *input);
            }
            Event::Tick { device, current } => self.go_on(device, current, Input::Tick),
            Event::Look { device, current } => self.look(device, current).await,
            Event::PollEnds { device, current } => self.poll_ends(device, current),
            Event::Return { device } => {
                let device_ref = &mut self.devices[device as usize];
                if !device_ref.is_on() {
                    device_ref.start(None);
                    let current = device_ref.current;
                    self.note(format_args!("device {device} starts"));
                    self.go_on(device, current, Input::Tick);
                }
            }
            Event::Step { coordinator, life } => self.step(coordinator, life, false).await,
            Event::Poll { coordinator, life } => self.step(coordinator, life, true).await,
            Event::Garbage { coordinator, life } => self.garbage(coordinator, life).await,
            Event::Resume { coordinator, life } => self.resume(coordinator, life).await,
            Event::Start { coordinator } => self.start(coordinator).await,
            Event::Scheduled(operation) => self.operate(operation).await,
            Event::Resumed => self.command("resume", None).await,
        }
    }

    async fn operate(&mut self, operation: Operation) {
        if self.is_calm {
            return;
        }
        self.events += 1;
        self.note(format_args!("{operation:?}"));
        match operation {
            Operation::Partition { devices, for_ms, .. } => {
                let until = self.now().plus(Duration::from_millis(for_ms));
                self.partitions.push((devices, until));
            }
            Operation::SetClock { coordinator, offset_ms, .. } => {
                if let Some(slot) = self.slots.get(coordinator as usize) {
                    slot.clock.offset_ms.store(offset_ms, Ordering::SeqCst);
                }
            }
            Operation::LoseWakes { coordinator, for_ms, .. } => {
                let until = self.now().plus(Duration::from_millis(for_ms));
                if let Some(slot) = self.slots.get_mut(coordinator as usize) {
                    slot.wakes_lost_until = until;
                }
            }
            Operation::CollectGarbage { coordinator, .. } => {
                let coordinator = coordinator as usize;
                if let Some(life) = self.slots.get(coordinator).map(|slot| slot.lives) {
                    self.collect(coordinator, life).await;
                }
            }
            Operation::Pause { for_ms, .. } => {
                self.command("pause", None).await;
                self.plan(Duration::from_millis(for_ms), Event::Resumed);
            }
            Operation::Cancel { .. } => self.command("cancel", None).await,
            Operation::Revoke { device, .. } => self.command("revoke", Some(device)).await,
            Operation::LoseRequest { .. }
            | Operation::LoseAnswer { .. }
            | Operation::DelayRequest { .. }
            | Operation::RepeatRequest { .. }
            | Operation::CrashCoordinator { .. }
            | Operation::StallCoordinator { .. }
            | Operation::FailChange { .. }
            | Operation::CrashDevice { .. }
            | Operation::SetBackDevice { .. }
            | Operation::DamageInput { .. } => {}
        }
    }

    /// Notices which processes hang or died, and plans when they go on.
    fn look_after_the_halted(&mut self) {
        for coordinator in 0..self.slots.len() {
            let Some(running) = &self.slots[coordinator].running else { continue };
            if let Standing::Dead(away) = running.process.standing() {
                self.bury(coordinator, away);
            }
        }
    }

    /// Ends what is left of a process, whose connections break.
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
