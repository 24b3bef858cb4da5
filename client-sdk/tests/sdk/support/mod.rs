//! A coordinator of a few lines, scripted, with a journal and trainers to go with it.
#![expect(clippy::cast_possible_truncation, reason = "numbers of devices and words are small")]

pub(crate) mod assignments;
pub(crate) mod authority;
pub(crate) mod cohort;
pub(crate) mod device;
pub(crate) mod kept;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod private;
pub(crate) mod provenance;
pub(crate) mod trainers;
pub(crate) mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client_sdk::entropy::Secrets;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::contribution::scaffold;
use client_sdk::learning::{
    ExactSum, Layout, Parameters, QuantizationParams, Residual, TensorSpec, WeightedCodec, checkpoint,
};
use client_sdk::participant::machine::Settings;
use client_sdk::participant::{Builder, snapshot};
use client_sdk::transport::{Download, Request, Response, TransportError, Upload};
use client_sdk::{Analytics, Event, Participant, PrivacyPolicy, SecurityPolicy, Trainer};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use ring::digest;
use task_spec::{Compression, Initial, ModelSpec, Staleness, TensorDeclaration};
use wire::certificate::Issuers;
use wire::contributions::SignedContributions;
use wire::participant::{
    Assignment, CheckInReply, CheckInRequest, CodecTerms, Counted, DiscardReason, Encoding, EnrollReply, FinalModel,
    HeldUpdate, ModelRef, PrivacyTerms, Question, Receipt, TrainingReport,
};
use wire::problem::ProblemType;
use wire::{Criterion, Digest, ParticipantId, TaskId, Timestamp};

pub(crate) use authority::{CA, Ca, ca_pem};
pub(crate) use link::Fault;
use link::{FakeCoordinator, Link, lost, problem};

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    Digest(digest::digest(&digest::SHA256, bytes).as_ref().try_into().unwrap())
}

pub(crate) fn task() -> TaskId {
    "00000000-0000-0000-0000-00000000000a".parse().unwrap()
}

pub(crate) fn participant() -> ParticipantId {
    "00000000-0000-0000-0000-00000000000b".parse().unwrap()
}

/// Settings of an app with that authority, for cohorts smaller than the default minimum.
pub(crate) fn settings() -> Settings {
    Settings {
        members: Issuers::from_pem(ca_pem()).unwrap(),
        security: SecurityPolicy::lowest(),
        // It lives for one task, whose noise may be little.
        privacy: PrivacyPolicy { lifetime: None, ..PrivacyPolicy::default() },
        ..Settings::default()
    }
}

/// For tasks without secure aggregation, which a participant refuses by default.
pub(crate) fn in_the_clear() -> Settings {
    Settings { security: SecurityPolicy::optional(), ..settings() }
}

