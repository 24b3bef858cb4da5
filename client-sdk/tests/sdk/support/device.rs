//! Devices that are machines on journals: killed and made again, in step with each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use client_sdk::clock::{Clock, Now};
use client_sdk::identity::SigningKey;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::participant::machine::{
    Action, CheckpointWriter, Input, Machine, Record, RoundWork, Saved, Settings, Surroundings,
};
use client_sdk::participant::{Contribution, WorkError, snapshot};
use client_sdk::transport::{Download, Request};
use client_sdk::{Event, Outcome, ParticipantError, Trainer};
use secure_agg::messages::{Body as _, ShareKeys};
use secure_agg::{MemorySigner, Signer as _, modular};
use wire::certificate::Issuers;
use wire::participant::{CheckInRequest, LossReport};
use zeroize::Zeroizing;

use super::cohort::{Hub, Published, TODAY, kind};
use super::line::Line;
use super::link::FakeCoordinator;
use super::secrets;
use super::trainers::Exact;

/// The effect of the action during which a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    None,
    /// Of several records only the first is written.
    Partial,
    Whole,
}

pub(crate) const EFFECTS: [Effect; 3] = [Effect::None, Effect::Partial, Effect::Whole];

/// A clock that moves only when a test moves it.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<AtomicU64>);

impl Hand {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Now {
        Now { elapsed: Duration::from_millis(self.0.load(Ordering::Relaxed)), wall: TODAY }
    }
}

/// One process after another on one journal.
pub(crate) struct Device<C = Line, T = Exact> {
    pub(crate) index: usize,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) trainer: T,
    pub(crate) coordinator: C,
    pub(crate) settings: Settings,
    /// What the next process is given.
    pub(crate) token: &'static str,
    pub(crate) machine: Machine,
    input: Option<Input>,
    /// The process died in the middle of a training.
    is_restarted: bool,
    /// Gives every process other randomness, so that only the journal can make bytes the same.
    pub(crate) processes: u8,
    pub(crate) now: Duration,
    pub(crate) actions: usize,
    pub(crate) events: Vec<Event>,
    /// What is written and sent, in order.
    pub(crate) log: Vec<&'static str>,
    /// The loss reported by each check-in.
    pub(crate) told: Vec<Option<LossReport>>,
    /// Every record of a round that was ever written.
    pub(crate) records: Vec<Zeroizing<Vec<u8>>>,
    pub(crate) ended: Option<Result<Outcome, ParticipantError>>,
    /// Whether the process dies at the checkpoint of this number, and what becomes of it.
    pub(crate) dies_at_checkpoint: Option<(usize, Effect)>,
    /// Checkpoints that were written, by all processes.
    pub(crate) checkpoints: Arc<AtomicUsize>,
    /// Shortest time between two written checkpoints. Default: zero, so each one is written.
    pub(crate) checkpoint_every: Duration,
    /// The clock for trainings only.
    pub(crate) clock: Hand,
    /// Each run of a training is paused when it has saved something.
    pub(crate) in_slices: bool,
}

fn start(index: usize, process: u8, journal: &dyn Journal, settings: &Settings, token: &str) -> Machine {
    let saved = Saved::load(|name| journal.load(name)).unwrap();
    let token = Some(Zeroizing::new(token.to_owned()));
    let mut seed = [process; 32];
    seed[0] = index as u8;
    Machine::new(settings.clone(), token, &saved, SigningKey::generate, seed, secrets(seed)).unwrap()
}

/// A process that finds this in its journal, who it is among it. Its app names the authority that the record is from, which in records
/// that were kept is another than that of this run.
pub(crate) fn enrolled(settings: &Settings, saved: &Saved) -> Result<Machine, ParticipantError> {
    let fresh_key = || unreachable!("the key is in the record");
    let kept = saved.identity.as_ref().and_then(|record| authority_of(record));
    let members = kept.unwrap_or_else(|| settings.members.clone());
    let settings = Settings { members, ..settings.clone() };
    Machine::new(settings, None, saved, fresh_key, [0; 32], secrets([0; 32]))
}

