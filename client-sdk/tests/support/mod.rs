//! A coordinator of a few lines, scripted, with a journal and trainers to go with it.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "each test uses a part of this"
)]

pub mod cohort;
pub mod device;
pub mod private;
pub mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::entropy::Secrets;
use client_sdk::identity::Identity;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::contribution::scaffold;
use client_sdk::learning::{
    ExactSum, Layout, MetricValue, Parameters, QuantizationParams, Residual, TensorSpec, UpdateCodec, checkpoint,
};
use client_sdk::participant::machine::{Input, Request, Settings};
use client_sdk::participant::snapshot;
use client_sdk::transport::{Abandonment, Transport, TransportError, Upload};
use client_sdk::{Event, Participant, PrivacyPolicy, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use futures_util::FutureExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair, SanType,
};
use ring::digest;
use task_spec::{Compression, Initial, ModelSpec, Staleness, TensorDeclaration, TrainingPlan};
use wire::certificate::{Issuers, PARTICIPANT_URN};
use wire::participant::{
    Announcement, Answer, Assignment, CheckInReply, CheckInRequest, CodecTerms, Counted, DiscardReason, Encoding,
    EnrollReply, EnrollRequest, HeldUpdate, ModelRef, PrivacyTerms, Question, Receipt, RenewRequest, TrainingReport,
};
use wire::problem::{Problem, ProblemType};
use wire::{Attempt, Criterion, Digest, ParticipantId, TaskId, Timestamp};

pub fn sha256(bytes: &[u8]) -> Digest {
    Digest(digest::digest(&digest::SHA256, bytes).as_ref().try_into().unwrap())
}

pub fn task() -> TaskId {
    "00000000-0000-0000-0000-00000000000a".parse().unwrap()
}

pub fn participant() -> ParticipantId {
    "00000000-0000-0000-0000-00000000000b".parse().unwrap()
}

/// An authority that certifies participants.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate that a device has from elsewhere, for these years, and its key, both in PEM.
    pub fn issue(&self, participant: ParticipantId, years: std::ops::Range<i32>) -> (String, String) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        (self.issue_for(&key, participant, years), key.serialize_pem())
    }

    /// The same for a key that is there.
    pub fn issue_for(&self, key: &KeyPair, participant: ParticipantId, years: std::ops::Range<i32>) -> String {
        let mut params = CertificateParams::new(vec![]).unwrap();
        let urn = format!("{PARTICIPANT_URN}{participant}");
        params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// A certificate for the key of this request, then its own.
    pub fn certify(&self, csr_pem: &str, participant: ParticipantId) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let urn = format!("{PARTICIPANT_URN}{participant}");
        request.params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        request.signed_by(&self.issuer).unwrap().pem() + &self.pem
    }
}

/// The authority that these participants' apps name.
pub static CA: LazyLock<Ca> = LazyLock::new(|| Ca::new("CA"));

/// The same, in PEM.
pub fn ca_pem() -> &'static str {
    &CA.pem
}

/// Settings of an app that names that authority, for cohorts that are smaller than apps take part in.
pub fn settings() -> Settings {
    Settings {
        members: Issuers::from_pem(ca_pem()).unwrap(),
        security: SecurityPolicy::lowest(),
        // It lives for one task, whose noise may be little.
        privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
        ..Settings::default()
    }
}

/// For tasks without secure aggregation, which no participant takes unless it is told to.
pub fn in_the_clear() -> Settings {
    Settings { security: SecurityPolicy::optional(), ..settings() }
}

/// Runs a participant with this trainer until the task is over; what it says went wrong in training.
pub async fn failures(coordinator: &Coordinator, trainer: impl Trainer + 'static) -> Vec<String> {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let mut participant = Participant::builder()
        .secure_aggregation(SecurityPolicy::optional())
        .members_ca_pem(ca_pem())
        .transport(coordinator.clone())
        .enrollment_token("token")
        .journal(MemoryJournal::new())
        .trainer(trainer)
        .on_event(move |event| {
            if let Event::TrainingFailed { error, .. } = event {
                seen.lock().unwrap().push(error.clone());
            }
        })
        .build()
        .unwrap();
    participant.run(std::future::pending()).await.unwrap();
    let errors = errors.lock().unwrap();
    errors.clone()
}

