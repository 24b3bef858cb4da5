//! A caller-driven participant on the test's own thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use client_sdk::clock::Now;
use client_sdk::journal::{Journal, JournalError, MemoryJournal};
use client_sdk::participant::{Driven, Step};
use client_sdk::runner::{CallbackTrainer, Job};
use client_sdk::{DeviceConditions, DeviceState, Origin, Outcome, Thermal, Trained};
use wire::Timestamp;
use zeroize::Zeroizing;

use crate::support::device::Hand;
use crate::support::words::fine_tuned;
use crate::support::{Coordinator, sha256, task};

const GOOD: DeviceState = DeviceState {
    charging: Some(true),
    unmetered: Some(true),
    idle: Some(true),
    battery_percent: None,
    thermal: Some(Thermal::Nominal),
};

fn driven(coordinator: &Coordinator) -> Driven {
    driven_on(coordinator, &Arc::new(MemoryJournal::new()), &Hand::default())
}

/// A participant with this journal, whose trainings go by this clock.
fn driven_on(coordinator: &Coordinator, journal: &Arc<MemoryJournal>, clock: &Hand) -> Driven {
    let app = coordinator.app().enrollment_token("token").journal(Arc::clone(journal)).clock(clock.clone());
    app.device_conditions(DeviceConditions::default(), DeviceState::default).seed(Some(5)).build_driven().unwrap()
}

fn trained(mut job: Job) {
    job.parameters.values_mut().iter_mut().for_each(|value| *value += 1.0);
    job.answer.finish(Trained { parameters: job.parameters, examples: 3, metrics: vec![] }).unwrap();
}

/// Its caller's time.
struct Time(Duration);

impl Time {
    fn now(&self) -> Now {
        Now { elapsed: self.0, wall: Timestamp(0) }
    }

    /// Ticks, and performs each step with `train`, up to the first step for which `until` holds.
    fn drive(&mut self, participant: &Driven, train: impl FnMut(Job) + Send, until: impl Fn(&Step) -> bool) -> Step {
        let mut trainer = CallbackTrainer::new(3, train);
        for _ in 0..200 {
            let step = participant.tick(self.now(), GOOD, Some(3));
            if until(&step) {
                return step;
            }
            match step {
                Step::Send | Step::Fetch | Step::Train | Step::Journal => assert!(participant.perform(&mut trainer)),
                Step::WaitUntil(moment) => self.0 = moment,
                Step::Busy | Step::Finished(_) => return step,
            }
        }
        panic!("it does not come to an end")
    }
}

fn is_over(step: &Step) -> bool {
    matches!(step, Step::Finished(Ok(Outcome::TaskOver { task: over })) if *over == task())
}

#[test]
fn it_says_what_to_do_and_does_it_on_the_thread_that_asks() {
    let coordinator = Coordinator::new(2);
    let (participant, mut time) = (driven(&coordinator), Time(Duration::ZERO));
    let here = std::thread::current().id();
    let mut rounds = Vec::new();
    let end = time.drive(
        &participant,
        |job| {
            assert_eq!(std::thread::current().id(), here);
            rounds.push(job.training.round);
            trained(job);
        },
        |_| false,
    );
    assert!(is_over(&end), "{end:?}");
    assert_eq!(rounds, [1, 2]);
    assert_eq!(coordinator.world(|world| world.accepted.len()), 2);
    let last = coordinator.world(|world| sha256(&Coordinator::file(world, 1)));
    let kept = participant.model_of("task").unwrap().map(|model| model.origin());
    assert!(
        matches!(kept, Some(Origin::Published { sha256, .. }) if sha256 == last),
        "what the second round began with"
    );
    assert!(participant.model_of("another").unwrap().is_none());
    assert!(is_over(&participant.tick(time.now(), GOOD, None)), "it says so again");
    assert!(!participant.perform(&mut CallbackTrainer::new(3, trained)), "there is nothing to do");
}

#[test]
fn conditions_are_looked_at_in_each_tick() {
    let coordinator = Coordinator::new(1);
    let (participant, mut time) = (driven(&coordinator), Time(Duration::ZERO));
    let idle = participant.tick(time.now(), DeviceState::default(), Some(3));
    // The identity is created before the first request.
    assert!(matches!(idle, Step::Journal | Step::WaitUntil(_)), "{idle:?}");
    participant.perform(&mut CallbackTrainer::new(3, trained));
    for _ in 0..3 {
        let rests = participant.tick(time.now(), DeviceState { idle: Some(false), ..GOOD }, Some(3));
        assert!(matches!(rests, Step::WaitUntil(moment) if moment > time.0), "{rests:?}");
        assert_eq!(participant.look(|machine| machine.held_up().map(|unmet| unmet.name())), Some("idle"));
    }
    assert!(coordinator.world(|world| world.calls.is_empty()));
    assert!(is_over(&time.drive(&participant, trained, |_| false)));
}

