//! The runner: jobs are taken outside of any async runtime.

mod constraints;
mod options;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::journal::MemoryJournal;
use client_sdk::runner::{Job, Next, Overdue, Runner};
use client_sdk::{Builder, Outcome, ParticipantError, Trained};

use crate::support::device::Hand;
use crate::support::{Coordinator, participant, task};

/// Long enough for any machine; what is waited for comes at once.
const LONG: Duration = Duration::from_secs(60);

fn app(coordinator: &Coordinator) -> Builder {
    coordinator.app().enrollment_token("token").journal(MemoryJournal::new())
}

fn start(coordinator: &Coordinator) -> Runner {
    Runner::start(app(coordinator)).unwrap()
}

fn job(runner: &Runner) -> Job {
    match runner.next(LONG) {
        Next::Job(job) => *job,
        other => panic!("{other:?} where a job was due"),
    }
}

fn is_over(runner: &Runner) -> bool {
    matches!(runner.next(LONG), Next::Ended(Ok(Outcome::TaskOver { task: over })) if over == task())
}

fn trained(mut job: Job) -> Result<(), Overdue> {
    job.parameters.values_mut().iter_mut().for_each(|value| *value += 1.0);
    job.answer.finish(Trained { parameters: job.parameters, examples: 3, metrics: vec![] })
}

#[test]
fn jobs_are_asked_for_until_the_task_is_over() {
    let coordinator = Coordinator::new(2);
    let runner = start(&coordinator);
    for round in 1..=2 {
        let job = job(&runner);
        assert_eq!(job.training.round, round);
        assert_eq!(trained(job), Ok(()));
    }
    assert!(is_over(&runner) && is_over(&runner), "it says so again");
    assert_eq!(coordinator.world(|world| world.accepted.len()), 2);
    // Also after its end it answers.
    let who = runner.ask(|running| running.certified().map(|certified| certified.participant));
    assert_eq!(who, Some(Some(participant())));
    assert!(matches!(runner.close(), Ok(Outcome::TaskOver { .. })));
}

#[test]
fn a_job_without_a_result_gives_the_round_up() {
    let coordinator = Coordinator::new(3);
    let runner = start(&coordinator);
    drop(job(&runner));
    assert_eq!(job(&runner).answer.refuse("another model than this app's"), Ok(()));
    assert_eq!(job(&runner).answer.fail("out of memory"), Ok(()));
    assert!(is_over(&runner));
    coordinator.world(|world| {
        assert!(world.sent.is_empty());
        assert_eq!(world.abandoned, [(1, "training_failed"), (2, "refused"), (3, "training_failed")]);
    });
}

#[test]
fn what_comes_after_the_stop_is_overdue() {
    let coordinator = Coordinator::new(1);
    let runner = start(&coordinator);
    let late = job(&runner);
    assert!(matches!(runner.close(), Ok(Outcome::Stopped)));
    assert!(late.answer.is_overdue());
    assert_eq!(trained(late), Err(Overdue));
    coordinator.world(|world| assert!(world.sent.is_empty()));
}

#[test]
fn a_pause_gives_up_what_is_not_made_and_ends_when_it_is_told_to() {
    let (coordinator, clock) = (Coordinator::new(2), Hand::default());
    let runner = Runner::start(app(&coordinator).clock(clock.clone())).unwrap();
    let interrupted = job(&runner);
    runner.pause();
    while !interrupted.training.checkpoints.should_pause() {
        assert!(matches!(runner.next(Duration::from_millis(10)), Next::Waiting));
    }
    assert!(!interrupted.answer.is_overdue(), "it has time to save a checkpoint");
    clock.advance(Duration::from_secs(10));
    // An obsolete job is skipped: the next result comes only when the participant continues.
    while !interrupted.answer.is_overdue() {
        assert!(matches!(runner.next(Duration::from_millis(10)), Next::Waiting));
    }
    assert_eq!(trained(interrupted), Err(Overdue));
    assert!(matches!(runner.next(Duration::from_millis(10)), Next::Waiting));
    runner.resume();
    assert_eq!(trained(job(&runner)), Ok(()));
    assert!(is_over(&runner));
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "conditions")]);
}

