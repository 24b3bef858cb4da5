//! One participant: the SDK's own machine, a journal in memory, and a trainer that returns a chosen update.

use std::collections::HashMap;
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::faults::Fault;
use client_sdk::identity::{Identity, IdentityError, SigningKey};
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::machine::{Action, Input, Machine, Request, Saved, Settings};
use client_sdk::privacy::PrivacySpent;
use client_sdk::{Event, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use coordinator::identity::Peer;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use wire::certificate::Issuers;
use wire::participant::Answer;
use zeroize::Zeroizing;

use crate::network::{Heard, Network};

/// An Ed25519 key in PKCS #8, version 1 (RFC 8410 §7), up to its 32 random bytes.
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Where in a round a participant disappears for good, after the cohort was drawn and before its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vanishes {
    /// Before it deals its key shares.
    BeforeSharing,
    /// When it is to train: it has dealt.
    InTraining,
    /// When its input was taken and it is to sign whose inputs are included; it may be brought back.
    BeforeSigning,
    /// When it is to answer, after it wrote down that it does: nobody else can know whether it was heard.
    BeforeAnswering,
}

/// What is to be known of a participant beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Character {
    /// By how much it moves the model, each time.
    pub(crate) update: Vec<f32>,
    pub(crate) fault: Option<Fault>,
    pub(crate) vanishes: Option<Vanishes>,
}

/// Chance from one seed: a stream for each purpose and participant.
pub(crate) fn stream(seed: u64, purpose: u8, index: usize) -> ChaCha20Rng {
    let mut key = [purpose; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    ChaCha20Rng::from_seed(key)
}

/// A participant.
pub(crate) struct Device {
    machine: Machine,
    journal: HashMap<String, Zeroizing<Vec<u8>>>,
    trainer: Moves,
    vanishes: Option<Vanishes>,
    peer: Option<Peer>,
    input: Option<Input>,
    /// When it wants to go on, since the beginning.
    wakes: Duration,
    pub(crate) is_gone: bool,
    /// Why it took no (further) part, each time.
    pub(crate) refusals: Vec<String>,
}

impl Device {
    /// Not enrolled yet.
    pub(crate) fn new(
        seed: u64,
        index: usize,
        token: String,
        members: Issuers,
        is_secure: bool,
        character: Character,
    ) -> Self {
        let settings = Settings {
            wait: Duration::ZERO,
            security: SecurityPolicy { required: is_secure, ..SecurityPolicy::lowest() },
            fault: character.fault,
            members,
            ..Settings::default()
        };
        let mut entropy = [0; 32];
        stream(seed, 1, index).fill_bytes(&mut entropy);
        let secrets = Box::new(stream(seed, 2, index));
        let token = Some(Zeroizing::new(token));
        let machine = Machine::new(settings, token, &Saved::default(), move || key(seed, index), entropy, secrets);
        Self {
            machine: machine.unwrap(),
            journal: HashMap::new(),
            trainer: Moves(character.update),
            vanishes: character.vanishes,
            peer: None,
            input: Some(Input::Tick),
            wakes: Duration::ZERO,
            is_gone: false,
            refusals: Vec::new(),
        }
    }

    /// Is there again, and stays.
    pub(crate) fn come_back(&mut self) {
        (self.is_gone, self.vanishes) = (false, None);
    }

    /// What it has spent on privacy, by its own ledgers.
    pub(crate) fn privacy_spent(&self) -> Vec<PrivacySpent> {
        self.machine.privacy_spent()
    }

    /// Goes on until it has to wait for somebody else or for later; whether anything came of it.
    pub(crate) async fn go_on(&mut self, network: &Network, now: Now) -> bool {
        let mut moved = false;
        while !self.is_gone && self.wakes <= now.elapsed {
            self.machine.set_examples(1);
            let action = self.machine.poll(self.input.take().unwrap_or(Input::Tick), now);
            for event in self.machine.take_events() {
                match event {
                    Event::Refused { reason, .. } => self.refusals.push(reason),
                    Event::TrainingFailed { .. } => panic!("{event:?}"),
                    _ => {}
                }
            }
            if self.vanishes_now(&action) {
                self.is_gone = true;
                break;
            }
            self.input = Some(match action {
                Action::Send(request) => {
                    let Heard { input, is_early } = network.ask(self.peer, request).await;
                    if is_early {
                        self.input = Some(input);
                        return moved;
                    }
                    input
                }
                Action::Fetch { task, model, .. } => network.fetch(self.peer, task, &model).await,
                Action::Train(work) => Input::Trained(work.run(&mut self.trainer)),
                Action::Load(name) => Input::Loaded(Ok(self.journal.get(&name).cloned())),
                Action::Persist(records) => {
                    for record in records.iter() {
                        self.journal.insert(record.name.clone(), record.content());
                    }
                    Input::Persisted(Ok(()))
                }
                Action::WaitUntil(elapsed) => {
                    self.wakes = elapsed;
                    break;
                }
                Action::Finished(result) => {
                    result.unwrap();
                    self.is_gone = true;
                    break;
                }
            });
            moved = true;
            if self.peer.is_none() {
                self.peer = self.machine.identity().map(|identity| peer(identity));
            }
        }
        moved
    }

    fn vanishes_now(&self, action: &Action) -> bool {
        match self.vanishes {
            Some(Vanishes::BeforeSharing) => {
                matches!(action, Action::Send(Request::Answer { what: Answer::KeyShares, .. }))
            }
            Some(Vanishes::InTraining) => matches!(action, Action::Train(_)),
            Some(Vanishes::BeforeSigning) => {
                matches!(action, Action::Send(Request::Answer { what: Answer::Consistency, .. }))
            }
            Some(Vanishes::BeforeAnswering) => {
                matches!(action, Action::Send(Request::Answer { what: Answer::UnmaskShares, .. }))
            }
            None => false,
        }
    }
}

fn peer(identity: &Identity) -> Peer {
    let certificate = CertificateDer::from_pem_slice(identity.certified.certificate_pem.as_bytes()).unwrap();
    Peer::from_certificate(&certificate).unwrap()
}

/// From the seed, so that tests can be repeated. No key that guards anything is made like this.
fn key(seed: u64, index: usize) -> Result<SigningKey, IdentityError> {
    let mut pkcs8 = [0; 48];
    pkcs8[..16].copy_from_slice(&PKCS8_ED25519);
    stream(seed, 3, index).fill_bytes(&mut pkcs8[16..]);
    SigningKey::from_pkcs8(&pkcs8)
}

/// Trains by adding the same to whatever it is given.
struct Moves(Vec<f32>);

impl Trainer for Moves {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().zip(&self.0).for_each(|(value, by)| *value += by);
        Ok(Trained { parameters, examples: 1, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        1
    }
}