/// Trains on another thread until the test releases it, while the test ticks.
fn while_it_trains(participant: &Driven, train: impl FnOnce(Job) + Send, meanwhile: impl FnOnce(&dyn Fn())) {
    std::thread::scope(|scope| {
        let ((begin, begun), (go_on, goes_on)) = (channel(), channel());
        let mut train = Some(train);
        scope.spawn(move || {
            let call = move |job: Job| {
                begin.send(()).unwrap();
                let _ = goes_on.recv();
                train.take().unwrap()(job);
            };
            assert!(participant.perform(&mut CallbackTrainer::new(3, call)));
        });
        begun.recv().unwrap();
        meanwhile(&|| {
            let _ = go_on.send(());
        });
    });
}

#[test]
fn a_tick_does_not_wait_for_a_training_and_leaves_it_when_the_conditions_end() {
    let (coordinator, clock) = (Coordinator::new(2), Hand::default());
    let participant = driven_on(&coordinator, &Arc::new(MemoryJournal::new()), &clock);
    let mut time = Time(Duration::ZERO);
    time.drive(&participant, trained, |step| matches!(step, Step::Train));
    let late = |job: Job| {
        assert!(job.answer.is_overdue());
        let values = Trained { parameters: job.parameters, examples: 3, metrics: vec![] };
        assert!(job.answer.finish(values).is_err());
    };
    while_it_trains(&participant, late, |go_on| {
        assert!(matches!(participant.tick(time.now(), GOOD, None), Step::Busy));
        assert!(!participant.perform(&mut CallbackTrainer::new(3, trained)), "another thread does it");
        let told = participant.tick(time.now(), DeviceState::default(), None);
        assert!(matches!(told, Step::Busy), "it has time to save a checkpoint: {told:?}");
        clock.advance(Duration::from_secs(10));
        let left = participant.tick(time.now(), DeviceState::default(), None);
        assert!(!matches!(left, Step::Busy | Step::Train), "{left:?}");
        go_on();
    });
    assert!(is_over(&time.drive(&participant, trained, |_| false)));
    coordinator.world(|world| {
        assert_eq!(world.abandoned, [(1, "conditions")]);
        assert_eq!(world.accepted.keys().copied().collect::<Vec<_>>(), [2]);
    });
}

/// The conditions do not hold: it writes the checkpoint that the journal does not have yet, and rests.
fn rests_with_its_checkpoint(participant: &Driven, time: &Time) {
    let writes = participant.tick(time.now(), DeviceState::default(), None);
    assert!(matches!(writes, Step::Journal), "{writes:?}");
    assert!(participant.perform(&mut CallbackTrainer::new(3, drop)));
    for _ in 0..2 {
        let rests = participant.tick(time.now(), DeviceState::default(), None);
        assert!(matches!(rests, Step::WaitUntil(_)), "{rests:?}");
    }
}

#[test]
fn a_training_with_a_checkpoint_pauses_and_goes_on() {
    let coordinator = Coordinator::new(1);
    let (participant, mut time) = (driven(&coordinator), Time(Duration::ZERO));
    time.drive(&participant, trained, |step| matches!(step, Step::Train));
    // It has saved before the conditions end, and should pause; without an answer it is issued again.
    let (saved, was_saved) = channel();
    let training = std::thread::scope(|scope| {
        let participant = &participant;
        let performed = scope.spawn(move || {
            let call = |job: Job| {
                job.training.checkpoints.save(b"half").unwrap();
                saved.send(()).unwrap();
                while !job.training.checkpoints.should_pause() {
                    std::thread::yield_now();
                }
            };
            participant.perform(&mut CallbackTrainer::new(3, call))
        });
        was_saved.recv().unwrap();
        let busy = participant.tick(time.now(), DeviceState::default(), None);
        assert!(matches!(busy, Step::Busy), "{busy:?}");
        performed.join().unwrap()
    });
    assert!(training);
    rests_with_its_checkpoint(&participant, &time);
    let mut found = Vec::new();
    let end = time.drive(
        &participant,
        |job| {
            found.push(job.training.checkpoints.load().map(|state| state.to_vec()));
            trained(job);
        },
        |_| false,
    );
    assert!(is_over(&end), "{end:?}");
    assert_eq!(found, [Some(b"half".to_vec())]);
    assert_eq!(coordinator.world(|world| world.accepted.len()), 1);
}