/// Randomness that a test can repeat.
pub fn secrets(seed: [u8; 32]) -> Secrets {
    Box::new(ChaCha20Rng::from_seed(seed))
}

/// What a transport that never waits answers.
pub fn answer(transport: &dyn Transport, request: Request) -> Input {
    match request {
        Request::Enroll(r) => Input::Enrolled(now(transport.enroll(&r))),
        Request::Renew(r) => Input::Renewed(now(transport.renew(&r))),
        Request::CheckIn(r) => Input::CheckedIn(now(transport.check_in(&r))),
        Request::Upload(r) => Input::Uploaded(now(transport.upload(&r))),
        Request::Announcement { what, place, participant, wait } => {
            Input::Announced(now(transport.announcement(what, place, participant, wait)))
        }
        Request::Evidence { place, dealer } => Input::Evidenced(now(transport.evidence(place, dealer))),
        Request::Answer { what, place, participant, body } => {
            Input::Answered(now(transport.answer(what, place, participant, body)))
        }
        Request::Abandon(r) => Input::Abandoned(now(transport.abandon(&r))),
        Request::AbortStatement { place, participant, body } => {
            Input::Answered(now(transport.abort_statement(place, participant, body)))
        }
        Request::AbortStatements { place } => Input::Announced(now(transport.abort_statements(place))),
    }
}

pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

/// `base` (3) and `head` (2), the latter personal if asked for.
pub fn model(personal: bool) -> ModelSpec {
    let tensor = |name: &str, size| TensorDeclaration { name: name.into(), shape: vec![size], init: Initial::Zeros };
    ModelSpec {
        architecture: None,
        tensors: vec![tensor("base", 3), tensor("head", 2)],
        personal: if personal { vec!["head".into()] } else { vec![] },
        seed: 1,
    }
}

/// The largest of five values in each round; the rest waits.
pub fn one_of_five() -> CodecTerms {
    CodecTerms { codec: Compression::TopK { k: 1, error_feedback: true }, seed: 1 }
}

/// What the coordinator makes of the updates of all rounds, and what is left in the journal.
pub fn sent_and_left(coordinator: &Coordinator, journal: &dyn Journal) -> (Vec<f32>, Vec<f32>) {
    let specs = model(false).tensors.into_iter().map(|t| TensorSpec { name: t.name, shape: t.shape }).collect();
    let layout = Layout::new(specs).unwrap();
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, .. } =
        coordinator.world(|world| Coordinator::assignment(world).encoding);
    let (parameters, metrics) = (layout.len(), 2);
    let params =
        QuantizationParams { parameters, modulus_bits, clip_range, clip_norm, max_weight, max_cohort, metrics };
    let codec = UpdateCodec::new(Some(&Compression::TopK { k: 1, error_feedback: true }), &layout, params).unwrap();
    let mut sent = vec![0.0; layout.len()];
    for body in coordinator.world(|world| world.accepted.values().cloned().collect::<Vec<_>>()) {
        assert_eq!(body.len(), codec.upload_bytes());
        let sum = ExactSum::new(codec.expand(&body).unwrap(), modulus_bits, 1).unwrap().release_without_noise();
        let mean = codec.decode(&sum, &[0; 32]).unwrap().mean;
        sent.iter_mut().zip(mean.delta).for_each(|(total, value)| *total += value);
    }
    let record = journal.load(&snapshot::residual(task())).unwrap().unwrap();
    (sent, Residual::from_record(&record, layout.len()).unwrap().values().to_vec())
}

/// What happens to a request instead of its normal course.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It never arrives.
    Lost,
    /// It takes effect, its answer is lost.
    AnswerLost,
    /// It is refused.
    Refused(ProblemType, Option<Duration>),
    /// Of a fetch: half of the bytes come.
    Half,
    /// Of a fetch: other bytes come.
    Garbage,
    /// It goes through.
    None,
}

