//! A coordinator's facts without its sockets: rows and blobs are written like those of participants' requests.

use std::sync::Arc;
use std::time::Duration;

use aggregation::cpu::CpuAggregator;
use bytes::Bytes;
use coordinator::random::Random;
use coordinator::work::{Engine, Environment, FailPoint, NoFailPoint, WorkConfig};
use federation::cohort::CoarseLoss;
use federation::id::{Digest, ParticipantId, RoundKey, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{AssignmentState, FailureReason, Round, RoundState};
use federation::task_status::TaskStatus;
use federation::time::{Clock as _, MockClock, Timestamp};
use learning::{MetricValue, Update, Upload};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use recipe::{TaskModel, UpdateCodec};
use store::entity::admitted::Admitted;
use store::entity::check_in::CheckIn;
use store::entity::participant::ParticipantRow;
use store::entity::round::RoundRow;
use store::entity::task::TaskRow;
use store::{BlobStore as _, Blobs, Database, Store, StoreConfig};
use task_spec::TaskSpec;
use uuid::Uuid;

#[path = "faulty_blobs.rs"]
pub(crate) mod faulty_blobs;
pub(crate) use crate::support::die_at::DieAt;
use faulty_blobs::FaultyBlobs;

pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(30);

/// One transaction that must succeed.
macro_rules! change {
    ($store:expr, |$tx:ident| $body:block) => {
        $store.transact("test", |$tx| Box::pin(async move { Ok::<_, store::StoreError>($body) })).await.unwrap()
    };
}

/// One task, its participants and everything around them.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) blobs: Arc<FaultyBlobs>,
    pub(crate) clock: Arc<MockClock>,
    pub(crate) config: WorkConfig,
    pub(crate) task: TaskId,
    pub(crate) spec: TaskSpec,
    pub(crate) model: TaskModel,
    pub(crate) participants: Vec<ParticipantId>,
}

/// An unmasked task of three rounds with a cohort of all `participants`.
pub(crate) fn spec(participants: usize) -> TaskSpec {
    serde_json::from_value(serde_json::json!({
        "name": "world",
        "model": { "tensors": [
            { "name": "w", "shape": [5, 8], "init": { "uniform": { "bound": 0.5 } } },
            { "name": "b", "shape": [5] },
        ] },
        "rounds": { "count": 3, "select_max": 64 },
        "selection": { "cohort": { "count": participants }, "seed": 1 },
        "metrics": ["loss", "accuracy"],
        "secure_aggregation": { "enabled": false },
    }))
    .unwrap()
}

impl World {
    /// Three rounds, every participant in each.
    pub(crate) async fn new(participants: usize) -> Self {
        Self::with(participants, |_| {}).await
    }

    /// With a change to [`spec`].
    pub(crate) async fn with(participants: usize, change: impl FnOnce(&mut TaskSpec)) -> Self {
        let clock = Arc::new(MockClock::new(START));
        let config = StoreConfig {
            database: Database::SqliteMemory,
            blobs: Blobs::Memory,
            connections: 1,
            clock: Arc::clone(&clock) as _,
        };
        let store = Store::open(config).await.unwrap();
        let mut spec = spec(participants);
        change(&mut spec);
        let blobs = Arc::new(FaultyBlobs::over(Arc::clone(store.blobs())));
        let world = Self {
            blobs,
            clock,
            config: WorkConfig { fold_inputs: 2, lease_ttl: LEASE_TTL, ..WorkConfig::default() },
            task: TaskId(Uuid::from_u128(1)),
            model: TaskModel::new(&spec).unwrap(),
            participants: (1..=participants as u128).map(|n| ParticipantId(Uuid::from_u128(n))).collect(),
            spec,
            store,
        };
        world.create().await;
        world
    }

    /// With a model of additional parameters, processed in the shortest possible slices and ending within a byte.
    pub(crate) async fn in_slices(participants: usize, parameters: u64, change: impl FnOnce(&mut TaskSpec)) -> Self {
        let mut world = Self::with(participants, |spec| {
            spec.model.tensors[0].shape = vec![parameters];
            spec.aggregation.modulus_bits = 31;
            change(spec);
        })
        .await;
        world.config.slice_words = 1;
        assert!(world.model.codec.len() > 1 << 16 && world.model.codec.len() % 8 != 0);
        world
    }