#[test]
fn conditions_that_end_between_two_slices_lose_nothing_also_if_it_is_killed_while_it_rests() {
    for is_told_to_train in [false, true] {
        let (coordinator, journal, clock) = (Coordinator::new(1), Arc::new(MemoryJournal::new()), Hand::default());
        let (participant, mut time) = (driven_on(&coordinator, &journal, &clock), Time(Duration::ZERO));
        time.drive(&participant, drop, |step| matches!(step, Step::Train));
        // The last checkpoint is too young for the journal.
        let slice = |job: Job| {
            job.training.checkpoints.save(b"half").unwrap();
            clock.advance(Duration::from_secs(1));
            assert!(job.training.checkpoints.should_pause());
        };
        assert!(participant.perform(&mut CallbackTrainer::new(3, slice)));
        if is_told_to_train {
            let goes_on = participant.tick(time.now(), GOOD, None);
            assert!(matches!(goes_on, Step::Train), "{goes_on:?}");
        }
        rests_with_its_checkpoint(&participant, &time);
        drop(participant);
        let participant = driven_on(&coordinator, &journal, &clock);
        let mut found = Vec::new();
        let end = time.drive(
            &participant,
            |job| {
                found.push(job.training.checkpoints.load().map(|state| state.to_vec()));
                trained(job);
            },
            |_| false,
        );
        assert!(is_over(&end), "{end:?}");
        assert_eq!(found, [Some(b"half".to_vec())], "told to train before: {is_told_to_train}");
        coordinator.world(|world| assert!(world.abandoned.is_empty() && world.accepted.len() == 1));
    }
}

/// Number of steps of an app's own training.
const STEPS: u8 = 6;

/// Trains in steps, each of which is noted, and lets go of the job when it should pause. The conditions end after so many steps of all.
fn steps(participant: &Driven, job: Job, taken: &mut Vec<u8>, ends_after: Option<usize>) {
    let Job { mut parameters, training, answer, .. } = job;
    let mut done = training.checkpoints.load().map_or(0, |state| state[0]);
    while done < STEPS {
        done += 1;
        taken.push(done);
        if ends_after == Some(taken.len()) {
            let now = Now { elapsed: Duration::ZERO, wall: Timestamp(0) };
            let told = participant.tick(now, DeviceState::default(), None);
            assert!(matches!(told, Step::Busy), "{told:?}");
        }
        if training.checkpoints.should_pause() {
            training.checkpoints.save(&[done]).unwrap();
            return;
        }
    }
    // Each step adds as much.
    parameters.values_mut().iter_mut().for_each(|value| *value += f32::from(done) / 16.0);
    answer.finish(Trained { parameters, examples: 3, metrics: vec![] }).unwrap();
}

/// Runs with one training a round, and with two.
fn one_round(is_tuned: bool) -> Coordinator {
    let coordinator = Coordinator::new(1);
    if is_tuned {
        coordinator.world(|world| world.tweak = Some(fine_tuned));
    }
    coordinator
}

#[test]
fn conditions_that_end_after_any_step_lose_none_that_was_taken_also_if_it_is_killed_while_it_rests() {
    for is_tuned in [false, true] {
        let undisturbed = one_round(is_tuned);
        let (participant, mut taken) = (driven(&undisturbed), Vec::new());
        let train = |job| steps(&participant, job, &mut taken, None);
        let end = Time(Duration::ZERO).drive(&participant, train, |_| false);
        assert!(is_over(&end), "{end:?}");
        let (expected, all) = (undisturbed.world(|world| world.accepted.clone()), taken);
        assert_eq!((expected.len(), all.len()), (1, usize::from(STEPS) * if is_tuned { 2 } else { 1 }));
        for last in 1..=all.len() {
            for is_killed in [false, true] {
                let what = format!("tuned: {is_tuned}, ended after step {last}, killed: {is_killed}");
                let (coordinator, journal) = (one_round(is_tuned), Arc::new(MemoryJournal::new()));
                let mut participant = driven_on(&coordinator, &journal, &Hand::default());
                let (mut time, mut taken) = (Time(Duration::ZERO), Vec::new());
                time.drive(&participant, drop, |step| matches!(step, Step::Train));
                let mut trainer = CallbackTrainer::new(3, |job| steps(&participant, job, &mut taken, Some(last)));
                assert!(participant.perform(&mut trainer));
                let rests = participant.tick(time.now(), DeviceState::default(), None);
                assert!(matches!(rests, Step::WaitUntil(_)), "{what}: {rests:?}");
                if is_killed {
                    participant = driven_on(&coordinator, &journal, &Hand::default());
                }
                let end = time.drive(&participant, |job| steps(&participant, job, &mut taken, None), |_| false);
                assert!(is_over(&end), "{what}: {end:?}");
                assert_eq!(taken, all, "{what}");
                coordinator.world(|world| {
                    assert!(world.abandoned.is_empty(), "{what}");
                    assert_eq!(world.accepted, expected, "{what}");
                });
            }
        }
    }
}

