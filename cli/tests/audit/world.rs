//! A whole federation in this process: the real coordinator over a database in memory, real participants, one seed and a
//! clock that only moves when nobody has anything left to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client_sdk::clock::Now;
use coordinator::config::Config;
use coordinator::faults::{self, Fault};
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::time::{Clock, Timestamp};
use learning::{Layout, NoisedSum, TensorSpec, checkpoint};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use wire::admin::{EnrollmentTokenReply, Role};
use wire::certificate::Issuers;
use wire::inspect::{PrivacyReport, RoundView, TaskView};
use wire::{RoundKey, RoundState, TaskId, route};

use crate::device::{Character, Device};
use crate::network::Network;

/// When every test begins.
const START: Timestamp = Timestamp(1_750_000_000_000);
/// How far time moves when nothing else does.
const PAUSE_MS: u64 = 5_000;
/// Requests per second that one peer may make: they are all ours.
const RATE: u32 = 1_000_000;

/// Milliseconds since the beginning.
#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl TestClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        START.plus(self.elapsed())
    }
}

/// Faults are of the process, so there is one federation at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A federation.
pub(crate) struct Federation {
    _alone: MutexGuard<'static, ()>,
    coordinator: Coordinator,
    clock: Arc<TestClock>,
    network: Network,
    pub(crate) devices: Vec<Device>,
    pub(crate) task: TaskId,
    parameters: usize,
}

impl Federation {
    /// Makes the task, whose model is one vector that begins at zero, and has everybody enrol.
    pub(crate) async fn new(
        seed: u64,
        parameters: usize,
        spec: &Value,
        fault: Option<Fault>,
        characters: Vec<Character>,
    ) -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        faults::set(fault);
        let clock = Arc::new(TestClock::default());
        let parts = Parts { clock: Arc::clone(&clock) as _, random: Random::from_seed(seed) };
        let coordinator = Coordinator::assemble(&config(), parts).await.unwrap();
        let token = coordinator.create_operator_token("auditor", Role::Admin).await.unwrap().token;
        let network = Network::new(coordinator.router.clone(), token);
        let task = create(&network, "audited", parameters, spec).await;
        let is_secure = spec["secure_aggregation"]["enabled"] != json!(false);
        let mut devices = Vec::with_capacity(characters.len());
        let members = Issuers::from_pem(coordinator.ca_pem()).unwrap();
        for (index, character) in characters.into_iter().enumerate() {
            let token: EnrollmentTokenReply = network.make(route::ENROLLMENT_TOKENS, &json!({})).await;
            devices.push(Device::new(seed, index, token.token, members.clone(), is_secure, character));
        }
        Self { _alone: alone, coordinator, clock, network, devices, task, parameters }
    }

    /// Makes another task, which begins with the very same model.
    pub(crate) async fn create_again(&self, name: &str, spec: &Value) -> TaskId {
        create(&self.network, name, self.parameters, spec).await
    }

    /// Runs until this round has ended, and it must have ended well.
    pub(crate) async fn complete(&mut self, round: u32) -> RoundView {
        let view = self.end(self.task, round, 1).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None), "{view:?}");
        for device in &self.devices {
            assert_eq!(device.refusals, [""; 0], "nobody has a reason for not taking part");
        }
        view
    }

    /// Runs until this attempt at a round has ended.
    pub(crate) async fn end(&mut self, task: TaskId, round: u32, attempt: u32) -> RoundView {
        let path = format!("{}?attempt={attempt}", route::fill(route::ROUND, &[&task, &round]));
        self.coordinator.engine.step_all().await.unwrap();
        for _ in 0..2_000 {
            let elapsed = self.clock.elapsed();
            let now = Now { elapsed, wall: START.plus(elapsed) };
            let mut moved = false;
            for device in &mut self.devices {
                moved |= device.go_on(&self.network, now).await;
            }
            let steps = self.coordinator.engine.step_all().await.unwrap();
            if steps > 0 {
                let view: Option<RoundView> = self.network.find(&path).await;
                if let Some(view) = view.filter(|view| view.state.is_terminal()) {
                    return view;
                }
            } else if !moved {
                self.clock.0.fetch_add(PAUSE_MS, Ordering::SeqCst);
            }
        }
        panic!("round {round} does not come to an end");
    }

    /// The sum that a round released.
    pub(crate) async fn released(&self, round: u32) -> NoisedSum {
        self.released_by(self.task, round).await
    }

    /// The same of another task.
    pub(crate) async fn released_by(&self, task: TaskId, round: u32) -> NoisedSum {
        let (key, store) = (RoundKey { task, number: round }, &self.coordinator.store);
        let row = store.read("audit", |tx| Box::pin(async move { tx.noised_sum(key.attempt(1)).await })).await.unwrap();
        NoisedSum::from_bytes(&store.blobs().get(row.unwrap().blob).await.unwrap()).unwrap()
    }

    /// A published version of the model.
    pub(crate) async fn model(&self, version: u32) -> Vec<f32> {
        let file = self.network.download(&route::model_parameters(self.task, version)).await;
        let spec = TensorSpec { name: "w".to_owned(), shape: vec![self.parameters as u64] };
        let layout = Arc::new(Layout::new(vec![spec]).unwrap());
        checkpoint::read(&file, &layout).unwrap().values().to_vec()
    }

    /// What viewers are told about privacy.
    pub(crate) async fn ledger(&self) -> PrivacyReport {
        self.network.look(&route::fill(route::TASK_PRIVACY, &[&self.task])).await
    }

    /// Ends the coordinator.
    pub(crate) async fn stop(self) {
        self.coordinator.stop().await;
    }
}

async fn create(network: &Network, name: &str, parameters: usize, spec: &Value) -> TaskId {
    let mut spec = spec.clone();
    spec["name"] = json!(name);
    spec["model"] = json!({ "tensors": [{ "name": "w", "shape": [parameters] }], "seed": 7 });
    spec["metrics"] = json!([]);
    let task: TaskView = network.make(route::TASKS, &json!({ "spec": spec })).await;
    task.summary.id
}

/// What is left of a released sum without the exact one, in units of the grid.
pub(crate) fn residual(released: &NoisedSum, exact: &NoisedSum) -> Vec<f64> {
    assert_eq!((released.words().len(), released.participants()), (exact.words().len(), exact.participants()));
    let half = 1_i64 << (released.modulus_bits() - 1);
    let centred = |word: i64| (word + half).rem_euclid(2 * half) - half;
    let pairs = released.words().iter().zip(exact.words());
    pairs.map(|(&noised, &exact)| centred(i64::from(noised) - i64::from(exact)) as f64).collect()
}

/// Standard deviation, in units of the grid, that a row of the ledger says the noise in its sum has.
pub(crate) fn charged_sigma(parameters: &Value) -> f64 {
    let noise = &parameters["sum"]["noise"];
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("no number in {parameters}"));
    if let Some(gaussian) = noise.get("discrete_gaussian") {
        number(&gaussian["sigma"])
    } else if let Some(shares) = noise.get("discrete_gaussian_shares") {
        number(&shares["sigma"]) * number(&shares["shares"]).sqrt()
    } else {
        number(&noise["skellam"]["variance"]).sqrt()
    }
}

/// Everything in memory, and nobody slowed down.
fn config() -> Config {
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".to_owned();
    config.blobs.url = "memory:".to_owned();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    config.aggregation.device = "cpu".to_owned();
    config.aggregation.threads = 1;
    config.http.participant_rate = RATE;
    config.http.operator_rate = RATE;
    config.http.address_rate = RATE;
    config.http.check_ins_per_second = RATE;
    config
}
