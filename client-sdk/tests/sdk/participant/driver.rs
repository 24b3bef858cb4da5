//! A participant whose app polls it a little at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters};
use client_sdk::participant::Progress;
use client_sdk::{Outcome, Trained, Trainer, TrainerError, TrainingJob};

use crate::support::{Coordinator, task};

/// A training that can neither pause nor save anything, and ends when it is cancelled.
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

#[tokio::test]
async fn conditions_that_end_when_a_training_has_just_ended_do_not_lose_it() {
    let (coordinator, may_work) = (Coordinator::new(1), Arc::new(AtomicBool::new(true)));
    let told = Arc::clone(&may_work);
    let conditions = move || match told.load(Ordering::Relaxed) {
        true => Readiness::Ready,
        false => Readiness::NotReady { ask_again: Duration::from_millis(10) },
    };
    let ((begun, has_begun), (end, ends)) = (channel(), channel());
    let app = coordinator.app().enrollment_token("token").journal(MemoryJournal::new());
    let mut participant = app.trainer(Plain { begun, ends }).conditions(conditions).build().unwrap();
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
