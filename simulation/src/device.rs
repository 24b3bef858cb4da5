//! One device: a real participant, what its owner and its line are like, and what is under way for it.
//!
//! What the participant computes is a function of the participant and of time, so it may be lent to another thread meanwhile.

use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::participant::machine::{Input, Machine, Settings};
use client_sdk::participant::{Event, ParticipantError};
use client_sdk::{PrivacyPolicy, SecurityPolicy};
use coordinator::identity::Peer;
use rand::Rng as _;
use wire::Attempt;
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use crate::chance::{Purpose, lognormal, stream, uniform};
use crate::clock::Moment;
use crate::in_process::{Advance, Participant, Question, signing_key};
use crate::profile::{DeviceModel, Profile};

/// Steps of a round at which a device may vanish, without secure aggregation and with it: fetching, training, sending; and
/// hearing who takes part, dealing, receiving, signing, unmasking.
const STEPS: (u64, u64) = (3, 8);

/// What all participants are told.
pub(crate) struct DeviceSettings {
    pub(crate) seed: u64,
    pub(crate) task: String,
    pub(crate) secure: bool,
    pub(crate) model: DeviceModel,
    pub(crate) wait: Duration,
    /// Who certifies participants.
    pub(crate) members: Issuers,
}

pub(crate) struct Device {
    index: u32,
    pub(crate) profile: Profile,
    pub(crate) examples: u64,
    /// None while it is lent to a thread that computes.
    participant: Option<Box<Participant>>,
    /// What the coordinator knows of its connection.
    pub(crate) peer: Option<Peer>,
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

/// A poll that the coordinator has nothing for yet.
pub(crate) struct OpenPoll {
    /// What is asked.
    pub(crate) question: Question,
    /// When it is given up.
    pub(crate) until: Moment,
    /// What it is answered then.
    pub(crate) otherwise: Box<Input>,
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
    pub(crate) fn start(
        &mut self,
        common: &DeviceSettings,
        token: Option<Zeroizing<String>>,
    ) -> Result<(), ParticipantError> {
        let Some(participant) = &mut self.participant else { return Ok(()) };
        let about = u64::from(self.index);
        let settings = Settings {
            task: Some(common.task.clone()),
            name: Some(format!("device-{:06}", self.index)),
            seed: Some(common.seed),
            wait: common.wait,
            members: common.members.clone(),
            security: SecurityPolicy { required: common.secure, ..SecurityPolicy::lowest() },
            // It lives for this one task.
            privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
            ..Settings::default()
        };
        let mut entropy = [0; 32];
        stream(common.seed, Purpose::Entropy, about, self.lives).fill_bytes(&mut entropy);
        let secrets = Box::new(stream(common.seed, Purpose::Secrets, about, self.lives));
        let (seed, index, mut number) = (common.seed, self.index, self.lives << 16);
        // Numbered, from the device's start on, by the certificates that they are for.
        let key = move || {
            let made = signing_key(&mut stream(seed, Purpose::Key, index.into(), number));
            number += 1;
            made
        };
        participant.start(settings, token, key, entropy, secrets)?;
        if let Some(machine) = participant.machine_mut() {
            machine.set_examples(self.examples);
        }
        self.lives += 1;
        Ok(())
    }

    /// Switches it off: what is not in the journal is lost. What was under way is void.
    pub(crate) fn stop(&mut self) {
        if let Some(participant) = &mut self.participant {
            participant.stop();
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
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.participant.as_ref()?.machine().and_then(Machine::deadline)
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
        if let Some(participant) = &mut self.participant {
            self.peer = participant.peer();
        }
    }

    /// Follows it through its round.
    pub(crate) fn observe(&mut self, event: &Event, common: &DeviceSettings, now: Moment) {
        match event {
            Event::ToTrain { place, .. } => {
                self.ahead = Some((now, None));
                self.draw_fate(*place, common, now);
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
            Event::Assigned { place, .. } => self.draw_fate(*place, common, now),
            Event::Abandoned { .. } | Event::RoundOver { .. } => {
                self.place = None;
                self.fate = None;
            }
            _ => {}
        }
    }

    fn draw_fate(&mut self, place: Attempt, common: &DeviceSettings, now: Moment) {
        self.place = Some((place, now));
        self.steps = 0;
        let about = u64::from(place.round) << 32 | u64::from(place.attempt);
        let rng = &mut stream(common.seed, Purpose::Fate, self.index.into(), about);
        let vanishes = uniform(rng) < self.profile.dropout;
        let most = if common.secure { STEPS.1 } else { STEPS.0 };
        self.fate = vanishes.then(|| 1 + rng.next_u64() % most);
    }

    /// Since when it worked on the update that was accepted now, and when it was done with that: from then on the update lay.
    pub(crate) fn worked(&self, now: Moment) -> (Moment, Moment) {
        let assigned = self.place.map_or(now, |(_, since)| since);
        self.ahead.map_or((assigned, now), |(since, finished)| (since, finished.unwrap_or(now)))
    }

    /// It is about to do something in its round. If it vanishes instead: for how long.
    pub(crate) fn meets_its_fate(&mut self, common: &DeviceSettings) -> Option<Duration> {
        let (place, _) = self.place?;
        self.steps += 1;
        if self.fate != Some(self.steps) {
            return None;
        }
        let about = u64::from(place.round) << 32 | u64::from(place.attempt);
        let rng = &mut stream(common.seed, Purpose::Fate, self.index.into(), about | 1 << 63);
        let away = lognormal(common.model.away.as_secs_f64().max(1e-3), 0.5, rng).min(30.0 * 86_400.0);
        Some(Duration::from_secs_f64(away))
    }
}
