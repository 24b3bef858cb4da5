//! A task under secure aggregation with all its participants. All their messages go through the router.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregation::cpu::CpuAggregator;
use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::seal::Sealer;
use coordinator::work::{Engine, Environment, FailPoint, NoFailPoint, StepError, WorkConfig};
use federation::id::{ParticipantId, RoundKey, TaskId};
use federation::round::{FailureReason, RoundState};
use learning::NoisedSum;
use recipe::TaskModel;
use secure_agg::client::Client;
use serde_json::{Value, json};
use task_spec::TaskSpec;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use wire::inspect::{AssignmentView, Page, RoundView};

use super::die_at::DieAt;
use super::member::{Member, words};
use super::{TestCoordinator, config};

/// Longer than any phase of [`spec`].
pub(crate) const PHASE: Duration = Duration::from_secs(600);
/// Longer than a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(31);

/// A task whose cohort is all of `participants`.
pub(crate) fn spec(participants: usize) -> Value {
    json!({
        "name": "secure",
        "model": { "tensors": [{ "name": "w", "shape": [3], "init": { "uniform": { "bound": 0.5 } } }], "seed": 7 },
        "rounds": { "count": 2, "select_max": participants.max(8), "collect_min": 3 },
        "selection": { "cohort": { "count": participants }, "seed": 1 },
        "metrics": ["loss"],
        "secure_aggregation": {
            "share_deadline_ms": 600_000, "confirm_deadline_ms": 600_000, "unmask_deadline_ms": 600_000,
        },
    })
}

/// Stores release keys and ends of ledgers in a bucket, and creates the required keys of a coordinator in `folder`.
pub(crate) fn keep_in_bucket(config: &mut Config, server: &S3Server, folder: &Path) {
    let at = |name: &str| folder.join(name);
    std::fs::write(at("s3"), format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"))
        .unwrap();
    std::fs::write(at("seal.key"), [5; 32]).unwrap();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    config.identity.seal_key_file = Some(at("seal.key"));
    config.identity.seal_url =
        Some(format!("s3://{BUCKET}/apart?endpoint={}&credentials_file={}", server.endpoint(), at("s3").display()));
}

/// The point at which a participant falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drops {
    Keys,
    Shares,
    Input,
    Signature,
    Answer,
    Never,
}

/// A coordinator, a task and its participants.
pub(crate) struct World {
    pub(crate) t: TestCoordinator,
    pub(crate) config: Config,
    pub(crate) task: TaskId,
    pub(crate) model: TaskModel,
    /// In the order of ids, also that of the roster.
    pub(crate) members: Vec<Member>,
    restarts: u64,
    /// The persistent files; `None` if all is in memory.
    pub(crate) folder: Option<tempfile::TempDir>,
}

impl World {
    /// Everything in memory.
    pub(crate) async fn new(participants: usize) -> Self {
        Self::with(participants, |_| {}).await
    }

    /// With a change to [`spec`].
    pub(crate) async fn with(participants: usize, change: impl FnOnce(&mut Value)) -> Self {
        Self::build(participants, config(), None, change).await
    }

    /// With its own configuration, in memory.
    pub(crate) async fn with_config(participants: usize, config: Config, change: impl FnOnce(&mut Value)) -> Self {
        Self::build(participants, config, None, change).await
    }

    pub(crate) async fn on_disk(participants: usize, change: impl FnOnce(&mut Value)) -> Self {
        let (config, folder) = Self::place();
        Self::build(participants, config, Some(folder), change).await
    }

    /// The same with release keys and ends of ledgers in a bucket, and a given sealing key.
    pub(crate) async fn in_bucket(participants: usize, server: &S3Server, change: impl FnOnce(&mut Value)) -> Self {
        let (mut config, folder) = Self::place();
        keep_in_bucket(&mut config, server, folder.path());
        Self::build(participants, config, Some(folder), change).await
    }

    /// A configuration with rows, blobs and keys in a folder.
    pub(crate) fn place() -> (Config, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut config = config();
        config.database.url = format!("sqlite:{}", at("rows.db").display());
        config.blobs.url = format!("file:{}", at("blobs").display());
        config.identity.ca_certificate_file = at("ca.pem");
        config.identity.ca_key_file = at("ca-key.pem");
        config.identity.seal_key_file = Some(at("seal.key"));
        (config, folder)
    }

    async fn build(
        participants: usize,
        mut config: Config,
        folder: Option<tempfile::TempDir>,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        config.http.address_rate = 10_000;
        let t = TestCoordinator::with(&config).await;
        let mut written = spec(participants);
        change(&mut written);
        let task = t.create_task(&written).await;
        let stored = t.inner.store.read("test", |tx| Box::pin(async move { tx.task(task).await }));
        let spec: TaskSpec = stored.await.unwrap().unwrap().spec;
        let mut members = Vec::new();
        for seed in 1..=participants {
            members.push(Member::enroll(&t, u8::try_from(seed).unwrap()).await);
        }
        members.sort_by_key(|member| member.id);
        Self { t, config, task, model: TaskModel::new(&spec).unwrap(), members, restarts: 0, folder }
    }