/// Runs a participant with this trainer until the task ends; returns its training errors.
pub(crate) async fn failures(coordinator: &Coordinator, trainer: impl Trainer + 'static) -> Vec<String> {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&errors);
    let mut participant = coordinator
        .app()
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
pub(crate) fn secrets(seed: [u8; 32]) -> Secrets {
    Box::new(ChaCha20Rng::from_seed(seed))
}

/// `base` (3) and `head` (2), the latter personal on request.
pub(crate) fn model(personal: bool) -> ModelSpec {
    let tensor = |name: &str, size| TensorDeclaration { name: name.into(), shape: vec![size], init: Initial::Zeros };
    ModelSpec {
        architecture: None,
        table: None,
        tensors: vec![tensor("base", 3), tensor("head", 2)],
        personal: if personal { vec!["head".into()] } else { vec![] },
        graph: None,
        loss: None,
        batch_norm: None,
        seed: 1,
        initial: None,
    }
}

/// The largest of five values in each round; the rest waits.
pub(crate) fn one_of_five() -> CodecTerms {
    CodecTerms { codec: Compression::TopK { k: 1, error_feedback: true }, seed: 1 }
}

/// The combined updates of all rounds, and the state left in the journal.
pub(crate) fn sent_and_left(coordinator: &Coordinator, journal: &dyn Journal) -> (Vec<f32>, Vec<f32>) {
    let specs = model(false).tensors.into_iter().map(|t| TensorSpec { name: t.name, shape: t.shape }).collect();
    let layout = Layout::new(specs).unwrap();
    let Encoding { modulus_bits, clip_range, clip_norm, max_weight, max_cohort, .. } =
        coordinator.world(|world| Coordinator::assignment(world).encoding);
    let (parameters, metrics) = (layout.len(), 2);
    let params =
        QuantizationParams { parameters, modulus_bits, clip_range, clip_norm, max_weight, max_cohort, metrics };
    let codec = WeightedCodec::new(Some(&Compression::TopK { k: 1, error_feedback: true }), &layout, params).unwrap();
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

#[derive(Default)]
pub(crate) struct World {
    /// Rounds that are over.
    pub(crate) rounds_done: u32,
    pub(crate) rounds: u32,
    pub(crate) personal: bool,
    pub(crate) clip: Option<f32>,
    /// With a privacy mechanism.
    pub(crate) privacy: Option<PrivacyTerms>,
    /// Of the round under way; 0 stands for 1.
    pub(crate) attempt: u32,
    /// Publishes a control variate (of zeros) with each version.
    pub(crate) scaffold: bool,
    /// Rounds that fail after their update was taken.
    pub(crate) failing: Vec<u32>,
    /// The last round that did not.
    pub(crate) counted: Option<Counted>,
    /// Spoils each assignment.
    pub(crate) tweak: Option<fn(&mut Assignment)>,
    /// Forges its asynchronous trainings.
    pub(crate) tweak_training: Option<fn(&mut Assignment)>,
    /// How updates are compressed.
    pub(crate) codec: Option<CodecTerms>,
    /// The analysis of a task without training; of one round.
    pub(crate) analysis: Option<Analytics>,
    /// Whether `base` is a matrix of three rows.
    pub(crate) matrix: bool,
    /// How many values `base` has, if not three.
    pub(crate) base_values: Option<u64>,
    /// The task's criteria for devices; a device that does not meet them has to return, and the task ends after the third time.
    pub(crate) criteria: Vec<Criterion>,
    pub(crate) declined: u32,
    pub(crate) faults: BTreeMap<&'static str, VecDeque<Fault>>,
    /// How often a place is offered again after it was answered.
    pub(crate) reoffer: u32,
    /// Pause after the first check-in, in milliseconds.
    pub(crate) away_ms: Option<u64>,
    /// While set, all requests are lost.
    pub(crate) offline: bool,
    /// Every request that was made, arrived or not.
    pub(crate) calls: Vec<&'static str>,
    /// Every upload that was made, by round, arrived or not.
    pub(crate) sent: BTreeMap<u32, Vec<Bytes>>,
    /// The one that counts.
    pub(crate) accepted: BTreeMap<u32, Bytes>,
    /// Times each round's update was stored: more than once would be a double count.
    pub(crate) stored: BTreeMap<u32, u32>,
    pub(crate) abandoned: Vec<(u32, &'static str)>,
    pub(crate) keys: Vec<String>,
    pub(crate) ranges: Vec<usize>,
    pub(crate) renew_at: Option<Timestamp>,
    /// Certifies participants instead of the authority that their apps name.
    pub(crate) ca: Option<Arc<Ca>>,
    /// Certifies this request's key instead of the one that was sent.
    pub(crate) certified_key: Option<String>,
    /// Names this participant in certificates.
    pub(crate) certified_participant: Option<ParticipantId>,
    /// Is what answers name instead of the usual participant.
    pub(crate) named: Option<ParticipantId>,
    /// Comes into effect with the first renewal: another authority, another request's key.
    pub(crate) lie_at_renewal: Option<(Option<Arc<Ca>>, Option<String>)>,
    /// Has participants train ahead of rounds.
    pub(crate) ahead: bool,
    /// The training that was given last, and the version it starts from.
    pub(crate) training: Option<(u32, u32)>,
    /// Versions that others publish before a finished update is aggregated, once.
    pub(crate) meanwhile: u32,
    /// Finished updates that are thrown away.
    pub(crate) discards: u32,
    /// What each check-in said of a training.
    pub(crate) reports: Vec<Option<TrainingReport>>,
    /// The last version, as sent at the end of the task.
    pub(crate) last: Option<FinalModel>,
    /// The answer to a withdrawal.
    pub(crate) statement: Option<SignedContributions>,
    /// Everything that was ever sent up, as it would be on the wire.
    pub(crate) wire: Vec<u8>,
}

/// A coordinator with one task and one participant.
#[derive(Clone, Default)]
pub(crate) struct Coordinator(pub Arc<Mutex<World>>);

impl Coordinator {
    pub(crate) fn new(rounds: u32) -> Self {
        let world = World { rounds, ..World::default() };
        Self(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// An app for this task, without secure aggregation. The caller adds its journal, its trainer and, if it is new, its token.
    pub(crate) fn app(&self) -> Builder {
        Participant::builder()
            .secure_aggregation(SecurityPolicy::optional())
            .members_ca_pem(ca_pem())
            .transport(Link::to(self.clone()))
    }

    pub(crate) fn script(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.world(|world| world.faults.entry(call).or_default().extend(faults));
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.world(|world| world.calls.iter().filter(|made| **made == call).count())
    }

    /// The published part of the model: values that tell the round.
    pub(crate) fn published(personal: bool, round: u32) -> Vec<u8> {
        let spec = model(personal);
        let shared = spec.tensors.iter().filter(|tensor| !spec.personal.contains(&tensor.name));
        let specs = shared.map(|t| TensorSpec { name: t.name.clone(), shape: t.shape.clone() }).collect();
        let mut parameters = Parameters::zeros(Arc::new(Layout::new(specs).unwrap()));
        parameters.values_mut().fill(round as f32);
        checkpoint::write(&parameters).unwrap()
    }

    /// The file of a version.
    pub(crate) fn file(world: &World, version: u32) -> Vec<u8> {
        if let Some(analysis) = &world.analysis {
            return words::analysis(analysis).initial().to_bytes().unwrap();
        }
        let mut file = Self::published(world.personal, version);
        if let Some(shape) = world.base_shape() {
            let flat = checkpoint::read_layout(&file).unwrap();
            let mut tensors = flat.tensors().to_vec();
            tensors[0].shape = shape;
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
    pub(crate) fn earlier(world: &World, most: u32) -> Vec<Digest> {
        let versions = (0..world.rounds_done).rev().take(most as usize);
        versions.map(|version| sha256(&Self::file(world, version))).collect()
    }

    pub(crate) fn assignment(world: &World) -> Assignment {
        let file = Self::file(world, world.rounds_done);
        let mut model = model(world.personal);
        if let Some(shape) = world.base_shape() {
            model.tensors[0].shape = shape;
        }
        world.analysis.iter().for_each(|_| model.tensors.clear());
        let base = ModelRef { version: world.rounds_done, sha256: sha256(&file), bytes: file.len() as u64 };
        let (max_weight, max_cohort) = if world.privacy.is_some() { (1, 3) } else { (100, 10) };
        Assignment {
            attempt: world.attempt.max(1),
            encoding: Encoding {
                clip_norm: world.clip,
                max_weight,
                max_cohort,
                compression: world.codec.clone(),
                analytics: world.analysis.clone(),
                ..words::encoding()
            },
            privacy: world.privacy.clone(),
            counted: world.counted,
            ..words::assignment(model, base)
        }
    }

    /// The reply for asynchronous training, instead of an assignment.
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
            if world.offline {
                return lost();
            }
            let fault = world.faults.get_mut(call).and_then(VecDeque::pop_front).unwrap_or(Fault::None);
            fault.apply(|fault| effect(world, fault))
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
        participant: world.named.unwrap_or_else(participant),
        name: "device-1".into(),
        certificate_pem: certificate_pem.cloned().unwrap_or_else(certified),
        expires_at: Timestamp(i64::MAX),
        renew_at: world.renew_at.unwrap_or(Timestamp(i64::MAX)),
    }
}

impl World {
    /// Shape of `base`, if it is not a vector of three values.
    fn base_shape(&self) -> Option<Vec<u64>> {
        if self.matrix { Some(vec![3, 1]) } else { self.base_values.map(|values| vec![values]) }
    }

    fn check_in(&mut self, request: &CheckInRequest) -> CheckInReply {
        self.wire.extend(serde_json::to_vec(request).unwrap());
        if let Some(after_ms) = self.away_ms.take() {
            return CheckInReply::ComeBack { after_ms, waiting_for: vec![] };
        }
        if self.reoffer > 0 && self.rounds_done > 0 {
            self.reoffer -= 1;
            let assignment = Assignment { round: self.rounds_done, ..Coordinator::assignment(self) };
            return CheckInReply::Assigned(Box::new(assignment));
        }
        if self.rounds_done >= self.rounds {
            return CheckInReply::TaskOver { task: task(), model: self.last.clone().map(Box::new) };
        }
        let question = Question { task: task(), criteria: self.criteria.clone() };
        match request.findings.iter().find(|finding| finding.task == question.task) {
            _ if self.criteria.is_empty() => {}
            None => return CheckInReply::Asked { questions: vec![question] },
            Some(finding) if finding.eligible => {}
            Some(_) if self.declined == 2 => return CheckInReply::TaskOver { task: task(), model: None },
            Some(_) => {
                self.declined += 1;
                return CheckInReply::ComeBack { after_ms: 1, waiting_for: vec![] };
            }
        }
        let mut assignment = Coordinator::assignment(self);
        if self.ahead {
            self.reports.push(request.training);
            if let Some(instead) = Coordinator::train_first(self, request.training, &mut assignment) {
                return instead;
            }
        }
        self.tweak.iter().for_each(|tweak| tweak(&mut assignment));
        CheckInReply::Assigned(Box::new(assignment))
    }

    fn upload(&mut self, upload: Upload) -> Result<Receipt, TransportError> {
        let Upload { place, sha256: digest, body, .. } = upload;
        assert_eq!(sha256(&body), digest);
        let receipt = Receipt { sha256: digest, bytes: body.len() as u64, accepted_at: Timestamp(0) };
        match self.accepted.get(&place.round) {
            Some(stored) if *stored == body => Ok(receipt),
            Some(_) => problem(ProblemType::DifferentInput),
            None if place.round == self.rounds_done + 1 => {
                self.accepted.insert(place.round, body);
                *self.stored.entry(place.round).or_default() += 1;
                self.rounds_done += 1;
                if !self.failing.contains(&place.round) {
                    self.counted = Some(Counted { round: place.round, attempt: place.attempt });
                }
                Ok(receipt)
            }
            None => problem(ProblemType::PhaseClosed),
        }
    }
}

impl FakeCoordinator for Coordinator {
    fn answer(&self, request: Request) -> Response {
        match request {
            Request::Enroll(request) => Response::Enrolled(self.go("enroll", |world, _| {
                Ok(certificate(world, request.csr_pem.as_ref(), request.certificate_pem.as_ref()))
            })),
            Request::Renew(request) => Response::Renewed(self.go("renew", |world, _| {
                if let Some(lie) = world.lie_at_renewal.take() {
                    (world.ca, world.certified_key) = lie;
                }
                Ok(certificate(world, request.csr_pem.as_ref(), request.certificate_pem.as_ref()))
            })),
            Request::CheckIn(request) => {
                Response::CheckedIn(self.go("check_in", |world, _| Ok(world.check_in(&request))))
            }
            Request::Upload(upload) => {
                self.world(|world| {
                    world.sent.entry(upload.place.round).or_default().push(upload.body.clone());
                    world.wire.extend_from_slice(&upload.body);
                });
                Response::Uploaded(self.go("upload", |world, _| world.upload(upload)))
            }
            Request::Abandon(abandonment) => Response::Abandoned(self.go("abandon", |world, _| {
                world.abandoned.push((abandonment.place.round, abandonment.reason.as_str()));
                world.rounds_done = world.rounds_done.max(abandonment.place.round);
                Ok(())
            })),
            Request::Manifest(_) | Request::Part(_) => unreachable!("its updates are small"),
            Request::Withdraw => {
                Response::Withdrawn(self.go("withdraw", |world, _| Ok(world.statement.clone().unwrap())))
            }
            Request::Announcement { .. } | Request::Evidence { .. } | Request::Answer { .. } => {
                unreachable!("its rounds are without secure aggregation")
            }
        }
    }

    fn fetch(&self, _: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        let begin = usize::try_from(sink.bytes()).unwrap();
        let (bytes, is_whole) = self.go("fetch", |world, fault| {
            world.ranges.push(begin);
            let mut bytes = Self::file(world, model.version).split_off(begin);
            match fault {
                Fault::Half => bytes.truncate(bytes.len() / 2),
                Fault::Garbage => *bytes.last_mut().unwrap() ^= 1,
                _ => {}
            }
            Ok((bytes, !matches!(fault, Fault::Half)))
        })?;
        sink.append(&bytes)?;
        if is_whole { Ok(()) } else { Err(TransportError::unreachable("cut off")) }
    }
}
