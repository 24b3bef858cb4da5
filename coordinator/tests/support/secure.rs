//! Participants of secure aggregation: real keys, certificates of the coordinator's authority, the real client, and a
//! journal in memory. Everything they say and hear goes through the router.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aggregation::cpu::CpuAggregator;
use axum::body::Body;
use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::seal::Sealer;
use coordinator::work::{Engine, Environment, FailPoint, NoFailPoint, StepError, WorkConfig};
use federation::id::{ParticipantId, RoundKey, TaskId};
use federation::round::{FailureReason, RoundState};
use federation::time::Clock as _;
use http::Request;
use learning::{NoisedSum, Update};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use recipe::TaskModel;
use rustls_pki_types::PrivatePkcs8KeyDer;
use secure_agg::MemorySigner;
use secure_agg::client::{Client, Doubt, Received, Release, Setup, Step, advertise_keys};
use secure_agg::codec::Message;
use secure_agg::messages::{self, Agreement, Delivery, MaskedInput, Roster, ShareKeys, Survivors};
use secure_agg::params::{Policy, SessionConfig};
use serde_json::{Value, json};
use task_spec::TaskSpec;
use wire::certificate::{Authority, chain_der};
use wire::headers::{ATTEMPT, CONTENT_SHA256, MEDIA_MASKED_INPUT, MEDIA_SECURE_AGG, SIGNED_INPUT};
use wire::inspect::{AssignmentView, Page, RoundView};
use wire::participant::{Announcement, Answer, Assignment, CheckInReply, Invitation};
use wire::route;

use super::die_at::DieAt;
use super::{Reply, TestCoordinator, Who, config, private, sha256, who};

/// Longer than any phase of [`spec`].
pub(crate) const PHASE: Duration = Duration::from_secs(600);
/// Longer than a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(31);

const FLOORS: Policy = Policy { min_cohort: 3, min_tolerated_corrupt: 0, min_tolerated_colluders: 0, min_included: 0 };

/// A task whose cohort are all of `participants`.
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

/// One participant.
pub(crate) struct Member {
    pub(crate) id: ParticipantId,
    pub(crate) who: Who,
    pub(crate) signer: MemorySigner,
    certificate: Vec<u8>,
    issuer: Vec<u8>,
    rng: ChaCha20Rng,
    pub(crate) client: Option<Client>,
    /// Every snapshot it wrote, the newest last.
    pub(crate) snapshots: Vec<Vec<u8>>,
    /// What its newest keys are for.
    pub(crate) invitation: Option<Invitation>,
    pub(crate) place: Option<Assignment>,
    /// What it says of a training ahead of rounds.
    pub(crate) training: Value,
    /// What it says of its line, in milliseconds.
    pub(crate) round_trip_ms: Option<u32>,
    /// The body it sent.
    pub(crate) masked: Vec<u8>,
    /// What is under the masks.
    pub(crate) words: Vec<u32>,
    /// The same without the noise that it added.
    pub(crate) plain: Vec<u32>,
}

/// Where a participant falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drops {
    Keys,
    Shares,
    Input,
    Signature,
    Answer,
    Never,
}

/// A coordinator, a task and everybody who takes part.
pub(crate) struct World {
    pub(crate) t: TestCoordinator,
    pub(crate) config: Config,
    pub(crate) task: TaskId,
    pub(crate) model: TaskModel,
    /// In the order of ids, which is that of the roster.
    pub(crate) members: Vec<Member>,
    restarts: u64,
    /// Where everything lies that outlives the process; none if all of it is in memory.
    pub(crate) folder: Option<tempfile::TempDir>,
}

