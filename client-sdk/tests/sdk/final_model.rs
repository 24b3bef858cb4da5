//! The app gets the last version of a finished task, verified like a base. A false version from the coordinator costs the app only
//! that version.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::journal::{JournalFiles, MemoryJournal};
use client_sdk::participant::machine::{Action, Input, Settings};
use client_sdk::runner::{Job, Next, Runner};
use client_sdk::transport::Traffic;
use client_sdk::{Event, MetricValue, Model, Origin, Outcome, Parameters, Trained, Trainer, TrainerError, TrainingJob};
use wire::Digest;
use wire::participant::{Assignment, FinalModel};
use wire::problem::ProblemType;
use wire::provenance::Provenance;

use crate::support::device::Device;
use crate::support::kept::{kill_everywhere, version};
use crate::support::provenance::{KEYS, Tweak, honest, record};
use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault, in_the_clear, sha256, task};

type Alone = Device<Coordinator, Nudge>;

const ROUNDS: u32 = 3;
const HOUR: Duration = Duration::from_secs(3600);

/// The coordinator's statement of the last version. `bend` may change terms and record before the record is signed with this key.
fn told(version: u32, key: usize, bend: impl FnOnce(&mut Assignment, &mut Provenance)) -> FinalModel {
    let coordinator = Coordinator::new(version);
    let mut assignment = coordinator.world(|world| {
        world.rounds_done = version;
        Coordinator::assignment(world)
    });
    let mut record = record(&assignment, key);
    bend(&mut assignment, &mut record);
    let Assignment { task_name, base, model, training, encoding, metrics, privacy, .. } = assignment;
    FinalModel {
        task_name,
        version: base,
        provenance: record.sign(&KEYS[key]),
        model,
        training,
        encoding,
        metrics,
        privacy,
    }
}

/// The statement of an honest coordinator.
fn last(version: u32) -> FinalModel {
    told(version, 0, |_, _| ())
}

/// The statement with changed terms, and a valid record of those.
fn signed(version: u32, change: impl FnOnce(&mut Assignment)) -> FinalModel {
    told(version, 0, |assignment, to_sign| {
        change(assignment);
        *to_sign = record(assignment, 0);
    })
}

/// A coordinator with a task of `rounds` rounds, `done` of them complete, which sends `last` at the end.
fn coordinator(rounds: u32, done: u32, last: impl Into<Option<FinalModel>>) -> Coordinator {
    let (coordinator, last): (_, Option<FinalModel>) = (Coordinator::new(rounds), last.into());
    coordinator.world(|world| (world.rounds_done, world.tweak, world.last) = (done, Some(honest as Tweak), last));
    coordinator
}

fn device(journal: &Arc<MemoryJournal>, coordinator: &Coordinator, settings: Settings) -> Alone {
    let journal = Arc::clone(journal);
    Device::with(journal, 0, coordinator.clone(), Nudge::default(), settings)
}

/// Runs a process to the end of the task. Returns its reports of the last version: its number, or the reason for its absence.
fn run(journal: &Arc<MemoryJournal>, coordinator: &Coordinator) -> Vec<Result<u32, String>> {
    let mut device = device(journal, coordinator, in_the_clear());
    device.run(500, |_| None);
    said(&device)
}

fn said(device: &Alone) -> Vec<Result<u32, String>> {
    let said = device.events.iter().filter_map(|event| match event {
        Event::FinalModel { version, .. } => Some(Ok(*version)),
        Event::NoFinalModel { reason, .. } => Some(Err(reason.clone())),
        _ => None,
    });
    said.collect()
}

/// A journal with the version that the third of three rounds began with.
fn behind() -> Arc<MemoryJournal> {
    let journal = Arc::new(MemoryJournal::new());
    assert!(run(&journal, &coordinator(ROUNDS, 0, None)).is_empty());
    assert_eq!(version(&*journal), Some(ROUNDS - 1));
    journal
}

/// Returns the reason for a rejected last version. The participant skips the download, and the journal keeps its
/// earlier version.
fn refusal(last: FinalModel) -> String {
    let (journal, coordinator) = (behind(), coordinator(ROUNDS, ROUNDS, last));
    let said = run(&journal, &coordinator);
    assert_eq!((coordinator.count("fetch"), version(&*journal)), (0, Some(ROUNDS - 1)), "{said:?}");
    let [Err(reason)] = &said[..] else { panic!("{said:?}") };
    reason.clone()
}