/// The authority in the record of an identity: the last certificate of the chain; `None` without a chain.
pub(crate) fn authority_of(identity: &[u8]) -> Option<Issuers> {
    let text = String::from_utf8_lossy(identity).replace("\\n", "\n");
    let (_, last) = text.rsplit_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = last.split_once("-----END CERTIFICATE-----")?;
    Issuers::from_pem(&format!("-----BEGIN CERTIFICATE-----{body}-----END CERTIFICATE-----\n")).ok()
}

impl Device {
    /// A member of a cohort.
    pub(crate) fn new(index: usize, hub: &Hub, settings: Settings) -> Self {
        Self::on(Arc::new(MemoryJournal::new()), index, hub, settings)
    }

    /// A device with this journal.
    pub(crate) fn on(journal: Arc<dyn Journal>, index: usize, hub: &Hub, settings: Settings) -> Self {
        Self::with(journal, index, hub.line(index), Exact::new(index), settings)
    }
}

impl<C: FakeCoordinator, T: Trainer> Device<C, T> {
    pub(crate) fn with(
        journal: Arc<dyn Journal>,
        index: usize,
        coordinator: C,
        trainer: T,
        settings: Settings,
    ) -> Self {
        let machine = start(index, 1, &*journal, &settings, "token");
        Self {
            index,
            journal,
            trainer,
            coordinator,
            settings,
            token: "token",
            machine,
            input: Some(Input::Tick),
            is_restarted: false,
            processes: 1,
            now: Duration::ZERO,
            actions: 0,
            events: vec![],
            log: vec![],
            told: vec![],
            records: vec![],
            ended: None,
            dies_at_checkpoint: None,
            checkpoints: Arc::default(),
            checkpoint_every: Duration::ZERO,
            clock: Hand::default(),
            in_slices: false,
        }
    }

    pub(crate) fn restart(&mut self) {
        self.processes += 1;
        self.machine = start(self.index, self.processes, &*self.journal, &self.settings, self.token);
        self.input = Some(Input::Tick);
        self.ended = None;
    }

    /// Passes the result to the machine.
    pub(crate) fn poll(&mut self, input: Input) -> Action {
        self.machine.set_examples(self.trainer.examples());
        let action = self.machine.poll(input, Now { elapsed: self.now, wall: TODAY });
        self.events.extend(self.machine.take_events());
        action
    }

