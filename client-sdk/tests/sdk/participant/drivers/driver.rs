//! A participant whose app polls it a little at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use client_sdk::conditions::{Conditions, Readiness};
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::Progress;
use client_sdk::{Event, Outcome, Trained, Trainer, TrainerError, TrainingJob};

use crate::support::{Coordinator, task};

/// A training without pauses or checkpoints. It ends on cancellation.
struct Plain {
    begun: Sender<()>,
    ends: Receiver<()>,
}

impl Trainer for Plain {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        self.begun.send(()).unwrap();
        self.ends.recv().map_err(TrainerError::failed)?;
        Ok(Trained { parameters: model.clone(), examples: 3, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        3
    }
}

/// Conditions that the test controls.
fn conditions(may_work: &Arc<AtomicBool>) -> impl Conditions + use<> {
    let told = Arc::clone(may_work);
    move || match told.load(Ordering::Relaxed) {
        true => Readiness::Ready,
        false => Readiness::NotReady { ask_again: Duration::from_millis(10) },
    }
}

#[tokio::test]
async fn conditions_that_end_when_a_training_has_just_ended_do_not_lose_it() {
    let (coordinator, may_work) = (Coordinator::new(1), Arc::new(AtomicBool::new(true)));
    let ((begun, has_begun), (end, ends)) = (channel(), channel());
    let app = coordinator.app().enrollment_token("token").journal(MemoryJournal::new());
    let mut participant = app.trainer(Plain { begun, ends }).conditions(conditions(&may_work)).build().unwrap();
    while has_begun.try_recv().is_err() {
        let progress = participant.poll(Duration::from_millis(10)).await;
        assert!(!matches!(progress, Progress::Finished(_)), "{progress:?}");
    }
    end.send(()).unwrap();
    // Another training would fail.
    drop(end);
    participant.trainer_rests().await;
    may_work.store(false, Ordering::Relaxed);
    participant.conditions_changed();
    let progress = participant.poll(Duration::from_millis(10)).await;
    assert!(!matches!(progress, Progress::Finished(_)), "{progress:?}");
    coordinator.world(|world| assert!(world.accepted.is_empty(), "it rests"));
    may_work.store(true, Ordering::Relaxed);
    assert_eq!(participant.run(std::future::pending()).await.unwrap(), Outcome::TaskOver { task: task() });
    coordinator.world(|world| assert!(world.abandoned.is_empty() && world.accepted.len() == 1));
}

/// A training that saves a checkpoint, and then pauses when it should.
struct Saves {
    begun: Sender<()>,
}

impl Trainer for Saves {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        if job.checkpoints.has_state() {
            return Ok(Trained { parameters: model.clone(), examples: 3, metrics: vec![] });
        }
        job.checkpoints.save(b"half").unwrap();
        self.begun.send(()).unwrap();
        while !job.checkpoints.should_pause() {
            std::thread::yield_now();
        }
        Err(TrainerError::Paused)
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        3
    }
}

#[tokio::test]
async fn conditions_are_looked_at_while_it_trains_though_each_poll_is_shorter_than_a_slice() {
    let (coordinator, may_work) = (Coordinator::new(1), Arc::new(AtomicBool::new(true)));
    let (begun, has_begun) = channel();
    let (pauses, has_paused) = channel();
    let told = move |event: &Event| {
        if let Event::Paused { .. } = event {
            pauses.send(()).unwrap();
        }
    };
    let app = coordinator.app().enrollment_token("token").journal(MemoryJournal::new()).on_event(told);
    let app = app.training_slice(Duration::from_millis(50)).conditions(conditions(&may_work));
    let mut participant = app.trainer(Saves { begun }).build().unwrap();
    for is_there in [has_begun, has_paused] {
        while is_there.try_recv().is_err() {
            let progress = participant.poll(Duration::from_millis(1)).await;
            assert!(!matches!(progress, Progress::Finished(_)), "{progress:?}");
        }
        may_work.store(false, Ordering::Relaxed);
    }
    may_work.store(true, Ordering::Relaxed);
    assert_eq!(participant.run(std::future::pending()).await.unwrap(), Outcome::TaskOver { task: task() });
    coordinator.world(|world| assert!(world.abandoned.is_empty() && world.accepted.len() == 1));
}
