//! Devices that are machines on journals: killed and made again, in step with each other.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "each test uses a part of this"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::identity::SigningKey;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::{MetricValue, Parameters, Update};
use client_sdk::participant::machine::{Action, Input, Machine, Request, Saved, Settings};
use client_sdk::participant::snapshot;
use client_sdk::transport::Transport as _;
use client_sdk::{Event, Outcome, ParticipantError, Trained, Trainer, TrainerError, TrainingJob};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use secure_agg::messages::{Body as _, ShareKeys};
use secure_agg::{MemorySigner, Signer as _, modular};
use wire::participant::{CheckInRequest, LossReport};
use zeroize::Zeroizing;

use super::cohort::{Hub, Published, TODAY, codec, kind};
use super::{answer, now, secrets};

/// A weight of this value has no gradient, as that of a unit which never fires.
pub const DEAD: f32 = -1e6;

/// Moves every weight that is not [`DEAD`] by one, up or down, so that nothing is left to rounding.
#[derive(Clone)]
pub struct Exact {
    device: usize,
    pub seen: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl Exact {
    pub fn new(device: usize) -> Self {
        Self { device, seen: Arc::default() }
    }

    fn delta(device: usize, length: usize) -> Vec<f32> {
        (0..length).map(|index| if (index + device).is_multiple_of(3) { -1.0 } else { 1.0 }).collect()
    }

    fn weight(device: usize) -> u64 {
        device as u64 + 1
    }

    /// What a device sends in any round, before it is masked.
    pub fn words(device: usize, personal: bool) -> Vec<u32> {
        let codec = codec(personal);
        let delta = Self::delta(device, codec.params().parameters);
        let metrics = vec![MetricValue { value: 1.5, count: 3 }, MetricValue { value: 0.5, count: 3 }];
        let update = Update { delta, examples: Self::weight(device), metrics };
        codec.encode(&update, &mut ChaCha20Rng::from_seed([9; 32])).unwrap().words
    }
}

impl Trainer for Exact {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        self.seen.lock().unwrap().push(model.values().to_vec());
        let mut parameters = model.clone();
        let delta = Self::delta(self.device, model.values().len());
        let learns = |value: &f32| *value != DEAD;
        let values = parameters.values_mut().iter_mut().zip(delta).filter(|(value, _)| learns(value));
        values.for_each(|(value, delta)| *value += delta);
        Ok(Trained {
            parameters,
            examples: Self::weight(self.device),
            metrics: vec![("train_loss".into(), MetricValue { value: 0.5, count: 3 })],
        })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![("loss".into(), MetricValue { value: 1.5, count: 3 })])
    }

    fn examples(&self) -> u64 {
        Self::weight(self.device)
    }
}

/// What becomes of the action during which a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    None,
    /// Of several records only the first is written.
    Partial,
    Whole,
}

pub const EFFECTS: [Effect; 3] = [Effect::None, Effect::Partial, Effect::Whole];

/// One process after another on one journal.
pub struct Device {
    pub index: usize,
    pub journal: Arc<dyn Journal>,
    pub trainer: Exact,
    pub hub: Hub,
    pub settings: Settings,
    pub machine: Machine,
    input: Option<Input>,
    /// Gives every process other randomness, so that only the journal can make bytes the same.
    processes: u8,
    now: Duration,
    pub actions: usize,
    pub events: Vec<Event>,
    /// What is written and sent, in order.
    pub log: Vec<&'static str>,
    /// What each check-in told of its loss.
    pub told: Vec<Option<LossReport>>,
    /// Every record of a round that was ever written.
    pub records: Vec<Zeroizing<Vec<u8>>>,
    pub ended: Option<Result<Outcome, ParticipantError>>,
}

fn start(index: usize, process: u8, journal: &dyn Journal, settings: &Settings) -> Machine {
    let load = |name| journal.load(name).unwrap();
    let saved = Saved {
        identity: load(snapshot::IDENTITY),
        next_key: load(snapshot::NEXT_KEY),
        round: load(snapshot::ROUND),
        privacy: load(snapshot::PRIVACY),
        update: load(snapshot::UPDATE),
        given: load(snapshot::GIVEN),
    };
    let token = Some(Zeroizing::new("token".to_owned()));
    let mut seed = [process; 32];
    seed[0] = index as u8;
    Machine::new(settings.clone(), token, &saved, SigningKey::generate, seed, secrets(seed)).unwrap()
}

impl Device {
    pub fn new(index: usize, hub: &Hub, settings: Settings) -> Self {
        Self::on(Arc::new(MemoryJournal::new()), index, hub, settings)
    }

    /// A device that keeps what it must in this journal.
    pub fn on(journal: Arc<dyn Journal>, index: usize, hub: &Hub, settings: Settings) -> Self {
        let machine = start(index, 1, &*journal, &settings);
        Self {
            index,
            journal,
            trainer: Exact::new(index),
            hub: hub.clone(),
            settings,
            machine,
            input: Some(Input::Tick),
            processes: 1,
            now: Duration::ZERO,
            actions: 0,
            events: vec![],
            log: vec![],
            told: vec![],
            records: vec![],
            ended: None,
        }
    }

