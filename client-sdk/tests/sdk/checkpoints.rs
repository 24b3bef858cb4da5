//! A process is killed in the middle of local training, or pauses: it resumes from its last checkpoint, computes the
//! same, and removes all checkpoints at the end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::journal::{Journal, MemoryJournal};
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::machine::Settings;
use client_sdk::participant::snapshot;
use client_sdk::runner::{Job, Next, Runner};
use client_sdk::{Event, Model, NotKept, Trained, Trainer, TrainerError, TrainingJob};

use crate::support::cohort::Hub;
use crate::support::device::{Device, EFFECTS, Effect, Hand};
use crate::support::words::fine_tuned;
use crate::support::{Coordinator, in_the_clear, settings, task};

const ROUNDS: u32 = 3;
const STEPS: usize = 6;

/// Takes steps that depend on the seed and on all before, and saves after each.
#[derive(Clone, Default)]
pub(crate) struct Stepping {
    /// The rounds of all steps that were taken, by all processes.
    taken: Arc<Mutex<Vec<u32>>>,
    evaluated: Arc<AtomicUsize>,
    /// Advances by `step_takes` at each step.
    clock: Hand,
    step_takes: Duration,
    /// Whether a checkpoint was due before each was saved.
    due: Arc<Mutex<Vec<bool>>>,
}

