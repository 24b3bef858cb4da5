//! The federation of an audit: a coordinator and made-up participants in this process, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::participant::Event;
use client_sdk::participant::machine::{Action, Input, Settings};
use client_sdk::transport::Request;
use client_sdk::{PrivacyPolicy, SecurityPolicy};
use coordinator::random::Random;
use learning::{Layout, TensorSpec, checkpoint};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use task_spec::TaskSpec;
use wire::inspect::{PrivacyReport, RoundView};
use wire::{RoundState, TaskId, route};

use super::canary::{Canary, TIMES, place};
use super::plan::{Plan, PrivacyAudit};
use super::report::AuditStage;
use crate::SimulationError;
use crate::clock::VirtualClock;
use crate::in_process::{Advance, LocalCoordinator, Network, Participant, in_memory, signing_key};

/// The step of time while everybody waits.
const PAUSE: Duration = Duration::from_secs(5);
/// Steps after which a round counts as stuck.
const MOST_STEPS: u32 = 100_000;
/// Participants enrolled between two reports of progress.
const ENROLLED: u32 = 50;

/// The 32 bytes that seed a generator; from the system's randomness without a seed.
fn seed(seed: Option<u64>, purpose: u8, index: u32) -> Result<[u8; 32], SimulationError> {
    let Some(seed) = seed else {
        let random = Random::from_system();
        return random
            .map(|random| random.bytes())
            .map_err(|_| SimulationError::Coordinator("the system gives no randomness".to_owned()));
    };
    let mut bytes = [purpose; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..12].copy_from_slice(&index.to_le_bytes());
    bytes[12..20].copy_from_slice(b"audited.");
    Ok(bytes)
}

/// The federation.
pub(super) struct Federation {
    local: LocalCoordinator,
    clock: Arc<VirtualClock>,
    devices: Vec<Device>,
    /// Which canaries move their coordinate.
    pub(super) coins: Vec<bool>,
    layout: Arc<Layout>,
}

impl Federation {
    pub(super) async fn new(
        audit: &PrivacyAudit,
        plan: &Plan,
        progress: &mut dyn FnMut(AuditStage),
    ) -> Result<Self, SimulationError> {
        let clock = Arc::new(VirtualClock::default());
        let random = Random::new(ChaCha20Rng::from_seed(seed(audit.seed, 1, 0)?));
        let local = LocalCoordinator::start(&in_memory(), Arc::clone(&clock) as _, random).await?;
        let mut rng = ChaCha20Rng::from_seed(seed(audit.seed, 0, 0)?);
        let coins: Vec<bool> = (0..audit.participants).map(|_| rng.next_u32() >> 31 == 1).collect();
        let parameters = plan.report.parameters;
        let mut devices = Vec::with_capacity(coins.len());
        for (index, &is_in) in (0_u32..).zip(&coins) {
            #[expect(clippy::cast_possible_truncation, reason = "clipped anyway")]
            let by = if is_in { (TIMES * plan.clip) as f32 } else { 0.0 };
            let trainer = Canary { place: place(index as usize, audit.participants, parameters), by };
            let settings = Settings {
                wait: Duration::ZERO,
                security: SecurityPolicy { required: plan.task.secure_aggregation.enabled, ..SecurityPolicy::lowest() },
                privacy: PrivacyPolicy { required: true, lifetime: None, ..PrivacyPolicy::default() },
                members: local.members.clone(),
                ..Settings::default()
            };
            let token = local.enrollment_token(None).await?;
            let mut participant = Participant::default();
            let mut keys = ChaCha20Rng::from_seed(seed(audit.seed, 2, index)?);
            let secrets = Box::new(ChaCha20Rng::from_seed(seed(audit.seed, 3, index)?));
            let entropy = seed(audit.seed, 4, index)?;
            let started = participant.start(
                (audit.participant)(settings),
                Some(token),
                move || signing_key(&mut keys),
                entropy,
                secrets,
            );
            started.map_err(|error| ended(index, error))?;
            devices.push(Device { index, participant, trainer, input: Some(Input::Tick), wakes: Duration::ZERO });
            if (index + 1) % ENROLLED == 0 {
                progress(AuditStage::Enrolled(index + 1));
            }
        }
        let tensor = TensorSpec { name: "w".to_owned(), shape: vec![parameters as u64] };
        let layout = Layout::new(vec![tensor]).map_err(|error| SimulationError::Invalid(error.to_string()))?;
        Ok(Self { local, clock, devices, coins, layout: Arc::new(layout) })
    }