    /// One action, or its loss.
    pub(crate) fn step(&mut self, kill: Option<Effect>) {
        let input = self.input.take().unwrap_or(Input::Tick);
        let action = self.poll(input);
        self.actions += 1;
        self.remember(&action);
        match (kill, action) {
            (_, Action::Finished(result)) => self.ended = Some(result),
            (None, action) => {
                let input = self.perform(action);
                // A killed process loses its pending work.
                if !std::mem::take(&mut self.is_restarted) {
                    self.input = Some(input);
                }
            }
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

    /// Continues until its task ends, or for this many actions; `kill` returns whether the process dies at the action of this
    /// number. How many it took to the end.
    pub(crate) fn run(&mut self, most: usize, kill: impl Fn(usize) -> Option<Effect>) -> usize {
        for number in 0..most {
            self.step(kill(number));
            if let Some(ended) = &self.ended {
                assert!(matches!(ended, Ok(Outcome::TaskOver { .. })), "{ended:?}");
                return number;
            }
        }
        most
    }

    /// Records its messages and its journal.
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
        self.coordinator.observe(place, what, bytes);
    }

    pub(crate) fn perform(&mut self, action: Action) -> Input {
        match action {
            Action::Send(request) => {
                self.coordinator.identify(self.machine.presented().map(|identity| &**identity));
                Input::Response(self.coordinator.answer(request))
            }
            Action::Fetch { task, model, have, .. } => {
                let mut download = Download::in_memory(have);
                let result = self.coordinator.fetch(task, &model, &mut download);
                Input::Fetched { have: download.into_bytes(), result }
            }
            Action::Train(work) => Input::Trained(self.train(&work)),
            Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut self.trainer)),
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

    fn train(&mut self, work: &Arc<RoundWork>) -> Result<Contribution, WorkError> {
        let dead = Arc::new(AtomicBool::new(false));
        let (journal, written, died) = (Arc::clone(&self.journal), Arc::clone(&self.checkpoints), Arc::clone(&dead));
        let (dies_at, dying) = (self.dies_at_checkpoint, Arc::clone(work));
        let write = move |record: &Record| {
            let number = written.fetch_add(1, Ordering::Relaxed);
            let effect = dies_at.filter(|(at, _)| *at == number).map(|(_, how)| how);
            if effect.is_some() {
                died.store(true, Ordering::Relaxed);
                dying.cancel();
            }
            if effect == Some(Effect::None) { Ok(()) } else { journal.save(&record.name, &record.content()) }
        };
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let writer =
            CheckpointWriter { write: Arc::new(write), clock: Arc::clone(&clock), every: self.checkpoint_every };
        let slice = self.in_slices.then_some((clock, Duration::ZERO));
        let surroundings = Surroundings { checkpoints: Some(writer), slice };
        let result = work.run_in(&mut self.trainer, surroundings, &mut || ());
        if dead.load(Ordering::Relaxed) {
            self.dies_at_checkpoint = None;
            self.restart();
            self.is_restarted = true;
        }
        result
    }

    /// A process of the same device that finds another record.
    pub(crate) fn with_record(&self, name: &str, bytes: &[u8]) -> Result<(), ParticipantError> {
        let saved = Saved::load(|wanted| match wanted == name {
            true => Ok(Some(Zeroizing::new(bytes.to_vec()))),
            false => self.journal.load(wanted),
        });
        let saved = saved.unwrap();
        enrolled(&self.settings, &saved).map(|_| ())
    }

    /// A later process finds this instead of what was written.
    pub(crate) fn rewrite(&mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut record = self.journal.load(name).unwrap().unwrap_or_default();
        change(&mut record);
        self.journal.save(name, &record).unwrap();
    }

    pub(crate) fn round_record(&self) -> Zeroizing<Vec<u8>> {
        self.journal.load(snapshot::ROUND).unwrap().unwrap()
    }
}

/// All devices in turn, one action each, to the end. `kill` returns whether a device dies at its action of this number.
pub(crate) fn run(devices: &mut [Device], kill: impl Fn(usize, usize) -> Option<Effect>) {
    for _ in 0..20_000 {
        let mut is_over = true;
        for device in &mut *devices {
            let hub = device.coordinator.hub.clone();
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

pub(crate) fn cohort(hub: &Hub) -> Vec<Device> {
    let devices = hub.world(|world| world.devices);
    (0..devices).map(|index| Device::new(index, hub, super::settings())).collect()
}

/// Every sum is exactly that of its survivors.
pub(crate) fn check_sums(hub: &Hub, what: &str) {
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
pub(crate) fn finish(hub: &Hub, devices: &mut [Device]) {
    run(devices, |_, _| None);
    for device in devices.iter().filter(|device| !hub.world(|world| world.is_gone(device.index))) {
        let outcome = device.ended.as_ref().unwrap().as_ref().unwrap();
        assert!(matches!(outcome, Outcome::TaskOver { .. }), "device {}", device.index);
    }
}

pub(crate) fn published(hub: &Hub) -> Vec<(u32, Vec<usize>)> {
    hub.world(|world| world.published.iter().map(|done| (done.round, done.survivors.clone())).collect())
}

/// The reasons a device gave for its refusals.
pub(crate) fn refusals(device: &Device) -> Vec<String> {
    let refused = device.events.iter().filter_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    refused.collect()
}

pub(crate) fn is_empty_of_secrets(device: &Device) -> bool {
    let record = device.round_record();
    record.len() < 600 && record.windows(8).any(|window| window == b"\"done\"}\"" || window == b":\"done\",")
}

pub(crate) fn fresh(personal: bool) -> (Hub, Vec<Device>) {
    let hub = Hub::new(3, 2);
    hub.world(|world| {
        world.personal = personal;
        world.open(1, 1);
    });
    let devices = cohort(&hub);
    (hub, devices)
}

/// Both rounds have the exact sum of all, and the personal part advanced once per round.
pub(crate) fn check(hub: &Hub, devices: &[Device], what: &str) {
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

pub(crate) fn run_until(devices: &mut [Device], is_done: impl Fn(&Device) -> bool) {
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
pub(crate) fn deal_garbage(hub: &Hub, devices: &mut [Device]) {
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
