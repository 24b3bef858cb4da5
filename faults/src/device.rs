//! A device: the SDK's own participant on a journal that may be set back, killed between any two of its actions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::journal::JournalError;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::Event;
use client_sdk::participant::machine::{Action, Input, Machine, Saved, Settings};
use client_sdk::transport::Request;
use client_sdk::{PrivacyPolicy, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use coordinator::identity::Peer;
use rand::Rng as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use super::journal::{DeviceJournal, FolderJournal, Records};
use super::outcome::Flaws;
use simulation::chance::{Purpose, stream};
use simulation::clock::Moment;
use simulation::in_process::signing_key;

pub(super) const TASK: &str = "task";
/// How long a check-in is held open.
const POLL: Duration = Duration::from_secs(10);

/// Fate of a device before one of its actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceFault {
    Crash { away: Duration },
    SetBack { to: u64 },
}

/// Next action of a device.
pub(super) enum Next {
    Do(Box<Action>),
    /// It was killed, and comes back after this time.
    Killed(Duration),
    /// It is off, or has ended.
    Nothing,
}

pub(super) struct OpenPoll {
    /// The coordinator, and which of its processes.
    pub(super) at: (usize, u64),
    pub(super) request: Request,
    pub(super) until: Moment,
    pub(super) otherwise: Input,
}

pub(super) struct Device {
    pub(super) index: u32,
    seed: u64,
    is_secure: bool,
    members: Issuers,
    machine: Option<Machine>,
    journal: DeviceJournal,
    lives: u64,
    /// Actions of all its lives.
    pub(super) actions: u64,
    /// Requests of all its lives.
    pub(super) requests: u64,
    /// Distinguishes results of its present action from those of an earlier one.
    pub(super) current: u64,
    pub(super) peer: Option<Peer>,
    pub(super) poll: Option<OpenPoll>,
    /// Why it has ended for good.
    pub(super) ended: Option<String>,
    pub(super) faults: BTreeMap<u64, DeviceFault>,
    events: Vec<Event>,
}

/// A device that was enrolled once: its records, and its identity at the coordinator.
pub(super) struct Enrolled {
    records: Records,
    pub(super) peer: Peer,
}

impl Device {
    /// A device before its first start. One whose journal is to be set back has a real one, in `folder`.
    pub(super) fn new(
        (seed, index): (u64, u32),
        is_secure: bool,
        members: Issuers,
        faults: BTreeMap<u64, DeviceFault>,
        (folder, flaws): (&Path, Flaws),
    ) -> Self {
        let copies: BTreeSet<_> = faults
            .values()
            .filter_map(|fault| match fault {
                DeviceFault::SetBack { to } => Some(*to),
                DeviceFault::Crash { .. } => None,
            })
            .collect();
        let journal = match copies.is_empty() {
            true => DeviceJournal::Memory(Records::new()),
            false => {
                let place = folder.join(format!("device-{index}"));
                DeviceJournal::Folder(FolderJournal::new(place, copies, flaws.copies_generation))
            }
        };
        Self {
            index,
            seed,
            is_secure,
            members,
            machine: None,
            journal,
            lives: 0,
            actions: 0,
            requests: 0,
            current: 0,
            peer: None,
            poll: None,
            ended: None,
            faults,
            events: Vec::new(),
        }
    }

    /// Its enrolled state; `None` before enrolment.
    pub(super) fn enrolled(self) -> Option<Enrolled> {
        match self.journal {
            DeviceJournal::Memory(records) => Some(Enrolled { records, peer: self.peer? }),
            DeviceJournal::Folder(_) => None,
        }
    }

    /// Takes over the records of an enrolled device.
    ///
    /// # Errors
    /// Those of its journal.
    pub(super) fn take_over(&mut self, enrolled: &Enrolled) -> Result<(), JournalError> {
        self.journal.open()?;
        for (name, content) in &enrolled.records {
            self.journal.save(name, [content, &[]])?;
        }
        self.journal.close();
        (self.peer, self.lives) = (Some(enrolled.peer), 1);
        Ok(())
    }

    pub(super) fn name(&self) -> String {
        format!("device-{}", self.index)
    }

    pub(super) fn is_on(&self) -> bool {
        self.machine.is_some()
    }

