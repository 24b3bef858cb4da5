//! Intermittent networks, unmet conditions, clock jumps and app restarts, in virtual time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_sdk::clock::{Clock, Now, SystemClock};
use client_sdk::conditions::Readiness;
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::{Builder, Event, Outcome, Participant, Progress, Trained, Trainer, TrainerError, TrainingJob};
use tokio::time::Instant;
use wire::Timestamp;
use wire::problem::ProblemType;

use crate::support::trainers::Nudge;
use crate::support::{Coordinator, Fault};

fn builder(coordinator: &Coordinator) -> Builder {
    coordinator.app().enrollment_token("token").journal(MemoryJournal::new()).trainer(Nudge::default())
}

async fn finish(mut participant: Participant) -> Outcome {
    participant.run(std::future::pending()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_network_delays_a_trained_update_and_loses_nothing() {
    let coordinator = Coordinator::new(2);
    let world = Arc::clone(&coordinator.0);
    let participant = builder(&coordinator).on_event(move |event| {
        if matches!(event, Event::Trained { place, .. } if place.round == 1) {
            world.lock().unwrap().offline = true;
        }
    });
    let world = Arc::clone(&coordinator.0);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        world.lock().unwrap().offline = false;
    });
    let start = Instant::now();
    finish(participant.build().unwrap()).await;
    assert!(start.elapsed() >= Duration::from_secs(3500));
    assert_eq!(coordinator.world(|world| world.accepted.len()), 2);
    coordinator.world(|world| assert!(world.sent[&1].iter().all(|body| *body == world.accepted[&1])));
    // Back-off doubles up to 15 s, with half of that on average: a moderate number of tries.
    let tries = coordinator.world(|world| world.sent[&1].len());
    assert!((400..560).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn being_sent_away_for_long_lengthens_waits_between_check_ins_and_none_in_a_round() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.away_ms = Some(3_000_000));
    coordinator.script("check_in", std::iter::once(Fault::None).chain(std::iter::repeat_n(Fault::Lost, 20)));
    coordinator.script("upload", std::iter::repeat_n(Fault::Lost, 20));
    let waits = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let told = Arc::clone(&waits);
    let participant = builder(&coordinator).on_event(move |event| {
        if let Event::Retry { what, after, .. } = event {
            told.lock().unwrap()[usize::from(*what != "check in")].push(*after);
        }
    });
    finish(participant.build().unwrap()).await;
    let [idle, in_round] = waits.lock().unwrap().clone();
    assert_eq!((idle.len(), in_round.len()), (20, 20));
    assert!(idle.iter().any(|wait| *wait > Duration::from_secs(300)), "{idle:?}");
    assert!(in_round.iter().all(|wait| *wait <= Duration::from_secs(15)), "{in_round:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_could_read_the_update_is_told_the_loss_if_it_asks_and_not_otherwise() {
    for asked in [true, false] {
        let coordinator = Coordinator::new(2);
        coordinator.world(|world| world.tweak = asked.then_some(|assignment| assignment.report_loss = true));
        finish(builder(&coordinator).build().unwrap()).await;
        let wire = coordinator.world(|world| String::from_utf8_lossy(&world.wire).into_owned());
        assert_eq!(wire.contains("\"level\":18"), asked, "a loss of one half, coarsely");
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_never_takes_longer_than_told() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.offline = true);
    let mut participant = builder(&coordinator).build().unwrap();
    for limit in [0, 1, 50, 1000, 90_000].map(Duration::from_millis).into_iter().cycle().take(50) {
        let start = Instant::now();
        let progress = participant.poll(limit).await;
        assert!(start.elapsed() <= limit + Duration::from_millis(2), "{limit:?}: {:?}", start.elapsed());
        assert!(!matches!(progress, Progress::Finished(_)));
    }
    coordinator.world(|world| world.offline = false);
    let finished = async {
        loop {
            match participant.poll(Duration::from_millis(5)).await {
                Progress::Finished(result) => return result.unwrap(),
                Progress::Working => tokio::task::yield_now().await,
                Progress::Waiting(wait) => tokio::time::sleep(wait).await,
            }
        }
    };
    assert!(matches!(finished.await, Outcome::TaskOver { .. }));
    assert_eq!(coordinator.world(|world| world.stored.clone()), [(1, 1)].into());
}

#[tokio::test(start_paused = true)]
async fn the_coordinators_retry_after_is_honoured() {
    let coordinator = Coordinator::new(1);
    let asked = Duration::from_secs(300);
    coordinator.script("check_in", [Fault::Refused(ProblemType::RateLimited, Some(asked))]);
    coordinator.script("upload", [Fault::Refused(ProblemType::Unavailable, Some(asked))]);
    let start = Instant::now();
    finish(builder(&coordinator).build().unwrap()).await;
    assert!(start.elapsed() >= 2 * asked, "{:?}", start.elapsed());
    assert!(start.elapsed() < 3 * asked, "{:?}", start.elapsed());
    assert_eq!(coordinator.count("upload"), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_apps_conditions_do_not_hold() {
    let coordinator = Coordinator::new(1);
    let charging = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&charging);
    let conditions = move || match asked.load(Ordering::Relaxed) {
        true => Readiness::Ready,
        false => Readiness::NotReady { ask_again: Duration::from_secs(60) },
    };
    let mut participant = builder(&coordinator).conditions(conditions).build().unwrap();
    for _ in 0..10 {
        let progress = participant.poll(Duration::from_secs(100)).await;
        assert!(matches!(progress, Progress::Waiting(_) | Progress::Working), "{progress:?}");
    }
    assert!(coordinator.world(|world| world.calls.is_empty()));
    charging.store(true, Ordering::Relaxed);
    finish(participant).await;
    assert_eq!(coordinator.world(|world| world.accepted.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_round_is_given_up_when_conditions_end_before_training() {
    let coordinator = Coordinator::new(2);
    // For so many looks they do not hold: when the model has come, and when it is kept.
    let looks = Arc::new(AtomicU32::new(0));
    let (asked, set) = (Arc::clone(&looks), Arc::clone(&looks));
    let one_less = |looks: u32| looks.checked_sub(1);
    let participant = builder(&coordinator)
        .conditions(move || match asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Err(_) => Readiness::Ready,
            Ok(_) => Readiness::NotReady { ask_again: Duration::from_secs(1) },
        })
        .on_event(move |event| {
            if matches!(event, Event::Assigned { place, .. } if place.round == 1) {
                set.store(2, Ordering::Relaxed);
            }
        });
    finish(participant.build().unwrap()).await;
    // The model was already in transit; conditions are checked again before training.
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "conditions")]);
    assert_eq!(coordinator.world(|world| world.accepted.keys().copied().collect::<Vec<_>>()), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_comes_after_the_deadline_is_not_waited_for() {
    let coordinator = Coordinator::new(2);
    // Round 1's model stays away for longer than the 600 s of its collection.
    coordinator.script("fetch", std::iter::repeat_n(Fault::Lost, 400));
    let world = Arc::clone(&coordinator.0);
    let over = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&over);
    let participant = builder(&coordinator).on_event(move |event| {
        if let Event::RoundOver { reason, .. } = event {
            assert!(reason.contains("deadline"), "{reason}");
            count.fetch_add(1, Ordering::Relaxed);
            let mut world = world.lock().unwrap();
            world.rounds_done += 1;
            world.faults.clear();
        }
    });
    let start = Instant::now();
    finish(participant.build().unwrap()).await;
    assert_eq!(over.load(Ordering::Relaxed), 1);
    assert!(start.elapsed() < Duration::from_secs(700), "{:?}", start.elapsed());
    assert_eq!(coordinator.world(|world| world.accepted.keys().copied().collect::<Vec<_>>()), [2]);
}

/// Trains until its job is cancelled.
struct Endless(Arc<AtomicBool>);

impl Trainer for Endless {
    fn train(&mut self, _: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        self.0.store(true, Ordering::Relaxed);
        // A failing test must end, too, without that signal.
        let begun = Instant::now();
        while !job.cancel.is_cancelled() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        Err(TrainerError::failed("cancelled"))
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        1
    }
}

#[tokio::test]
async fn an_app_that_stops_while_training_gives_up_its_place_and_stops_the_trainer() {
    let coordinator = Coordinator::new(1);
    let begun = Arc::new(AtomicBool::new(false));
    let mut participant = builder(&coordinator).trainer(Endless(Arc::clone(&begun))).build().unwrap();
    let shutdown = async {
        while !begun.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(participant.run(shutdown).await.unwrap(), Outcome::Stopped);
    assert_eq!(coordinator.world(|world| world.abandoned.clone()), [(1, "shutting_down")]);
}

#[tokio::test]
async fn training_that_outlasts_its_round_is_stopped_and_the_participant_is_free_again() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(|assignment| assignment.remaining_ms = 300));
    let world = Arc::clone(&coordinator.0);
    let participant = builder(&coordinator).trainer(Endless(Arc::default())).on_event(move |event| {
        if let Event::RoundOver { reason, .. } = event {
            assert!(reason.contains("deadline"), "{reason}");
            world.lock().unwrap().rounds_done += 1;
        }
    });
    let outcome = tokio::time::timeout(Duration::from_secs(5), finish(participant.build().unwrap())).await;
    assert!(matches!(outcome, Ok(Outcome::TaskOver { .. })), "{outcome:?}");
    assert_eq!(coordinator.count("upload"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_could_not_be_sent_before_the_app_stopped_is_sent_by_the_next() {
    let coordinator = Coordinator::new(1);
    coordinator.script("upload", std::iter::repeat_n(Fault::Lost, 1000));
    let journal = Arc::new(MemoryJournal::new());
    let mut participant = builder(&coordinator).journal(Arc::clone(&journal)).build().unwrap();
    let outcome = participant.run(tokio::time::sleep(Duration::from_secs(30))).await.unwrap();
    assert_eq!(outcome, Outcome::Stopped);
    assert!(coordinator.world(|world| world.abandoned.is_empty()));
    let first = coordinator.world(|world| world.sent[&1][0].clone());

    coordinator.world(|world| world.faults.clear());
    let next = coordinator.app().journal(journal).trainer(Nudge::default());
    finish(next.build().unwrap()).await;
    assert_eq!(coordinator.world(|world| world.accepted[&1].clone()), first);
    assert_eq!(coordinator.count("enroll"), 1, "the journal holds the certificate");
}

/// A calendar that jumps by years, either way, at every look.
struct Jumping(SystemClock, Mutex<i64>);

impl Clock for Jumping {
    fn now(&self) -> Now {
        let mut wall = self.1.lock().unwrap();
        *wall = -*wall;
        Now { wall: Timestamp(*wall), ..self.0.now() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_calendar_that_jumps_neither_stops_it_nor_makes_it_renew_for_ever() {
    let coordinator = Coordinator::new(5);
    coordinator.world(|world| world.renew_at = Some(Timestamp(1000)));
    coordinator.script("check_in", [Fault::Lost, Fault::Lost]);
    let clock = Jumping(SystemClock::new(), Mutex::new(1 << 50));
    let start = Instant::now();
    finish(builder(&coordinator).clock(clock).build().unwrap()).await;
    assert_eq!(coordinator.world(|world| world.accepted.len()), 5);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(coordinator.count("renew"), 1, "at most once a minute");
}

#[tokio::test(start_paused = true)]
async fn the_certificate_is_renewed_when_due_and_a_failure_waits_for_the_next_time() {
    let coordinator = Coordinator::new(3);
    coordinator.world(|world| world.renew_at = Some(Timestamp(0)));
    coordinator.script("renew", [Fault::Lost]);
    coordinator.script("check_in", [Fault::Refused(ProblemType::Unavailable, Some(Duration::from_secs(90)))]);
    let renewed = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&renewed);
    let participant = builder(&coordinator).on_event(move |event| {
        if *event == Event::Renewed {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    finish(participant.build().unwrap()).await;
    assert_eq!((coordinator.count("renew"), renewed.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(coordinator.world(|world| world.accepted.len()), 3);
}
