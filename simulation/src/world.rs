//! The world: one clock, one queue of operations, the coordinator and all devices.
//!
//! The loop takes the earliest operation, moves the clock there and performs it. Requests reach the coordinator one at
//! a time and in the order of virtual time, so the result is independent of thread scheduling; only training runs in
//! parallel.

mod populate;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use client_sdk::participant::machine::{Action, Input};
use client_sdk::participant::{Contribution, Event, RoundWork, WorkError};
use client_sdk::train::Device as Processor;
use client_sdk::transport::Request;
use client_sdk::{Dataset, ModelTrainer};
use futures_util::FutureExt as _;
use store::{WakeEvent, WakeSubscription};
use wire::participant::ModelRef;
use wire::{ParticipantId, TaskId};

use crate::clock::{Moment, VirtualClock};
use crate::device::{Device, DeviceSettings, OpenPoll};
use crate::in_process::{Advance, LocalCoordinator, Network};
use crate::operation::Operation;
use crate::queue::Queue;
use crate::regional::{Answer, HANDOVER, Origin, RegionalTraining, RegionalWork};
use crate::rounds::Rounds;
use crate::training::{TrainingPool, on_a_runtime};
use crate::{Experiment, Progress, Report, SimulationError};

/// Background work processes everything within this time in one pass.
const REST: Duration = Duration::from_millis(100);

pub(crate) struct World {
    clock: Arc<VirtualClock>,
    queue: Queue<Operation>,
    local: LocalCoordinator,
    events: WakeSubscription,
    pool: TrainingPool,
    common: DeviceSettings,
    training: Training,
    devices: Vec<Device>,
    by_id: HashMap<ParticipantId, u32>,
    /// Devices with an open check-in, and with another open poll.
    idle: BTreeSet<u32>,
    listening: BTreeSet<u32>,
    /// Time of the next pass of background work.
    step_at: Option<Moment>,
    /// Time at which it has something to do even without new facts.
    deadline: Option<Moment>,
    rounds: Rounds,
    start: Moment,
    limit: Moment,
}

/// How participants train.
enum Training {
    /// On their own examples.
    OnDevices(Arc<dyn crate::Data>),
    /// By tasks of their own.
    InRegions(Arc<RegionalWork>),
}

impl Training {
    /// Number of a participant's training examples.
    fn examples(&self, participant: u32) -> u64 {
        match self {
            Self::OnDevices(data) => data.examples(participant),
            Self::InRegions(regions) => regions.examples(participant),
        }
    }
}

impl World {
    /// Runs until the task is over or the target is reached.
    pub(crate) async fn run(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), SimulationError> {
        self.rounds.begin(&self.local.network, &self.pool).await?;
        self.plan_step(self.start);
        while !self.rounds.are_over() {
            let Some((at, operation)) = self.queue.pop() else {
                return Err(SimulationError::Coordinator("nothing is left to happen".to_owned()));
            };
            if at >= self.limit {
                self.clock.advance(self.limit);
                self.rounds.stop(format!("{} hours are over", self.limit.elapsed().as_secs() / 3600));
                break;
            }
            self.clock.advance(at);
            self.perform(operation, progress).await?;
            self.hear();
        }
        Ok(())
    }

