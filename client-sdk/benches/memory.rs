//! Peak memory of a participant that enrols, fetches a model, trains and sends. Each case runs in its own process.
//!
//! `cargo bench -p client-sdk --features process --bench memory [-- ready | own | secure [MEMBERS, 1000] | program]`. The coordinator
//! is a few lines of code: it holds the model's file and drops the update. Under secure aggregation a second process runs the other
//! members and the coordinator's phases. It deals all shares: two minutes of a core for 1000 members. The journal is a folder, and the
//! bench drives the machine by hand, without a runtime, to measure only the participant, the trainer and the examples. Linux only: it
//! reads `VmHWM`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and its settings")]

#[path = "memory/peers.rs"]
mod peers;

use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_sdk::clock::{Now, SystemClock};
use client_sdk::journal::{Journal as _, JournalFiles};
use client_sdk::learning::{Codec, Layout, MetricValue, Parameters, QuantizationParams, TensorSpec, checkpoint};
use client_sdk::models::{Architecture, Mlp};
use client_sdk::participant::machine::{Action, CheckpointWriter, Circumstances, Input, Record, Surroundings};
use client_sdk::train::Device;
use client_sdk::transport::{Request, Response};
use client_sdk::{Dataset, ModelTrainer, Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use peers::{Hello, Line, PARTICIPANT};
use recipe::digest::{application_digest, round_digest, training_digest};
use secure_agg::params::{SessionConfig, VectorShape};
use wire::Timestamp;
use wire::participant::{
    Answer, Assignment, CheckInReply, CheckInRequest, EnrollReply, Invitation, Receipt, SessionTerms,
};

/// Examples of 784 numbers in the case with a ready model.
const EXAMPLES: usize = 600;
/// Parameters in the case with the app's own trainer.
const PARAMETERS: u64 = 1_000_000;
/// Parameters in the case with a program: as many as one request still sends.
#[cfg(feature = "process")]
const OF_PROGRAM: u64 = 2_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (case, members) = (arguments.next(), arguments.next());
    let members = members.map_or(1000, |members| members.parse().unwrap());
    match case.as_deref() {
        Some("ready") => ready(),
        Some("own") => own(None),
        #[cfg(feature = "process")]
        Some("program") => program(),
        Some("secure") => own(Some(members)),
        Some("peers") => peers::run(),
        _ => {
            let own = "the app's own trainer, 1 000 000 parameters";
            let names = ["ready model, mlp 784-200-10", own, &format!("{own}, secure aggregation among {members}")];
            for (case, name) in ["ready", "own", "secure"].into_iter().zip(names) {
                println!("{name}:");
                assert!(Command::new(std::env::current_exe().unwrap()).arg(case).status().unwrap().success());
            }
            #[cfg(feature = "process")]
            println!("a program, 2 000 000 parameters:");
            #[cfg(feature = "process")]
            assert!(Command::new(std::env::current_exe().unwrap()).arg("program").status().unwrap().success());
        }
    }
}

/// `VmHWM` or `VmRSS`, in MB.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

fn ready() {
    let architecture = Architecture::Mlp(Mlp { inputs: 784, hidden: vec![200], classes: 10 });
    let features = (0..EXAMPLES * 784).map(|index| (index % 251) as f32 / 251.0).collect();
    let labels = (0..10).cycle().take(EXAMPLES).collect();
    let examples = Dataset::Labelled { features, labels, width: 784 };
    let held_out = Dataset::Labelled { features: vec![0.5; 784 * 64], labels: vec![1; 64], width: 784 };
    let first = architecture.initial(1).unwrap();
    let trainer = ModelTrainer::new(examples, held_out, Device::Cpu);
    round(&first, Some(serde_json::to_value(&architecture).unwrap()), None, trainer);
}

/// Trains in place.
struct Own;

impl Trainer for Own {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().for_each(|value| *value += 0.01);
        Ok(Trained { parameters, examples: 7, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        7
    }
}

/// A program that copies the model; its own memory is not counted.
#[cfg(feature = "process")]
fn program() {
    use client_sdk::process_trainer::{ProcessTrainer, Program};

    let folder = tempfile::tempdir().unwrap();
    let line = r#"cd "$TRIBUTARY_JOB"; cp model.safetensors t; mv t trained.safetensors; echo '{"examples":7}' >r; mv r result.json"#;
    let trainer = ProcessTrainer::open(Program::new(line), folder.path(), 7).unwrap();
    let tensor = TensorSpec { name: "w".into(), shape: vec![OF_PROGRAM] };
    let first = Parameters::zeros(Arc::new(Layout::new(vec![tensor]).unwrap()));
    round(&first, None, None, trainer);
}

fn own(members: Option<u16>) {
    let tensor = TensorSpec { name: "w".into(), shape: vec![PARAMETERS] };
    let first = Parameters::zeros(Arc::new(Layout::new(vec![tensor]).unwrap()));
    round(&first, None, members, Own);
}

/// The coordinator's side.
struct Coordinator {
    ca_pem: String,
    certifies: Certifies,
    assignment: Assignment,
    file: Vec<u8>,
    /// The coordinator's next message in the session.
    told: Option<Vec<u8>>,
    is_done: bool,
}

/// Who certifies the participant: this process, or the one that has the other members.
enum Certifies {
    Here(Box<rcgen::Issuer<'static, rcgen::KeyPair>>),
    Peers(Line<ChildStdout, ChildStdin>, Child),
}

impl Coordinator {
    fn alone(assignment: Assignment, file: Vec<u8>) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&key).unwrap().pem();
        let certifies = Certifies::Here(Box::new(rcgen::Issuer::new(params, key)));
        Self { ca_pem, certifies, assignment, file, told: None, is_done: false }
    }

