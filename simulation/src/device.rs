//! One device: a real participant, the journal it keeps, and what is under way for it.
//!
//! The participant is the SDK's own [`Machine`]; it is made when the device is first there and made again from the journal
//! after the device vanished. What it computes is a function of the participant and of time, so it may be lent to another
//! thread meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::identity::{Identity, IdentityError, SigningKey};
use client_sdk::participant::machine::{Action, Input, Machine, Record, Saved, Settings};
use client_sdk::participant::{Event, ParticipantError, snapshot};
use client_sdk::{PrivacyPolicy, SecurityPolicy};
use coordinator::identity::Peer;
use rand::Rng as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use wire::Attempt;
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use crate::chance::{Purpose, lognormal, stream, uniform};
use crate::clock::Moment;
use crate::network::OpenPoll;
use crate::profile::{DeviceModel, Profile};

/// An Ed25519 key in PKCS #8, version 1 (RFC 8410 §7), up to its 32 random bytes.
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// Steps of a round at which a device may vanish, without secure aggregation and with it: fetching, training, sending; and
/// hearing who takes part, dealing, receiving, signing, unmasking.
const STEPS: (u64, u64) = (3, 8);

/// What all participants are told.
pub(crate) struct Terms {
    pub(crate) seed: u64,
    pub(crate) task: String,
    pub(crate) secure: bool,
    pub(crate) model: DeviceModel,
    pub(crate) wait: std::time::Duration,
    /// Who certifies participants.
    pub(crate) members: Issuers,
}

/// One device.
pub(crate) struct Device {
    index: u32,
    pub(crate) profile: Profile,
    pub(crate) examples: u64,
    /// None while it is lent to a thread that computes.
    participant: Option<Box<Participant>>,
    /// What the coordinator knows of its connection.
    pub(crate) peer: Option<Peer>,
    identified: Option<Arc<Identity>>,
    /// How often it was started.
    lives: u64,
    /// Numbers what it does.
    pub(crate) action: u64,
    /// The poll that is held open for it.
    pub(crate) poll: Option<OpenPoll>,
    /// Its place in a round, and since when.
    pub(crate) place: Option<(Attempt, Moment)>,
    /// At which of its coming steps in this round it vanishes.
    fate: Option<u64>,
    steps: u64,
    /// When its last training ahead of rounds began, and when it was finished.
    ahead: Option<(Moment, Option<Moment>)>,
    /// Updates that were accepted of it.
    pub(crate) updates: u32,
}

/// A participant and what it remembers.
#[derive(Default)]
pub(crate) struct Participant {
    /// None while the device is off.
    machine: Option<Machine>,
    journal: Journal,
}

/// What a participant wants to do next, and what it told on the way.
pub(crate) struct Advance {
    pub(crate) action: Action,
    pub(crate) events: Vec<Event>,
}

impl Participant {
    /// Tells it what has happened, and keeps and loads its records, until it wants something else. None if it is off.
    pub(crate) fn advance(&mut self, mut input: Input, now: Now, readiness: Readiness) -> Option<Advance> {
        let Self { machine, journal } = self;
        let machine = machine.as_mut()?;
        loop {
            machine.set_readiness(readiness);
            input = match machine.poll(input, now) {
                Action::Persist(records) => {
                    journal.save(&records);
                    Input::Persisted(Ok(()))
                }
                Action::Load(name) => Input::Loaded(Ok(journal.load(&name))),
                action => return Some(Advance { action, events: machine.take_events() }),
            };
        }
    }
}

impl Device {
    /// A device nobody has switched on yet.
    pub(crate) fn new(index: u32, profile: Profile, examples: u64) -> Self {
        Self {
            index,
            profile,
            examples,
            participant: Some(Box::default()),
            peer: None,
            identified: None,
            lives: 0,
            action: 0,
            poll: None,
            place: None,
            fate: None,
            steps: 0,
            ahead: None,
            updates: 0,
        }
    }

    /// What people call it; names are in the order of numbers.
    pub(crate) fn name(&self) -> String {
        format!("device-{:06}", self.index)
    }

    /// Starts the participant, anew or from its journal.
    pub(crate) fn start(&mut self, terms: &Terms, token: Option<Zeroizing<String>>) -> Result<(), ParticipantError> {
        let Some(participant) = &mut self.participant else { return Ok(()) };
        let about = u64::from(self.index);
        let settings = Settings {
            task: Some(terms.task.clone()),
            name: Some(format!("device-{:06}", self.index)),
            seed: Some(terms.seed),
            wait: terms.wait,
            members: terms.members.clone(),
            security: SecurityPolicy { required: terms.secure, ..SecurityPolicy::lowest() },
            // It lives for this one task.
            privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
            ..Settings::default()
        };
        let journal = &participant.journal;
        let record = |name| journal.load(name);
        let saved = Saved {
            identity: record(snapshot::IDENTITY),
            next_key: record(snapshot::NEXT_KEY),
            round: record(snapshot::ROUND),
            privacy: record(snapshot::PRIVACY),
            update: record(snapshot::UPDATE),
            given: record(snapshot::GIVEN),
        };
        let mut entropy = [0; 32];
        stream(terms.seed, Purpose::Entropy, about, self.lives).fill_bytes(&mut entropy);
        let secrets = Box::new(stream(terms.seed, Purpose::Secrets, about, self.lives));
        let (seed, index, mut number) = (terms.seed, self.index, self.lives << 16);
        let key = move || {
            let made = key(seed, index, number);
            number += 1;
            made
        };
        let mut machine = Machine::new(settings, token, &saved, key, entropy, secrets)?;
        machine.set_examples(self.examples);
        participant.machine = Some(machine);
        self.lives += 1;
        Ok(())
    }