    /// Its reports since the last call.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Deadline of its round, if it has one before its input is made.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.machine.as_ref().and_then(Machine::deadline)
    }

    /// Starts the participant, from its journal if there is something in it.
    pub(super) fn start(&mut self, token: Option<Zeroizing<String>>) {
        if self.ended.is_some() || self.machine.is_some() {
            return;
        }
        if let Err(error) = self.begin(token) {
            self.ended = Some(error);
        }
    }

    fn begin(&mut self, token: Option<Zeroizing<String>>) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        self.journal.open().map_err(|error| text(&error))?;
        let saved = Saved::load(|name| self.journal.load(name)).map_err(|error| text(&error))?;
        let about = u64::from(self.index);
        let settings = Settings {
            task: Some(TASK.to_owned()),
            name: Some(self.name()),
            seed: Some(self.seed),
            wait: POLL,
            members: self.members.clone(),
            security: SecurityPolicy { required: self.is_secure, min_cohort: 3, ..SecurityPolicy::lowest() },
            privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
            ..Settings::default()
        };
        let mut entropy = [0; 32];
        stream(self.seed, Purpose::Entropy, about, self.lives).fill_bytes(&mut entropy);
        let secrets = Box::new(stream(self.seed, Purpose::Secrets, about, self.lives));
        let (seed, mut number) = (self.seed, self.lives << 16);
        let key = move || {
            number += 1;
            signing_key(&mut stream(seed, Purpose::Key, about, number))
        };
        let mut machine = Machine::new(settings, token, &saved, key, entropy, secrets).map_err(|error| text(&error))?;
        machine.set_examples(1);
        self.machine = Some(machine);
        self.lives += 1;
        Ok(())
    }

    /// Kills the participant, which loses everything outside the journal.
    pub(super) fn kill(&mut self) {
        self.machine = None;
        self.poll = None;
        self.current += 1;
        self.journal.close();
    }

    /// Passes an input to the participant, and keeps and loads its records, until it wants something else.
    pub(super) fn advance(&mut self, mut input: Input, now: Now) -> Next {
        self.poll = None;
        loop {
            let Some(machine) = &mut self.machine else { return Next::Nothing };
            machine.set_readiness(Readiness::Ready);
            let action = machine.poll(input, now);
            self.events.extend(machine.take_events());
            self.identify();
            self.actions += 1;
            self.journal.copy_at(self.actions);
            if let Some(fault) = self.faults.remove(&self.actions) {
                let away = match fault {
                    DeviceFault::Crash { away } => away,
                    DeviceFault::SetBack { .. } => Duration::from_millis(500),
                };
                self.kill();
                if let DeviceFault::SetBack { to } = fault {
                    self.journal.set_back(to);
                }
                return Next::Killed(away);
            }
            input = match action {
                Action::Persist(records) => {
                    let saved = records.iter().try_for_each(|record| self.journal.save(&record.name, record.parts()));
                    Input::Persisted(saved)
                }
                Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut Stub(self.index))),
                Action::Load(name) => Input::Loaded(self.journal.load(&name)),
                Action::Finished(result) => {
                    self.ended = Some(match result {
                        Ok(outcome) => format!("{outcome:?}"),
                        Err(error) => error.to_string(),
                    });
                    self.kill();
                    return Next::Nothing;
                }
                action @ (Action::Send(_) | Action::Fetch { .. } | Action::Train(_) | Action::WaitUntil(_)) => {
                    self.current += 1;
                    return Next::Do(Box::new(action));
                }
            };
        }
    }

    fn identify(&mut self) {
        if let Some(identity) = self.machine.as_ref().and_then(Machine::identity) {
            let certificate = CertificateDer::from_pem_slice(identity.certified.certificate_pem.as_bytes()).ok();
            self.peer = certificate.and_then(|certificate| Peer::from_certificate(&certificate));
        }
    }
}

/// Trains so that the mean reveals the members: each device moves its own coordinate by [`STEP`].
pub(super) struct Stub(pub(super) u32);

/// Parameters of the model.
pub(super) const PARAMETERS: usize = 8;
/// How far a device moves its coordinate.
pub(super) const STEP: f32 = 0.5;

impl Trainer for Stub {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        if let Some(value) = parameters.values_mut().get_mut(self.0 as usize) {
            *value += STEP;
        }
        Ok(Trained { parameters, examples: 1, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        1
    }
}