#[test]
fn a_job_that_is_answered_when_it_should_pause_is_the_last_before_the_pause() {
    let undisturbed = one_round(true);
    assert!(is_over(&Time(Duration::ZERO).drive(&driven(&undisturbed), trained, |_| false)));
    let expected = undisturbed.world(|world| world.accepted.clone());
    for is_killed in [false, true] {
        let (coordinator, journal) = (one_round(true), Arc::new(MemoryJournal::new()));
        let mut participant = driven_on(&coordinator, &journal, &Hand::default());
        let (mut time, mut jobs) = (Time(Duration::ZERO), 0);
        time.drive(&participant, drop, |step| matches!(step, Step::Train));
        let first = |job: Job| {
            let told = participant.tick(time.now(), DeviceState::default(), None);
            assert!(matches!(told, Step::Busy), "{told:?}");
            assert!(job.training.checkpoints.should_pause());
            jobs += 1;
            trained(job);
        };
        assert!(participant.perform(&mut CallbackTrainer::new(3, first)));
        assert_eq!(jobs, 1, "the second one waits");
        rests_with_its_checkpoint(&participant, &time);
        if is_killed {
            participant = driven_on(&coordinator, &journal, &Hand::default());
        }
        let second = |job: Job| {
            assert!(job.training.checkpoints.load().is_none());
            jobs += 1;
            trained(job);
        };
        let end = time.drive(&participant, second, |_| false);
        assert!(is_over(&end), "{end:?}");
        assert_eq!(jobs, 2, "killed: {is_killed}");
        coordinator.world(|world| {
            assert!(world.abandoned.is_empty());
            assert_eq!(world.accepted, expected, "killed: {is_killed}");
        });
    }
}

/// A journal whose first write panics.
struct Panics {
    journal: MemoryJournal,
    has_panicked: AtomicBool,
}

impl Journal for Panics {
    fn load(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, JournalError> {
        self.journal.load(name)
    }

    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        assert!(self.has_panicked.swap(true, Ordering::Relaxed), "a defect of the test");
        self.journal.save(name, bytes)
    }
}

#[test]
fn what_panicked_is_said_again_and_not_performed_for_ever() {
    let coordinator = Coordinator::new(1);
    let journal = Panics { journal: MemoryJournal::new(), has_panicked: AtomicBool::new(false) };
    let participant = coordinator.app().enrollment_token("token").journal(journal).build_driven().unwrap();
    let mut time = Time(Duration::ZERO);
    time.drive(&participant, trained, |step| matches!(step, Step::Journal));
    let panicked = catch_unwind(AssertUnwindSafe(|| participant.perform(&mut CallbackTrainer::new(3, trained))));
    assert!(panicked.is_err());
    let again = participant.tick(time.now(), GOOD, None);
    assert!(matches!(again, Step::Journal), "{again:?}");
    assert!(is_over(&time.drive(&participant, trained, |_| false)));
}

#[test]
fn a_stop_ends_it_and_an_app_without_an_answer_gives_the_round_up() {
    let coordinator = Coordinator::new(2);
    let (participant, mut time) = (driven(&coordinator), Time(Duration::ZERO));
    time.drive(&participant, drop, |_| coordinator.world(|world| !world.abandoned.is_empty()));
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "training_failed")]);
    participant.stop();
    let end = time.drive(&participant, trained, |_| false);
    assert!(matches!(end, Step::Finished(Ok(Outcome::Stopped))), "{end:?}");
}
