//! A participant is killed at every action of its enrolment and its renewals, before and after the action took effect: it comes back with
//! one valid certificate, issued by the coordinator or elsewhere.

use std::sync::{Arc, Mutex};

use client_sdk::PreIssued;
use client_sdk::identity::Identity;
use client_sdk::journal::MemoryJournal;
use client_sdk::participant::machine::Settings;
use client_sdk::pre_issued::Certificates;
use client_sdk::transport::{Request, Response, TransportError};
use wire::Timestamp;
use wire::certificate::chain_der;
use wire::participant::{CheckInReply, EnrollReply};
use wire::problem::ProblemType;

use crate::support::device::Effect;
use crate::support::link::{FakeCoordinator, problem};
use crate::support::trainers::Nudge;
use crate::support::{CA, in_the_clear, participant, task};

type Device = crate::support::device::Device<Shared, Nudge>;

const RENEWALS: usize = 3;
const DAY_MS: u64 = 24 * 3_600_000;

type Der = Vec<u8>;

fn leaf(chain_pem: &str) -> Der {
    chain_der(chain_pem).unwrap().remove(0)
}

/// What the coordinator knows of the participant's certificates.
#[derive(Default)]
struct Registry {
    /// The certificate shown with the answered request.
    shown: Option<Der>,
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
    fn admits(&mut self) -> Result<Der, TransportError> {
        let shown = self.shown.clone();
        if shown.is_some() && shown == self.newest {
            self.before = None;
        } else if shown.is_none() || shown != self.before {
            return problem(ProblemType::Unauthenticated);
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

    fn answer(&mut self, request: Request) -> Response {
        match request {
            Request::Enroll(request) => {
                let chain = Self::certificate(request.csr_pem.as_ref(), request.certificate_pem.as_ref());
                let key = wire::certificate::holder(&leaf(&chain)).unwrap().key.0.to_vec();
                assert!(self.enrolled.as_ref().is_none_or(|enrolled| *enrolled == key), "the token was used");
                (self.enrolled, self.newest) = (Some(key), Some(leaf(&chain)));
                Response::Enrolled(Ok(self.reply(chain)))
            }
            Request::Renew(request) => Response::Renewed(self.admits().map(|shown| {
                let chain = Self::certificate(request.csr_pem.as_ref(), request.certificate_pem.as_ref());
                (self.before, self.newest) = (Some(shown), Some(leaf(&chain)));
                self.reply(chain)
            })),
            Request::CheckIn(_) => Response::CheckedIn(self.admits().map(|shown| {
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
                    CheckInReply::TaskOver { task: task(), model: None }
                } else {
                    CheckInReply::ComeBack { after_ms: DAY_MS, waiting_for: vec![] }
                }
            })),
            _ => unreachable!("there is no round"),
        }
    }
}

/// The registry, shared with device management.
#[derive(Clone)]
struct Shared(Arc<Mutex<Registry>>);

impl FakeCoordinator for Shared {
    fn answer(&self, request: Request) -> Response {
        self.0.lock().unwrap().answer(request)
    }

    fn identify(&self, identity: Option<&Identity>) {
        self.0.lock().unwrap().shown = identity.map(|identity| leaf(&identity.certified.certificate_pem));
    }
}

fn fresh(registry: Registry) -> Device {
    let is_pre_issued = registry.issued.is_some();
    let registry = Shared(Arc::new(Mutex::new(registry)));
    let Shared(shared) = registry.clone();
    let read = move || {
        let mut registry = shared.lock().unwrap();
        let mistaken = registry.mistaken.take();
        let (chain, key) = mistaken.unwrap_or_else(|| registry.issued.as_ref().unwrap().last().unwrap().clone());
        PreIssued::from_pem(chain, &key)
    };
    let certificates = if is_pre_issued { Certificates::new(read) } else { Certificates::default() };
    let settings = Settings { certificates, ..in_the_clear() };
    Device::with(Arc::new(MemoryJournal::new()), 0, registry, Nudge::default(), settings)
}

/// Runs until the task is over; the process dies at these actions. Returns the number of actions.
fn run(device: &mut Device, dies: impl Fn(usize) -> Option<Effect>) -> usize {
    let actions = device.run(2000, dies);
    assert!(actions < 2000, "it does not come to an end");
    let own = leaf(&device.machine.identity().unwrap().certified.certificate_pem);
    let registry = device.coordinator.0.lock().unwrap();
    assert_eq!((registry.newest.as_ref(), registry.before.as_ref()), (Some(&own), None), "one that works");
    actions
}

#[test]
fn a_participant_killed_at_every_step_of_a_renewal_has_one_certificate_that_works() {
    for registry in [Registry::default, Registry::pre_issued] {
        let actions = run(&mut fresh(registry()), |_| None);
        assert!(actions > 4 * RENEWALS, "{actions}");
        for at in 0..actions {
            for effect in [Effect::None, Effect::Whole] {
                let mut device = fresh(registry());
                run(&mut device, |number| (number == at).then_some(effect));
                let keys = &device.coordinator.0.lock().unwrap().used;
                let keys: std::collections::HashSet<_> =
                    keys.iter().map(|used| wire::certificate::holder(used).unwrap().key.0).collect();
                assert!(keys.len() > RENEWALS, "killed at {at}, {effect:?}: each renewal is for another key");
            }
        }
        // Again and again, too.
        for every in 5..12 {
            for effect in [Effect::None, Effect::Whole] {
                run(&mut fresh(registry()), |number| (number % every == every - 1).then_some(effect));
            }
        }
    }
}