    /// Stores the data of enrolment and `POST tasks`.
    async fn create(&self) {
        let initial = self.model.first_version(&self.spec).unwrap();
        let bytes = initial.len() as u64;
        let sha256 = self.blobs.put_bytes(initial.into()).await.unwrap();
        let task = TaskRow {
            id: self.task,
            spec: self.spec.clone(),
            status: TaskStatus::Active,
            parameters: self.model.tensors.shared.len() as u64,
            created_at: START,
            rounds_completed: 0,
            rounds_forfeited: 0,
            model_version: 0,
            promoted_version: None,
        };
        let version = ModelVersion {
            task: self.task,
            version: 0,
            sha256,
            bytes,
            round: None,
            parent: None,
            clip: None,
            optimizer_state: None,
            created_at: START,
        };
        let rows: Vec<_> = self.participants.iter().map(|id| participant_row(*id)).collect();
        let (task, version, rows) = (&task, &version, &rows);
        change!(self.store, |tx| {
            tx.insert_task(task).await?;
            tx.insert_model_version(version).await?;
            for row in rows {
                tx.insert_participant(row).await?;
            }
        });
    }

    /// An engine with its own random seed and no fail-points.
    pub(crate) fn engine(&self, seed: u64) -> Engine {
        self.engine_with(seed, Arc::new(NoFailPoint))
    }

    pub(crate) fn engine_with(&self, seed: u64, fail_point: Arc<dyn FailPoint>) -> Engine {
        let aggregator = Arc::new(CpuAggregator::new(1).unwrap());
        let clock = Arc::clone(&self.clock);
        let env = Environment::new(self.store.clone(), aggregator, clock, Random::from_seed(seed));
        let blobs = Arc::clone(&self.blobs) as _;
        Engine::new(Environment { blobs, config: self.config, fail_point, ..env })
    }

    /// An engine whose rows use another clock than the world's blobs.
    pub(crate) fn engine_by(&self, clock: Arc<MockClock>) -> Engine {
        let aggregator = Arc::new(CpuAggregator::new(1).unwrap());
        let env = Environment::new(self.store.clone(), aggregator, clock, Random::from_seed(1));
        Engine::new(Environment { blobs: Arc::clone(&self.blobs) as _, config: self.config, ..env })
    }

    /// Stores check-ins: ready for an hour.
    pub(crate) async fn check_in(&self, who: &[ParticipantId]) {
        self.check_in_telling(who, &vec![None; who.len()]).await;
    }

    /// The same, each with its reported training loss.
    pub(crate) async fn check_in_telling(&self, who: &[ParticipantId], losses: &[Option<CoarseLoss>]) {
        let now = self.clock.now();
        let rows: Vec<_> = who
            .iter()
            .zip(losses)
            .map(|(&participant, &loss)| CheckIn {
                loss,
                ..CheckIn::new(participant, self.task, 10, now, now.plus(Duration::from_secs(3600)))
            })
            .collect();
        let rows = &rows;
        change!(self.store, |tx| { tx.upsert_check_ins(rows).await? });
    }

    pub(crate) async fn check_in_all(&self) {
        self.check_in(&self.participants).await;
    }

    /// The latest attempt at round `number`.
    pub(crate) async fn round(&self, number: u32) -> RoundRow {
        let key = self.key(number);
        self.store
            .read("test", |tx| Box::pin(async move { tx.round(key).await }))
            .await
            .unwrap()
            .expect("the round was opened")
    }

    /// The latest attempt at the current round, if opened.
    pub(crate) async fn present(&self) -> Option<Round> {
        let key = self.key(self.task_row().await.rounds_completed + 1);
        let row = self.store.read("test", |tx| Box::pin(async move { tx.round(key).await })).await.unwrap();
        row.map(|row| row.round)
    }

    pub(crate) fn key(&self, number: u32) -> RoundKey {
        RoundKey { task: self.task, number }
    }

    pub(crate) async fn task_row(&self) -> TaskRow {
        let task = self.task;
        self.store.read("test", |tx| Box::pin(async move { tx.task(task).await })).await.unwrap().unwrap()
    }