    /// Kills the coordinator and starts it again over the same files.
    pub(crate) async fn restart(&mut self) {
        self.restarts += 1;
        self.t.restart(&self.config, 100 + self.restarts).await;
    }

    /// Replaces the lost sealing key with another one.
    pub(crate) fn lose_seal_key(&self) {
        std::fs::write(self.config.identity.seal_key_file().unwrap(), [9; 32]).unwrap();
    }

    /// The path of a task's ledger end, in a folder.
    pub(crate) fn end_of(&self, task: TaskId) -> PathBuf {
        self.folder.as_ref().unwrap().path().join("seal.ledgers").join(task.0.simple().to_string())
    }

    /// Changes the end of a task's ledger, like a holder of the sealing key.
    pub(crate) fn change_end(&self, task: TaskId, change: impl FnOnce(&mut Value)) {
        self.copy_end(task, task, change);
    }

    /// The same for another task.
    pub(crate) fn copy_end(&self, from: TaskId, task: TaskId, change: impl FnOnce(&mut Value)) {
        let mut end: Value = serde_json::from_slice(&std::fs::read(self.end_of(from)).unwrap()[64..]).unwrap();
        change(&mut end);
        let text = serde_json::to_vec(&end).unwrap();
        let sealer = Sealer::open(&self.config.identity.seal_key_file().unwrap(), &Random::from_seed(1)).unwrap();
        let mac = sealer.mac(task.0.as_bytes(), &[b"tributary privacy ledger end 1\0", text.as_slice()].concat());
        std::fs::write(self.end_of(task), [hex::encode(mac).into_bytes(), text].concat()).unwrap();
    }

    /// An engine that can be stopped between any two of its effects.
    pub(crate) fn engine(&self, fail_point: Arc<dyn FailPoint>, seed: u64) -> Engine {
        let (store, random) = (self.t.inner.store.clone(), Random::from_seed(seed));
        let aggregator = Arc::new(CpuAggregator::new(1).unwrap());
        let clock = Arc::clone(&self.t.clock) as _;
        let sealer = Arc::new(Sealer::open(&self.config.identity.seal_key_file().unwrap(), &random).unwrap());
        let env = Environment::new(store, aggregator, clock, random);
        let config = WorkConfig { fold_inputs: 2, ..env.config };
        Engine::new(Environment { sealer, fail_point, config, ..env })
    }

    /// The latest attempt at the round.
    pub(crate) async fn view(&self, number: u32) -> RoundView {
        self.t.rounds("secure").await;
        self.t.get(&self.t.viewer, &format!("/v1/tasks/secure/rounds/{number}")).await.read()
    }

    pub(crate) async fn state(&self, number: u32) -> RoundState {
        self.view(number).await.state
    }

    /// The states of the cohort.
    pub(crate) async fn assignments(&self, number: u32) -> BTreeMap<ParticipantId, AssignmentView> {
        let path = format!("/v1/tasks/secure/rounds/{number}/assignments?limit=500");
        let page: Page<AssignmentView> = self.t.get(&self.t.viewer, &path).await.read();
        page.items.into_iter().map(|item| (item.participant, item)).collect()
    }

    /// Runs draws until each participant is in a batch, if a task requires one.
    pub(crate) async fn draw_batches(&mut self) {
        self.t.work().await;
        while self.members.iter().any(|member| member.batch_id().is_none()) {
            let mut progress = false;
            for member in &mut self.members {
                progress |= member.batch_id().is_none() && member.draw_batch(&self.t).await;
            }
            assert!(progress, "everybody waits for a draw");
        }
    }

    /// Opens the round; the selected members join.
    pub(crate) async fn join(&mut self, joins: impl Fn(usize) -> bool) {
        self.t.work().await;
        for (at, member) in self.members.iter_mut().enumerate() {
            if joins(at) {
                member.join(&self.t).await;
            }
        }
        self.t.work().await;
    }