    fn among(members: u16, mut assignment: Assignment, file: Vec<u8>) -> Self {
        let mut peers = Command::new(std::env::current_exe().unwrap());
        let mut peers = peers.arg("peers").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = Line(peers.stdout.take().unwrap(), peers.stdin.take().unwrap());
        let terms = SessionTerms::from(&session(members, &assignment));
        let (task, base) = (*assignment.task.0.as_bytes(), assignment.base.sha256.0);
        let hello = Hello { task, base, members, terms: terms.clone() };
        let ca_pem = String::from_utf8(line.ask(&serde_json::to_vec(&hello).unwrap())).unwrap();
        (assignment.cohort, assignment.secure_aggregation) = (members.into(), Some(terms));
        Self { ca_pem, certifies: Certifies::Peers(line, peers), assignment, file, told: None, is_done: false }
    }

    fn certificate(&mut self, csr_pem: &str) -> String {
        match &mut self.certifies {
            Certifies::Peers(line, _) => String::from_utf8(line.ask(csr_pem.as_bytes())).unwrap(),
            Certifies::Here(ca) => {
                let mut csr = rcgen::CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
                let urn = format!("{}{PARTICIPANT}", wire::certificate::PARTICIPANT_URN);
                csr.params.subject_alt_names = vec![rcgen::SanType::URI(urn.as_str().try_into().unwrap())];
                csr.signed_by(&**ca).unwrap().pem()
            }
        }
    }

    /// Passes a session message to the peers and stores the reply until the participant requests it.
    fn pass_on(&mut self, said: &[u8]) {
        let Certifies::Peers(line, _) = &mut self.certifies else { panic!("there is no session") };
        self.told = Some(line.ask(said));
    }

    fn answer(&mut self, request: Request) -> Response {
        match request {
            Request::Enroll(request) => {
                let certificate_pem = self.certificate(&request.csr_pem.unwrap());
                let (participant, forever) = (PARTICIPANT.parse().unwrap(), Timestamp(i64::MAX));
                let name = "phone".into();
                let reply = EnrollReply { participant, name, certificate_pem, expires_at: forever, renew_at: forever };
                Response::Enrolled(Ok(reply))
            }
            Request::CheckIn(request) => Response::CheckedIn(Ok(self.check_in(&request))),
            Request::Announcement { .. } => Response::Announced(Ok(self.told.take().map(Into::into))),
            Request::Answer { what, body, .. } => {
                self.pass_on(&body);
                self.is_done = what == Answer::UnmaskShares;
                Response::Answered(Ok(()))
            }
            Request::Upload(upload) => {
                match &upload.signed {
                    Some(signed) => self.pass_on(signed),
                    None => self.is_done = true,
                }
                let (sha256, bytes) = (upload.sha256, upload.body.len() as u64);
                Response::Uploaded(Ok(Receipt { sha256, bytes, accepted_at: Timestamp(0) }))
            }
            _ => panic!("it says something else"),
        }
    }

    fn check_in(&mut self, request: &CheckInRequest) -> CheckInReply {
        let Assignment { task, round, attempt, .. } = self.assignment;
        if self.is_done {
            return CheckInReply::TaskOver { task, model: None };
        }
        match (&self.assignment.secure_aggregation, &request.keys) {
            (Some(terms), None) => {
                let terms = terms.clone();
                return CheckInReply::Invited(Box::new(Invitation { task, round, attempt, terms }));
            }
            (Some(_), Some(keys)) => self.pass_on(&keys.advertisement.0),
            (None, _) => {}
        }
        CheckInReply::Assigned(Box::new(self.assignment.clone()))
    }
}