    pub(super) async fn create(&self, task: &TaskSpec) -> Result<TaskId, SimulationError> {
        self.local.create_task(task.clone()).await
    }

    /// Runs until this round is complete.
    pub(super) async fn complete(&mut self, task: TaskId, round: u32) -> Result<(), SimulationError> {
        let path = route::fill(route::ROUND, &[&task, &round]);
        let failed = |text: String| SimulationError::Coordinator(format!("round {round}: {text}"));
        for _ in 0..MOST_STEPS {
            let now = self.clock.participant_now();
            let mut has_moved = false;
            for device in &mut self.devices {
                has_moved |= device.go_on(&self.local.network, now).await?;
            }
            let steps = self.local.coordinator.engine.step_all().await;
            let steps = steps.map_err(|error| SimulationError::Coordinator(error.to_string()))?;
            if steps > 0 {
                let view: Option<RoundView> = self.local.network.look(&path).await?;
                match view.filter(|view| view.state.is_terminal()) {
                    Some(view) if view.state == RoundState::Completed => return Ok(()),
                    Some(view) => return Err(failed(format!("it ended as {:?}: {:?}", view.state, view.failure))),
                    None => {}
                }
            } else if !has_moved {
                self.clock.advance(self.clock.moment().plus(PAUSE));
            }
        }
        Err(failed("it does not end".to_owned()))
    }

    /// The values of a published version.
    pub(super) async fn model(&self, task: TaskId, version: u32) -> Result<Vec<f32>, SimulationError> {
        let file = self.local.network.download(&route::model_parameters(task, version)).await?;
        let model = checkpoint::read(&file, &self.layout);
        Ok(model.map_err(|error| SimulationError::Coordinator(error.to_string()))?.values().to_vec())
    }

    pub(super) async fn ledger(&self, task: TaskId) -> Result<PrivacyReport, SimulationError> {
        let ledger = self.local.network.look(&route::fill(route::TASK_PRIVACY, &[&task])).await?;
        ledger.ok_or_else(|| SimulationError::Coordinator("the copy has no ledger".to_owned()))
    }

    pub(super) async fn stop(self) {
        self.local.coordinator.stop().await;
    }
}

/// A made-up participant.
struct Device {
    index: u32,
    participant: Participant,
    trainer: Canary,
    input: Option<Input>,
    /// When it continues, since the beginning.
    wakes: Duration,
}

impl Device {
    /// Proceeds until it has to wait; returns whether it made progress.
    async fn go_on(&mut self, network: &Network, now: client_sdk::clock::Now) -> Result<bool, SimulationError> {
        let mut has_moved = false;
        while self.wakes <= now.elapsed {
            let input = self.input.take().unwrap_or(Input::Tick);
            let advance = self.participant.advance(input, now, Readiness::Ready);
            let Some(Advance { action, events, journaled }) = advance else { break };
            has_moved |= journaled;
            for event in events {
                match event {
                    Event::Refused { reason, .. } => return Err(ended(self.index, reason)),
                    Event::TrainingFailed { error, .. } => return Err(ended(self.index, error)),
                    _ => {}
                }
            }
            self.input = Some(match action {
                Action::Send(request) => {
                    let polls = matches!(request, Request::CheckIn(_) | Request::Announcement { .. });
                    let response = network.ask(self.participant.peer(), request).await.response;
                    let is_nothing_yet = polls && response.is_nothing_yet();
                    let input = Input::Response(response);
                    if is_nothing_yet {
                        self.input = Some(input);
                        return Ok(has_moved);
                    }
                    input
                }
                Action::Fetch { task, model, .. } => match network.fetch(self.participant.peer(), task, &model).await {
                    Ok(file) => Input::Given(file),
                    Err(error) => Input::Fetched { have: Vec::new(), result: Err(error) },
                },
                Action::Train(work) => Input::Trained(work.run(&mut self.trainer)),
                Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut self.trainer)),
                // The participant does them on the way.
                Action::Load(_) | Action::Persist(_) => Input::Tick,
                Action::WaitUntil(elapsed) => {
                    self.wakes = elapsed;
                    break;
                }
                Action::Finished(Ok(_)) => break,
                Action::Finished(Err(error)) => return Err(ended(self.index, error)),
            });
            has_moved = true;
        }
        Ok(has_moved)
    }
}

fn ended(index: u32, error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Participant { name: format!("canary {index}"), error: error.to_string() }
}
