//! A participant of secure aggregation driven by a test message by message: a real key, a certificate of the coordinator's authority, the
//! real client, and a journal in memory.

use axum::body::Body;
use federation::id::ParticipantId;
use federation::time::Clock as _;
use http::Request;
use learning::Update;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use recipe::TaskModel;
use rustls_pki_types::PrivatePkcs8KeyDer;
use secure_agg::MemorySigner;
use secure_agg::batch::draw::{Batch, Drawing, Drawn, Pool, offer};
use secure_agg::client::{Challenge, Client, Received, Release, Setup, Transition, advertise_keys};
use secure_agg::codec::Message;
use secure_agg::messages::{self, Agreement, Delivery, MaskedInput, Roster, ShareKeys, Survivors};
use secure_agg::params::{Policy, SessionConfig};
use serde_json::{Value, json};
use wire::base64::Base64;
use wire::certificate::{Authority, chain_der};
use wire::headers::{CONTENT_SHA256, MEDIA_MASKED_INPUT, MEDIA_SECURE_AGG, SIGNED_INPUT};
use wire::participant::{Announcement, Answer, Assignment, BatchStep, CheckInReply, Invitation};
use wire::route;

use super::{Reply, TestCoordinator, Who, private, put, sha256, who};

const FLOORS: Policy = Policy { min_cohort: 3, min_tolerated_corrupt: 0, min_tolerated_colluders: 0, min_included: 0 };

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
    /// The invitation for its newest keys.
    pub(crate) invitation: Option<Invitation>,
    pub(crate) place: Option<Assignment>,
    /// The reported state of an asynchronous training.
    pub(crate) training: Value,
    /// The reported round trip, in milliseconds.
    pub(crate) round_trip_ms: Option<u32>,
    /// Its fixed batch, or its current draw.
    batch: Option<Batch>,
    drawing: Option<Drawing>,
    /// The body it sent.
    pub(crate) masked: Vec<u8>,
    /// The words under the masks.
    pub(crate) words: Vec<u32>,
    /// The same without its own noise.
    pub(crate) plain: Vec<u32>,
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
            batch: None,
            drawing: None,
            masked: Vec::new(),
            words: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Its authority at the present time.
    pub(crate) fn authority(&self, t: &TestCoordinator) -> Authority {
        Authority::new(self.issuer.clone(), t.clock.now())
    }

    /// Makes the state durable, and continues from the durable state.
    pub(crate) fn keep<N, M>(&mut self, step: Transition<N, M>) -> M {
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
        body["batch"] = self.batch_report();
        t.post(&self.who, route::CHECK_IN, &body).await
    }

    /// Checks in with a false report of its batch.
    pub(crate) async fn check_in_as(&self, t: &TestCoordinator, batch: &Value) -> Reply {
        let body = json!({ "task": "secure", "examples": 10, "wait_ms": 0, "batch": batch });
        t.post(&self.who, route::CHECK_IN, &body).await
    }

    pub(crate) fn batch_id(&self) -> Option<[u8; 32]> {
        self.batch.as_ref().map(|batch| batch.id)
    }

    fn batch_size(&self) -> u16 {
        self.batch.as_ref().map_or(0, Batch::size)
    }

    /// Its report of its batch.
    pub(crate) fn batch_report(&self) -> Value {
        let draw = |drawing: &Drawing| uuid::Uuid::from_bytes(*drawing.draw());
        match (&self.drawing, &self.batch) {
            (Some(drawing @ Drawing::Offered(state)), _) => {
                json!({ "state": "offer", "draw": draw(drawing), "offer": Base64(state.message().encode()) })
            }
            (Some(drawing @ Drawing::Revealed(state)), _) => {
                json!({ "state": "reveal", "draw": draw(drawing), "reveal": Base64(state.message().encode()) })
            }
            (None, Some(batch)) => {
                json!({ "state": "member", "size": batch.size(), "batch": federation::id::Digest(batch.id) })
            }
            (None, None) => Value::Null,
        }
    }

    /// Makes an offer for a draw of batches.
    pub(crate) fn offer(&mut self, draw: uuid::Uuid, size: u16) {
        let id = self.id.0.as_bytes();
        let offered = offer(*draw.as_bytes(), size, id, &self.certificate, &self.signer, &mut self.rng);
        self.drawing = Some(Drawing::Offered(offered.unwrap()));
    }

    /// Accepts the pool of a draw.
    pub(crate) fn reveal_nonce(&mut self, t: &TestCoordinator, step: &BatchStep) {
        let (BatchStep::Reveal { pool, .. }, Some(Drawing::Offered(offered))) = (step, self.drawing.take()) else {
            panic!("{step:?} without an offer")
        };
        let revealed = offered.reveal(&Pool::decode(&pool.0).unwrap(), 3, &self.authority(t)).unwrap();
        self.drawing = Some(Drawing::Revealed(Box::new(revealed)));
    }

    /// Takes the next step of a draw of batches; false if it waits or has its batch.
    pub(crate) async fn draw_batch(&mut self, t: &TestCoordinator) -> bool {
        let CheckInReply::Batch(step) = self.check_in(t).await else { return false };
        match &*step {
            BatchStep::Offer { draw, size, .. } => self.offer(*draw, *size),
            BatchStep::Reveal { .. } => self.reveal_nonce(t, &step),
            BatchStep::Drawn { drawn, .. } => {
                let Some(Drawing::Revealed(revealed)) = self.drawing.take() else { panic!("{step:?}") };
                self.batch = Some(revealed.finish(&Drawn::decode(&drawn.0).unwrap()).unwrap());
            }
        }
        true
    }

    pub(crate) async fn invited(&self, t: &TestCoordinator) -> Invitation {
        match self.check_in(t).await {
            CheckInReply::Invited(invitation) => *invitation,
            other => panic!("{} is not invited: {other:?}", self.id),
        }
    }

    /// Fresh keys for an attempt, in the form of a check-in.
    pub(crate) fn keys(&mut self, invitation: &Invitation) -> Value {
        let setup = Setup {
            round: messages::RoundId::new(invitation.task.0.as_bytes(), invitation.round.into(), invitation.attempt),
            client_id: self.id.0.as_bytes().to_vec(),
            certificate: self.certificate.clone(),
            config: SessionConfig::from(&invitation.terms),
            policy: FLOORS,
            batch: self.batch_id(),
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

    /// Replaces the keys of its check-in by new ones.
    pub(crate) async fn join_anew(&mut self, t: &TestCoordinator) {
        let invitation = self.invitation.clone().unwrap();
        let keys = self.keys(&invitation);
        let reply = self.check_in_with(t, &keys).await.read();
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }

    /// Checks in again with its current keys.
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

    pub(crate) fn place(&self) -> &Assignment {
        self.place.as_ref().expect("it has a place")
    }

    /// The path of a requested announcement.
    pub(crate) fn announcement(&self, what: Announcement, wait_ms: u64) -> String {
        let place = self.place();
        route::announcement(what, place.attempt_key(), self.id, wait_ms)
    }

    /// Requests an announcement that must exist.
    pub(crate) async fn hear<M: Message>(&self, t: &TestCoordinator, what: Announcement) -> M {
        let reply = t.get(&self.who, &self.announcement(what, 0)).await;
        assert_eq!(reply.status, 200, "{what:?}: {}", String::from_utf8_lossy(&reply.body));
        assert_eq!(reply.headers["content-type"], MEDIA_SECURE_AGG);
        M::decode(&reply.body).unwrap()
    }

    /// The request with this message.
    pub(crate) fn request(&self, what: Answer, bytes: &[u8]) -> Request<Body> {
        let place = self.place();
        put(&route::answer(what, place.task, place.round, self.id), MEDIA_SECURE_AGG, place.attempt, bytes)
    }

    pub(crate) async fn say(&self, t: &TestCoordinator, what: Answer, bytes: &[u8]) -> Reply {
        t.send(&self.who, self.request(what, bytes)).await
    }

    async fn must_say(&self, t: &TestCoordinator, what: Answer, bytes: &[u8]) {
        let reply = self.say(t, what, bytes).await;
        assert_eq!(reply.status, 204, "{what:?}: {}", String::from_utf8_lossy(&reply.body));
    }

    /// Its key shares, unsent.
    pub(crate) async fn deal(&mut self, t: &TestCoordinator) -> ShareKeys {
        let roster: Roster = self.hear(t, Announcement::Roster).await;
        let state = self.client.take().unwrap().waiting_for_roster().unwrap();
        let model = self.place().base.sha256.0;
        let step =
            state.share_keys(&roster, &model, self.batch_size(), &self.authority(t), &self.signer, &mut self.rng);
        self.keep(step.unwrap())
    }

    pub(crate) async fn share(&mut self, t: &TestCoordinator) {
        let shares = self.deal(t).await;
        self.must_say(t, Answer::KeyShares, &shares.encode()).await;
    }

    /// Opens the shares dealt to it.
    pub(crate) async fn receive(&mut self, t: &TestCoordinator) -> Received {
        let delivery: Delivery = self.hear(t, Announcement::Delivery).await;
        self.client.take().unwrap().waiting_for_delivery().unwrap().receive(&delivery).unwrap()
    }

    /// The same, with an invalid dealer.
    pub(crate) async fn challenge(&mut self, t: &TestCoordinator) -> Challenge {
        match self.receive(t).await {
            Received::Challenge(challenge) => *challenge,
            Received::Ready(_) => panic!("everything opened"),
        }
    }

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

    /// Sends its update unmasked.
    pub(crate) async fn report(&mut self, t: &TestCoordinator, model: &TaskModel) {
        self.encode(model);
        let body = secure_agg::packing::pack(&self.words, model.modulus);
        let reply = t.send(&self.who, t.upload(self.place(), self.id, &body)).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Masks its update without sending it; returns the signed digest.
    pub(crate) async fn mask(&mut self, t: &TestCoordinator, model: &TaskModel) -> MaskedInput {
        self.encode(model);
        self.mask_words(t, self.words.clone()).await
    }

    async fn mask_words(&mut self, t: &TestCoordinator, words: Vec<u32>) -> MaskedInput {
        let Received::Ready(masking) = self.receive(t).await else { panic!("what was dealt does not open") };
        let step = masking.mask(words, Vec::new(), &self.signer).unwrap();
        let upload = self.keep(step);
        self.masked = upload.body;
        upload.message
    }

    /// The request with a masked input and its signed message.
    pub(crate) fn upload(&self, body: &[u8], signed: &MaskedInput) -> Request<Body> {
        let place = self.place();
        let path = route::masked_input(place.task, place.round, self.id);
        let mut request = put(&path, MEDIA_MASKED_INPUT, place.attempt, body);
        request.headers_mut().insert(CONTENT_SHA256, sha256(body).to_string().parse().unwrap());
        request.headers_mut().insert(SIGNED_INPUT, wire::base64::encode(&signed.encode()).parse().unwrap());
        request
    }

    /// Masks and sends these words.
    pub(crate) async fn send_words(&mut self, t: &TestCoordinator, words: Vec<u32>) {
        let signed = self.mask_words(t, words).await;
        self.send_masked(t, &signed).await;
    }

    pub(crate) async fn send_input(&mut self, t: &TestCoordinator, model: &TaskModel) {
        let signed = self.mask(t, model).await;
        self.send_masked(t, &signed).await;
    }

    async fn send_masked(&self, t: &TestCoordinator, signed: &MaskedInput) {
        let reply = t.send(&self.who, self.upload(&self.masked, signed)).await;
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    }

    /// Signs the included set, without sending it.
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

    /// The unmasking shares, unsent.
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

/// Keys in the form of a check-in.
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
    let metrics = vec![learning::MetricValue { value: f64::from(1.0 + uniform()), count: 11 }];
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