#[derive(Default)]
pub struct World {
    /// Rounds that are over.
    pub rounds_done: u32,
    pub rounds: u32,
    pub personal: bool,
    pub clip: Option<f32>,
    /// With a privacy mechanism.
    pub privacy: Option<PrivacyTerms>,
    /// Of the round under way; 0 stands for 1.
    pub attempt: u32,
    /// Publishes a control variate (of zeros) with each version.
    pub scaffold: bool,
    /// Rounds that fail after their update was taken.
    pub failing: Vec<u32>,
    /// The last round that did not.
    pub counted: Option<Counted>,
    /// Spoils each assignment.
    pub tweak: Option<fn(&mut Assignment)>,
    /// Spoils what it is told to train ahead of rounds.
    pub tweak_training: Option<fn(&mut Assignment)>,
    /// How updates are compressed.
    pub codec: Option<CodecTerms>,
    /// Whether `base` is a matrix of three rows.
    pub matrix: bool,
    /// What the task asks of devices; whoever says no has to come back, and after the third time the task is over.
    pub criteria: Vec<Criterion>,
    pub declined: u32,
    pub faults: BTreeMap<&'static str, VecDeque<Fault>>,
    /// How often a place is offered again after it was answered.
    pub reoffer: u32,
    /// How long the first check-in is told to stay away, in milliseconds.
    pub away_ms: Option<u64>,
    /// While set, nothing arrives.
    pub offline: bool,
    /// Every request that was made, arrived or not.
    pub calls: Vec<&'static str>,
    /// Every upload that was made, by round, arrived or not.
    pub sent: BTreeMap<u32, Vec<Bytes>>,
    /// The one that counts.
    pub accepted: BTreeMap<u32, Bytes>,
    /// Times each round's update was stored: more than once would be a double count.
    pub stored: BTreeMap<u32, u32>,
    pub abandoned: Vec<(u32, &'static str)>,
    pub keys: Vec<String>,
    pub ranges: Vec<usize>,
    pub renew_at: Option<Timestamp>,
    /// Certifies participants instead of the authority that their apps name.
    pub ca: Option<Arc<Ca>>,
    /// Certifies this request's key instead of the one that was sent.
    pub certified_key: Option<String>,
    /// Names this participant in certificates.
    pub certified_participant: Option<ParticipantId>,
    /// Comes into effect with the first renewal: another authority, another request's key.
    pub lie_at_renewal: Option<(Option<Arc<Ca>>, Option<String>)>,
    /// Has participants train ahead of rounds.
    pub ahead: bool,
    /// The training that was given last, and the version it starts from.
    pub training: Option<(u32, u32)>,
    /// Versions that others publish before a finished update is aggregated, once.
    pub meanwhile: u32,
    /// Finished updates that are thrown away.
    pub discards: u32,
    /// What each check-in said of a training.
    pub reports: Vec<Option<TrainingReport>>,
    /// Everything that was ever sent up, as it would be on the wire.
    pub wire: Vec<u8>,
}

/// A coordinator with one task and one participant.
#[derive(Clone, Default)]
pub struct Coordinator(pub Arc<Mutex<World>>);

impl Coordinator {
    pub fn new(rounds: u32) -> Self {
        let world = World { rounds, ..World::default() };
        Self(Arc::new(Mutex::new(world)))
    }

    pub fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub fn script(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.world(|world| world.faults.entry(call).or_default().extend(faults));
    }

    pub fn count(&self, call: &str) -> usize {
        self.world(|world| world.calls.iter().filter(|made| **made == call).count())
    }

    /// The published part of the model: values that tell the round.
    pub fn published(personal: bool, round: u32) -> Vec<u8> {
        let spec = model(personal);
        let shared = spec.tensors.iter().filter(|tensor| !spec.personal.contains(&tensor.name));
        let specs = shared.map(|t| TensorSpec { name: t.name.clone(), shape: t.shape.clone() }).collect();
        let mut parameters = Parameters::zeros(Arc::new(Layout::new(specs).unwrap()));
        parameters.values_mut().fill(round as f32);
        checkpoint::write(&parameters).unwrap()
    }

