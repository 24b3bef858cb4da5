//! A machine whose coordinator is a few lines, behind the app's own HTTP client; and a participant with a thread, whose ready models
//! pause as well.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use client_sdk::journal::{Journal as _, JournalFiles};
use client_sdk::learning::checkpoint;
use client_sdk::models::Architecture;
use client_sdk::participant::machine::ModelFile;
use client_sdk::participant::snapshot;
use client_sdk::wire::participant::{CheckInReply, Receipt};
use client_sdk::{TaskId, Timestamp, TrainingPlan};
use serde_json::{Value, json};

use super::*;
use crate::app::http_client::{Exchange, HttpClient, HttpHeader, HttpRequest};
use crate::constraints::Purpose;
use crate::participant::{Next, Participant};
use crate::tensors::Metric;

/// An enrolled participant's identity, which works without a signing authority.
const IDENTITY: &[u8] = include_bytes!("../../../tests/snapshots/v9/identity.record");

/// Rows of two numbers, and the class of each.
const ROWS: u16 = 12;

/// A thousandth of a second passes with each look at it.
#[derive(Default)]
struct Ticking(AtomicU64);

impl client_sdk::clock::Clock for Ticking {
    fn now(&self) -> Now {
        let elapsed = Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed));
        Now { elapsed, wall: Timestamp(1_790_000_000_000) }
    }
}

/// Has one round of a ready model, which takes so many steps, personalized by a method if it has one.
struct Coordinator {
    steps: u32,
    method: Option<Value>,
    architecture: Value,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    updates: Vec<Vec<u8>>,
    abandoned: usize,
}

fn task() -> TaskId {
    "00000000-0000-0000-0000-00000000000a".parse().unwrap()
}

fn linear() -> Value {
    json!({ "kind": "linear", "inputs": 2, "classes": 2 })
}

/// The model's file, and its tensors as a task declares them.
fn model(architecture: &Value) -> (Vec<u8>, Vec<Value>) {
    let architecture: Architecture = serde_json::from_value(architecture.clone()).unwrap();
    let parameters = architecture.initial(1).unwrap();
    let tensors = parameters.layout().tensors().iter();
    let tensors =
        tensors.map(|tensor| json!({ "name": tensor.name, "shape": tensor.shape, "init": "zeros" })).collect();
    (checkpoint::write(&parameters).unwrap(), tensors)
}

fn coordinator(steps: u32) -> Arc<Coordinator> {
    Arc::new(Coordinator { steps, method: None, architecture: linear(), heard: Mutex::default() })
}

fn assigned(steps: u32, method: Option<&Value>, architecture: &Value) -> CheckInReply {
    let (file, tensors) = model(architecture);
    let (bytes, sha256) = (file.len(), ModelFile::new(file.into()).sha256());
    let plan = TrainingPlan { steps: Some(steps), batch_size: 4, learning_rate: 0.5, ..TrainingPlan::default() };
    let mut assignment = json!({
        "task": task(), "task_name": "ready", "round": 1, "attempt": 1, "cohort": 1, "metrics": [],
        "model": { "architecture": architecture, "tensors": tensors },
        "base": { "version": 0, "sha256": sha256, "bytes": bytes },
        "training": plan,
        "encoding": { "modulus_bits": 32, "clip_range": 1.0, "max_weight": 100, "max_cohort": 10 },
        "deadline_at": 0, "remaining_ms": 600_000,
    });
    if let Some(method) = method {
        assignment["encoding"]["personalization"] = method.clone();
    }
    CheckInReply::Assigned(Box::new(serde_json::from_value(assignment).unwrap()))
}

