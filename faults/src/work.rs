//! Coordinators: their lives, their background work, their operators, and the wake-ups between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client_sdk::participant::machine::Input;
use federation::time::{Clock as _, Timestamp};
use futures_util::FutureExt as _;
use store::WakeEvent;
use tokio::task::JoinHandle;
use wire::admin::route;
use wire::route::fill;

use super::device::TASK;
use super::outcome::Check;
use super::process::{ProcessStatus, as_work};
use super::schedule::Operation;
use super::world::{Event, GARBAGE, Reply, World};
use simulation::clock::{Moment, VirtualClock};

/// Delay between a wake-up and the work.
const REST: Duration = Duration::from_millis(20);
/// How often work is looked for without a wake-up.
const POLL: Duration = Duration::from_secs(5);
/// How long work rests after it failed.
const BACK_OFF: Duration = Duration::from_millis(500);
/// By how much a clock may gain on time from one collection of garbage to the next: half the time that young blobs are spared.
const TOLERANCE_MS: i64 = 30_000;

impl World<'_> {
    /// Calls a coordinator, and waits until that is answered, or it hangs or dies.
    pub(super) async fn call(&mut self, coordinator: usize, call: impl Future<Output = Reply> + Send + 'static) {
        self.wait_for(coordinator, tokio::spawn(call)).await;
    }

    async fn wait_for(&mut self, coordinator: usize, mut call: JoinHandle<Reply>) {
        let Some(running) = &self.slots[coordinator].running else { return call.abort() };
        let process = Arc::clone(&running.process);
        let ended = tokio::select! {
            biased;
            ended = &mut call => Some(ended),
            () = process.halted() => None,
        };
        match ended {
            Some(Ok(reply)) => self.heard(coordinator, reply),
            Some(Err(error)) if error.is_panic() => self.violate(Check::Errors, format!("a panic: {error}")),
            Some(Err(_)) => {}
            None => {
                if let Some(running) = &mut self.slots[coordinator].running {
                    running.hanging.push(call);
                }
            }
        }
        // Facts without a waiting sender are written as well.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        if self.slots.len() > 1
            && let Err((check, detail)) =
                self.leases.was_called(coordinator, self.made(), self.facts.task(), &self.site.rows).await
        {
            self.violate(check, detail);
        }
        let Some(running) = &mut self.slots[coordinator].running else { return };
        if let ProcessStatus::Stalled(away) = process.standing()
            && !running.is_told_to_resume
        {
            running.is_told_to_resume = true;
            let life = running.life;
            running.stalled_at = self.leases.token();
            self.note(format_args!("coordinator {coordinator} hangs"));
            self.plan(away, Event::Resume { coordinator, life });
        }
    }

    fn heard(&mut self, coordinator: usize, reply: Reply) {
        match reply {
            Reply::Answered { device, current, number, is_repeated, stored, exchange } => {
                let damages = |fault: &Operation| matches!(fault, Operation::DamageInput { device: d, request } if (*d, *request) == (device, number));
                if let Some(digest) = stored
                    && !self.is_calm
                    && self.schedule.operations.iter().any(damages)
                    && self.site.disk.damage(digest)
                {
                    self.note(format_args!("the disk damages blob {digest}"));
                }
                if !is_repeated {
                    self.answered(coordinator, (device, current, number), *exchange);
                }
            }
            Reply::Looked { device, current, exchange } => {
                if exchange.open.is_none() && self.devices[device as usize].current == current {
                    let number = self.devices[device as usize].requests;
                    self.devices[device as usize].poll = None;
                    self.give(device, current, number, Input::Response(exchange.response));
                }
            }
            Reply::Fetched { device, current, number, fetched } => {
                let input = match fetched {
                    Ok(file) => Input::Given(file),
                    Err(error) => Input::Fetched { have: Vec::new(), result: Err(error) },
                };
                self.give(device, current, number, input);
            }
            Reply::Started(Ok(())) => {}
            Reply::Started(Err(error)) => {
                self.note(format_args!("coordinator {coordinator} does not start: {error}"));
                self.bury(coordinator, BACK_OFF);
            }
            Reply::Stepped { is_poll, stepped } => self.stepped(coordinator, is_poll, stepped),
            Reply::Collected(collected) => {
                self.checked = None;
                if let Err(error) = collected {
                    self.note(format_args!("coordinator {coordinator} cannot collect garbage: {error}"));
                }
            }
            Reply::Commanded { what, done } => self.note(format_args!("the operator's {what}: {done:?}")),
        }
    }

    /// Begins the background work of a process.
    pub(super) fn begin(&mut self, coordinator: usize) {
        let Some(life) = self.slots[coordinator].running.as_ref().map(|running| running.life) else { return };
        self.plan_step(coordinator, self.now());
        self.plan(POLL, Event::Poll { coordinator, life });
        self.plan(GARBAGE, Event::Garbage { coordinator, life });
    }

    /// Starts a coordinator that is down.
    pub(super) async fn start(&mut self, coordinator: usize) {
        if self.slots[coordinator].running.is_some() {
            return;
        }
        self.events += 1;
        let alone = self.slots.len() == 1;
        match self.site.assemble(coordinator, &mut self.slots[coordinator]) {
            Ok(running) => self.slots[coordinator].running = Some(running),
            Err(error) => return self.violate(Check::Errors, format!("a coordinator does not start: {error}")),
        }
        self.note(format_args!("coordinator {coordinator} starts"));
        let Some(running) = &self.slots[coordinator].running else { return };
        let (store, engine) = (running.coordinator.store.clone(), running.coordinator.engine.clone());
        // As the executable starts.
        let call = async move {
            let started = async {
                if alone {
                    store.transact("clear_leases", |tx| Box::pin(async move { tx.clear_leases().await })).await?;
                }
                engine.check_ledgers().await
            };
            Reply::Started(started.await.map_err(|error| error.to_string()))
        };
        self.call(coordinator, call).await;
        self.begin(coordinator);
    }

    /// Lets a coordinator go on that hung.
    pub(super) async fn resume(&mut self, coordinator: usize, life: u64) {
        let Some(running) = self.slots[coordinator].running.as_mut().filter(|running| running.life == life) else {
            return;
        };
        if !matches!(running.process.standing(), ProcessStatus::Stalled(_)) {
            return;
        }
        running.is_told_to_resume = false;
        if running.stalled_at != self.leases.token() {
            // Another process had the lease in between: its first change is checked separately.
            running.process.hang_after_the_next_change();
        }
        running.process.resume();
        let hanging = std::mem::take(&mut running.hanging);
        self.events += 1;
        self.note(format_args!("coordinator {coordinator} goes on"));
        for call in hanging {
            self.wait_for(coordinator, call).await;
        }
        self.plan_step(coordinator, self.now());
    }

    pub(super) fn plan_step(&mut self, coordinator: usize, at: Moment) {
        let Some(running) = &mut self.slots[coordinator].running else { return };
        if running.step_at.is_none_or(|planned| at < planned) {
            running.step_at = Some(at);
            let life = running.life;
            self.queue.plan(at, Event::Step { coordinator, life });
        }
    }

    /// Background work: after a wake-up, when due, or periodically.
    pub(super) async fn step(&mut self, coordinator: usize, life: u64, is_poll: bool) {
        let now = self.now();
        let Some(running) = self.slots[coordinator].running.as_mut().filter(|running| running.life == life) else {
            return;
        };
        if is_poll {
            self.queue.plan(now.plus(POLL), Event::Poll { coordinator, life });
        } else if running.step_at.take_if(|at| *at == now).is_none() {
            // An earlier one replaced it.
            return;
        }
        if running.process.standing() != ProcessStatus::Running {
            return;
        }
        self.events += u64::from(!is_poll);
        let engine = running.coordinator.engine.clone();
        let call = async move {
            let stepped = async { Ok((as_work(engine.step_all()).await?, engine.next_deadline().await?)) };
            let stepped = stepped.await.map_err(|error: coordinator::work::StepError| error.to_string());
            Reply::Stepped { is_poll, stepped }
        };
        self.call(coordinator, call).await;
    }

    fn stepped(&mut self, coordinator: usize, is_poll: bool, stepped: Result<(usize, Option<Timestamp>), String>) {
        let now = self.now();
        let (steps, deadline) = match stepped {
            Ok(stepped) => stepped,
            Err(error) => {
                self.note(format_args!("a step of coordinator {coordinator} fails: {error}"));
                self.facts.step_failed(error);
                return self.plan_step(coordinator, now.plus(BACK_OFF));
            }
        };
        let slot = &mut self.slots[coordinator];
        let offset = slot.clock.offset_ms.load(Ordering::SeqCst);
        let Some(running) = &mut slot.running else { return };
        let was_due = running.deadline.is_some_and(|deadline| deadline <= now)
            || running.step_at.is_some_and(|at| at <= now.plus(REST));
        running.deadline =
            deadline.map(|deadline| Moment::of(Timestamp(deadline.0 - offset)).max(now.plus(Duration::from_millis(1))));
        let next = running.deadline;
        if steps > 0 {
            self.note(format_args!("coordinator {coordinator} takes {steps} steps"));
        }
        if is_poll && steps > 0 && !was_due && !self.facts.excuses.wakes {
            let detail = format!("{steps} steps were due at coordinator {coordinator}, and no wake-up told so");
            self.violate(Check::Wakes, detail);
        }
        if let Some(next) = next {
            self.plan_step(coordinator, next);
        }
    }

    pub(super) async fn garbage(&mut self, coordinator: usize, life: u64) {
        if self.slots[coordinator].running.as_ref().is_none_or(|running| running.life != life) {
            return;
        }
        self.plan(GARBAGE, Event::Garbage { coordinator, life });
        self.collect(coordinator, life).await;
    }

    /// Collects garbage, unless the clock has gained on time: as the engine does it that runs by itself.
    pub(super) async fn collect(&mut self, coordinator: usize, life: u64) {
        let now = self.now();
        let slot = &mut self.slots[coordinator];
        let clock = slot.clock.now().0;
        let (before, since) = slot.collected.replace((clock, now)).unwrap_or((clock, now));
        let elapsed = i64::try_from(now.since(since).as_millis()).unwrap_or(i64::MAX);
        let Some(running) = slot.running.as_ref().filter(|running| running.life == life) else { return };
        if running.process.standing() != ProcessStatus::Running || clock - before - elapsed > TOLERANCE_MS {
            return;
        }
        let engine = running.coordinator.engine.clone();
        let call = async move {
            Reply::Collected(engine.collect_garbage().await.map(drop).map_err(|error| error.to_string()))
        };
        self.call(coordinator, call).await;
    }

    /// An operator's requests to the first serving coordinator.
    pub(super) async fn command(&mut self, what: &'static str, device: Option<u32>) {
        let running = self.slots.iter().enumerate().find_map(|(number, slot)| {
            let running = slot.running.as_ref()?;
            (running.process.standing() == ProcessStatus::Running).then_some((number, Arc::clone(&running.network)))
        });
        let Some((coordinator, network)) = running else { return };
        let peer = device.and_then(|device| self.devices.get(device as usize)).and_then(|device| device.peer);
        let path = match (what, peer) {
            ("pause", _) => fill(route::TASK_PAUSE, &[&TASK]),
            ("resume", _) => fill(route::TASK_RESUME, &[&TASK]),
            ("cancel", _) => fill(route::TASK_CANCEL, &[&TASK]),
            (_, Some(peer)) => fill(route::PARTICIPANT_REVOKE, &[&peer.participant]),
            (_, None) => return,
        };
        let call = async move {
            let done = network.make::<serde_json::Value>(&path, &()).await;
            Reply::Commanded { what, done: done.map(drop).map_err(|error| error.to_string()) }
        };
        self.call(coordinator, call).await;
    }

    /// Passes wake-ups on: each coordinator hears its own, and those of the others unless they get lost.
    pub(super) fn pass_wakes_on(&mut self) {
        let now = self.now();
        let mut told: Vec<Vec<WakeEvent>> = Vec::with_capacity(self.slots.len());
        let loses_wakes = self.site.place.flaws.loses_wakes;
        for slot in &mut self.slots {
            let mut own = Vec::new();
            if let Some(running) = &mut slot.running {
                while let Some(Some(event)) = running.events.next().now_or_never() {
                    own.push(event);
                }
            }
            own.retain(|event| !(loses_wakes && matches!(event, WakeEvent::Work)));
            told.push(own);
        }
        for coordinator in 0..self.slots.len() {
            let is_deaf = self.slots[coordinator].wakes_lost_until > now;
            let Some(running) = &mut self.slots[coordinator].running else { continue };
            let mut heard = told[coordinator].clone();
            for (other, events) in told.iter().enumerate() {
                if other != coordinator && !is_deaf {
                    events.iter().for_each(|event| running.coordinator.store.wake().publish(event.clone()));
                    heard.extend(events.iter().cloned());
                }
            }
            // Forwarded events are not forwarded again.
            while let Some(Some(_)) = running.events.next().now_or_never() {}
            self.hear(coordinator, &heard);
        }
    }

    fn hear(&mut self, coordinator: usize, events: &[WakeEvent]) {
        let at = self.now().plus(REST);
        let works = |event: &WakeEvent| matches!(event, WakeEvent::Work | WakeEvent::Task(_) | WakeEvent::Lost);
        if events.iter().any(works) {
            self.plan_step(coordinator, at);
        }
        let concerns_polls =
            |event: &WakeEvent| !matches!(event, WakeEvent::Work | WakeEvent::Recorded | WakeEvent::Numbered);
        if events.iter().any(concerns_polls) {
            self.look_at_polls(coordinator);
        }
    }

    /// Faults stop, and everything that is down comes up again.
    pub(super) async fn calm_down(&mut self) {
        self.is_calm = true;
        self.note(format_args!("faults stop"));
        self.partitions.clear();
        for coordinator in 0..self.slots.len() {
            let slot = &mut self.slots[coordinator];
            slot.changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).calm_down();
            slot.clock.offset_ms.store(0, Ordering::SeqCst);
            slot.wakes_lost_until = Moment::default();
            match slot.running.as_ref().map(|running| running.life) {
                Some(life) => self.resume(coordinator, life).await,
                None => self.start(coordinator).await,
            }
            self.plan_step(coordinator, self.now());
        }
        for device in 0..self.devices.len() {
            self.devices[device].faults.clear();
            let device = self.devices[device].index;
            self.plan(Duration::ZERO, Event::Return { device });
        }
        self.command("resume", None).await;
        self.pass_wakes_on();
    }

    /// Runs the rest of the federation once faults have stopped.
    pub(super) async fn finish(&mut self) {
        if self.violation.is_some() {
            return;
        }
        let clock: &VirtualClock = &self.clock;
        let live = self.devices.iter().filter(|device| device.ended.is_none()).count();
        if let Err((check, detail)) = self.facts.is_explained(&self.site.rows, clock.now(), live).await {
            return self.violate(check, detail);
        }
        // Young blobs are spared for a minute, and garbage is collected twice a minute.
        let end = self.now().plus(Duration::from_secs(150));
        self.go_until(|world| world.now() >= end).await;
        if self.violation.is_none()
            && let Err((check, detail)) = self.facts.is_kept(&self.site.rows, &self.site.disk).await
        {
            self.violate(check, detail);
        }
        if self.violation.is_none()
            && let Err((check, detail)) = self.facts.is_tidy(&self.site.rows, &self.site.disk, &self.keys()).await
        {
            self.violate(check, detail);
        }
    }
}