    /// The file of a version.
    pub fn file(world: &World, version: u32) -> Vec<u8> {
        let mut file = Self::published(world.personal, version);
        if world.matrix {
            let flat = checkpoint::read_layout(&file).unwrap();
            let mut tensors = flat.tensors().to_vec();
            tensors[0].shape = vec![3, 1];
            let mut model = Parameters::zeros(Arc::new(Layout::new(tensors).unwrap()));
            model.values_mut().fill(version as f32);
            file = checkpoint::write(&model).unwrap();
        }
        if !world.scaffold {
            return file;
        }
        let model = checkpoint::read_layout(&file).unwrap();
        let mut both = Parameters::zeros(Arc::new(scaffold::layout(&model).unwrap()));
        both.values_mut()[..model.len()].fill(version as f32);
        checkpoint::write(&both).unwrap()
    }

    /// Digests of the versions before the newest, the latest first.
    pub fn earlier(world: &World, most: u32) -> Vec<Digest> {
        let versions = (0..world.rounds_done).rev().take(most as usize);
        versions.map(|version| sha256(&Self::file(world, version))).collect()
    }

    pub fn assignment(world: &World) -> Assignment {
        let file = Self::file(world, world.rounds_done);
        let mut model = model(world.personal);
        if world.matrix {
            model.tensors[0].shape = vec![3, 1];
        }
        Assignment {
            task: task(),
            task_name: "task".into(),
            round: world.rounds_done + 1,
            attempt: world.attempt.max(1),
            model,
            base: ModelRef { version: world.rounds_done, sha256: sha256(&file), bytes: file.len() as u64 },
            earlier: Vec::new(),
            training: TrainingPlan::default(),
            encoding: Encoding {
                modulus_bits: 32,
                clip_range: 1.0,
                clip_norm: world.clip,
                max_weight: if world.privacy.is_some() { 1 } else { 100 },
                max_cohort: if world.privacy.is_some() { 3 } else { 10 },
                analytics: None,
                compression: world.codec.clone(),
                personalization: None,
                staleness: None,
                groups: None,
                solver: None,
            },
            metrics: vec!["loss".into(), "train_loss".into()],
            privacy: world.privacy.clone(),
            secure_aggregation: None,
            report_loss: false,
            update: None,
            groups: None,
            counted: world.counted,
            cohort: 1,
            deadline_at: Timestamp(0),
            remaining_ms: 600_000,
        }
    }

    /// What a participant is told instead of a place in a round, where it is to train ahead.
    fn train_first(
        world: &mut World,
        report: Option<TrainingReport>,
        assignment: &mut Assignment,
    ) -> Option<CheckInReply> {
        let staleness = Staleness { a: 1.0, p: 1.0, max: 3 };
        assignment.encoding.staleness = Some(staleness);
        assignment.earlier = Self::earlier(world, staleness.max);
        let tweak = world.tweak_training;
        let train = |serial, assignment: &Assignment| {
            let mut assignment = Assignment { attempt: serial, ..assignment.clone() };
            tweak.iter().for_each(|tweak| tweak(&mut assignment));
            Some(CheckInReply::Train(Box::new(assignment)))
        };
        let given = world.training.filter(|(serial, _)| report.is_none_or(|report| report.serial == *serial));
        match (report, given) {
            (Some(report), Some((serial, _))) if report.ready && world.discards > 0 => {
                world.discards -= 1;
                let reason = DiscardReason::TooStale;
                Some(CheckInReply::Discard { task: report.task, serial, reason })
            }
            (Some(report), Some((serial, version))) if report.ready => {
                world.rounds_done += std::mem::take(&mut world.meanwhile);
                *assignment = Self::assignment(world);
                assignment.encoding.staleness = Some(staleness);
                assignment.earlier = Self::earlier(world, staleness.max);
                assignment.update = Some(HeldUpdate { serial, version });
                None
            }
            (None, Some((serial, version))) if version == world.rounds_done => train(serial, assignment),
            _ => {
                let serial = world.training.map_or(1, |(serial, _)| serial + 1);
                world.training = Some((serial, world.rounds_done));
                train(serial, assignment)
            }
        }
    }