impl HttpClient for Coordinator {
    fn begin(&self, request: HttpRequest, exchange: Arc<Exchange>) -> Result<(), CallbackError> {
        let mut heard = self.heard.lock().unwrap();
        let is_over = !heard.updates.is_empty() || heard.abandoned > 0;
        let (media, body) = match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/v1/check-in") => {
                let reply = match is_over {
                    true => CheckInReply::TaskOver { task: task(), model: None },
                    false => assigned(self.steps, self.method.as_ref(), &self.architecture),
                };
                ("application/json", serde_json::to_vec(&reply).unwrap())
            }
            ("GET", path) if path.ends_with("/parameters") => {
                ("application/vnd.safetensors", model(&self.architecture).0)
            }
            ("PUT", path) if path.contains("/masked-inputs/") => {
                let (bytes, sha256) = (request.body.len() as u64, ModelFile::new(request.body.clone().into()).sha256());
                heard.updates.push(request.body);
                let receipt = Receipt { sha256, bytes, accepted_at: Timestamp(0) };
                ("application/json", serde_json::to_vec(&receipt).unwrap())
            }
            ("POST", path) if path.ends_with("/abandon") => {
                heard.abandoned += 1;
                ("application/json", Vec::new())
            }
            (method, path) => return Err(CallbackError::Failed { reason: format!("{method} {path}") }),
        };
        exchange.head(200, vec![HttpHeader { name: "content-type".to_owned(), value: media.to_owned() }]);
        exchange.piece(body);
        exchange.end();
        Ok(())
    }

    fn identify(&self, _: String, _: Vec<u8>) -> Result<(), CallbackError> {
        Ok(())
    }
}

/// The authority that signed the certificate in [`IDENTITY`]: the last of its chain.
fn authority() -> String {
    let text = String::from_utf8_lossy(IDENTITY).replace("\\n", "\n");
    let (_, last) = text.rsplit_once("-----BEGIN CERTIFICATE-----").unwrap();
    let (body, _) = last.split_once("-----END CERTIFICATE-----").unwrap();
    format!("-----BEGIN CERTIFICATE-----{body}-----END CERTIFICATE-----\n")
}

/// The options of a participant that has enrolled, and its way to the coordinator.
fn enrolled(folder: &Path, coordinator: &Arc<Coordinator>, slice_ms: u64, every_ms: u64) -> (String, Callbacks) {
    let journal = folder.join("journal");
    JournalFiles::beside(&journal).open().unwrap().save(snapshot::IDENTITY, IDENTITY).unwrap();
    let options = json!({
        "server": "https://localhost:1", "journal": journal, "members_ca_pem": authority(), "seed": 5,
        "secure_aggregation": { "required": false }, "training_slice_ms": slice_ms, "checkpoint_every_ms": every_ms,
    });
    let client = Arc::clone(coordinator) as Arc<dyn HttpClient>;
    (options.to_string(), Callbacks { http_client: Some(client), ..Callbacks::default() })
}

/// A machine whose clock advances with each reading, so `slice_ms` and `every_ms` count readings.
fn machine(folder: &Path, coordinator: &Arc<Coordinator>, slice_ms: u64, every_ms: u64) -> Machine {
    let (options, callbacks) = enrolled(folder, coordinator, slice_ms, every_ms);
    opened(options, callbacks)
}

/// A machine whose clock skips all waits.
fn opened(options: String, callbacks: Callbacks) -> Machine {
    let (builder, _, capabilities) = builder(options, callbacks, DeviceReports::WithTicks).unwrap();
    let driven = builder.clock(Ticking::default()).build_driven().unwrap();
    Machine { driven, capabilities, clock: SystemClock::new(), process: std::process::id() }
}

/// Ticks, and performs each step, until the task is over, or the process is to die. Asserts that it did not wait.
fn drive(machine: &Machine, trainer: &Arc<dyn Trainer>, dies: impl Fn() -> bool) {
    assert_eq!(drive_through_waits(machine, trainer, dies), 0);
}

