//! One run, from its first event to the cleanup.
//!
//! The loop takes the earliest event, moves the clock there, performs it, passes wake-ups on and checks the invariants.
//! A coordinator is driven by one call at a time; where a call hangs, it stays with its process until that goes on.

use std::hash::Hasher as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client_sdk::participant::machine::Input;

use super::base::Base;
use super::build::build;
use super::outcome::Run;
use super::process::ProcessStatus;
use super::schedule::{HORIZON_MS, Operation, Schedule};
use super::world::{Event, Place, World};
use crate::SetupError;
use simulation::clock::Moment;

/// Fewest events before faults stop.
const EVENTS_MIN: u64 = 200;
/// Maximum duration of faults.
const FAULTS_MAX: Duration = Duration::from_secs(300);
/// How long a task may take to end once faults have stopped.
const TIMEOUT: Duration = Duration::from_secs(900);
pub(super) async fn perform(
    schedule: &Schedule,
    base: &Base,
    place: Place,
    tell: Option<&mut dyn FnMut(&str)>,
) -> Result<Run, SetupError> {
    let mut world = build(schedule, base, place, tell).await?;
    world.run().await;
    let rounds = world.facts.rounds();
    Ok(Run { events: world.events, rounds, trace: world.trace.finish(), violation: world.violation })
}

impl World<'_> {
    async fn run(&mut self) {
        for operation in self.schedule.operations.clone() {
            let Some(at_ms) = operation.at_ms() else { continue };
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
        let end = self.now().plus(TIMEOUT);
        self.go_until(|world| world.now() >= end || world.facts.is_over()).await;
        self.finish().await;
    }

    /// Performs events until `is_over`, or something did not hold.
    pub(super) async fn go_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        while self.violation.is_none() && !is_over(self) {
            let Some((at, event)) = self.queue.pop() else { return };
            self.clock.advance(at);
            self.perform(event).await;
            self.pass_wakes_on();
            self.look_after_the_halted();
            self.check().await;
        }
    }

    async fn check(&mut self) {
        let made = self.made();
        // The rows, the disk and the reports are unchanged since.
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
                self.arrive(device, current, number, is_repeated, *message).await;
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
            | Operation::StallWork { .. }
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
            if let ProcessStatus::Dead(away) = running.process.standing() {
                self.bury(coordinator, away);
            }
        }
    }
}