#[test]
fn it_comes_to_who_took_part_in_the_last_round_to_who_missed_it_and_to_who_was_never_drawn() {
    let (present, missed, never) = (Arc::default(), behind(), Arc::default());
    let whole = coordinator(ROUNDS, 0, last(ROUNDS));
    assert_eq!(run(&present, &whole), [Ok(ROUNDS)]);
    assert_eq!(whole.count("fetch"), 4, "three bases and the last version");
    for journal in [&missed, &never] {
        assert_eq!(run(journal, &coordinator(ROUNDS, ROUNDS, last(ROUNDS))), [Ok(ROUNDS)]);
    }
    for journal in [present, missed, never] {
        assert_eq!(version(&*journal), Some(ROUNDS));
        let kept = Model::kept(&*journal).unwrap();
        assert_eq!((kept.len(), kept[0].name.as_str(), kept[0].version), (1, "task", ROUNDS));
        assert_eq!(
            kept[0].metrics,
            [("loss".to_owned(), MetricValue { value: 1.5, count: 3 })],
            "what the trainer said of it"
        );
        // Another process hears the same, and has it.
        let again = coordinator(ROUNDS, ROUNDS, last(ROUNDS));
        assert!(run(&journal, &again).is_empty());
        assert_eq!(again.count("fetch"), 0);
        assert_eq!(version(&*journal), Some(ROUNDS));
    }
}

#[tokio::test]
async fn it_is_there_offline_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let files = JournalFiles::beside(folder.path().join("journal"));
    let coordinator = coordinator(1, 0, last(1));
    let app = |files: &JournalFiles| {
        let app = coordinator.app().enrollment_token("token").journal(files.open().unwrap());
        app.trainer(Nudge::default()).build().unwrap()
    };
    let outcome = app(&files).run(std::future::pending()).await.unwrap();
    assert_eq!(outcome, Outcome::TaskOver { task: task() });
    coordinator.world(|world| world.offline = true);
    let model = app(&files).model_of("task").unwrap().unwrap();
    let file = sha256(&Coordinator::published(false, 1));
    assert_eq!(model.origin(), Origin::Published { version: 1, sha256: file });
}

#[test]
fn whenever_it_is_killed_the_next_process_gets_it() {
    let fresh = || device(&Arc::default(), &coordinator(ROUNDS, 0, last(ROUNDS)), in_the_clear());
    kill_everywhere(fresh, ROUNDS, |kept, what| assert_eq!((kept.len(), kept[0].version), (1, ROUNDS), "{what}"));
}