    /// Published versions, oldest first.
    pub(crate) async fn versions(&self) -> Vec<ModelVersion> {
        let task = self.task;
        let versions = self.store.read("test", |tx| Box::pin(async move { tx.model_versions(task, None, 100).await }));
        versions.await.unwrap().into_iter().rev().collect()
    }

    /// Their digests, the result of training.
    pub(crate) async fn digests(&self) -> Vec<Digest> {
        self.versions().await.iter().map(|version| version.sha256).collect()
    }

    /// The cohort of the latest attempt, by state.
    pub(crate) async fn assignments(&self, number: u32) -> Vec<(ParticipantId, AssignmentState)> {
        let round = self.round(number).await.round;
        let rows = self.store.read("test", |tx| Box::pin(async move { tx.assignments(round.key, None, 100).await }));
        rows.await.unwrap().into_iter().map(|row| (row.participant, row.state)).collect()
    }

    /// The participants awaited by the open round, by id; empty unless it is collecting.
    pub(crate) async fn pending(&self) -> Vec<ParticipantId> {
        match self.present().await {
            Some(round) if round.state == RoundState::Collecting => {
                let assignments = self.assignments(round.key.round).await;
                assignments.into_iter().filter(|(_, state)| state.is_pending()).map(|(id, _)| id).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A participant's input for the open round: a function of the participant and the round's number alone.
    pub(crate) fn input(&self, participant: ParticipantId, number: u32) -> Bytes {
        let mut rng =
            ChaCha20Rng::seed_from_u64(u64::from(number) << 32 | u64::try_from(participant.0.as_u128()).unwrap());
        let mut uniform = || f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 - 0.5;
        let delta = (0..self.model.tensors.shared.len()).map(|_| uniform()).collect();
        let mut metrics = vec![
            MetricValue { value: f64::from(1.0 + uniform()), count: 10 },
            MetricValue { value: f64::from(0.5 + uniform()), count: 10 },
        ];
        let UpdateCodec::Plain(codec) = &self.model.codec else { panic!("the world has no privacy") };
        // Additional metrics are not measured.
        metrics.resize(codec.params().metrics, MetricValue::default());
        let update = Update { delta, examples: 10 + u64::from(rng.next_u32() % 90), metrics };
        match codec.encode(&update, None, &self.codec_seed(number), &mut rng).unwrap().upload {
            Upload::Words(update) => secure_agg::packing::pack(&update.words, self.model.modulus).into(),
            Upload::Bytes(update) => update.0.into(),
        }
    }

    /// The codec's seed in the first attempt at a round.
    pub(crate) fn codec_seed(&self, number: u32) -> [u8; 32] {
        self.model
            .encoding
            .compression
            .as_ref()
            .map_or([0; 32], |terms| recipe::digest::codec_seed(Some(terms), self.key(number).attempt(1)).0)
    }

    /// Stores an upload if the round accepts it: blob first, then the row.
    pub(crate) async fn report(&self, participant: ParticipantId) -> bool {
        let Some(round) = self.present().await else { return false };
        let input = self.input(participant, round.key.round);
        self.upload(participant, input).await
    }

    /// The same with other bytes.
    pub(crate) async fn upload(&self, participant: ParticipantId, input: Bytes) -> bool {
        let Some(round) = self.present().await else { return false };
        let bytes = input.len() as u64;
        let sha256 = self.blobs.put_bytes(input).await.unwrap();
        let accepted_at = self.clock.now();
        let attempt = round.key;
        let admitted = Admitted { attempt, participant, sha256, bytes, accepted_at, folded: false };
        change!(self.store, |tx| {
            let row = tx.round_attempt(attempt).await?;
            let pending = [AssignmentState::Assigned, AssignmentState::Working];
            row.is_some_and(|row| row.round.state == RoundState::Collecting)
                && tx
                    .set_assignment_state(attempt, participant, &pending, AssignmentState::Reported, accepted_at, None)
                    .await?
                && tx.insert_admitted(&[admitted]).await? == 1
        })
    }

    /// The participant abandons its place.
    pub(crate) async fn abandon(&self, participant: ParticipantId) {
        let Some(round) = self.present().await else { return };
        let now = self.clock.now();
        let attempt = round.key;
        change!(self.store, |tx| {
            let pending = [AssignmentState::Assigned, AssignmentState::Working];
            let to = AssignmentState::Abandoned;
            tx.set_assignment_state(attempt, participant, &pending, to, now, Some("conditions")).await?
        });
    }

    pub(crate) async fn report_all(&self) {
        for participant in self.pending().await {
            assert!(self.report(participant).await, "{participant}");
        }
    }

    pub(crate) async fn set_status(&self, from: TaskStatus, to: TaskStatus) {
        let (task, now) = (self.task, self.clock.now());
        let changed = change!(self.store, |tx| { tx.set_task_status(task, &[from], to, now, None).await? });
        assert!(changed, "the task was not {from}");
    }

    /// Stores the effects of `POST tasks/{task}/cancel`: the end of the task and of its current round.
    pub(crate) async fn cancel(&self) {
        let now = self.clock.now();
        let present = self.present().await;
        let (task, present) = (self.task, &present);
        change!(self.store, |tx| {
            tx.set_task_status(task, &[TaskStatus::Active], TaskStatus::Cancelled, now, None).await?;
            if let Some(before) = present.as_ref().filter(|round| !round.state.is_terminal()) {
                let after = Round { state: RoundState::Cancelled, state_since: now, ..before.clone() };
                assert!(tx.transition_round(before, &after).await?);
                let released = AssignmentState::Released;
                tx.set_pending_assignments(before.key, released, now).await?;
            }
        });
    }

    /// Another process takes the task's lease; returns its token.
    pub(crate) async fn hold_lease(&self, ttl: Duration) -> u64 {
        let (name, now) = (format!("round:{}", self.task), self.clock.now());
        let name = &name;
        let held = change!(self.store, |tx| { tx.acquire_lease(name, Uuid::from_u128(99), now, ttl).await? });
        held.expect("somebody holds it")
    }

    pub(crate) async fn release_lease(&self, token: u64) {
        let name = &format!("round:{}", self.task);
        assert!(change!(self.store, |tx| { tx.release_lease(name, token).await? }), "somebody else holds it");
    }

    /// Inputs in the partial sum of the first round.
    pub(crate) async fn folded(&self) -> u32 {
        let attempt = self.round(1).await.round.key;
        let sum = self.store.read("test", |tx| Box::pin(async move { tx.partial_sum(attempt).await }));
        sum.await.unwrap().map_or(0, |sum| sum.inputs)
    }

    /// Opens the round, checks all participants in and draws; returns the cohort.
    pub(crate) async fn start_round(&self, engine: &Engine) -> Vec<ParticipantId> {
        engine.step_all().await.unwrap();
        self.check_in_all().await;
        engine.step_all().await.unwrap();
        self.pending().await
    }

    /// Runs a whole round.
    pub(crate) async fn run_round(&self, engine: &Engine) {
        self.start_round(engine).await;
        self.report_all().await;
        engine.step_all().await.unwrap();
    }

    /// Asserts that the latest attempt ended as FAILED for this reason, and no participant is awaited.
    pub(crate) async fn assert_failed(&self, number: u32, reason: FailureReason) {
        let row = self.round(number).await;
        assert_eq!((row.round.state, row.round.failure), (RoundState::Failed, Some(reason)));
        assert!(row.ended_at.is_some());
        let assignments = self.assignments(number).await;
        assert!(assignments.iter().all(|(_, state)| !state.is_pending()), "{assignments:?}");
    }
}

fn participant_row(id: ParticipantId) -> ParticipantRow {
    let mut fingerprint = [0; 32];
    fingerprint[..16].copy_from_slice(id.0.as_bytes());
    ParticipantRow {
        id,
        name: format!("site-{}", id.0.as_u128()),
        labels: [("region".to_owned(), "eu".to_owned())].into(),
        enrolled_at: START,
        certificate_fingerprint: Digest(fingerprint),
        previous_fingerprint: None,
        certificate_expires_at: START.plus(Duration::from_secs(1 << 30)),
        revoked_at: None,
        last_seen_at: START,
    }
}