/// The same, and returns how often a moment was to be waited for: it is there at once.
fn drive_through_waits(machine: &Machine, trainer: &Arc<dyn Trainer>, dies: impl Fn() -> bool) -> u32 {
    let (mut elapsed, mut waits) = (0, 0);
    for _ in 0..500 {
        if dies() {
            return waits;
        }
        let (device, examples) = (DeviceState::default(), Some(ROWS.into()));
        match machine.tick(Circumstances { elapsed_ms: Some(elapsed), device, examples }).unwrap() {
            Todo::Send | Todo::Fetch | Todo::Train | Todo::Journal => {
                assert!(machine.perform(Arc::clone(trainer)).unwrap());
            }
            Todo::WaitUntil { elapsed_ms } => (elapsed, waits) = (elapsed_ms, waits + 1),
            Todo::Ended { end } => {
                assert_eq!(end, End::TaskOver);
                return waits;
            }
            Todo::Busy => panic!("nobody else performs anything"),
        }
    }
    panic!("it does not come to an end");
}

/// Trains the ready model as an app in Kotlin or Swift does: errors of `train` leave the app's own function. Records
/// for each call whether there was a checkpoint.
#[derive(Default)]
struct Ready(Mutex<Vec<bool>>);

impl Trainer for Ready {
    fn train(&self, job: Arc<Job>) -> Result<(), CallbackError> {
        self.0.lock().unwrap().push(job.checkpoint().is_some());
        let (features, labels) = rows();
        let trained = job.train(features, labels, 2);
        trained.map_err(|error| CallbackError::Failed { reason: error.to_string() })
    }
}

fn rows() -> (Vec<u8>, Vec<u32>) {
    let rows = (0..ROWS).flat_map(|row| [f32::from(row) / 4.0 - 1.4, 1.0]);
    (rows.flat_map(f32::to_le_bytes).collect(), (0..ROWS).map(|row| u32::from(row >= ROWS / 2)).collect())
}

/// The update, and the number of calls of the app that it took. The process dies after so many of them, if any.
fn trained(slice_ms: u64, every_ms: u64, dies_after: Option<usize>) -> (Vec<u8>, usize) {
    let (folder, coordinator, ready) = (tempfile::tempdir().unwrap(), coordinator(60), Arc::new(Ready::default()));
    let trainer = Arc::clone(&ready) as Arc<dyn Trainer>;
    let calls = || ready.0.lock().unwrap().len();
    if dies_after.is_some() {
        let first = machine(folder.path(), &coordinator, slice_ms, every_ms);
        drive(&first, &trainer, || Some(calls()) == dies_after);
    }
    drive(&machine(folder.path(), &coordinator, slice_ms, every_ms), &trainer, || false);
    let mut heard = coordinator.heard.lock().unwrap();
    assert_eq!((heard.updates.len(), heard.abandoned), (1, 0), "in slices of {slice_ms}, died after {dies_after:?}");
    let begun = ready.0.lock().unwrap().iter().filter(|has_checkpoint| !**has_checkpoint).count();
    assert_eq!(begun, 1, "in slices of {slice_ms}, died after {dies_after:?}: it began again");
    (heard.updates.remove(0), calls())
}

/// An app with a training function of its own.
struct App<F>(F);

impl<F: Fn(Arc<Job>) -> Result<(), TributaryError> + Send + Sync> Trainer for App<F> {
    fn train(&self, job: Arc<Job>) -> Result<(), CallbackError> {
        (self.0)(job).map_err(|error| CallbackError::Failed { reason: error.to_string() })
    }
}

/// The model of a task after its only round, in which `train` answers the job: the version that the round began with.
pub(crate) fn model_after(
    architecture: &Value,
    train: impl Fn(Arc<Job>) -> Result<(), TributaryError> + Send + Sync + 'static,
) -> Arc<Model> {
    let coordinator =
        Coordinator { steps: 2, method: None, architecture: architecture.clone(), heard: Mutex::default() };
    let (folder, coordinator) = (tempfile::tempdir().unwrap(), Arc::new(coordinator));
    let machine = machine(folder.path(), &coordinator, 1_000_000, 30_000);
    drive(&machine, &(Arc::new(App(train)) as Arc<dyn Trainer>), || false);
    assert_eq!(coordinator.heard.lock().unwrap().updates.len(), 1);
    machine.model("ready".to_owned()).unwrap().unwrap()
}

