//! The network between devices and coordinators: requests, deliveries and answers.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::participant::machine::{Action, Input};
use client_sdk::transport::{HttpRequest, Request, Response, TransportError};

use super::device::{Next, OpenPoll, Stub};
use super::process::ProcessStatus;
use super::schedule::Operation;
use super::world::{Event, Message, Reply, World};
use simulation::clock::Moment;
use simulation::in_process::Exchange;

/// How long a message is on its way.
const TRIP: Duration = Duration::from_millis(10);
/// How long a device trains.
const TRAINING: Duration = Duration::from_millis(300);
/// Response timeout of a device, in addition to the duration of a long poll.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time until a device detects a missing listener.
const REFUSED: Duration = Duration::from_millis(200);

impl World<'_> {
    /// Passes an input to the participant and starts its next action.
    pub(super) fn go_on(&mut self, index: u32, current: u64, input: Input) {
        let now = self.clock.participant_now();
        let device = &mut self.devices[index as usize];
        if device.current != current || !device.is_on() {
            return;
        }
        self.events += 1;
        let next = device.advance(input, now);
        for event in device.take_events() {
            self.note(format_args!("device {index}: {event:?}"));
            if let Err((check, detail)) = self.facts.told(index, &event) {
                self.violate(check, detail);
            }
        }
        match next {
            Next::Do(action) => self.act(index, *action),
            Next::Killed(away) => {
                self.note(format_args!("device {index} is killed"));
                self.plan(away, Event::Return { device: index });
            }
            Next::Nothing => {
                let device = &self.devices[index as usize];
                if let Some(ended) = device.ended.clone() {
                    self.note(format_args!("device {index} has ended: {ended}"));
                }
            }
        }
    }

    fn act(&mut self, index: u32, action: Action) {
        let device = &mut self.devices[index as usize];
        let current = device.current;
        if let Some(deadline) = device.deadline() {
            let at = Moment::at(deadline).max(self.clock.moment());
            self.queue.plan(at, Event::Tick { device: index, current });
        }
        match action {
            Action::Send(request) => {
                device.requests += 1;
                let number = device.requests;
                if let Err((check, detail)) = self.facts.sends(index, &request) {
                    self.violate(check, detail);
                }
                let wait = request.wait();
                let nothing = lost(&request);
                self.send(index, number, Message::Request(request), wait, nothing);
            }
            Action::Fetch { task, model, have, .. } => {
                device.requests += 1;
                let number = device.requests;
                let nothing = Input::Fetched { have, result: Err(gone()) };
                self.send(index, number, Message::Model { task, model }, Duration::ZERO, nothing);
            }
            Action::Train(work) => {
                let trained = Box::new(Input::Trained(work.run(&mut Stub(index))));
                self.plan(TRAINING, Event::Answer { device: index, current, input: trained });
            }
            Action::WaitUntil(elapsed) => {
                let at = Moment::at(elapsed).max(self.now());
                self.queue.plan(at, Event::Tick { device: index, current });
            }
            // Done on the way.
            Action::Evaluate(_) | Action::Persist(_) | Action::Load(_) | Action::Finished(_) => {}
        }
    }

    /// Puts a request on its way, as the schedule has it.
    fn send(&mut self, index: u32, number: u64, message: Message, wait: Duration, nothing: Input) {
        let current = self.devices[index as usize].current;
        self.plan(wait + TIMEOUT, Event::GiveUp { device: index, current, input: Box::new(nothing) });
        let mut trip = TRIP + Duration::from_millis(index.into());
        for fault in self.faults_of(index, number) {
            match fault {
                Operation::LoseRequest { .. } => {
                    self.note(format_args!("request {number} of device {index} is lost"));
                    return;
                }
                Operation::DelayRequest { by_ms, .. } => trip += Duration::from_millis(by_ms),
                Operation::RepeatRequest { after_ms, .. } => {
                    let message = message.clone();
                    let again =
                        Event::Arrive { device: index, current, number, is_repeated: true, message: Box::new(message) };
                    self.plan(trip + Duration::from_millis(after_ms), again);
                }
                _ => {}
            }
        }
        self.plan(
            trip,
            Event::Arrive { device: index, current, number, is_repeated: false, message: Box::new(message) },
        );
    }

    fn faults_of(&self, device: u32, number: u64) -> Vec<Operation> {
        if self.is_calm {
            return Vec::new();
        }
        self.messages.get(&(device, number)).cloned().unwrap_or_default()
    }

    fn is_cut_off(&self, device: u32) -> bool {
        self.partitions.iter().any(|(devices, until)| *until > self.now() && devices.contains(&device))
    }

    /// A request arrives at one of the coordinators that serve.
    pub(super) async fn arrive(&mut self, device: u32, current: u64, number: u64, is_repeated: bool, message: Message) {
        if self.is_cut_off(device) {
            return;
        }
        let serving: Vec<_> = (0..self.slots.len()).filter(|coordinator| self.is_serving(*coordinator)).collect();
        if serving.is_empty() {
            return;
        }
        self.events += 1;
        let turn = usize::try_from(u64::from(device) + number + u64::from(is_repeated)).unwrap_or(0);
        let coordinator = serving[turn % serving.len()];
        let Some(running) = &self.slots[coordinator].running else { return };
        let network = Arc::clone(&running.network);
        let peer = self.devices[device as usize].peer;
        let what = match &message {
            Message::Request(request) => request.properties().name,
            Message::Model { .. } => "model",
        };
        let again = if is_repeated { " again" } else { "" };
        self.note(format_args!("request {number} of device {device} reaches coordinator {coordinator}{again}: {what}"));
        let call = async move {
            match message {
                Message::Request(request) => {
                    let stored = match &request {
                        Request::Upload(upload) => Some(upload.sha256),
                        _ => None,
                    };
                    let exchange = network.ask(peer, request).await;
                    Reply::Answered { device, current, number, is_repeated, stored, exchange: Box::new(exchange) }
                }
                Message::Model { task, model } => {
                    let fetched = network.fetch(peer, task, &model).await;
                    Reply::Fetched { device, current, number, fetched }
                }
            }
        };
        self.call(coordinator, call).await;
    }

    fn is_serving(&self, coordinator: usize) -> bool {
        let running = self.slots[coordinator].running.as_ref();
        running.is_some_and(|running| running.process.standing() == ProcessStatus::Running)
    }

    /// The coordinator answered a request.
    pub(super) fn answered(
        &mut self,
        coordinator: usize,
        (device, current, number): (u32, u64, u64),
        exchange: Exchange,
    ) {
        let Exchange { response, open, .. } = exchange;
        let Some(request) = open else {
            return self.give(device, current, number, Input::Response(response));
        };
        let Some(life) = self.slots[coordinator].running.as_ref().map(|running| running.life) else { return };
        let until = self.now().plus(request.wait());
        let at = (coordinator, life);
        let device_ref = &mut self.devices[device as usize];
        if device_ref.current != current {
            return;
        }
        device_ref.poll = Some(OpenPoll { at, request, until, otherwise: Input::Response(response) });
        self.queue.plan(until, Event::PollEnds { device, current });
    }

    /// Sends an answer to the device, as the schedule has it.
    pub(super) fn give(&mut self, device: u32, current: u64, number: u64, input: Input) {
        let is_lost = |fault: &Operation| matches!(fault, Operation::LoseAnswer { .. });
        if self.faults_of(device, number).iter().any(is_lost) || self.is_cut_off(device) {
            self.note(format_args!("the answer to request {number} of device {device} is lost"));
            return;
        }
        self.plan(TRIP, Event::Answer { device, current, input: Box::new(input) });
    }

    /// Repeats the request of an open poll.
    pub(super) async fn look(&mut self, device: u32, current: u64) {
        let now = self.now();
        let device_ref = &self.devices[device as usize];
        let Some(poll) = device_ref.poll.as_ref().filter(|_| device_ref.current == current) else { return };
        let (coordinator, life) = poll.at;
        let running = self.slots[coordinator].running.as_ref().filter(|running| running.life == life);
        let Some(running) = running.filter(|running| running.process.standing() == ProcessStatus::Running) else {
            return;
        };
        let (network, request, peer) = (Arc::clone(&running.network), poll.request.clone(), device_ref.peer);
        let left = poll.until.since(now);
        let call = async move {
            let exchange = network.ask_again(peer, request, left).await;
            Reply::Looked { device, current, exchange: Box::new(exchange) }
        };
        self.call(coordinator, call).await;
    }

    /// An open poll ends without a result.
    pub(super) fn poll_ends(&mut self, device: u32, current: u64) {
        let device_ref = &mut self.devices[device as usize];
        if device_ref.current == current
            && let Some(poll) = device_ref.poll.take()
        {
            self.plan(TRIP, Event::Answer { device, current, input: Box::new(poll.otherwise) });
        }
    }

    /// The connections to a process that died break.
    pub(super) fn break_polls(&mut self, coordinator: usize) {
        for index in 0..self.devices.len() {
            let device = &mut self.devices[index];
            if let Some(poll) = device.poll.take_if(|poll| poll.at.0 == coordinator) {
                let (device, current) = (device.index, device.current);
                self.plan(REFUSED, Event::Answer { device, current, input: Box::new(lost(&poll.request)) });
            }
        }
    }

    /// Looks at every open poll at this coordinator.
    pub(super) fn look_at_polls(&mut self, coordinator: usize) {
        let now = self.now();
        for device in &self.devices {
            if device.poll.as_ref().is_some_and(|poll| poll.at.0 == coordinator) {
                self.queue.plan(now, Event::Look { device: device.index, current: device.current });
            }
        }
    }
}

fn gone() -> TransportError {
    TransportError::unreachable("nobody answered")
}

/// The result of an unanswered request.
fn lost(request: &Request) -> Input {
    let response: Response = HttpRequest::of(request).read(Err(gone()));
    Input::Response(response)
}