    /// Runs one request through the script.
    fn go<T>(
        &self,
        call: &'static str,
        effect: impl FnOnce(&mut World, &Fault) -> Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        self.world(|world| {
            world.calls.push(call);
            let lost = || Err(TransportError::unreachable("scripted"));
            if world.offline {
                return lost();
            }
            let fault = world.faults.get_mut(call).and_then(VecDeque::pop_front).unwrap_or(Fault::None);
            match fault {
                Fault::Lost => lost(),
                Fault::AnswerLost => effect(world, &fault).and_then(|_| lost()),
                Fault::Refused(kind, retry_after) => {
                    Err(TransportError::Problem { problem: Box::new(Problem::new(kind, "scripted")), retry_after })
                }
                Fault::Half | Fault::Garbage | Fault::None => effect(world, &fault),
            }
        })
    }
}

/// The answer to a signing request, or to a certificate from elsewhere.
fn certificate(world: &mut World, csr_pem: Option<&String>, certificate_pem: Option<&String>) -> EnrollReply {
    world.keys.extend(csr_pem.or(certificate_pem).cloned());
    let certified = || {
        world.ca.as_deref().unwrap_or(&CA).certify(
            world.certified_key.as_ref().or(csr_pem).unwrap(),
            world.certified_participant.unwrap_or_else(participant),
        )
    };
    EnrollReply {
        participant: participant(),
        name: "device-1".into(),
        certificate_pem: certificate_pem.cloned().unwrap_or_else(certified),
        expires_at: Timestamp(i64::MAX),
        renew_at: world.renew_at.unwrap_or(Timestamp(i64::MAX)),
    }
}

#[async_trait]
impl Transport for Coordinator {
    fn identify(&self, _: &Identity) -> Result<(), TransportError> {
        Ok(())
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        self.go("enroll", |world, _| Ok(certificate(world, request.csr_pem.as_ref(), request.certificate_pem.as_ref())))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        self.go("renew", |world, _| {
            if let Some(lie) = world.lie_at_renewal.take() {
                (world.ca, world.certified_key) = lie;
            }
            Ok(certificate(world, request.csr_pem.as_ref(), request.certificate_pem.as_ref()))
        })
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        self.go("check_in", |world, _| {
            world.wire.extend(serde_json::to_vec(request).unwrap());
            if let Some(after_ms) = world.away_ms.take() {
                return Ok(CheckInReply::ComeBack { after_ms });
            }
            if world.reoffer > 0 && world.rounds_done > 0 {
                world.reoffer -= 1;
                let assignment = Assignment { round: world.rounds_done, ..Self::assignment(world) };
                return Ok(CheckInReply::Assigned(Box::new(assignment)));
            }
            if world.rounds_done >= world.rounds {
                return Ok(CheckInReply::TaskOver { task: task() });
            }
            let question = Question { task: task(), criteria: world.criteria.clone() };
            match request.findings.iter().find(|finding| finding.task == question.task) {
                _ if world.criteria.is_empty() => {}
                None => return Ok(CheckInReply::Asked { questions: vec![question] }),
                Some(finding) if finding.eligible => {}
                Some(_) if world.declined == 2 => return Ok(CheckInReply::TaskOver { task: task() }),
                Some(_) => {
                    world.declined += 1;
                    return Ok(CheckInReply::ComeBack { after_ms: 1 });
                }
            }
            let mut assignment = Self::assignment(world);
            if world.ahead {
                world.reports.push(request.training);
                if let Some(instead) = Self::train_first(world, request.training, &mut assignment) {
                    return Ok(instead);
                }
            }
            world.tweak.iter().for_each(|tweak| tweak(&mut assignment));
            Ok(CheckInReply::Assigned(Box::new(assignment)))
        })
    }