#[test]
fn a_ready_model_that_is_paused_goes_on_in_the_next_call_and_comes_to_the_same() {
    let (expected, calls) = trained(1_000_000, 30_000, None);
    assert_eq!(calls, 1);
    for slice_ms in 10..40 {
        let (update, calls) = trained(slice_ms, 30_000, None);
        assert_eq!(update, expected, "in slices of {slice_ms}");
        assert!(calls > 2, "in slices of {slice_ms}: {calls}");
    }
}

#[test]
fn a_ready_model_whose_process_dies_after_any_call_goes_on_and_comes_to_the_same() {
    let (expected, calls) = trained(20, 0, None);
    assert!(calls > 3, "{calls}");
    for dies_after in 1..calls {
        let (update, again) = trained(20, 0, Some(dies_after));
        assert_eq!((update, again), (expected.clone(), calls), "died after call {dies_after}");
    }
}

/// Has the library train the shared model, and makes the own one itself: of ones.
#[derive(Default)]
struct Both(Mutex<Vec<Seen>>);

/// Purpose of a job, whether its anchor is the model that it begins with, and whether it has further constraints.
type Seen = (Purpose, Option<bool>, bool);

impl Trainer for Both {
    fn train(&self, job: Arc<Job>) -> Result<(), CallbackError> {
        let begins_with = job.parameters().unwrap_or_default();
        let is_start = job.anchor().map(|anchor| anchor == begins_with);
        let has_more = !job.frozen().is_empty() || job.correction().is_some() || job.base().is_some();
        self.0.lock().unwrap().push((job.purpose(), is_start, has_more));
        let (features, labels) = rows();
        let answered = match job.purpose() {
            Purpose::Shared => job.train_and_measure(features.clone(), labels.clone(), 2, features, labels),
            Purpose::Own => {
                let ones = begins_with.chunks(4).flat_map(|_| 1.0_f32.to_le_bytes());
                let measured = Metric { name: "personal_accuracy".to_owned(), value: 0.5, count: ROWS.into() };
                job.finish(ones.collect(), ROWS.into(), vec![measured])
            }
        };
        answered.map_err(|error| CallbackError::Failed { reason: error.to_string() })
    }
}

#[test]
fn with_ditto_a_ready_model_is_shared_and_the_app_has_its_own() {
    let ditto = Some(json!({ "method": "ditto", "lambda": 0.5 }));
    let coordinator =
        Arc::new(Coordinator { steps: 60, method: ditto, architecture: linear(), heard: Mutex::default() });
    for trains_within in [false, true] {
        let (folder, app) = (tempfile::tempdir().unwrap(), Arc::<Both>::default());
        *coordinator.heard.lock().unwrap() = Heard::default();
        let (options, callbacks) = enrolled(folder.path(), &coordinator, 1_000_000, 30_000);
        let mut options: Value = serde_json::from_str(&options).unwrap();
        options["trains_within"] = trains_within.into();
        let machine = opened(options.to_string(), callbacks);
        let waits = drive_through_waits(&machine, &(Arc::clone(&app) as Arc<dyn Trainer>), || false);
        assert_eq!(waits, u32::from(!trains_within), "whoever refuses asks again a little later");
        let seen = app.0.lock().unwrap();
        let expected = [(Purpose::Shared, None, false), (Purpose::Own, Some(true), false)];
        assert_eq!(*seen, expected[..if trains_within { 2 } else { 1 }]);
        let heard = coordinator.heard.lock().unwrap();
        assert_eq!((heard.updates.len(), heard.abandoned), if trains_within { (1, 0) } else { (0, 1) });
        let model = machine.model("ready".to_owned()).unwrap().unwrap();
        if trains_within {
            assert_eq!((model.round(), model.parameters()), (Some(1), 1.0_f32.to_le_bytes().repeat(6)));
            assert_eq!(model.metrics().iter().map(|metric| &*metric.name).collect::<Vec<_>>(), ["accuracy"]);
        } else {
            assert_eq!(
                (model.version(), model.metrics()),
                (Some(0), vec![]),
                "the published one, of which nothing counts"
            );
        }
    }
}