    pub(crate) fn report(self, progress: &mut dyn FnMut(Progress<'_>)) -> Report {
        let updates = self.devices.iter().map(|device| device.updates).collect();
        self.rounds.report(self.clock.moment(), updates, progress)
    }

    /// The last model and the rounds of a regional task; `None` if no round was completed.
    async fn regional_answer(&self) -> Result<Option<Answer>, SimulationError> {
        self.rounds.answer(&self.local.network).await
    }

    /// Ends the coordinator.
    pub(crate) async fn stop(&self) {
        self.local.coordinator.stop().await;
    }

    async fn perform(
        &mut self,
        operation: Operation,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), SimulationError> {
        match operation {
            Operation::Step => self.step(progress).await,
            Operation::Return { device } => {
                let Self { devices, common, .. } = self;
                let device_ref = &mut devices[device as usize];
                device_ref.start(common, None).map_err(|error| ended(device_ref, error))?;
                self.go_on(device, Input::Tick)
            }
            Operation::Tick { device, action } if self.is_current(device, action) => self.go_on(device, Input::Tick),
            Operation::Arrive { device, action, request } if self.is_current(device, action) => {
                self.arrive(device, request).await;
                Ok(())
            }
            Operation::Fetch { device, action, task, model } if self.is_current(device, action) => {
                self.fetch(device, task, &model).await;
                Ok(())
            }
            Operation::Answer { device, action, input } if self.is_current(device, action) => {
                self.go_on(device, *input)
            }
            Operation::Computed { device, job } => {
                let lost = || SimulationError::Threads("a computation ended badly".to_owned());
                let (participant, advance) = job.finish().ok_or_else(lost)?;
                self.devices[device as usize].take_back(participant);
                self.go_where(device, advance)
            }
            Operation::Region { region, action, job } if self.is_current(region, action) => {
                let lost = || SimulationError::Threads("a region's training ended badly".to_owned());
                let training = job.finish().ok_or_else(lost)??;
                if let Some(report) = &training.report {
                    progress(Progress::Region { region, seconds: report.seconds });
                }
                self.trained_in_region(region, training);
                Ok(())
            }
            Operation::Look { device, action } if self.is_current(device, action) => {
                self.look(device).await;
                Ok(())
            }
            Operation::PollEnds { device, action } if self.is_current(device, action) => {
                if let Some(poll) = self.close_poll(device) {
                    self.answer(device, *poll.otherwise, 0);
                }
                Ok(())
            }
            // For an earlier action of the device.
            Operation::Tick { .. }
            | Operation::Arrive { .. }
            | Operation::Fetch { .. }
            | Operation::Answer { .. }
            | Operation::Region { .. }
            | Operation::Look { .. }
            | Operation::PollEnds { .. } => Ok(()),
        }
    }

    fn is_current(&self, device: u32, action: u64) -> bool {
        let device = &self.devices[device as usize];
        device.action == action
    }

    /// Passes an input to the participant and starts its next action.
    fn go_on(&mut self, index: u32, input: Input) -> Result<(), SimulationError> {
        self.close_poll(index);
        let device = &mut self.devices[index as usize];
        let readiness = device.readiness(self.clock.moment());
        let advance = device.advance(input, self.clock.participant_now(), readiness);
        self.go_where(index, advance)
    }

    /// Starts the participant's next action.
    fn go_where(&mut self, index: u32, advance: Option<Advance>) -> Result<(), SimulationError> {
        let Some(Advance { action, events, .. }) = advance else { return Ok(()) };
        let now = self.clock.moment();
        self.devices[index as usize].identify();
        for event in events {
            self.observe(index, &event, now);
        }
        self.begin(index, action, now)
    }

    /// Has a thread compute the participant's next action at the time `at`, given its input.
    fn compute(&mut self, index: u32, at: Moment, happens: impl FnOnce() -> Input + Send + 'static) {
        let device = &mut self.devices[index as usize];
        let (now, readiness) = (VirtualClock::at(at), device.readiness(at));
        let mut participant = device.lend();
        let job = self.pool.start(at, move || {
            let advance = participant.advance(happens(), now, readiness);
            (participant, advance)
        });
        self.queue.plan(at, Operation::Computed { device: index, job });
    }

    fn observe(&mut self, index: u32, event: &Event, now: Moment) {
        let device = &mut self.devices[index as usize];
        device.observe(event, &self.common, now);
        match event {
            Event::Trained { .. } => self.rounds.trained(),
            Event::Uploaded { place, .. } => {
                device.updates += 1;
                let (assigned, done) = device.worked(now);
                self.rounds.reported((place.round, place.attempt), assigned, done);
            }
            _ => {}
        }
    }

    fn begin(&mut self, index: u32, action: Action, now: Moment) -> Result<(), SimulationError> {
        let device = &mut self.devices[index as usize];
        device.action += 1;
        let number = device.action;
        let is_of_a_round = match &action {
            Action::Send(request) => request.place().is_some(),
            Action::Fetch { .. } | Action::Train(_) => true,
            Action::Evaluate(_) | Action::Load(_) | Action::Persist(_) | Action::WaitUntil(_) | Action::Finished(_) => {
                false
            }
        };
        if is_of_a_round && let Some(away) = device.meets_its_fate(&self.common) {
            device.stop();
            self.rounds.vanished();
            self.queue.plan(now.plus(away), Operation::Return { device: index });
            return Ok(());
        }
        let deadline = device.deadline().map(|deadline| Moment::at(deadline).max(now));
        let profile = device.profile;
        let ends = match action {
            Action::Send(mut request) => {
                if let Request::CheckIn(request) = &mut request {
                    // It hangs up when it goes away.
                    let stays = u64::try_from(profile.stays(now).as_millis()).unwrap_or(u64::MAX);
                    request.wait_ms = request.wait_ms.min(stays);
                }
                let arrives = now.plus(profile.upload(Network::size(&request)));
                self.queue.plan(arrives, Operation::Arrive { device: index, action: number, request });
                None
            }
            Action::Fetch { task, model, .. } => {
                let arrives = now.plus(profile.upload(0));
                self.queue.plan(arrives, Operation::Fetch { device: index, action: number, task, model });
                None
            }
            Action::Train(work) => {
                if self.train(index, work, now, deadline) {
                    return Ok(());
                }
                None
            }
            Action::WaitUntil(elapsed) => Some(Moment::at(elapsed).max(now)),
            // The task is over for it.
            Action::Finished(Ok(_)) => {
                device.stop();
                None
            }
            Action::Finished(Err(error)) => return Err(ended(device, error)),
            // Records are written and loaded immediately. Devices skip keeping and evaluating models.
            Action::Evaluate(_) | Action::Persist(_) | Action::Load(_) => None,
        };
        for at in ends.into_iter().chain(deadline) {
            self.queue.plan(at, Operation::Tick { device: index, action: number });
        }
        Ok(())
    }

    /// Starts a participant's training; `false` if it cannot finish in time: it leaves the round at the deadline, so it need not train.
    fn train(&mut self, index: u32, work: Arc<RoundWork>, now: Moment, deadline: Option<Moment>) -> bool {
        match &self.training {
            Training::OnDevices(data) => {
                let data = Arc::clone(data);
                let device = &self.devices[index as usize];
                // If the update was trained ahead, the rest takes negligible time.
                let examples = if work.trains() { self.rounds.examples_of_a_training(device.examples) } else { 0 };
                let ends = now.plus(device.profile.training(examples));
                let is_in_time = !work.trains() || deadline.is_none_or(|deadline| ends < deadline);
                if is_in_time {
                    self.compute(index, ends, move || Input::Trained(train(&work, &*data, index)));
                }
                is_in_time
            }
            Training::InRegions(regions) => {
                let regions = Arc::clone(regions);
                let job = self.pool.start(now, move || regions.train(&work, index, now));
                let action = self.devices[index as usize].action;
                // Regions that receive the model within this time train on several threads.
                self.queue.plan(now.plus(HANDOVER), Operation::Region { region: index, action, job });
                true
            }
        }
    }

    /// Passes the result of a region's training on when it is there.
    fn trained_in_region(&mut self, region: u32, training: RegionalTraining) {
        let RegionalTraining { result, ends, report } = training;
        if let Some(report) = &report {
            self.rounds.trained_in_region(region, report);
        }
        let device = &self.devices[region as usize];
        let now = self.clock.moment();
        match device.deadline().map(|deadline| Moment::at(deadline).max(now)).filter(|deadline| *deadline <= ends) {
            Some(deadline) => self.queue.plan(deadline, Operation::Tick { device: region, action: device.action }),
            None => self.compute(region, ends, move || Input::Trained(result)),
        }
    }

    /// A request for a model reaches the coordinator.
    async fn fetch(&mut self, index: u32, task: TaskId, model: &ModelRef) {
        let device = &self.devices[index as usize];
        let told = self.local.network.fetch(device.peer, task, model).await;
        let now = self.clock.moment();
        match told {
            Ok(file) => {
                let bytes = file.length();
                self.rounds.carried(0, bytes);
                let comes = now.plus(device.profile.download(bytes));
                // A device that cannot receive it in time leaves the round at the deadline.
                if device.deadline().is_none_or(|deadline| comes < Moment::at(deadline)) {
                    self.compute(index, comes, move || Input::Given(file));
                }
            }
            Err(error) => self.answer(index, Input::Fetched { have: Vec::new(), result: Err(error) }, 0),
        }
    }

    /// A request reaches the coordinator.
    async fn arrive(&mut self, index: u32, request: Request) {
        let exchange = self.local.network.ask(self.devices[index as usize].peer, request).await;
        self.rounds.carried(exchange.up, exchange.down);
        let response = Input::Response(exchange.response);
        match exchange.open {
            None => self.answer(index, response, exchange.down),
            Some(request) => {
                let is_idle = matches!(request, Request::CheckIn(_));
                if is_idle {
                    self.idle.insert(index)
                } else {
                    self.listening.insert(index)
                };
                let device = &mut self.devices[index as usize];
                let until = self.clock.moment().plus(request.wait());
                device.poll = Some(OpenPoll { request, until, otherwise: Box::new(response) });
                let ends = Operation::PollEnds { device: index, action: device.action };
                self.queue.plan(until, ends);
            }
        }
    }

    /// Repeats the request of an open poll.
    async fn look(&mut self, index: u32) {
        let device = &self.devices[index as usize];
        let Some(poll) = &device.poll else { return };
        let left = poll.until.since(self.clock.moment());
        let exchange = self.local.network.ask_again(device.peer, poll.request.clone(), left).await;
        if exchange.open.is_none() {
            self.close_poll(index);
            self.rounds.carried(0, exchange.down);
            self.answer(index, Input::Response(exchange.response), exchange.down);
        }
    }

    fn close_poll(&mut self, index: u32) -> Option<OpenPoll> {
        self.idle.remove(&index);
        self.listening.remove(&index);
        self.devices[index as usize].poll.take()
    }

    /// Plans the arrival of an answer at the device.
    fn answer(&mut self, index: u32, input: Input, bytes: u64) {
        let device = &self.devices[index as usize];
        let at = self.clock.moment().plus(device.profile.download(bytes));
        let input = Box::new(input);
        self.queue.plan(at, Operation::Answer { device: index, action: device.action, input });
    }

    /// Answers the polls that the coordinator would notify, and plans the background work that it would wake.
    fn hear(&mut self) {
        let now = self.clock.moment();
        while let Some(Some(event)) = self.events.next().now_or_never() {
            match event {
                WakeEvent::Work => self.plan_step(now.plus(REST)),
                WakeEvent::Assigned(participants) => {
                    for participant in participants.iter() {
                        if let Some(device) = self.by_id.get(participant).copied().filter(|d| self.idle.contains(d)) {
                            self.plan_look(device, now);
                        }
                    }
                }
                WakeEvent::Round(_) => self.look_all(now, |world| &world.listening),
                WakeEvent::Opened(_) => self.look_all(now, |world| &world.idle),
                WakeEvent::Recorded | WakeEvent::Numbered => {}
                WakeEvent::Task(_) | WakeEvent::Lost => {
                    self.plan_step(now.plus(REST));
                    self.look_all(now, |world| &world.idle);
                    self.look_all(now, |world| &world.listening);
                }
            }
        }
    }

    fn look_all(&mut self, now: Moment, who: impl Fn(&Self) -> &BTreeSet<u32>) {
        for device in who(self).iter().copied().collect::<Vec<_>>() {
            self.plan_look(device, now);
        }
    }

    fn plan_look(&mut self, device: u32, now: Moment) {
        let action = self.devices[device as usize].action;
        self.queue.plan(now, Operation::Look { device, action });
    }

    fn plan_step(&mut self, at: Moment) {
        if self.step_at.is_none_or(|planned| at < planned) {
            self.step_at = Some(at);
            self.queue.plan(at, Operation::Step);
        }
    }

    /// Runs the background work that is due.
    async fn step(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), SimulationError> {
        let now = self.clock.moment();
        // An earlier pass replaced this one.
        if self.step_at != Some(now) {
            return Ok(());
        }
        self.step_at = None;
        let engine = self.local.coordinator.engine.clone();
        let steps = engine.step_all().await.map_err(failed)?;
        // Deadlines follow from the state of rounds, which only steps change.
        if steps > 0 || self.deadline.is_none_or(|deadline| deadline <= now) {
            let deadline = engine.next_deadline().await.map_err(failed)?;
            self.deadline = deadline.map(|deadline| Moment::of(deadline).max(Moment(now.0 + 1)));
        }
        if let Some(deadline) = self.deadline {
            self.plan_step(deadline);
        }
        if steps > 0 {
            // Participants are notified before the next request.
            tokio::task::yield_now().await;
            self.rounds.look(&self.local.network, &self.pool, now, progress).await?;
            engine.collect_all_garbage().await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Runs a regional task in a world of its own.
fn run_region(experiment: &Experiment, origin: Origin) -> Result<(Report, Option<Answer>), SimulationError> {
    on_a_runtime(async {
        let progress = &mut |_: Progress<'_>| ();
        let mut world = World::new(experiment, origin, progress).await?;
        let ran = world.run(progress).await;
        let answer = world.regional_answer().await;
        world.stop().await;
        ran?;
        Ok((world.report(progress), answer?))
    })
}

/// Trains with the SDK's own trainer. One that panics is a participant's failure, as it is on a device.
fn train(work: &RoundWork, data: &dyn crate::Data, device: u32) -> Result<Contribution, WorkError> {
    let run = || {
        let nothing = Dataset::Labelled { features: Vec::new(), labels: Vec::new(), width: 1 };
        work.run(&mut ModelTrainer::new(data.shard(device), nothing, Processor::Cpu))
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(WorkError::Panicked))
}

fn ended(device: &Device, error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Participant { name: device.name(), error: error.to_string() }
}

fn failed(error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Coordinator(error.to_string())
}
