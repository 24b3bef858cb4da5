//! A whole federation in this process: the real coordinator over a database in memory, real participants, one seed and a
//! clock that only moves when nobody has anything left to do.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::clock::Now;
use coordinator::faults::{self, Fault};
use coordinator::random::Random;
use federation::time::{Clock as _, MockClock, Timestamp};
use learning::{Layout, NoisedSum, TensorSpec, checkpoint};
use serde_json::{Value, json};
use simulation::in_process::{LocalCoordinator, in_memory};
use tokio::sync::{Mutex, MutexGuard};
use wire::inspect::{PrivacyReport, RoundView};
use wire::{RoundKey, RoundState, TaskId, route};

use crate::device::{Character, Device};

/// When every test begins.
const START: Timestamp = Timestamp(1_750_000_000_000);
/// How far time moves when nothing else does.
const PAUSE: Duration = Duration::from_secs(5);

/// Faults are of the process, so there is one federation at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A federation.
pub(crate) struct Federation {
    _alone: MutexGuard<'static, ()>,
    local: LocalCoordinator,
    clock: Arc<MockClock>,
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
        let clock = Arc::new(MockClock::new(START));
        let mut config = in_memory();
        config.aggregation.threads = 1;
        let local = LocalCoordinator::start(&config, Arc::clone(&clock) as _, Random::from_seed(seed)).await.unwrap();
        let task = create(&local, "audited", parameters, spec).await;
        let is_secure = spec["secure_aggregation"]["enabled"] != json!(false);
        let mut devices = Vec::with_capacity(characters.len());
        for (index, character) in characters.into_iter().enumerate() {
            let token = local.enrollment_token(None).await.unwrap();
            devices.push(Device::new(seed, index, token, local.members.clone(), is_secure, character));
        }
        Self { _alone: alone, local, clock, devices, task, parameters }
    }

    /// Makes another task, which begins with the very same model.
    pub(crate) async fn create_again(&self, name: &str, spec: &Value) -> TaskId {
        create(&self.local, name, self.parameters, spec).await
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
        self.local.coordinator.engine.step_all().await.unwrap();
        for _ in 0..2_000 {
            let wall = self.clock.now();
            let now = Now { elapsed: wall.since(START), wall };
            let mut moved = false;
            for device in &mut self.devices {
                moved |= device.go_on(&self.local.network, now).await;
            }
            let steps = self.local.coordinator.engine.step_all().await.unwrap();
            if steps > 0 {
                let view: Option<RoundView> = self.local.network.look(&path).await.unwrap();
                if let Some(view) = view.filter(|view| view.state.is_terminal()) {
                    return view;
                }
            } else if !moved {
                self.clock.advance(PAUSE);
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
        let (key, store) = (RoundKey { task, number: round }, &self.local.coordinator.store);
        let row = store.read("audit", |tx| Box::pin(async move { tx.noised_sum(key.attempt(1)).await })).await.unwrap();
        NoisedSum::from_bytes(&store.blobs().get(row.unwrap().blob).await.unwrap()).unwrap()
    }

    /// A published version of the model.
    pub(crate) async fn model(&self, version: u32) -> Vec<f32> {
        let file = self.local.network.download(&route::model_parameters(self.task, version)).await.unwrap();
        let spec = TensorSpec { name: "w".to_owned(), shape: vec![self.parameters as u64] };
        let layout = Arc::new(Layout::new(vec![spec]).unwrap());
        checkpoint::read(&file, &layout).unwrap().values().to_vec()
    }

    /// What viewers are told about privacy.
    pub(crate) async fn ledger(&self) -> PrivacyReport {
        self.local.network.look(&route::fill(route::TASK_PRIVACY, &[&self.task])).await.unwrap().unwrap()
    }

    /// Ends the coordinator.
    pub(crate) async fn stop(self) {
        self.local.coordinator.stop().await;
    }
}

async fn create(local: &LocalCoordinator, name: &str, parameters: usize, spec: &Value) -> TaskId {
    let mut spec = spec.clone();
    spec["name"] = json!(name);
    spec["model"] = json!({ "tensors": [{ "name": "w", "shape": [parameters] }], "seed": 7 });
    spec["metrics"] = json!([]);
    local.create_task(serde_json::from_value(spec).unwrap()).await.unwrap()
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