#[test]
fn a_pause_that_ends_in_time_costs_nothing() {
    let (coordinator, clock) = (Coordinator::new(1), Hand::default());
    let runner = Runner::start(app(&coordinator).clock(clock.clone())).unwrap();
    let job = job(&runner);
    runner.pause();
    // Queries are answered after earlier messages.
    runner.ask(|_| ()).unwrap();
    assert!(job.training.checkpoints.should_pause());
    runner.resume();
    runner.ask(|_| ()).unwrap();
    clock.advance(Duration::from_secs(60));
    assert!(matches!(runner.next(Duration::from_millis(100)), Next::Waiting));
    assert!(!job.answer.is_overdue());
    assert_eq!(trained(job), Ok(()));
    assert!(is_over(&runner));
    assert!(coordinator.world(|world| world.abandoned.is_empty()));
}

#[test]
fn conditions_are_looked_at_while_a_job_is_out_without_a_word_of_the_app() {
    let (coordinator, may_work) = (Coordinator::new(1), Arc::new(AtomicBool::new(true)));
    let told = Arc::clone(&may_work);
    let conditions = move || match told.load(Ordering::Relaxed) {
        true => Readiness::Ready,
        false => Readiness::NotReady { ask_again: Duration::from_millis(10) },
    };
    let app = app(&coordinator).conditions(conditions).training_slice(Duration::from_millis(10));
    let runner = Runner::start(app).unwrap();
    let first = job(&runner);
    assert!(!first.training.checkpoints.should_pause());
    may_work.store(false, Ordering::Relaxed);
    while !first.training.checkpoints.should_pause() {
        std::thread::yield_now();
    }
    first.training.checkpoints.save(b"half").unwrap();
    while !first.answer.is_overdue() {
        std::thread::yield_now();
    }
    may_work.store(true, Ordering::Relaxed);
    let again = job(&runner);
    assert_eq!(again.training.checkpoints.load().unwrap().as_slice(), b"half");
    assert_eq!(trained(again), Ok(()));
    assert!(is_over(&runner));
    assert!(coordinator.world(|world| world.abandoned.is_empty()));
}

#[test]
fn a_runner_that_was_dropped_stops() {
    let coordinator = Coordinator::new(1);
    let runner = start(&coordinator);
    let left = job(&runner);
    drop(runner);
    while !left.answer.is_overdue() {
        std::thread::yield_now();
    }
}

#[test]
fn a_thread_that_panicked_is_a_defect_and_no_clean_end() {
    let coordinator = Coordinator::new(1);
    let runner = start(&coordinator);
    let answer: Option<()> = runner.ask(|_| panic!("a defect of the test"));
    assert!(answer.is_none());
    // A job may have come before the panic.
    let end = loop {
        match runner.next(LONG) {
            Next::Ended(end) => break end,
            Next::Job(_) => {}
            Next::Waiting => panic!("it does not end"),
        }
    };
    assert!(matches!(end, Err(ParticipantError::Panicked)));
    assert!(matches!(runner.close(), Err(ParticipantError::Panicked)));
}

#[test]
fn whoever_waits_for_the_end_is_not_held_up_by_who_asks_or_waits_for_a_job() {
    let coordinator = Coordinator::new(1);
    let runner = start(&coordinator);
    let ((begin, begun), (go_on, goes_on)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            runner.ask(move |_| {
                begin.send(()).unwrap();
                goes_on.recv()
            })
        });
        begun.recv().unwrap();
        // It waits until the participant, which stands still, has ended.
        let waiter = scope.spawn(|| while !matches!(runner.next(LONG), Next::Ended(_)) {});
        runner.stop();
        let early = runner.ended_within(Duration::from_millis(50));
        go_on.send(()).unwrap();
        assert!(early.is_none());
        assert!(asker.join().unwrap().is_some());
        assert!(matches!(runner.ended_within(LONG), Some(Ok(Outcome::Stopped))));
        waiter.join().unwrap();
    });
    assert!(matches!(runner.close(), Ok(Outcome::Stopped)));
    assert!(runner.ask(|_| ()).is_none(), "nobody is there to answer");
}