    /// Switches it off: what is not in the journal is lost. What was under way is void.
    pub(crate) fn stop(&mut self) {
        if let Some(participant) = &mut self.participant {
            participant.machine = None;
        }
        self.poll = None;
        self.place = None;
        self.fate = None;
        self.action += 1;
    }

    /// Tells the participant what has happened; none if the device is off.
    pub(crate) fn advance(&mut self, input: Input, now: Now, readiness: Readiness) -> Option<Advance> {
        self.participant.as_mut()?.advance(input, now, readiness)
    }

    /// Lends the participant to a thread; until it is given back, nothing can happen to it.
    pub(crate) fn lend(&mut self) -> Box<Participant> {
        self.participant.take().unwrap_or_default()
    }

    /// Takes it back.
    pub(crate) fn take_back(&mut self, participant: Box<Participant>) {
        self.participant = Some(participant);
    }

    /// Until when it goes on with what it is about to do, if there is an end to it.
    pub(crate) fn deadline(&self) -> Option<std::time::Duration> {
        self.participant.as_ref()?.machine.as_ref()?.deadline()
    }

    /// Whether its owner lets it work now.
    pub(crate) fn readiness(&self, now: Moment) -> Readiness {
        match self.profile.habits.available_until(now) {
            Some(_) => Readiness::Ready,
            None => Readiness::NotReady { ask_again: self.profile.habits.until_available(now) },
        }
    }

    /// Shows its certificate to the network once it has a new one.
    pub(crate) fn identify(&mut self) {
        let machine = self.participant.as_ref().and_then(|participant| participant.machine.as_ref());
        let Some(identity) = machine.and_then(Machine::identity) else { return };
        if self.identified.as_ref().is_none_or(|known| !Arc::ptr_eq(known, identity)) {
            let certificate = CertificateDer::from_pem_slice(identity.certified.certificate_pem.as_bytes()).ok();
            self.peer = certificate.and_then(|certificate| Peer::from_certificate(&certificate));
            self.identified = Some(Arc::clone(identity));
        }
    }

    /// Follows it through its round.
    pub(crate) fn observe(&mut self, event: &Event, terms: &Terms, now: Moment) {
        match event {
            Event::ToTrain { place, .. } => {
                self.ahead = Some((now, None));
                self.draw_fate(*place, terms, now);
            }
            Event::Trained { .. } => {
                if let Some((_, finished)) = &mut self.ahead {
                    *finished = Some(now);
                }
            }
            // Training ahead and the round that takes the update are one participation, in which it vanishes once at most.
            Event::Assigned { place, .. } if self.ahead.is_some() && self.place.is_some() => {
                self.place = Some((*place, now));
            }
            Event::Assigned { place, .. } => self.draw_fate(*place, terms, now),
            Event::Abandoned { .. } | Event::RoundOver { .. } => {
                self.place = None;
                self.fate = None;
            }
            _ => {}
        }
    }

    fn draw_fate(&mut self, place: Attempt, terms: &Terms, now: Moment) {
        self.place = Some((place, now));
        self.steps = 0;
        let about = u64::from(place.round) << 32 | u64::from(place.attempt);
        let rng = &mut stream(terms.seed, Purpose::Fate, self.index.into(), about);
        let vanishes = uniform(rng) < self.profile.dropout;
        let most = if terms.secure { STEPS.1 } else { STEPS.0 };
        self.fate = vanishes.then(|| 1 + rng.next_u64() % most);
    }

    /// Since when it worked on the update that was accepted now, and when it was done with that: from then on the update lay.
    pub(crate) fn worked(&self, now: Moment) -> (Moment, Moment) {
        let assigned = self.place.map_or(now, |(_, since)| since);
        self.ahead.map_or((assigned, now), |(since, finished)| (since, finished.unwrap_or(now)))
    }

    /// It is about to do something in its round. If it vanishes instead: for how long.
    pub(crate) fn meets_its_fate(&mut self, terms: &Terms) -> Option<std::time::Duration> {
        let (place, _) = self.place?;
        self.steps += 1;
        if self.fate != Some(self.steps) {
            return None;
        }
        let about = u64::from(place.round) << 32 | u64::from(place.attempt);
        let rng = &mut stream(terms.seed, Purpose::Fate, self.index.into(), about | 1 << 63);
        let away = lognormal(terms.model.away.as_secs_f64().max(1e-3), 0.5, rng).min(30.0 * 86_400.0);
        Some(std::time::Duration::from_secs_f64(away))
    }
}

/// The key that a device makes for its certificate of this number: from the seed, so that a simulation can be repeated. No key that guards anything is made like this.
fn key(seed: u64, device: u32, number: u64) -> Result<SigningKey, IdentityError> {
    let mut pkcs8 = Zeroizing::new([0; 48]);
    pkcs8[..16].copy_from_slice(&PKCS8_ED25519);
    stream(seed, Purpose::Key, device.into(), number).fill_bytes(&mut pkcs8[16..]);
    SigningKey::from_pkcs8(&*pkcs8)
}

/// Records as the participant gave them, without a copy.
#[derive(Default)]
struct Journal(HashMap<String, (Arc<[Record]>, usize)>);

impl Journal {
    fn save(&mut self, records: &Arc<[Record]>) {
        for (index, record) in records.iter().enumerate() {
            self.0.insert(record.name.clone(), (Arc::clone(records), index));
        }
    }

    fn load(&self, name: &str) -> Option<Zeroizing<Vec<u8>>> {
        let (records, index) = self.0.get(name)?;
        records.get(*index).map(Record::content)
    }
}
