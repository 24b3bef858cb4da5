//! One participant with a character: which update its trainer returns, which promise it breaks, and where it disappears.

use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::faults::Fault;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::machine::{Action, Input, Machine, Settings};
use client_sdk::privacy::PrivacySpent;
use client_sdk::transport::Request;
use client_sdk::{Event, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use simulation::in_process::{Advance, Network, Participant, signing_key};
use wire::certificate::Issuers;
use wire::participant::Answer;
use zeroize::Zeroizing;

/// Where in a round a participant disappears for good, after the cohort was drawn and before its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vanishes {
    /// Before it deals its key shares.
    BeforeSharing,
    /// When it is to train: it has dealt.
    InTraining,
    /// When its input was taken and it is to sign whose inputs are included; it may be brought back.
    BeforeSigning,
    /// When it must answer, after recording that it does: only it knows whether the answer was delivered.
    BeforeAnswering,
}

/// Fixed properties of a participant.
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
    participant: Participant,
    trainer: Moves,
    vanishes: Option<Vanishes>,
    input: Option<Input>,
    /// When it wants to go on, since the beginning.
    wakes: Duration,
    pub(crate) is_gone: bool,
    /// The reasons for its refusals, in order.
    pub(crate) refusals: Vec<String>,
}

impl Device {
    /// Not enrolled yet.
    pub(crate) fn new(
        seed: u64,
        index: usize,
        token: Zeroizing<String>,
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
        let key = move || signing_key(&mut stream(seed, 3, index));
        let mut participant = Participant::default();
        participant.start(settings, Some(token), key, entropy, secrets).unwrap();
        participant.machine_mut().unwrap().set_examples(1);
        Self {
            participant,
            trainer: Moves(character.update),
            vanishes: character.vanishes,
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

    /// Its spending on privacy, by its own ledgers.
    pub(crate) fn privacy_spent(&self) -> Vec<PrivacySpent> {
        self.participant.machine().map_or_else(Vec::new, Machine::privacy_spent)
    }

    /// Proceeds until it has to wait; returns whether it made progress.
    pub(crate) async fn go_on(&mut self, network: &Network, now: Now) -> bool {
        let mut moved = false;
        while !self.is_gone && self.wakes <= now.elapsed {
            let input = self.input.take().unwrap_or(Input::Tick);
            let advance = self.participant.advance(input, now, Readiness::Ready);
            let Some(Advance { action, events, journaled }) = advance else { break };
            moved |= journaled;
            for event in events {
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
                    let polls = matches!(request, Request::CheckIn(_) | Request::Announcement { .. });
                    let response = network.ask(self.participant.peer(), request).await.response;
                    let is_nothing_yet = polls && response.is_nothing_yet();
                    let input = Input::Response(response);
                    if is_nothing_yet {
                        self.input = Some(input);
                        return moved;
                    }
                    input
                }
                Action::Fetch { task, model, .. } => match network.fetch(self.participant.peer(), task, &model).await {
                    Ok(file) => Input::Given(file),
                    Err(error) => Input::Fetched { have: Vec::new(), result: Err(error) },
                },
                Action::Train(work) => Input::Trained(work.run(&mut self.trainer)),
                Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut self.trainer)),
                Action::Load(_) | Action::Persist(_) => unreachable!("done on the way"),
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

/// Trains by adding the same to every model.
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