impl Trainer for Stepping {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        let mut done = 0;
        if let Some(state) = job.checkpoints.load() {
            done = usize::from(state[0]);
            let values = state[1..].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            parameters.values_mut().iter_mut().zip(values).for_each(|(value, saved)| *value = saved);
        }
        while done < STEPS {
            if job.cancel.is_cancelled() {
                return Err(TrainerError::failed("cancelled"));
            }
            let step = (job.seed % 1000) as f32 / 1e6 + 1.0 / (done as f32 + 3.0);
            parameters.values_mut().iter_mut().for_each(|value| *value = *value * 0.99 + step);
            self.taken.lock().unwrap().push(job.round);
            self.clock.advance(self.step_takes);
            self.due.lock().unwrap().push(job.checkpoints.is_due());
            done += 1;
            let values = parameters.values().iter().flat_map(|value| value.to_le_bytes());
            let state: Vec<u8> = std::iter::once(u8::try_from(done).unwrap()).chain(values).collect();
            let is_kept = job.checkpoints.save(&state).is_ok();
            if is_kept && job.checkpoints.should_pause() {
                return Err(TrainerError::Paused);
            }
        }
        Ok(Trained { parameters, examples: 7, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.evaluated.fetch_add(1, Ordering::Relaxed);
        Ok(vec![("loss".into(), MetricValue { value: 1.5, count: 3 })])
    }

    fn examples(&self) -> u64 {
        7
    }
}

pub(crate) type Alone = Device<Coordinator, Stepping>;

pub(crate) fn alone(seed: Option<u64>) -> Alone {
    let settings = Settings { seed, ..in_the_clear() };
    Device::with(Arc::new(MemoryJournal::new()), 0, Coordinator::new(ROUNDS), Stepping::default(), settings)
}

/// What was accepted in each round.
pub(crate) fn accepted(device: &Alone) -> Vec<Vec<u8>> {
    device.coordinator.world(|world| {
        assert!(world.stored.values().all(|times| *times == 1), "each round once");
        assert!(world.abandoned.is_empty());
        for (round, sent) in &world.sent {
            assert!(sent.iter().all(|body| *body == world.accepted[round]), "other bytes in round {round}");
        }
        world.accepted.values().map(|body| body.to_vec()).collect()
    })
}

/// Whether the journal is free of checkpoints.
fn is_clean(journal: &dyn Journal) -> bool {
    journal.load(snapshot::TRAINING).unwrap().is_none_or(|record| record.len() < 120)
}

fn resumed(device: &Alone) -> usize {
    device.events.iter().filter(|event| matches!(event, Event::Resumed { .. })).count()
}

#[test]
fn killed_at_every_checkpoint_it_goes_on_and_sends_the_same() {
    let mut undisturbed = alone(Some(5));
    undisturbed.run(500, |_| None);
    let expected = accepted(&undisturbed);
    assert_eq!(undisturbed.checkpoints.load(Ordering::Relaxed), STEPS * ROUNDS as usize);
    for at in 0..STEPS * ROUNDS as usize {
        for effect in [Effect::None, Effect::Whole] {
            let what = format!("killed at checkpoint {at}, effect {effect:?}");
            let mut device = alone(Some(5));
            device.dies_at_checkpoint = Some((at, effect));
            device.run(500, |_| None);
            assert_eq!(accepted(&device), expected, "{what}");
            let lost = effect == Effect::None;
            let taken = device.trainer.taken.lock().unwrap().len();
            assert_eq!(
                taken,
                STEPS * ROUNDS as usize + usize::from(lost),
                "{what}: the step after the last checkpoint"
            );
            // Killed before the first checkpoint of a round it begins again; what was measured is kept with a checkpoint.
            let begins_again = lost && at.is_multiple_of(STEPS);
            assert_eq!(resumed(&device), usize::from(!begins_again), "{what}");
            let evaluated = device.trainer.evaluated.load(Ordering::Relaxed);
            assert_eq!(evaluated, ROUNDS as usize + usize::from(begins_again), "{what}");
            assert!(is_clean(&*device.journal), "{what}");
        }
    }
}

/// A method that trains two models in each round.
fn fine_tuning() -> Alone {
    let device = alone(Some(5));
    device.coordinator.world(|world| world.tweak = Some(fine_tuned));
    device
}

#[test]
fn of_several_trainings_in_a_round_none_is_repeated() {
    let mut undisturbed = fine_tuning();
    undisturbed.run(500, |_| None);
    let (expected, own) = (accepted(&undisturbed), Model::load(&*undisturbed.journal, task()).unwrap().unwrap());
    let all = 2 * STEPS * ROUNDS as usize;
    assert_eq!(undisturbed.trainer.taken.lock().unwrap().len(), all);
    for at in 0..all {
        for effect in [Effect::None, Effect::Whole] {
            let mut device = fine_tuning();
            device.dies_at_checkpoint = Some((at, effect));
            device.run(500, |_| None);
            let what = format!("killed at checkpoint {at}, effect {effect:?}");
            assert_eq!(accepted(&device), expected, "{what}");
            let lost = usize::from(effect == Effect::None);
            assert_eq!(device.trainer.taken.lock().unwrap().len(), all + lost, "{what}");
            let found = Model::load(&*device.journal, task()).unwrap().unwrap();
            assert_eq!(found.parameters(), own.parameters(), "{what}: the device's own model");
            assert!(is_clean(&*device.journal), "{what}");
        }
    }
}

#[test]
fn without_a_seed_the_same_training_goes_on_too() {
    // Every process draws new seeds. A training resumed with a new seed would not repeat its first steps.
    for at in 0..STEPS {
        let mut device = alone(None);
        device.dies_at_checkpoint = Some((at, Effect::Whole));
        device.run(500, |_| None);
        assert_eq!((accepted(&device).len(), resumed(&device)), (ROUNDS as usize, 1));
        assert_eq!(device.trainer.taken.lock().unwrap().len(), STEPS * ROUNDS as usize);
    }
}

#[test]
fn in_slices_it_computes_the_same() {
    let mut undisturbed = alone(Some(5));
    undisturbed.run(500, |_| None);
    let mut sliced = alone(Some(5));
    sliced.in_slices = true;
    let actions = sliced.run(500, |_| None);
    assert_eq!(accepted(&sliced), accepted(&undisturbed));
    assert_eq!(sliced.trainer.taken.lock().unwrap().len(), STEPS * ROUNDS as usize);
    assert!(is_clean(&*sliced.journal));
    // Killed at every action between slices as well.
    for at in 0..actions {
        for effect in EFFECTS {
            let mut device = alone(Some(5));
            device.in_slices = true;
            device.run(500, |number| (number == at).then_some(effect));
            assert_eq!(accepted(&device), accepted(&undisturbed), "killed at {at}, effect {effect:?}");
            assert!(device.trainer.taken.lock().unwrap().len() <= STEPS * ROUNDS as usize + STEPS, "killed at {at}");
            assert!(is_clean(&*device.journal), "killed at {at}, effect {effect:?}");
        }
    }
}

/// Steps of one second each; every third one writes a checkpoint.
fn every_third() -> Alone {
    let mut device = alone(Some(5));
    device.trainer.step_takes = Duration::from_secs(1);
    device.clock = device.trainer.clock.clone();
    device.checkpoint_every = Duration::from_millis(2500);
    device
}

#[test]
fn what_is_saved_more_often_is_not_written_and_a_kill_repeats_no_more_than_the_time_in_between() {
    let mut undisturbed = alone(Some(5));
    undisturbed.run(500, |_| None);
    let written = 2 * ROUNDS as usize;
    for in_slices in [false, true] {
        let mut device = every_third();
        device.in_slices = in_slices;
        device.run(500, |_| None);
        assert_eq!(accepted(&device), accepted(&undisturbed));
        // Also where each run of a training is shorter than that time.
        assert_eq!(device.checkpoints.load(Ordering::Relaxed), written, "in slices: {in_slices}");
        let due = [false, false, true].repeat(written);
        assert_eq!(*device.trainer.due.lock().unwrap(), due, "in slices: {in_slices}");
        for at in 0..written {
            for effect in [Effect::None, Effect::Whole] {
                let what = format!("in slices: {in_slices}, killed at checkpoint {at}, effect {effect:?}");
                let mut device = every_third();
                (device.in_slices, device.dies_at_checkpoint) = (in_slices, Some((at, effect)));
                device.run(500, |_| None);
                assert_eq!(accepted(&device), accepted(&undisturbed), "{what}");
                let repeated = if effect == Effect::None { 3 } else { 0 };
                let taken = device.trainer.taken.lock().unwrap().len();
                assert_eq!(taken, STEPS * ROUNDS as usize + repeated, "{what}");
                assert!(is_clean(&*device.journal), "{what}");
            }
        }
    }
}

#[test]
fn a_paused_training_goes_on_while_the_round_waits_and_no_longer() {
    for too_long in [false, true] {
        let mut device = alone(Some(5));
        device.in_slices = true;
        while device.trainer.taken.lock().unwrap().len() < 2 {
            device.step(None);
        }
        let ask_again = Duration::from_secs(if too_long { 1 << 50 } else { 60 });
        device.machine.set_readiness(Readiness::NotReady { ask_again });
        let begun = device.now;
        device.step(None);
        device.machine.set_readiness(Readiness::Ready);
        let abandoned = device.coordinator.world(|world| world.abandoned.clone());
        if too_long {
            device.run(500, |_| None);
            let abandoned = device.coordinator.world(|world| world.abandoned.clone());
            assert_eq!(abandoned, [(1, "conditions")]);
            assert!(is_clean(&*device.journal));
            continue;
        }
        assert!(abandoned.is_empty());
        assert!(device.now >= begun + ask_again, "it waits");
        assert!(device.events.iter().any(|event| matches!(event, Event::Paused { place } if place.round == 1)));
        // Killed while it rests.
        device.restart();
        device.run(500, |_| None);
        assert_eq!(accepted(&device).len(), ROUNDS as usize);
        assert_eq!(device.trainer.taken.lock().unwrap().len(), STEPS * ROUNDS as usize);
        assert!(is_clean(&*device.journal));
    }
}

#[test]
fn a_checkpoint_of_another_attempt_or_model_is_thrown_away() {
    let mut device = alone(Some(5));
    device.dies_at_checkpoint = Some((3, Effect::Whole));
    while device.processes == 1 {
        device.step(None);
    }
    assert!(!is_clean(&*device.journal));
    // The round has ended in between.
    device.coordinator.world(|world| world.rounds_done = 1);
    device.run(500, |_| None);
    assert_eq!(resumed(&device), 0);
    let rounds = device.trainer.taken.lock().unwrap().clone();
    assert_eq!(rounds.iter().filter(|round| **round > 1).count(), 2 * STEPS, "{rounds:?}");
    assert!(is_clean(&*device.journal));
}

#[test]
fn a_checkpoint_is_bounded_and_ends_with_its_job() {
    struct Big(Arc<Mutex<Vec<Result<(), NotKept>>>>, Arc<Mutex<Option<TrainingJob>>>);
    impl Trainer for Big {
        fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
            for bytes in [4000, 4001] {
                self.0.lock().unwrap().push(job.checkpoints.save(&vec![0; bytes]));
            }
            *self.1.lock().unwrap() = Some(job.clone());
            Ok(Trained { parameters: model.clone(), examples: 1, metrics: vec![] })
        }

        fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
            Ok(vec![])
        }