/// A tenth of the members may collude with the coordinator, and three tenths drop out.
fn session(members: u16, assignment: &Assignment) -> SessionConfig {
    let encoding = &assignment.encoding;
    let codec = Codec::new(QuantizationParams {
        parameters: usize::try_from(PARAMETERS).unwrap(),
        modulus_bits: encoding.modulus_bits,
        clip_range: encoding.clip_range,
        clip_norm: encoding.clip_norm,
        max_weight: encoding.max_weight,
        max_cohort: encoding.max_cohort,
        metrics: assignment.metrics.len(),
    });
    let codec = codec.unwrap();
    let application = application_digest(encoding, &assignment.metrics, None);
    let training = training_digest(&application, &assignment.task_name, &assignment.model, &assignment.training);
    SessionConfig {
        suite: 1,
        min_cohort: members,
        max_cohort: members,
        max_corrupt: 100_000,
        max_dropout: 300_000,
        min_included: 0,
        model: VectorShape {
            words: codec.len() as u64,
            modulus_bits: encoding.modulus_bits,
            input_bound: codec.input_bound(),
            noise_margin: 0,
        },
        scalars: VectorShape::NONE,
        application: round_digest(&training, assignment.base.version, &[]).0,
    }
}

fn assignment(first: &Parameters, file: &[u8], architecture: Option<serde_json::Value>, members: u16) -> Assignment {
    let tensors = first.layout().tensors().iter();
    let tensors =
        tensors.map(|tensor| serde_json::json!({ "name": tensor.name, "shape": tensor.shape, "init": "zeros" }));
    let assignment = serde_json::json!({
        "task": "00000000-0000-0000-0000-000000000001", "task_name": "digits", "round": 1, "attempt": 1, "cohort": 1,
        "model": { "tensors": tensors.collect::<Vec<_>>(), "architecture": architecture },
        "base": { "version": 0, "sha256": recipe::digest::sha256(file), "bytes": file.len() },
        "training": { "epochs": 3, "batch_size": 10, "learning_rate": 0.05, "momentum": 0.9 },
        "encoding": { "modulus_bits": 32, "clip_range": 1.0, "max_weight": 1000, "max_cohort": members },
        "metrics": [], "deadline_at": 0, "remaining_ms": 600_000,
    });
    serde_json::from_value(assignment).unwrap()
}

fn round(first: &Parameters, architecture: Option<serde_json::Value>, members: Option<u16>, mut trainer: impl Trainer) {
    let model = first.values().len() as f64 * 4.0 / 1e6;
    let file = checkpoint::write(first).unwrap();
    let assignment = assignment(first, &file, architecture, members.unwrap_or(1000));
    let mut coordinator = match members {
        Some(members) => Coordinator::among(members, assignment, file),
        None => Coordinator::alone(assignment, file),
    };
    let ca_pem = coordinator.ca_pem.clone();
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(JournalFiles::beside(folder.path().join("journal")).open().unwrap());
    let builder = Participant::builder().journal(Arc::clone(&journal)).members_ca_pem(ca_pem).enrollment_token("token");
    let policy = if members.is_some() { SecurityPolicy::default() } else { SecurityPolicy::optional() };
    let mut machine = builder.secure_aggregation(policy).build_machine().unwrap();
    let (before, began) = (memory("VmRSS"), Instant::now());
    let kept = Arc::clone(&journal);
    let write = move |record: &Record| kept.save_parts(&record.name, record.parts());
    // A checkpoint at every look, which is more than any participant writes.
    let writer =
        CheckpointWriter { write: Arc::new(write), clock: Arc::new(SystemClock::new()), every: Duration::ZERO };
    let surroundings = Surroundings { checkpoints: Some(writer), slice: None };
    let mut input = Input::Tick;
    loop {
        let now = Now { elapsed: began.elapsed(), wall: Timestamp(1_790_000_000_000) };
        let examples = Some(trainer.examples());
        input = match machine.tick(input, Circumstances { examples, ..Circumstances::at(now) }) {
            Action::Send(Request::Abandon(_)) => panic!("it leaves: {:?}", machine.take_events()),
            Action::Send(request) => Input::Response(coordinator.answer(request)),
            Action::Fetch { mut have, .. } => {
                have.extend_from_slice(&coordinator.file[have.len()..]);
                Input::Fetched { have, result: Ok(()) }
            }
            Action::Train(work) => Input::Trained(work.run_in(&mut trainer, surroundings.clone(), &mut || ())),
            Action::Evaluate(last) => Input::Evaluated(last.evaluate(&mut trainer)),
            Action::Load(name) => Input::Loaded(journal.load(&name)),
            Action::Persist(records) => {
                let save = |record: &Record| journal.save_parts(&record.name, record.parts());
                Input::Persisted(records.iter().try_for_each(save))
            }
            Action::WaitUntil(_) => Input::Tick,
            Action::Finished(outcome) => break assert!(outcome.is_ok(), "{outcome:?}"),
        };
    }
    assert!(coordinator.is_done, "it has sent");
    if let Certifies::Peers(_, mut peers) = coordinator.certifies {
        assert!(peers.wait().unwrap().success(), "the other members have ended");
    }
    let (peak, all) = (memory("VmHWM"), began.elapsed());
    println!("  model {model:.1} MB; before the round {before:.1} MB, peak {peak:.1} MB; {:.1} s", all.as_secs_f64());
}
