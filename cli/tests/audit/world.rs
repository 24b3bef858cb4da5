//! A whole federation in this process: the real coordinator over a database in memory or on PostgreSQL, real participants, one seed
//! and a clock that only moves when all participants are idle. On PostgreSQL the coordinator uses the database's clock.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::clock::Now;
use coordinator::config::Config;
use coordinator::faults::{self, Fault};
use coordinator::random::Random;
use coordinator::work::StepError;
use federation::time::{Clock as _, MockClock, Timestamp};
use learning::{Layout, NoisedSum, TensorSpec, checkpoint};
use serde_json::{Value, json};
use simulation::in_process::{LocalCoordinator, in_memory};
use test_servers::postgres::Cluster;
use tokio::sync::{Mutex, MutexGuard};
use wire::inspect::{PrivacyReport, RoundView};
use wire::{RoundKey, RoundState, TaskId, route};

use crate::device::{Character, Device};

/// When every test begins.
const START: Timestamp = Timestamp(1_750_000_000_000);
/// The step of time while the federation is idle.
const PAUSE: Duration = Duration::from_secs(5);
/// The real pause of an idle step on PostgreSQL, which has a clock of its own.
const REAL_PAUSE: Duration = Duration::from_millis(20);
/// A coordinator reads the database's clock again after 10 seconds.
const UNTIL_READ: Duration = Duration::from_secs(11);

/// Faults are of the process, so there is one federation at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Where a coordinator's rows are.
pub(crate) enum Rows {
    /// In SQLite's memory. The test owns the coordinator's time.
    Memory,
    /// In a database of this name on the shared PostgreSQL server.
    Postgres(&'static Cluster, String),
}

impl Rows {
    /// An empty PostgreSQL database, whose clock a test can set ahead. `None` without PostgreSQL: the test is skipped.
    pub(crate) fn on_postgres() -> Option<Self> {
        let cluster = Cluster::shared()?;
        let rows = Self::Postgres(cluster, cluster.create_database());
        rows.set_clock_ahead(Duration::ZERO);
        Some(rows)
    }

    /// The configuration of a coordinator with these rows, and all else in memory.
    pub(crate) fn config(&self) -> Config {
        let mut config = in_memory();
        if let Self::Postgres(cluster, database) = self {
            config.database.url = cluster.url(database);
        }
        config
    }

    /// Sets the database's clock, if it has one, ahead of this machine's.
    fn set_clock_ahead(&self, by: Duration) {
        let Self::Postgres(cluster, database) = self else { return };
        // Takes the place of the function of this name that every database has.
        let clock = format!(
            "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
                 $$SELECT pg_catalog.clock_timestamp() + interval '{} seconds'$$;
             ALTER DATABASE {database} SET search_path = public, pg_catalog",
            by.as_secs()
        );
        cluster.sql(database, &clock);
    }
}

/// A federation.
pub(crate) struct Federation {
    _alone: MutexGuard<'static, ()>,
    local: LocalCoordinator,
    rows: Rows,
    /// The devices' clock; with rows in memory also the coordinator's.
    clock: Arc<MockClock>,
    /// The coordinator's time at [`START`].
    began: Timestamp,
    pub(crate) devices: Vec<Device>,
    pub(crate) task: TaskId,
    /// How far the coordinator's clock has jumped ahead of the devices' clocks.
    jumped: Duration,
    parameters: usize,
}

impl Federation {
    /// Makes the task, whose model is one vector that starts at zero, and enrols all participants.
    pub(crate) async fn new(
        seed: u64,
        parameters: usize,
        spec: &Value,
        fault: Option<Fault>,
        characters: Vec<Character>,
    ) -> Self {
        Self::on(Rows::Memory, in_memory(), seed, parameters, spec, fault, characters).await
    }

