//! Peak memory of a participant that enrols, fetches a model, trains and sends, in the clear: each case in a process of its own.
//!
//! `cargo bench -p client-sdk --bench memory`. The coordinator is a few lines that hold the model's file and drop the update. The
//! journal is a folder, and the machine is driven by hand, without a runtime: what is measured is the participant, the trainer and the
//! examples. Linux only: it reads `VmHWM`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and its settings")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_sdk::clock::{Now, SystemClock};
use client_sdk::journal::{Journal as _, JournalFiles};
use client_sdk::learning::{Layout, MetricValue, Parameters, TensorSpec, checkpoint};
use client_sdk::models::{Architecture, Mlp};
use client_sdk::participant::machine::{Action, CheckpointWriter, Circumstances, Input, Record, Surroundings};
use client_sdk::train::Device;
use client_sdk::transport::{Request, Response};
use client_sdk::{Dataset, ModelTrainer, Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use wire::Timestamp;
use wire::participant::{Assignment, CheckInReply, EnrollReply, Receipt};

/// Examples of 784 numbers in the case with a ready model.
const EXAMPLES: usize = 600;
/// Parameters in the case with the app's own trainer.
const PARAMETERS: u64 = 1_000_000;

fn main() {
    let cases = ["ready model, mlp 784-200-10", "the app's own trainer, 1 000 000 parameters"];
    match std::env::args().nth(1).as_deref() {
        Some("ready") => ready(),
        Some("own") => own(),
        _ => {
            for (case, name) in ["ready", "own"].into_iter().zip(cases) {
                println!("{name}:");
                assert!(Command::new(std::env::current_exe().unwrap()).arg(case).status().unwrap().success());
            }
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
    round(&first, Some(serde_json::to_value(&architecture).unwrap()), trainer);
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

fn own() {
    let tensor = TensorSpec { name: "w".into(), shape: vec![PARAMETERS] };
    let first = Parameters::zeros(Arc::new(Layout::new(vec![tensor]).unwrap()));
    round(&first, None, Own);
}

/// The coordinator's side.
struct Coordinator {
    ca: rcgen::Issuer<'static, rcgen::KeyPair>,
    assignment: Assignment,
    file: Vec<u8>,
    is_done: bool,
}

impl Coordinator {
    fn answer(&mut self, request: Request) -> Response {
        match request {
            Request::Enroll(request) => {
                let csr_pem = request.csr_pem.unwrap();
                let mut csr = rcgen::CertificateSigningRequestParams::from_pem(&csr_pem).unwrap();
                let participant = "00000000-0000-0000-0000-00000000000b";
                let urn = format!("{}{participant}", wire::certificate::PARTICIPANT_URN);
                csr.params.subject_alt_names = vec![rcgen::SanType::URI(urn.as_str().try_into().unwrap())];
                let certificate_pem = csr.signed_by(&self.ca).unwrap().pem();
                let (participant, forever) = (participant.parse().unwrap(), Timestamp(i64::MAX));
                let name = "phone".into();
                let reply = EnrollReply { participant, name, certificate_pem, expires_at: forever, renew_at: forever };
                Response::Enrolled(Ok(reply))
            }
            Request::CheckIn(_) if self.is_done => {
                Response::CheckedIn(Ok(CheckInReply::TaskOver { task: self.assignment.task }))
            }
            Request::CheckIn(_) => Response::CheckedIn(Ok(CheckInReply::Assigned(Box::new(self.assignment.clone())))),
            Request::Upload(upload) => {
                self.is_done = true;
                let (sha256, bytes) = (upload.sha256, upload.body.len() as u64);
                Response::Uploaded(Ok(Receipt { sha256, bytes, accepted_at: Timestamp(0) }))
            }
            _ => panic!("it says something else"),
        }
    }
}

fn coordinator(first: &Parameters, architecture: Option<serde_json::Value>) -> (Coordinator, String) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_pem = params.self_signed(&key).unwrap().pem();
    let file = checkpoint::write(first).unwrap();
    let tensors = first.layout().tensors().iter();
    let tensors =
        tensors.map(|tensor| serde_json::json!({ "name": tensor.name, "shape": tensor.shape, "init": "zeros" }));
    let assignment = serde_json::json!({
        "task": "00000000-0000-0000-0000-000000000001", "task_name": "digits", "round": 1, "attempt": 1, "cohort": 1,
        "model": { "tensors": tensors.collect::<Vec<_>>(), "architecture": architecture },
        "base": { "version": 0, "sha256": recipe::digest::sha256(&file), "bytes": file.len() },
        "training": { "epochs": 3, "batch_size": 10, "learning_rate": 0.05, "momentum": 0.9 },
        "encoding": { "modulus_bits": 32, "clip_range": 1.0, "max_weight": 1000, "max_cohort": 1000 },
        "metrics": [], "deadline_at": 0, "remaining_ms": 600_000,
    });
    let assignment = serde_json::from_value(assignment).unwrap();
    (Coordinator { ca: rcgen::Issuer::new(params, key), assignment, file, is_done: false }, ca_pem)
}

fn round(first: &Parameters, architecture: Option<serde_json::Value>, mut trainer: impl Trainer) {
    let model = first.values().len() as f64 * 4.0 / 1e6;
    let (mut coordinator, ca_pem) = coordinator(first, architecture);
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(JournalFiles::beside(folder.path().join("journal")).open().unwrap());
    let builder = Participant::builder().journal(Arc::clone(&journal)).members_ca_pem(ca_pem).enrollment_token("token");
    let mut machine = builder.secure_aggregation(SecurityPolicy::optional()).build_machine().unwrap();
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
            Action::Send(request) => Input::Response(coordinator.answer(request)),
            Action::Fetch { mut have, .. } => {
                have.extend_from_slice(&coordinator.file[have.len()..]);
                Input::Fetched { have, result: Ok(()) }
            }
            Action::Train(work) => Input::Trained(work.run_in(&mut trainer, surroundings.clone(), &mut || ())),
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
    let (peak, all) = (memory("VmHWM"), began.elapsed());
    println!("  model {model:.1} MB; before the round {before:.1} MB, peak {peak:.1} MB; {:.1} s", all.as_secs_f64());
}