    pub fn restart(&mut self) {
        self.processes += 1;
        self.machine = start(self.index, self.processes, &*self.journal, &self.settings);
        self.input = Some(Input::Tick);
        self.ended = None;
    }

    /// One action, or its loss.
    pub fn step(&mut self, kill: Option<Effect>) {
        self.machine.set_examples(self.trainer.examples());
        let now = Now { elapsed: self.now, wall: TODAY };
        let action = self.machine.poll(self.input.take().unwrap_or(Input::Tick), now);
        self.events.extend(self.machine.take_events());
        self.actions += 1;
        self.remember(&action);
        match (kill, action) {
            (_, Action::Finished(result)) => self.ended = Some(result),
            (None, action) => self.input = Some(self.perform(action)),
            (Some(Effect::Partial), Action::Persist(records)) => {
                self.journal.save(&records[0].name, &records[0].content()).unwrap();
            }
            (Some(Effect::None), _) => {}
            (Some(_), action) => drop(self.perform(action)),
        }
        if kill.is_some() && self.ended.is_none() {
            self.restart();
        }
    }

    /// Whatever is said is said alike each time.
    fn remember(&mut self, action: &Action) {
        if let Action::Send(Request::CheckIn(request)) = action {
            self.told.push(request.loss);
        }
        let (place, what, bytes) = match action {
            Action::Send(Request::CheckIn(CheckInRequest { keys: Some(keys), .. })) => {
                let place = keys.attempt_key();
                (place, "keys", keys.advertisement.0.clone())
            }
            Action::Send(Request::Answer { what, place, body, .. }) => (*place, kind(*what), body.to_vec()),
            Action::Send(Request::AbortStatement { place, body, .. }) => (*place, "abort_statement", body.to_vec()),
            Action::Send(Request::Upload(upload)) => {
                self.log.push("upload");
                let signed = upload.signed.as_deref().unwrap_or_default();
                (upload.place, "input", [&upload.body[..], signed].concat())
            }
            Action::Persist(records) => {
                self.log.extend(records.iter().filter_map(|record| match record.name.as_str() {
                    snapshot::PRIVACY => Some("charged"),
                    snapshot::ROUND => Some("round"),
                    _ => None,
                }));
                let rounds = records.iter().filter(|record| record.name == snapshot::ROUND);
                self.records.extend(rounds.map(|record| record.content()));
                return;
            }
            _ => return,
        };
        let key = (place.round, place.attempt, what, self.index);
        self.hub.world(|world| {
            let before = world.said.entry(key).or_insert_with(|| bytes.clone());
            assert_eq!(*before, bytes, "{key:?} was said in two ways");
            let said = |what| world.said.contains_key(&(place.round, place.attempt, what, self.index));
            assert!(!(said("abort_statement") && said("unmask_shares")), "{key:?}: it left, and it answered");
        });
    }

    fn perform(&mut self, action: Action) -> Input {
        let line = self.hub.line(self.index);
        match action {
            Action::Send(request) => answer(&line, request),
            Action::Fetch { task, model, mut have } => {
                let result = now(line.fetch_model(task, &model, &mut have));
                Input::Fetched { have, result }
            }
            Action::Train(work) => Input::Trained(work.run(&mut self.trainer)),
            Action::Load(name) => Input::Loaded(self.journal.load(&name)),
            Action::Persist(records) => Input::Persisted(
                records.iter().try_for_each(|record| self.journal.save(&record.name, &record.content())),
            ),
            Action::WaitUntil(moment) => {
                self.now = self.now.max(moment);
                Input::Tick
            }
            Action::Finished(_) => unreachable!("handled by the caller"),
        }
    }

    /// A process of the same device that finds another record.
    pub fn with_record(&self, name: &str, bytes: &[u8]) -> Result<(), ParticipantError> {
        let load = |wanted: &str| {
            let other = (wanted == name).then(|| Zeroizing::new(bytes.to_vec()));
            other.or_else(|| self.journal.load(wanted).unwrap())
        };
        let saved = Saved {
            identity: load(snapshot::IDENTITY),
            next_key: load(snapshot::NEXT_KEY),
            round: load(snapshot::ROUND),
            privacy: load(snapshot::PRIVACY),
            update: load(snapshot::UPDATE),
            given: load(snapshot::GIVEN),
        };
        let fresh_key = || unreachable!("the key is in the record");
        Machine::new(self.settings.clone(), None, &saved, fresh_key, [0; 32], secrets([0; 32])).map(|_| ())
    }

    /// A later process finds this instead of what was written.
    pub fn rewrite(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut record = self.journal.load(name).unwrap().unwrap_or_default();
        change(&mut record);
        self.journal.save(name, &record).unwrap();
    }