impl Member {
    /// Enrols with a key made from `seed`.
    pub(crate) async fn enroll(t: &TestCoordinator, seed: u8) -> Self {
        let pkcs8 = [&hex::decode("302e020100300506032b657004220420").unwrap()[..], &[seed; 32]].concat();
        let der = PrivatePkcs8KeyDer::from(pkcs8.clone());
        let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519).unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let reply = t.enroll_with(&format!("site-{seed}"), &csr).await;
        let mut chain = chain_der(&reply.certificate_pem).unwrap();
        Self {
            id: reply.participant,
            who: who(&reply),
            signer: MemorySigner::from_seed(&[seed; 32]).unwrap(),
            issuer: chain.pop().unwrap(),
            certificate: chain.pop().unwrap(),
            rng: ChaCha20Rng::from_seed([seed; 32]),
            client: None,
            snapshots: Vec::new(),
            invitation: None,
            place: None,
            training: Value::Null,
            round_trip_ms: None,
            masked: Vec::new(),
            words: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Its authority, as it believes it now.
    pub(crate) fn authority(&self, t: &TestCoordinator) -> Authority {
        Authority::new(self.issuer.clone(), t.clock.now())
    }

    /// Makes the state durable, and goes on from what is durable.
    pub(crate) fn keep<N, M>(&mut self, step: Step<N, M>) -> M {
        self.snapshots.push(step.persist.expose().to_vec());
        self.client = Some(Client::restore(step.persist.expose()).unwrap());
        step.send
    }

    /// Starts over from the newest snapshot.
    pub(crate) fn restore(&mut self) {
        self.client = self.snapshots.last().map(|snapshot| Client::restore(snapshot).unwrap());
    }

    /// Checks in without waiting.
    pub(crate) async fn check_in(&self, t: &TestCoordinator) -> CheckInReply {
        self.check_in_with(t, &json!(null)).await.read()
    }

    pub(crate) async fn check_in_with(&self, t: &TestCoordinator, keys: &Value) -> Reply {
        let mut body =
            json!({ "task": "secure", "examples": 10, "wait_ms": 0, "keys": keys, "training": self.training });
        body["round_trip_ms"] = json!(self.round_trip_ms);
        t.post(&self.who, route::CHECK_IN, &body).await
    }

    /// What it is invited to.
    pub(crate) async fn invited(&self, t: &TestCoordinator) -> Invitation {
        match self.check_in(t).await {
            CheckInReply::Invited(invitation) => *invitation,
            other => panic!("{} is not invited: {other:?}", self.id),
        }
    }

    /// Fresh keys for an attempt, as they go into a check-in.
    pub(crate) fn keys(&mut self, invitation: &Invitation) -> Value {
        let setup = Setup {
            round: messages::Round::new(invitation.task.0.as_bytes(), invitation.round.into(), invitation.attempt),
            client_id: self.id.0.as_bytes().to_vec(),
            certificate: self.certificate.clone(),
            config: SessionConfig::from(&invitation.terms),
            policy: FLOORS,
        };
        let same_round = |client: &Client| client.round().round == u64::from(invitation.round);
        let step = match self.client.take().filter(same_round) {
            Some(client) => client.retry(setup, Release::SameUpdate, &self.signer, &mut self.rng),
            None => advertise_keys(setup, &self.signer, &mut self.rng),
        };
        let advertise = self.keep(step.unwrap());
        self.invitation = Some(invitation.clone());
        keys_json(invitation, &advertise.encode())
    }

    /// Checks in, is invited, makes keys and checks in with them.
    pub(crate) async fn join(&mut self, t: &TestCoordinator) {
        let invitation = self.invited(t).await;
        let keys = self.keys(&invitation);
        let reply = self.check_in_with(t, &keys).await.read();
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }

    /// Makes other keys than it has checked in with.
    pub(crate) async fn join_anew(&mut self, t: &TestCoordinator) {
        let invitation = self.invitation.clone().unwrap();
        let keys = self.keys(&invitation);
        let reply = self.check_in_with(t, &keys).await.read();
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }

    /// Checks in once more with the keys that it has made.
    pub(crate) async fn come_back(&self, t: &TestCoordinator) {
        let client = self.client.as_ref().unwrap();
        let invitation = self.invitation.as_ref().unwrap();
        let reply = self.check_in_with(t, &keys_json(invitation, &client.resend())).await.read();
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }

    /// Fetches its place.
    pub(crate) async fn assigned(&mut self, t: &TestCoordinator) -> Assignment {
        match self.check_in(t).await {
            CheckInReply::Assigned(place) => {
                self.place = Some((*place).clone());
                *place
            }
            other => panic!("{} has no place: {other:?}", self.id),
        }
    }

    fn place(&self) -> &Assignment {
        self.place.as_ref().expect("it has a place")
    }

    /// The path of an announcement that it asks for.
    pub(crate) fn announcement(&self, what: Announcement, wait_ms: u64) -> String {
        let place = self.place();
        route::announcement(what, place.task, place.round, self.id, place.attempt, wait_ms)
    }

    /// Asks for an announcement that must be there.
    pub(crate) async fn hear<M: Message>(&self, t: &TestCoordinator, what: Announcement) -> M {
        let reply = t.get(&self.who, &self.announcement(what, 0)).await;
        assert_eq!(reply.status, 200, "{what:?}: {}", String::from_utf8_lossy(&reply.body));
        assert_eq!(reply.headers["content-type"], MEDIA_SECURE_AGG);
        M::decode(&reply.body).unwrap()
    }

    /// The request that says this.
    pub(crate) fn request(&self, what: Answer, bytes: &[u8]) -> Request<Body> {
        let place = self.place();
        Request::put(route::answer(what, place.task, place.round, self.id))
            .header("content-type", MEDIA_SECURE_AGG)
            .header("content-length", bytes.len())
            .header(ATTEMPT, place.attempt)
            .body(Body::from(bytes.to_vec()))
            .unwrap()
    }

    pub(crate) async fn say(&self, t: &TestCoordinator, what: Answer, bytes: &[u8]) -> Reply {
        t.send(&self.who, self.request(what, bytes)).await
    }

    async fn must_say(&self, t: &TestCoordinator, what: Answer, bytes: &[u8]) {
        let reply = self.say(t, what, bytes).await;
        assert_eq!(reply.status, 204, "{what:?}: {}", String::from_utf8_lossy(&reply.body));
    }

    /// Its key shares, which it has not sent yet.
    pub(crate) async fn deal(&mut self, t: &TestCoordinator) -> ShareKeys {
        let roster: Roster = self.hear(t, Announcement::Roster).await;
        let state = self.client.take().unwrap().waiting_for_roster().unwrap();
        let model = self.place().base.sha256.0;
        let step = state.share_keys(&roster, &model, &self.authority(t), &self.signer, &mut self.rng);
        self.keep(step.unwrap())
    }

    pub(crate) async fn share(&mut self, t: &TestCoordinator) {
        let shares = self.deal(t).await;
        self.must_say(t, Answer::KeyShares, &shares.encode()).await;
    }

    /// Opens what was dealt to it.
    pub(crate) async fn receive(&mut self, t: &TestCoordinator) -> Received {
        let delivery: Delivery = self.hear(t, Announcement::Delivery).await;
        self.client.take().unwrap().waiting_for_delivery().unwrap().receive(&delivery).unwrap()
    }

    /// The same, when somebody dealt garbage.
    pub(crate) async fn doubt(&mut self, t: &TestCoordinator) -> Doubt {
        match self.receive(t).await {
            Received::Doubt(doubt) => *doubt,
            Received::Ready(_) => panic!("everything opened"),
        }
    }

    /// Works out what it puts in.
    fn encode(&mut self, model: &TaskModel) {
        let place = self.place();
        let (plain, words) = match &place.privacy {
            Some(terms) => private::words(place, terms, self.id),
            None => {
                let words = words(model, self.id, place.round);
                (words.clone(), words)
            }
        };
        (self.plain, self.words) = (plain, words);
    }

    /// Sends its update as it is, where nothing is masked.
    pub(crate) async fn report(&mut self, t: &TestCoordinator, model: &TaskModel) {
        self.encode(model);
        let body = secure_agg::packing::pack(&self.words, model.modulus);
        let reply = t.send(&self.who, t.upload(self.place(), self.id, &body)).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Masks its update, which it has not sent yet; says what was signed for it.
    pub(crate) async fn mask(&mut self, t: &TestCoordinator, model: &TaskModel) -> MaskedInput {
        self.encode(model);
        let Received::Ready(masking) = self.receive(t).await else { panic!("what was dealt does not open") };
        let step = masking.mask(self.words.clone(), Vec::new(), &self.signer).unwrap();
        let upload = self.keep(step);
        self.masked = upload.body;
        upload.message
    }

    /// The request that sends a masked input with what was signed for it.
    pub(crate) fn upload(&self, body: &[u8], signed: &MaskedInput) -> Request<Body> {
        let place = self.place();
        Request::put(route::masked_input(place.task, place.round, self.id))
            .header("content-type", MEDIA_MASKED_INPUT)
            .header("content-length", body.len())
            .header(ATTEMPT, place.attempt)
            .header(CONTENT_SHA256, sha256(body).to_string())
            .header(SIGNED_INPUT, wire::base64::encode(&signed.encode()))
            .body(Body::from(body.to_vec()))
            .unwrap()
    }

    /// Masks and sends these words, whatever they are.
    pub(crate) async fn send_words(&mut self, t: &TestCoordinator, words: Vec<u32>) {
        let Received::Ready(masking) = self.receive(t).await else { panic!("what was dealt does not open") };
        let step = masking.mask(words, Vec::new(), &self.signer).unwrap();
        let upload = self.keep(step);
        self.masked = upload.body;
        let reply = t.send(&self.who, self.upload(&self.masked, &upload.message)).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }

    pub(crate) async fn send_input(&mut self, t: &TestCoordinator, model: &TaskModel) {
        let signed = self.mask(t, model).await;
        let reply = t.send(&self.who, self.upload(&self.masked, &signed)).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Signs whose inputs are included; not sent yet.
    pub(crate) async fn sign(&mut self, t: &TestCoordinator) -> Vec<u8> {
        let survivors: Survivors = self.hear(t, Announcement::Survivors).await;
        let state = self.client.take().unwrap().waiting_for_survivors().unwrap();
        let step = state.check(&survivors, &self.signer).unwrap();
        self.keep(step).encode()
    }

    pub(crate) async fn confirm(&mut self, t: &TestCoordinator) {
        let signed = self.sign(t).await;
        self.must_say(t, Answer::Consistency, &signed).await;
    }

    /// The shares that open the sum; not sent yet.
    pub(crate) async fn reveal(&mut self, t: &TestCoordinator) -> Vec<u8> {
        let agreement: Agreement = self.hear(t, Announcement::Agreement).await;
        let state = self.client.take().unwrap().waiting_for_agreement().unwrap();
        let step = state.unmask(&agreement, &self.signer).unwrap();
        self.keep(step).encode()
    }

    pub(crate) async fn unmask(&mut self, t: &TestCoordinator) {
        let shares = self.reveal(t).await;
        self.must_say(t, Answer::UnmaskShares, &shares).await;
    }
}

/// Keys as they go into a check-in.
pub(crate) fn keys_json(invitation: &Invitation, advertisement: &[u8]) -> Value {
    let Invitation { task, round, attempt, .. } = invitation;
    let advertisement = wire::base64::encode(advertisement);
    json!({ "task": task, "round": round, "attempt": attempt, "advertisement": advertisement })
}

/// A participant's encoded update: a function of the participant and the round's number.
pub(crate) fn words(model: &TaskModel, id: ParticipantId, round: u32) -> Vec<u32> {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(id.0.as_bytes());
    seed[16..20].copy_from_slice(&round.to_be_bytes());
    let mut rng = ChaCha20Rng::from_seed(seed);
    let mut uniform = || f32::from(u16::try_from(rng.next_u32() >> 16).unwrap()) / 65_536.0 - 0.5;
    let delta = (0..model.tensors.shared.len()).map(|_| uniform()).collect();
    let metrics = vec![learning::MetricValue { value: f64::from(1.0 + uniform()), count: 10 }];
    let update = Update { delta, examples: 10 + u64::from(rng.next_u32() % 90), metrics };
    model.codec.plain().unwrap().encode(&update, &mut rng).unwrap().words
}

/// The parts of a snapshot.
pub(crate) fn parts(snapshot: &[u8]) -> Vec<&[u8]> {
    let mut rest = &snapshot[2..];
    let mut parts = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (part, after) = after.split_at(usize::try_from(u32::from_be_bytes(*len)).unwrap());
        parts.push(part);
        rest = after;
    }
    parts
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

    /// With a configuration of its own, in memory.
    pub(crate) async fn with_config(participants: usize, config: Config, change: impl FnOnce(&mut Value)) -> Self {
        Self::build(participants, config, None, change).await
    }

    /// With files that outlive the process.
    pub(crate) async fn on_disk(participants: usize, change: impl FnOnce(&mut Value)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut config = config();
        config.database.url = format!("sqlite:{}", at("rows.db").display());
        config.blobs.url = format!("file:{}", at("blobs").display());
        config.identity.ca_certificate_file = at("ca.pem");
        config.identity.ca_key_file = at("ca-key.pem");
        config.identity.seal_key_file = Some(at("seal.key"));
        Self::build(participants, config, Some(folder), change).await
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

    /// The coordinator is killed and started again over the same files.
    pub(crate) async fn restart(&mut self) {
        self.restarts += 1;
        self.t.restart(&self.config, 100 + self.restarts).await;
    }

    /// Loses the sealing key.
    pub(crate) fn lose_seal_key(&self) {
        std::fs::remove_file(self.config.identity.seal_key_file().unwrap()).unwrap();
    }

    /// Background work that can be stopped between any two of its effects.
    pub(crate) fn engine(&self, fail_point: Arc<dyn FailPoint>, seed: u64) -> Engine {
        let (store, random) = (self.t.inner.store.clone(), Random::from_seed(seed));
        let aggregator = Arc::new(CpuAggregator::new(1).unwrap());
        let clock = Arc::clone(&self.t.clock) as _;
        let sealer = Arc::new(Sealer::open(&self.config.identity.seal_key_file().unwrap(), &random).unwrap());
        let env = Environment::new(store, aggregator, clock, random);
        let config = WorkConfig { fold_inputs: 2, ..env.config };
        Engine::new(Environment { sealer, fail_point, config, ..env })
    }

    /// The round, its latest attempt.
    pub(crate) async fn view(&self, number: u32) -> RoundView {
        self.t.rounds("secure").await;
        self.t.get(&self.t.viewer, &format!("/v1/tasks/secure/rounds/{number}")).await.read()
    }

    pub(crate) async fn state(&self, number: u32) -> RoundState {
        self.view(number).await.state
    }

    /// How the cohort fared.
    pub(crate) async fn assignments(&self, number: u32) -> BTreeMap<ParticipantId, AssignmentView> {
        let path = format!("/v1/tasks/secure/rounds/{number}/assignments?limit=500");
        let page: Page<AssignmentView> = self.t.get(&self.t.viewer, &path).await.read();
        page.items.into_iter().map(|item| (item.participant, item)).collect()
    }

    /// Opens the round and has those join who are meant.
    pub(crate) async fn join(&mut self, joins: impl Fn(usize) -> bool) {
        self.t.work().await;
        for (at, member) in self.members.iter_mut().enumerate() {
            if joins(at) {
                member.join(&self.t).await;
            }
        }
        self.t.work().await;
    }

    /// Has everybody fetch the place it must have.
    pub(crate) async fn assign(&mut self, has_place: impl Fn(usize) -> bool) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.place = None;
            if has_place(at) {
                member.assigned(&self.t).await;
            }
        }
    }

    /// Those who are meant act in `phase`; then the phase ends, by its deadline if somebody is missing.
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

    /// The first member that has something to do in this round does it, or all of them check in; false if there is nothing.
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

    /// Runs the only round. Whenever the coordinator dies, another takes over once the lease has expired. The models' digests,
    /// and how often one died.
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

    /// Everything that lies on disk: rows with their log, and blobs.
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

    /// Lets the present phase run into its deadline.
    pub(crate) async fn time_out(&self) {
        self.t.advance(PHASE);
        self.t.work().await;
    }

    /// A round in which each of the members falls silent where `drops` says, as far as it goes.
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

    /// A round in which nobody is missing.
    pub(crate) async fn complete(&mut self, number: u32) -> RoundView {
        let drops = vec![Drops::Never; self.members.len()];
        let view = self.run(number, &drops).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None));
        view
    }

    /// Up to the beginning of `phase`, with everybody.
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

    /// The sum that was released.
    pub(crate) async fn released(&self, number: u32) -> Option<Vec<u32>> {
        let (key, attempt) = (RoundKey { task: self.task, number }, self.view(number).await.attempt);
        let row = self.t.inner.store.read("test", |tx| Box::pin(async move { tx.noised_sum(key, attempt).await }));
        let blob = self.t.inner.store.blobs().get(row.await.unwrap()?.blob).await.unwrap();
        Some(NoisedSum::from_bytes(&blob).unwrap().words().to_vec())
    }

    /// The integer sum of what these put in.
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

    /// The round failed for this reason, nothing was released, and nobody is waited for.
    pub(crate) async fn assert_failed(&self, number: u32, reason: FailureReason) -> RoundView {
        let view = self.view(number).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(reason)));
        assert_eq!(self.released(number).await, None);
        assert!(self.assignments(number).await.values().all(|place| !place.state.is_pending()));
        view
    }
}