    /// All participants fetch their expected assignment.
    pub(crate) async fn assign(&mut self, has_place: impl Fn(usize) -> bool) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.place = None;
            if has_place(at) {
                member.assigned(&self.t).await;
            }
        }
    }

    /// The selected members act in `phase`; then the phase ends, by its deadline if a participant is missing.
    pub(crate) async fn act(&mut self, phase: RoundState, acts: impl Fn(usize) -> bool) {
        for (at, member) in self.members.iter_mut().enumerate() {
            if !acts(at) {
                continue;
            }
            match phase {
                RoundState::Sharing => member.share(&self.t).await,
                RoundState::Collecting => member.send_input(&self.t, &self.model).await,
                RoundState::Confirming => member.confirm(&self.t).await,
                RoundState::Unmasking => member.unmask(&self.t).await,
                other => panic!("nobody acts in {other}"),
            }
        }
        self.t.work().await;
    }

    /// The first member with a possible action in this round takes it, or all check in; false if there is none.
    pub(crate) async fn act_once(&mut self, number: u32) -> bool {
        let state = self.state(number).await;
        let (t, model) = (&self.t, &self.model);
        if state == RoundState::Selecting {
            for member in &mut self.members {
                match &member.client {
                    Some(Client::ShareKeys(_)) => member.come_back(t).await,
                    _ => member.join(t).await,
                }
            }
            return true;
        }
        for member in &mut self.members {
            match (&member.client, state) {
                (Some(Client::ShareKeys(_)), RoundState::Sharing) => {
                    member.assigned(t).await;
                    member.share(t).await;
                }
                (Some(Client::MaskInput(_)), RoundState::Collecting) => member.send_input(t, model).await,
                (Some(Client::CheckConsistency(_)), RoundState::Confirming) => member.confirm(t).await,
                (Some(Client::Unmask(_)), RoundState::Unmasking) => member.unmask(t).await,
                _ => continue,
            }
            return true;
        }
        false
    }

    /// Runs the only round. Whenever the coordinator dies, another takes over once the lease has expired. Returns the models' digests, and
    /// the number of deaths.
    pub(crate) async fn outlive(&mut self, die_at: Arc<DieAt>) -> (Vec<String>, usize) {
        let mut engine = self.engine(die_at, 1);
        let mut deaths = 0;
        for pass in 0..200 {
            match engine.step_all().await {
                Ok(_) => {}
                Err(StepError::Stopped(_)) => {
                    deaths += 1;
                    self.restart().await;
                    self.t.advance(LEASE);
                    engine = self.engine(Arc::new(NoFailPoint), 1_000 + pass);
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            if !self.act_once(1).await {
                assert_eq!(self.state(1).await, RoundState::Completed);
                return (self.digests().await, deaths);
            }
        }
        panic!("the round does not come to an end");
    }

    /// Every published version's digest.
    pub(crate) async fn digests(&self) -> Vec<String> {
        let models = self.t.get(&self.t.viewer, "/v1/tasks/secure/models").await.json();
        models["items"].as_array().unwrap().iter().map(|model| model["sha256"].to_string()).collect()
    }

    /// All files on disk: rows with their log, and blobs.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.as_ref().unwrap().path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        files
    }

    /// Lets the current phase time out.
    pub(crate) async fn time_out(&self) {
        self.t.advance(PHASE);
        self.t.work().await;
    }

    /// A round in which each member falls silent at its point in `drops`, as far as the round gets.
    pub(crate) async fn run(&mut self, number: u32, drops: &[Drops]) -> RoundView {
        let drops = drops.to_vec();
        self.join(|at| drops[at] > Drops::Keys).await;
        self.assign(|at| drops[at] > Drops::Keys).await;
        for (phase, silent) in [
            (RoundState::Sharing, Drops::Shares),
            (RoundState::Collecting, Drops::Input),
            (RoundState::Confirming, Drops::Signature),
            (RoundState::Unmasking, Drops::Answer),
        ] {
            if self.state(number).await != phase {
                break;
            }
            self.act(phase, |at| drops[at] > silent).await;
            if self.state(number).await == phase {
                self.time_out().await;
            }
        }
        self.view(number).await
    }

    /// A round without dropouts.
    pub(crate) async fn complete(&mut self, number: u32) -> RoundView {
        let drops = vec![Drops::Never; self.members.len()];
        let view = self.run(number, &drops).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None));
        view
    }

    /// Runs to the start of `phase`, without dropouts.
    pub(crate) async fn up_to(&mut self, number: u32, phase: RoundState) {
        self.join(|_| true).await;
        self.assign(|_| true).await;
        for earlier in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
            assert_eq!(self.state(number).await, earlier);
            if earlier == phase {
                return;
            }
            self.act(earlier, |_| true).await;
        }
    }

    pub(crate) async fn released(&self, number: u32) -> Option<Vec<u32>> {
        let (key, attempt) = (RoundKey { task: self.task, number }, self.view(number).await.attempt);
        let row =
            self.t.inner.store.read("test", |tx| Box::pin(async move { tx.noised_sum(key.attempt(attempt)).await }));
        let blob = self.t.inner.store.blobs().get(row.await.unwrap()?.blob).await.unwrap();
        Some(NoisedSum::from_bytes(&blob).unwrap().words().to_vec())
    }

    /// The integer sum of these members' inputs.
    pub(crate) fn plain(&self, number: u32, included: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut sum = vec![0; self.model.codec.len()];
        for (at, member) in self.members.iter().enumerate() {
            if included(at) {
                secure_agg::modular::add_assign(&mut sum, &words(&self.model, member.id, number));
            }
        }
        secure_agg::modular::reduce(&mut sum, self.model.modulus);
        sum
    }

    /// The round failed for this reason, nothing was released, and no participant is awaited.
    pub(crate) async fn assert_failed(&self, number: u32, reason: FailureReason) -> RoundView {
        let view = self.view(number).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(reason)));
        assert_eq!(self.released(number).await, None);
        assert!(self.assignments(number).await.values().all(|place| !place.state.is_pending()));
        view
    }
}