    pub fn round_record(&self) -> Zeroizing<Vec<u8>> {
        self.journal.load(snapshot::ROUND).unwrap().unwrap()
    }
}

/// Everybody in turn, one action each, to the end. `kill` says whether a device dies at its action of this number.
pub fn run(devices: &mut [Device], kill: impl Fn(usize, usize) -> Option<Effect>) {
    for _ in 0..20_000 {
        let mut is_over = true;
        for device in &mut *devices {
            let hub = device.hub.clone();
            if device.ended.is_some() || hub.world(|world| world.is_gone(device.index)) {
                continue;
            }
            is_over = false;
            device.step(kill(device.index, device.actions));
        }
        if is_over {
            return;
        }
    }
    panic!("it does not come to an end");
}

pub fn cohort(hub: &Hub) -> Vec<Device> {
    let devices = hub.world(|world| world.devices);
    (0..devices).map(|index| Device::new(index, hub, super::settings())).collect()
}

/// Every sum is exactly that of its survivors.
pub fn check_sums(hub: &Hub, what: &str) {
    hub.world(|world| {
        for Published { round, sum, survivors } in &world.published {
            let mut expected = vec![0; sum.len()];
            for device in survivors {
                modular::add_assign(&mut expected, &Exact::words(*device, world.personal));
            }
            assert_eq!(*sum, expected, "{what}: round {round} of {survivors:?}");
        }
    });
}

/// Lets a whole cohort run to the end of the task.
pub fn finish(hub: &Hub, devices: &mut [Device]) {
    run(devices, |_, _| None);
    for device in devices.iter().filter(|device| !hub.world(|world| world.is_gone(device.index))) {
        let outcome = device.ended.as_ref().unwrap().as_ref().unwrap();
        assert!(matches!(outcome, Outcome::TaskOver { .. }), "device {}", device.index);
    }
}

pub fn published(hub: &Hub) -> Vec<(u32, Vec<usize>)> {
    hub.world(|world| world.published.iter().map(|done| (done.round, done.survivors.clone())).collect())
}

/// The reasons a device gave for taking no part.
pub fn refusals(device: &Device) -> Vec<String> {
    let refused = device.events.iter().filter_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    refused.collect()
}

pub fn is_empty_of_secrets(device: &Device) -> bool {
    let record = device.round_record();
    record.len() < 600 && record.windows(8).any(|window| window == b"\"done\"}\"" || window == b":\"done\",")
}

pub fn fresh(personal: bool) -> (Hub, Vec<Device>) {
    let hub = Hub::new(3, 2);
    hub.world(|world| {
        world.personal = personal;
        world.open(1, 1);
    });
    let devices = cohort(&hub);
    (hub, devices)
}

/// Both rounds have the exact sum of everybody, and the personal part advanced once per round.
pub fn check(hub: &Hub, devices: &[Device], what: &str) {
    check_sums(hub, what);
    assert_eq!(published(hub), [(1, vec![0, 1, 2]), (2, vec![0, 1, 2])], "{what}");
    hub.world(|world| assert!(world.abandoned.is_empty() && world.failed.is_empty(), "{what}"));
    for device in devices {
        assert!(refusals(device).is_empty(), "{what}: {:?}", refusals(device));
        assert!(is_empty_of_secrets(device), "{what}");
        for model in device.trainer.seen.lock().unwrap().iter().filter(|_| hub.world(|world| world.personal)) {
            let step = if (3 + device.index).is_multiple_of(3) { -1.0 } else { 1.0 };
            assert!((model[3] - step * model[0]).abs() < 1e-6, "{what}: {model:?}");
        }
    }
}

pub fn run_until(devices: &mut [Device], is_done: impl Fn(&Device) -> bool) {
    for _ in 0..300 {
        if devices.iter().all(&is_done) {
            return;
        }
        devices.iter_mut().filter(|device| !is_done(device)).for_each(|device| device.step(None));
    }
    panic!("it does not come so far");
}

thread_local! {
    static DISHONEST: std::cell::RefCell<Option<MemorySigner>> = const { std::cell::RefCell::new(None) };
}

/// Device 2 will deal device 0 a share that does not open, under its signature.
pub fn deal_garbage(hub: &Hub, devices: &mut [Device]) {
    while devices[2].machine.identity().is_none() {
        devices[2].step(None);
    }
    let signer = devices[2].machine.identity().unwrap().key.signer().unwrap();
    DISHONEST.with(|own| *own.borrow_mut() = Some(signer));
    hub.world(|world| world.bend_dealt = Some(garbage));
}

fn garbage(device: usize, mut shares: ShareKeys) -> ShareKeys {
    if device == 2 {
        let mut sealed = shares.body.sealed.as_slice().to_vec();
        sealed[0][0] ^= 1;
        shares.body.sealed = sealed.into();
        let text = shares.body.signed_text();
        shares.signature = DISHONEST.with(|own| own.borrow().as_ref().unwrap().sign(&text).unwrap());
    }
    shares
}
