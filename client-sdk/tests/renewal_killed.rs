//! A participant is killed at every action of its enrolment and its renewals, before and after the action took effect: it comes back with
//! one certificate that works, whether the coordinator has it made or somebody else issues it.
#![expect(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_sdk::PreIssued;
use client_sdk::clock::Now;
use client_sdk::identity::{Identity, SigningKey};
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::participant::machine::{Action, Input, Machine, Request, Saved, Settings};
use client_sdk::participant::snapshot;
use client_sdk::pre_issued::Certificates;
use client_sdk::transport::TransportError;
use support::cohort::TODAY;
use support::{CA, in_the_clear, participant, secrets, task};
use wire::Timestamp;
use wire::certificate::chain_der;
use wire::participant::{CheckInReply, EnrollReply};
use wire::problem::{Problem, ProblemType};
use zeroize::Zeroizing;

const RENEWALS: usize = 3;
const DAY_MS: u64 = 24 * 3_600_000;

type Der = Vec<u8>;

fn leaf(chain_pem: &str) -> Der {
    chain_der(chain_pem).unwrap().remove(0)
}

/// What the coordinator knows of the participant's certificates.
#[derive(Default)]
struct Registry {
    newest: Option<Der>,
    /// Good until the newest is used.
    before: Option<Der>,
    /// The key that the token was used for.
    enrolled: Option<Vec<u8>>,
    /// Certificates that were used at least once.
    used: Vec<Der>,
    /// What device management has put into the device's files, if it does: the last counts.
    issued: Option<Vec<(String, String)>>,
    /// What it had put there by mistake before that, until the device looks: a certificate for the same key as the present one's.
    mistaken: Option<(String, String)>,
}

impl Registry {
    fn pre_issued() -> Self {
        Self { issued: Some(vec![CA.issue(participant(), 2020..2100)]), ..Self::default() }
    }

    /// Whether a certificate is good now; the first use of the newest ends the one before.
    fn admits(&mut self, shown: Option<&Identity>) -> Result<Der, TransportError> {
        let shown = shown.map(|identity| leaf(&identity.certified.certificate_pem));
        if shown.is_some() && shown == self.newest {
            self.before = None;
        } else if shown.is_none() || shown != self.before {
            return Err(Problem::new(ProblemType::Unauthenticated, "of the test").into());
        }
        let shown = shown.unwrap();
        if !self.used.contains(&shown) {
            self.used.push(shown.clone());
        }
        Ok(shown)
    }

    fn is_over(&self) -> bool {
        self.used.len() > RENEWALS
    }

    fn reply(&self, certificate_pem: String) -> EnrollReply {
        let renew_at = if self.is_over() { Timestamp(i64::MAX) } else { Timestamp(0) };
        EnrollReply {
            participant: participant(),
            name: "one".into(),
            certificate_pem,
            expires_at: Timestamp(i64::MAX),
            renew_at,
        }
    }

    fn certificate(csr_pem: Option<&String>, certificate_pem: Option<&String>) -> String {
        certificate_pem.cloned().unwrap_or_else(|| CA.certify(csr_pem.unwrap(), participant()))
    }

    fn answer(&mut self, shown: Option<&Identity>, request: Request) -> Input {
        match request {
            Request::Enroll(request) => {
                let chain = Self::certificate(request.csr_pem.as_ref(), request.certificate_pem.as_ref());
                let key = wire::certificate::holder(&leaf(&chain)).unwrap().key.0.to_vec();
                assert!(self.enrolled.as_ref().is_none_or(|enrolled| *enrolled == key), "the token was used");
                (self.enrolled, self.newest) = (Some(key), Some(leaf(&chain)));
                Input::Enrolled(Ok(self.reply(chain)))
            }
            Request::Renew(request) => Input::Renewed(self.admits(shown).map(|shown| {
                let chain = Self::certificate(request.csr_pem.as_ref(), request.certificate_pem.as_ref());
                (self.before, self.newest) = (Some(shown), Some(leaf(&chain)));
                self.reply(chain)
            })),
            Request::CheckIn(_) => Input::CheckedIn(self.admits(shown).map(|shown| {
                let is_over = self.is_over();
                if let Some(issued) = &mut self.issued
                    && !is_over
                    && leaf(&issued.last().unwrap().0) == shown
                {
                    let next = 2020 + i32::try_from(issued.len()).unwrap();
                    let key = issued.last().unwrap().1.clone();
                    let pair = rcgen::KeyPair::from_pem(&key).unwrap();
                    self.mistaken = Some((CA.issue_for(&pair, participant(), next..2100), key));
                    issued.push(CA.issue(participant(), next..2100));
                }
                if is_over {
                    CheckInReply::TaskOver { task: task() }
                } else {
                    CheckInReply::ComeBack { after_ms: DAY_MS }
                }
            })),
            _ => unreachable!("there is no round"),
        }
    }
}

