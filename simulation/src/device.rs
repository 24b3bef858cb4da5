//! A device: a real participant, its profile and connection, and its actions in progress.
//!
//! The participant's computation is a function of its state and of time, so it may run on another thread.

use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::participant::machine::{Input, Machine, Settings};
use client_sdk::participant::{Event, ParticipantError};
use client_sdk::transport::Request;
use client_sdk::{PrivacyPolicy, SecurityPolicy};
use coordinator::identity::Peer;
use rand::Rng as _;
use wire::Attempt;
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use crate::chance::{Purpose, lognormal, stream, uniform};
use crate::clock::Moment;
use crate::in_process::{Advance, Participant, signing_key};
use crate::profile::{DeviceModel, Profile};

/// Number of steps of a round at which a device may drop out, without secure aggregation (fetch, train, send) and with
/// it (also roster, deal, receive, sign, unmask).
const STEPS: (u64, u64) = (3, 8);

/// Settings common to all devices.
pub(crate) struct DeviceSettings {
    pub(crate) seed: u64,
    pub(crate) task: String,
    pub(crate) secure: bool,
    pub(crate) model: DeviceModel,
    pub(crate) wait: Duration,
    /// Authorities that certify participants.
    pub(crate) members: Issuers,
}

pub(crate) struct Device {
    index: u32,
    pub(crate) profile: Profile,
    pub(crate) examples: u64,
    /// `None` while it runs on a training thread.
    participant: Option<Box<Participant>>,
    /// The connection's identity, as the coordinator sees it.
    pub(crate) peer: Option<Peer>,
    /// Number of starts.
    lives: u64,
    /// Number of the current action.
    pub(crate) action: u64,
    /// Its open long poll, if any.
    pub(crate) poll: Option<OpenPoll>,
    /// Its current attempt, and the time of its assignment.
    pub(crate) place: Option<(Attempt, Moment)>,
    /// Number of steps until it drops out of this round, if it does.
    fate: Option<u64>,
    steps: u64,
    /// Start and end of its last training ahead of rounds.
    ahead: Option<(Moment, Option<Moment>)>,
    /// Number of its accepted updates.
    pub(crate) updates: u32,
}

/// An open long poll.
pub(crate) struct OpenPoll {
    pub(crate) request: Request,
    /// When it is given up.
    pub(crate) until: Moment,
    /// The answer in that case.
    pub(crate) otherwise: Box<Input>,
}

impl Device {
    /// A device before its first start.
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

    /// Its name; names sort like numbers.
    pub(crate) fn name(&self) -> String {
        format!("device-{:06}", self.index)
    }

    /// Starts the participant, from its journal if there is one.
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
            // The device serves only this task.
            privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
            // The models of a population are not used.
            keep_models: false,
            ..Settings::default()
        };
        let mut entropy = [0; 32];
        stream(common.seed, Purpose::Entropy, about, self.lives).fill_bytes(&mut entropy);
        let secrets = Box::new(stream(common.seed, Purpose::Secrets, about, self.lives));
        let (seed, index, mut number) = (common.seed, self.index, self.lives << 16);
        // One key per certificate, numbered from the device's first start on.
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

    /// Switches the device off: only the journal survives, and the action in progress is void.
    pub(crate) fn stop(&mut self) {
        if let Some(participant) = &mut self.participant {
            participant.stop();
        }
        self.poll = None;
        self.place = None;
        self.fate = None;
        self.action += 1;
    }

    /// Passes an input to the participant; `None` if the device is off.
    pub(crate) fn advance(&mut self, input: Input, now: Now, readiness: Readiness) -> Option<Advance> {
        self.participant.as_mut()?.advance(input, now, readiness)
    }

    /// Moves the participant to a thread; until it returns, other operations wait.
    pub(crate) fn lend(&mut self) -> Box<Participant> {
        self.participant.take().unwrap_or_default()
    }

    /// Returns the participant from a thread.
    pub(crate) fn take_back(&mut self, participant: Box<Participant>) {
        self.participant = Some(participant);
    }

    /// Deadline of its current action, if any.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.participant.as_ref()?.machine().and_then(Machine::deadline)
    }

    /// Whether the device is available for work.
    pub(crate) fn readiness(&self, now: Moment) -> Readiness {
        match self.profile.habits.available_until(now) {
            Some(_) => Readiness::Ready,
            None => Readiness::NotReady { ask_again: self.profile.habits.until_available(now) },
        }
    }

    /// Updates the connection's identity after a new certificate.
    pub(crate) fn identify(&mut self) {
        if let Some(participant) = &mut self.participant {
            self.peer = participant.peer();
        }
    }

    /// Tracks the device's progress in its round.
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
            // A training ahead and the round that takes its update are one participation, with at most one dropout.
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

    /// Start and end of its work on the update that was just accepted.
    pub(crate) fn worked(&self, now: Moment) -> (Moment, Moment) {
        let assigned = self.place.map_or(now, |(_, since)| since);
        self.ahead.map_or((assigned, now), |(since, finished)| (since, finished.unwrap_or(now)))
    }

    /// Called before each step of a round: the time for which the device is away if it drops out here.
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