    async fn fetch_model(&self, _: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        let begin = sink.len();
        let rest = self.go("fetch", |world, fault| {
            world.ranges.push(begin);
            let mut file = Self::file(world, model.version);
            Ok(match fault {
                Fault::Half => (file[begin..begin + (file.len() - begin) / 2].to_vec(), false),
                Fault::Garbage => {
                    *file.last_mut().unwrap() ^= 1;
                    (file[begin..].to_vec(), true)
                }
                _ => (file[begin..].to_vec(), true),
            })
        });
        let (bytes, whole) = rest?;
        sink.extend(bytes);
        if whole { Ok(()) } else { Err(TransportError::unreachable("cut off")) }
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        let (round, body) = (upload.place.round, upload.body.clone());
        self.world(|world| {
            world.sent.entry(round).or_default().push(body.clone());
            world.wire.extend_from_slice(&body);
        });
        self.go("upload", |world, _| {
            assert_eq!(sha256(&body), upload.sha256);
            let receipt = Receipt { sha256: upload.sha256, bytes: body.len() as u64, accepted_at: Timestamp(0) };
            match world.accepted.get(&round) {
                Some(stored) if *stored == body => Ok(receipt),
                Some(_) => Err(Problem::new(ProblemType::DifferentInput, "scripted").into()),
                None if round == world.rounds_done + 1 => {
                    world.accepted.insert(round, body);
                    *world.stored.entry(round).or_default() += 1;
                    world.rounds_done += 1;
                    if !world.failing.contains(&round) {
                        world.counted = Some(Counted { round, attempt: upload.place.attempt });
                    }
                    Ok(receipt)
                }
                None => Err(Problem::new(ProblemType::PhaseClosed, "scripted").into()),
            }
        })
    }

    async fn announcement(
        &self,
        _: Announcement,
        _: Attempt,
        _: ParticipantId,
        _: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        unreachable!("its rounds are without secure aggregation")
    }

    async fn evidence(&self, _: Attempt, _: ParticipantId) -> Result<Bytes, TransportError> {
        unreachable!("its rounds are without secure aggregation")
    }

    async fn answer(&self, _: Answer, _: Attempt, _: ParticipantId, _: Bytes) -> Result<(), TransportError> {
        unreachable!("its rounds are without secure aggregation")
    }

    async fn abort_statement(&self, _: Attempt, _: ParticipantId, _: Bytes) -> Result<(), TransportError> {
        unreachable!("its rounds are without secure aggregation")
    }

    async fn abort_statements(&self, _: Attempt) -> Result<Option<Bytes>, TransportError> {
        unreachable!("its rounds are without secure aggregation")
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        self.go("abandon", |world, _| {
            world.abandoned.push((abandonment.place.round, abandonment.reason.as_str()));
            world.rounds_done = world.rounds_done.max(abandonment.place.round);
            Ok(())
        })
    }
}

/// Adds a third to every weight, and remembers what it was given.
#[derive(Clone, Default)]
pub struct Nudge {
    pub seen: Arc<Mutex<Vec<Vec<f32>>>>,
    /// Learning rates it was told.
    pub rates: Arc<Mutex<Vec<f64>>>,
}

impl Trainer for Nudge {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.seen.lock().unwrap().push(model.values().to_vec());
        self.rates.lock().unwrap().push(job.plan.learning_rate);
        let mut parameters = model.clone();
        // Not a multiple of any quantum: rounding has something to decide.
        parameters.values_mut().iter_mut().for_each(|value| *value += 1.0 / 3.0);
        Ok(Trained {
            parameters,
            examples: 7,
            metrics: vec![("train_loss".into(), MetricValue { value: 0.5, count: 7 })],
        })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![("loss".into(), MetricValue { value: 1.5, count: 3 })])
    }

    fn examples(&self) -> u64 {
        7
    }
}