/// What becomes of the action during which a process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    None,
    Whole,
}

struct Device {
    journal: MemoryJournal,
    registry: Arc<Mutex<Registry>>,
    processes: u8,
    now: Duration,
}

impl Device {
    fn new(registry: Registry) -> Self {
        Self {
            journal: MemoryJournal::new(),
            registry: Arc::new(Mutex::new(registry)),
            processes: 0,
            now: Duration::ZERO,
        }
    }

    fn settings(&self) -> Settings {
        let registry = Arc::clone(&self.registry);
        let read = move || {
            let mut registry = registry.lock().unwrap();
            let mistaken = registry.mistaken.take();
            let (chain, key) = mistaken.unwrap_or_else(|| registry.issued.as_ref().unwrap().last().unwrap().clone());
            PreIssued::from_pem(chain, &key)
        };
        let is_pre_issued = self.registry.lock().unwrap().issued.is_some();
        let certificates = if is_pre_issued { Certificates::new(read) } else { Certificates::default() };
        Settings { certificates, ..in_the_clear() }
    }

    fn start(&mut self) -> Machine {
        self.processes += 1;
        let load = |name| self.journal.load(name).unwrap();
        let saved =
            Saved { identity: load(snapshot::IDENTITY), next_key: load(snapshot::NEXT_KEY), ..Saved::default() };
        let token = Some(Zeroizing::new("token".to_owned()));
        let (entropy, secrets) = ([self.processes; 32], secrets([self.processes; 32]));
        Machine::new(self.settings(), token, &saved, SigningKey::generate, entropy, secrets).unwrap()
    }

    fn perform(&mut self, shown: Option<&Identity>, action: Action) -> Input {
        match action {
            Action::Send(request) => self.registry.lock().unwrap().answer(shown, request),
            Action::Persist(records) => Input::Persisted(
                records.iter().try_for_each(|record| self.journal.save(&record.name, &record.content())),
            ),
            Action::WaitUntil(moment) => {
                self.now = self.now.max(moment);
                Input::Tick
            }
            _ => unreachable!("there is no round"),
        }
    }

    /// Runs until the task is over; the process dies at these actions. Returns the number of actions.
    fn run(&mut self, dies: impl Fn(usize) -> Option<Effect>) -> usize {
        let mut machine = self.start();
        let mut input = Input::Tick;
        for number in 0.. {
            assert!(number < 2000, "it does not come to an end");
            let action = machine.poll(input, Now { elapsed: self.now, wall: TODAY });
            if let Action::Finished(result) = action {
                result.unwrap();
                let own = leaf(&machine.identity().unwrap().certified.certificate_pem);
                let registry = self.registry.lock().unwrap();
                assert_eq!((registry.newest.as_ref(), registry.before.as_ref()), (Some(&own), None), "one that works");
                return number;
            }
            let shown = machine.presented().cloned();
            input = match dies(number) {
                None => self.perform(shown.as_deref(), action),
                Some(effect) => {
                    if effect == Effect::Whole {
                        self.perform(shown.as_deref(), action);
                    }
                    machine = self.start();
                    Input::Tick
                }
            };
        }
        unreachable!("the loop has no end")
    }
}

#[test]
fn a_participant_killed_at_every_step_of_a_renewal_has_one_certificate_that_works() {
    for registry in [Registry::default, Registry::pre_issued] {
        let actions = Device::new(registry()).run(|_| None);
        assert!(actions > 4 * RENEWALS, "{actions}");
        for at in 0..actions {
            for effect in [Effect::None, Effect::Whole] {
                let mut device = Device::new(registry());
                device.run(|number| (number == at).then_some(effect));
                let keys = &device.registry.lock().unwrap().used;
                let keys: std::collections::HashSet<_> =
                    keys.iter().map(|used| wire::certificate::holder(used).unwrap().key.0).collect();
                assert!(keys.len() > RENEWALS, "killed at {at}, {effect:?}: each renewal is for another key");
            }
        }
        // Again and again, too.
        for every in 5..12 {
            for effect in [Effect::None, Effect::Whole] {
                Device::new(registry()).run(|number| (number % every == every - 1).then_some(effect));
            }
        }
    }
}