        fn examples(&self) -> u64 {
            1
        }
    }
    let (results, job) = (Arc::default(), Arc::default());
    let trainer = Big(Arc::clone(&results), Arc::clone(&job));
    let settings = Settings { max_model_bytes: 1000, ..in_the_clear() };
    let mut device = Device::with(Arc::new(MemoryJournal::new()), 0, Coordinator::new(1), trainer, settings);
    device.run(500, |_| None);
    let results = std::mem::take(&mut *results.lock().unwrap());
    assert!(matches!(results[..], [Ok(()), Err(NotKept::TooLarge { bytes: 4001, limit: 4000 })]), "{results:?}");
    let late = job.lock().unwrap().take().unwrap().checkpoints.save(b"late");
    assert!(matches!(late, Err(NotKept::Over)));
    assert!(is_clean(&*device.journal));
}

#[test]
fn in_a_session_it_is_killed_at_every_checkpoint_and_shares_nothing_twice() {
    let run = |dies_at: Option<(usize, Effect)>| {
        let hub = Hub::new(3, 2);
        hub.world(|world| world.open(1, 1));
        let mut devices: Vec<_> = (0..3)
            .map(|index| {
                let journal = Arc::new(MemoryJournal::new());
                let settings = Settings { seed: Some(7), ..settings() };
                Device::with(journal, index, hub.line(index), Stepping::default(), settings)
            })
            .collect();
        devices[0].dies_at_checkpoint = dies_at;
        for _ in 0..5000 {
            devices.iter_mut().filter(|device| device.ended.is_none()).for_each(|device| device.step(None));
        }
        assert!(devices.iter().all(|device| matches!(device.ended, Some(Ok(_)))));
        let taken = devices[0].trainer.taken.lock().unwrap().len();
        assert!(devices.iter().all(|device| is_clean(&*device.journal)));
        (
            hub.world(|world| {
                world.published.iter().map(|done| (done.round, done.survivors.clone())).collect::<Vec<_>>()
            }),
            taken,
        )
    };
    let everybody = vec![(1, vec![0, 1, 2]), (2, vec![0, 1, 2])];
    for at in 0..2 * STEPS {
        for effect in [Effect::None, Effect::Whole] {
            // The hub panics if a participant sends two different messages.
            let lost = usize::from(effect == Effect::None);
            assert_eq!(run(Some((at, effect))), (everybody.clone(), 2 * STEPS + lost), "{at}, {effect:?}");
        }
    }
}