    /// The same with these rows, and the other settings of their configuration.
    pub(crate) async fn on(
        rows: Rows,
        mut config: Config,
        seed: u64,
        parameters: usize,
        spec: &Value,
        fault: Option<Fault>,
        characters: Vec<Character>,
    ) -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        faults::set(fault);
        let clock = Arc::new(MockClock::new(START));
        config.aggregation.threads = 1;
        let local = LocalCoordinator::start(&config, Arc::clone(&clock) as _, Random::from_seed(seed)).await.unwrap();
        let began = local.coordinator.now();
        let task = create(&local, "audited", parameters, spec).await;
        let is_secure = spec["secure_aggregation"]["enabled"] != json!(false);
        let mut devices = Vec::with_capacity(characters.len());
        for (index, character) in characters.into_iter().enumerate() {
            let token = local.enrollment_token(None).await.unwrap();
            devices.push(Device::new(seed, index, token, local.members.clone(), is_secure, character));
        }
        Self { _alone: alone, local, rows, clock, began, devices, task, jumped: Duration::ZERO, parameters }
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

    /// Sets the coordinator's clock ahead, and not the devices'.
    pub(crate) async fn jump(&mut self, by: Duration) {
        if let Rows::Memory = self.rows {
            self.clock.advance(by);
            self.jumped += by;
            return;
        }
        self.rows.set_clock_ahead(by);
        tokio::time::pause();
        tokio::time::advance(UNTIL_READ).await;
        tokio::time::resume();
    }

    /// Lets time pass while the federation is idle.
    async fn pass(&self) {
        self.clock.advance(PAUSE);
        if let Rows::Postgres(..) = self.rows {
            tokio::time::sleep(REAL_PAUSE).await;
        }
    }

    /// Takes every step of the coordinator that can be taken now; returns their number.
    async fn step_all(&self) -> usize {
        match self.local.coordinator.engine.step_all().await {
            // The database's clock has jumped, and the coordinator's is set by it.
            Err(StepError::ClockOff) => 0,
            steps => steps.unwrap(),
        }
    }

    /// Runs until this attempt at a round has ended.
    pub(crate) async fn end(&mut self, task: TaskId, round: u32, attempt: u32) -> RoundView {
        self.end_after(task, round, attempt, None, async |_| true).await
    }

    /// The same. In this state of the round, `happens` is called each time after the devices and before the coordinator work,
    /// until it returns true.
    pub(crate) async fn end_after(
        &mut self,
        task: TaskId,
        round: u32,
        attempt: u32,
        mut state: Option<RoundState>,
        happens: impl AsyncFn(&mut Self) -> bool,
    ) -> RoundView {
        let path = format!("{}?attempt={attempt}", route::fill(route::ROUND, &[&task, &round]));
        self.step_all().await;
        for _ in 0..2_000 {
            let mut moved = self.devices_go_on().await;
            if state.is_some() {
                let view: Option<RoundView> = self.local.network.look(&path).await.unwrap();
                if view.is_some_and(|view| Some(view.state) == state) && happens(self).await {
                    state = None;
                    moved = true;
                }
            }
            let steps = self.step_all().await;
            if steps > 0 {
                let view: Option<RoundView> = self.local.network.look(&path).await.unwrap();
                if let Some(view) = view.filter(|view| view.state.is_terminal()) {
                    return view;
                }
            } else if !moved {
                self.pass().await;
            }
        }
        panic!("round {round} does not come to an end");
    }

    /// Runs each participant until it waits. Returns whether any of them made progress.
    async fn devices_go_on(&mut self) -> bool {
        let elapsed = self.clock.now().since(START).saturating_sub(self.jumped);
        let now = Now { elapsed, wall: self.began.plus(elapsed) };
        let mut moved = false;
        for device in &mut self.devices {
            moved |= device.go_on(&self.local.network, now).await;
        }
        moved
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

    /// The privacy report for viewers.
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

/// The difference between a released sum and the exact one, in units of the grid.
pub(crate) fn residual(released: &NoisedSum, exact: &NoisedSum) -> Vec<f64> {
    assert_eq!((released.words().len(), released.participants()), (exact.words().len(), exact.participants()));
    let half = 1_i64 << (released.modulus_bits() - 1);
    let centred = |word: i64| (word + half).rem_euclid(2 * half) - half;
    let pairs = released.words().iter().zip(exact.words());
    pairs.map(|(&noised, &exact)| centred(i64::from(noised) - i64::from(exact)) as f64).collect()
}

/// Standard deviation of the noise in the sum of a ledger row, in units of the grid.
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