#[test]
fn an_app_that_fails_gives_the_round_up() {
    struct Fails;
    impl Trainer for Fails {
        fn train(&self, _: Arc<Job>) -> Result<(), CallbackError> {
            Err(CallbackError::Failed { reason: "out of memory".to_owned() })
        }
    }
    let (folder, coordinator) = (tempfile::tempdir().unwrap(), coordinator(60));
    drive(&machine(folder.path(), &coordinator, 10, 0), &(Arc::new(Fails) as Arc<dyn Trainer>), || false);
    let heard = coordinator.heard.lock().unwrap();
    assert_eq!((heard.updates.len(), heard.abandoned), (0, 1));
}

#[test]
fn an_app_that_fails_after_its_checkpoint_and_its_slice_gives_the_round_up_all_the_same() {
    #[derive(Default)]
    struct FailsLate(AtomicU64);
    impl Trainer for FailsLate {
        fn train(&self, job: Arc<Job>) -> Result<(), CallbackError> {
            self.0.fetch_add(u64::from(job.save_checkpoint(b"half".to_vec()).is_ok()), Ordering::Relaxed);
            while !job.should_pause() {
                std::thread::yield_now();
            }
            Err(CallbackError::Failed { reason: "out of memory".to_owned() })
        }
    }
    let (folder, coordinator, fails) = (tempfile::tempdir().unwrap(), coordinator(60), Arc::<FailsLate>::default());
    let trainer = Arc::clone(&fails) as Arc<dyn Trainer>;
    drive(&machine(folder.path(), &coordinator, 10, 0), &trainer, || false);
    let heard = coordinator.heard.lock().unwrap();
    assert_eq!((heard.updates.len(), heard.abandoned), (0, 1));
    assert_eq!(fails.0.load(Ordering::Relaxed), 1, "it was called again");
}

fn next_job(participant: &Participant) -> Arc<Job> {
    loop {
        match participant.next(60_000).unwrap() {
            Next::Job { job } => return job,
            Next::Waiting => {}
            Next::Ended { end } => panic!("{end:?}"),
        }
    }
}

#[test]
fn a_ready_model_saves_at_once_when_its_participant_is_paused() {
    // The most steps that a plan may have, so that it is still at them when the pause comes.
    let (folder, coordinator) = (tempfile::tempdir().unwrap(), coordinator(10_000_000));
    let (options, callbacks) = enrolled(folder.path(), &coordinator, 1000, 30_000);
    let participant = Participant::start(options, callbacks).unwrap();
    let job = next_job(&participant);
    assert_eq!(job.checkpoint(), None);
    let trained = std::thread::scope(|scope| {
        let training = scope.spawn(|| Ready::default().train(Arc::clone(&job)));
        participant.pause().unwrap();
        training.join().unwrap()
    });
    assert!(trained.is_err());
    while !job.is_overdue() {
        std::thread::yield_now();
    }
    participant.resume().unwrap();
    let job = next_job(&participant);
    assert!(job.checkpoint().is_some(), "nothing was saved before the pause");
    let metric = |name: &str| Metric { name: name.to_owned(), value: 0.75, count: ROWS.into() };
    let measured = vec![metric("accuracy"), metric("train_loss")];
    job.finish(job.parameters().unwrap(), ROWS.into(), measured).unwrap();
    while !matches!(participant.next(60_000).unwrap(), Next::Ended { end: End::TaskOver }) {}
    let model = participant.model("ready".to_owned()).unwrap().unwrap();
    assert_eq!(model.metrics(), [metric("accuracy")], "what the app measured of the model that the round began with");
    let heard = coordinator.heard.lock().unwrap();
    assert_eq!((heard.updates.len(), heard.abandoned), (1, 0));
}