#[test]
fn a_job_that_was_handed_over_is_taken_back_at_a_pause_and_comes_again() {
    // It saves what it has, does not in its time, or saves and lets go of the job.
    for (saves, lets_go) in [(true, false), (false, false), (true, true)] {
        let (coordinator, clock) = (Coordinator::new(1), Hand::default());
        let app = coordinator.app().enrollment_token("token").journal(MemoryJournal::new());
        let runner = Runner::start(app.clock(clock.clone())).unwrap();
        let job = |runner: &Runner| loop {
            match runner.next(Duration::from_secs(60)) {
                Next::Job(job) => break *job,
                Next::Waiting => {}
                Next::Ended(end) => panic!("{end:?}"),
            }
        };
        let Job { training, answer, .. } = job(&runner);
        training.checkpoints.save(b"some").unwrap();
        runner.pause();
        while !training.checkpoints.should_pause() {
            std::thread::yield_now();
        }
        assert!(!answer.is_overdue(), "it has time to save what it has");
        match saves {
            true => training.checkpoints.save(b"more").unwrap(),
            false => clock.advance(Duration::from_secs(10)),
        }
        match lets_go {
            true => drop(answer),
            false => {
                while !answer.is_overdue() {
                    std::thread::yield_now();
                }
            }
        }
        // Once the trainer has returned, further states are rejected.
        let last: &[u8] = if saves { b"more" } else { b"some" };
        while training.checkpoints.save(last).is_ok() {
            std::thread::yield_now();
        }
        runner.resume();
        let Job { parameters, training, answer, .. } = job(&runner);
        assert_eq!(training.checkpoints.load().unwrap().as_slice(), last);
        answer.finish(Trained { parameters, examples: 3, metrics: vec![] }).unwrap();
        assert!(matches!(runner.next(Duration::from_secs(60)), Next::Ended(Ok(_))));
        coordinator.world(|world| assert!(world.abandoned.is_empty() && world.accepted.len() == 1));
    }
}