#[test]
fn one_that_its_record_is_not_of_is_not_fetched() {
    let another_task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
    let mut edited = last(ROUNDS);
    edited.provenance.record = edited.provenance.record.replace("\"tributary\"", "\"tributary 2\"");
    for (told, words) in [
        (told(ROUNDS, 0, |_, record| record.task = another_task), "another task"),
        (told(ROUNDS, 0, |_, record| record.version += 1), "another version"),
        (told(ROUNDS, 0, |assignment, _| assignment.base.sha256 = Digest([9; 32])), "another model"),
        (told(ROUNDS, 0, |_, record| record.bytes += 1), "another size"),
        (told(ROUNDS, 0, |assignment, _| assignment.model.architecture = Some("mlp".into())), "another training"),
        (told(ROUNDS, 1, |_, _| ()), "the coordinator's key is"),
        (edited, "it is not signed by"),
    ] {
        let reason = refusal(told);
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn one_of_another_task_than_the_apps_is_not_fetched() {
    let journal = Arc::new(MemoryJournal::new());
    let coordinator = coordinator(0, 0, signed(ROUNDS, |assignment| assignment.task_name = "other".into()));
    let mut device = device(&journal, &coordinator, Settings { task: Some("task".into()), ..in_the_clear() });
    device.run(500, |_| None);
    let said = said(&device);
    assert!(matches!(&said[..], [Err(reason)] if reason.contains("not the one that this app")), "{said:?}");
    assert_eq!((coordinator.count("fetch"), version(&*journal)), (0, None));
}

#[test]
fn an_older_one_than_the_journal_has_is_not_fetched() {
    assert_eq!(refusal(last(1)), "the journal has version 2, which is later");
}

#[test]
fn another_model_of_a_known_number_is_evidence() {
    let (journal, coordinator) = (
        behind(),
        coordinator(ROUNDS, ROUNDS, signed(ROUNDS - 1, |assignment| assignment.base.sha256 = Digest([9; 32]))),
    );
    let mut device = device(&journal, &coordinator, in_the_clear());
    device.run(500, |_| None);
    let is_evidence = |event: &&Event| matches!(event, Event::Equivocation { task: of, .. } if *of == task());
    assert_eq!(device.events.iter().filter(is_evidence).count(), 1, "{:?}", device.events);
    let said = said(&device);
    assert!(matches!(&said[..], [Err(reason)] if reason.contains("has signed two models")), "{said:?}");
    assert_eq!((coordinator.count("fetch"), version(&*journal)), (0, Some(ROUNDS - 1)));
}

#[test]
fn one_that_is_too_large_is_not_fetched() {
    for (last, words) in [
        (signed(ROUNDS, |assignment| assignment.base.bytes = u64::MAX), "max_model_bytes"),
        (signed(ROUNDS, |assignment| assignment.model.tensors[0].shape = vec![1 << 40]), "max_model_bytes"),
        (signed(ROUNDS, |assignment| assignment.base.bytes = 100_000_000), "its tensors take at most"),
    ] {
        let reason = refusal(last);
        assert!(reason.contains(words), "{reason}");
    }
}

#[test]
fn what_does_not_come_right_is_tried_a_few_times_and_given_up() {
    let garbage = |times| vec![Fault::Garbage; times];
    for (faults, came, fetches) in [
        (garbage(1), true, 2),
        (vec![Fault::Half, Fault::Lost], true, 3),
        (garbage(9), false, 4),
        (vec![Fault::Lost; 9], false, 4),
        (vec![Fault::Refused(ProblemType::VersionRemoved, None)], false, 1),
        (vec![Fault::Refused(ProblemType::CertificateRevoked, None)], false, 1),
        (vec![Fault::Refused(ProblemType::RateLimited, Some(Duration::from_secs(1)))], true, 2),
    ] {
        let (journal, coordinator) = (behind(), coordinator(ROUNDS, ROUNDS, last(ROUNDS)));
        coordinator.script("fetch", faults.clone());
        let said = run(&journal, &coordinator);
        assert_eq!(
            (said.len(), said[0].is_ok(), coordinator.count("fetch")),
            (1, came, fetches),
            "{faults:?}: {said:?}"
        );
        assert_eq!(version(&*journal), Some(if came { ROUNDS } else { ROUNDS - 1 }), "{faults:?}");
    }
}

#[test]
fn a_file_that_is_no_model_of_the_task_is_not_kept() {
    // Signed and whole, and of other tensors than the terms have.
    let last = signed(ROUNDS, |assignment| assignment.model.tensors[0].name = "other".into());
    let (journal, coordinator) = (behind(), coordinator(ROUNDS, ROUNDS, last));
    let said = run(&journal, &coordinator);
    assert!(matches!(&said[..], [Err(_)]), "{said:?}");
    assert_eq!((coordinator.count("fetch"), version(&*journal)), (1, Some(ROUNDS - 1)));
}

/// A device that is about to fetch the last version.
fn fetching() -> Alone {
    fetching_into(&Arc::default())
}

fn fetching_into(journal: &Arc<MemoryJournal>) -> Alone {
    let mut device = device(journal, &coordinator(0, 0, last(0)), in_the_clear());
    let mut input = Input::Tick;
    loop {
        match device.poll(input) {
            Action::Fetch { .. } => return device,
            action => input = device.perform(action),
        }
    }
}

#[test]
fn it_is_measured_under_the_apps_conditions_and_not_at_a_stop() {
    let journal = Arc::default();
    let mut device = fetching_into(&journal);
    let came = Input::Fetched { have: Coordinator::published(false, 0), result: Ok(()) };
    let keep = device.poll(came);
    assert!(matches!(keep, Action::Persist(_)));
    let kept = device.perform(keep);
    assert!(matches!(device.poll(kept), Action::Evaluate(_)));
    assert_eq!(version(&*journal), Some(0), "an app whose trainer ends the process has it");
    assert_eq!(device.machine.deadline(), None, "the transfer is over");
    device.machine.set_readiness(Readiness::NotReady { ask_again: HOUR });
    assert!(matches!(device.poll(Input::Tick), Action::WaitUntil(moment) if moment == device.now + HOUR));
    device.machine.set_readiness(Readiness::Ready);
    assert!(matches!(device.poll(Input::Tick), Action::Evaluate(_)));
    assert!(matches!(device.poll(Input::Shutdown), Action::Finished(Ok(Outcome::Stopped))));
    assert_eq!(said(&device), [Ok(0)]);
}

/// Lacks data to measure a model on.
struct CannotEvaluate;

impl Trainer for CannotEvaluate {
    fn train(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        Err(TrainerError::failed("it trains nothing"))
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Err(TrainerError::failed("there is no data"))
    }

    fn examples(&self) -> u64 {
        1
    }
}

#[test]
fn one_that_cannot_be_measured_comes_without_scores() {
    let journal = Arc::new(MemoryJournal::new());
    let coordinator = coordinator(ROUNDS, ROUNDS, last(ROUNDS));
    let mut device =
        Device::with(Arc::<MemoryJournal>::clone(&journal), 0, coordinator, CannotEvaluate, in_the_clear());
    device.run(500, |_| None);
    let kept = Model::kept(&*journal).unwrap();
    assert_eq!((kept.len(), kept[0].version, &kept[0].metrics[..]), (1, ROUNDS, &[][..]));
}

fn is_over(action: &Action) -> bool {
    matches!(action, Action::Finished(Ok(Outcome::TaskOver { task: over })) if *over == task())
}

#[test]
fn an_endless_trickle_is_cut_off_after_an_hour() {
    let mut device = fetching();
    assert_eq!(device.machine.deadline(), Some(device.now + HOUR), "when who drives it drops the transfer");
    device.now += HOUR - Duration::from_millis(1);
    assert!(matches!(device.poll(Input::Tick), Action::Fetch { .. }));
    device.now += Duration::from_millis(1);
    assert!(is_over(&device.poll(Input::Tick)));
    assert_eq!(said(&device), [Err("it did not come within 60 minutes".to_owned())]);
}

#[test]
fn a_coordinator_that_asks_to_wait_for_longer_than_that_waits_in_vain() {
    let mut device = fetching();
    let begun = device.now;
    for _ in 0..3 {
        let asked = Some(Duration::from_secs(1 << 30));
        let problem = wire::problem::Problem::new(ProblemType::RateLimited, "later");
        let error = client_sdk::transport::TransportError::Problem { problem: problem.into(), retry_after: asked };
        let action = device.poll(Input::Fetched { have: Vec::new(), result: Err(error) });
        let Action::WaitUntil(moment) = action else { panic!("it does not wait") };
        device.now = moment;
        if is_over(&device.poll(Input::Tick)) {
            assert_eq!(device.now, begun + HOUR);
            return;
        }
    }
    panic!("it waits on");
}

#[test]
fn it_waits_for_the_apps_conditions_and_may_be_stopped() {
    let mut device = fetching();
    device.machine.set_readiness(Readiness::NotReady { ask_again: HOUR });
    for _ in 0..3 {
        assert!(matches!(device.poll(Input::Tick), Action::WaitUntil(moment) if moment == device.now + HOUR));
        device.now += HOUR;
    }
    device.machine.set_readiness(Readiness::Ready);
    assert!(matches!(device.poll(Input::Tick), Action::Fetch { .. }), "it has all of its time again");
    assert!(matches!(device.poll(Input::Shutdown), Action::Finished(Ok(Outcome::Stopped))));
    assert!(said(&device).is_empty());
}

#[test]
fn what_it_cost_is_counted_in_the_next_process_too() {
    for comes in [true, false] {
        let mut device = fetching();
        device.machine.add_traffic(Traffic { sent: 0, received: 1 << 20 });
        let have = if comes { Coordinator::published(false, 0) } else { Vec::new() };
        let result = if comes { Ok(()) } else { Err(client_sdk::transport::TransportError::unreachable("cut off")) };
        let mut input = Input::Fetched { have, result };
        // It is written before it ends, or tries again.
        while let action @ Action::Persist(_) = device.poll(input) {
            input = device.perform(action);
        }
        device.restart();
        assert_eq!(device.machine.data_use().total.received, 1 << 20, "comes: {comes}");
    }
}

#[test]
fn an_app_that_keeps_no_models_fetches_and_learns_nothing() {
    let (journal, coordinator) = (Arc::default(), coordinator(0, 0, last(ROUNDS)));
    let mut device = device(&journal, &coordinator, Settings { keep_models: false, ..in_the_clear() });
    device.run(500, |_| None);
    assert_eq!((coordinator.count("fetch"), version(&*journal)), (0, None));
    let is_told = |event: &Event| matches!(event, Event::KeyPinned { .. } | Event::NoFinalModel { .. });
    assert!(!device.events.iter().any(is_told), "{:?}", device.events);
}

#[test]
fn what_was_measured_of_the_devices_own_model_stays() {
    let (coordinator, journal) = (coordinator(1, 0, last(1)), Arc::new(MemoryJournal::new()));
    let app = coordinator.app().enrollment_token("token").journal(Arc::clone(&journal));
    let runner = Runner::start(app).unwrap();
    let metric = MetricValue { value: 0.5, count: 3 };
    loop {
        let Job { parameters, answer, .. } = match runner.next(Duration::from_secs(60)) {
            Next::Job(job) => *job,
            Next::Waiting => continue,
            Next::Ended(end) => {
                end.unwrap();
                break;
            }
        };
        let metrics = ["accuracy", "personal_accuracy"].map(|name| (name.to_owned(), metric)).to_vec();
        answer.finish(Trained { parameters, examples: 3, metrics }).unwrap();
    }
    let kept = Model::kept(&*journal).unwrap();
    assert_eq!((kept[0].version, &kept[0].metrics[..]), (1, &[][..]));
    assert_eq!(kept[0].personal_metrics, [("accuracy".to_owned(), metric)]);
}
