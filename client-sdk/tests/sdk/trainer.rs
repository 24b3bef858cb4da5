//! Errors of trainers: each is a local error, after which the participant gives up the place without an update.

use std::sync::{Arc, Mutex};

use client_sdk::learning::{Layout, MetricValue, Parameters, TensorSpec};
use client_sdk::{Trained, TrainerError};

use crate::support::trainers::By;
use crate::support::{Coordinator, failures};

fn trained(parameters: Parameters) -> Result<Trained, TrainerError> {
    Ok(Trained { parameters, examples: 3, metrics: vec![] })
}

async fn run(
    trainer: impl FnMut(&Parameters) -> Result<Trained, TrainerError> + Send + 'static,
) -> (Coordinator, Vec<String>) {
    let coordinator = Coordinator::new(1);
    let errors = failures(&coordinator, By(trainer)).await;
    (coordinator, errors)
}

async fn refused(
    words: &str,
    reason: &'static str,
    trainer: impl FnMut(&Parameters) -> Result<Trained, TrainerError> + Send + 'static,
) {
    let (coordinator, errors) = run(trainer).await;
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains(words), "{}", errors[0]);
    coordinator.world(|world| {
        assert!(world.sent.is_empty(), "{words}: something was sent");
        assert_eq!(world.abandoned, [(1, reason)], "{words}");
    });
}

#[tokio::test(start_paused = true)]
async fn values_that_are_not_finite() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        refused("\"head\" has a NaN or infinity at position 1", "training_failed", move |model| {
            let mut parameters = model.clone();
            parameters.values_mut()[4] = value;
            trained(parameters)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn parameters_of_another_model() {
    for (name, size) in [("base", 5), ("other", 5), ("base", 4)] {
        refused("another model", "training_failed", move |_| {
            let spec = TensorSpec { name: name.into(), shape: vec![size] };
            trained(Parameters::zeros(Arc::new(Layout::new(vec![spec]).unwrap())))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_examples() {
    refused("no examples", "training_failed", |model| {
        Ok(Trained { parameters: model.clone(), examples: 0, metrics: vec![] })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_metric_that_is_no_number() {
    refused("metric 1 is NaN", "training_failed", |model| {
        let metrics = vec![("train_loss".to_owned(), MetricValue { value: f64::NAN, count: 3 })];
        Ok(Trained { parameters: model.clone(), examples: 3, metrics })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn errors_of_its_own() {
    refused("out of memory", "training_failed", |_| Err(TrainerError::failed("out of memory"))).await;
    refused("no such model", "refused", |_| Err(TrainerError::refused("no such model"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic() {
    refused("panicked", "training_failed", |_| panic!("on purpose")).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_large_is_clamped_and_metrics_nobody_asked_for_are_dropped() {
    let (coordinator, errors) = run(|model| {
        let mut parameters = model.clone();
        parameters.values_mut()[0] = f32::MAX;
        let metrics = vec![("mine".to_owned(), MetricValue { value: f64::NAN, count: 9 })];
        Ok(Trained { parameters, examples: u64::MAX, metrics })
    })
    .await;
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(coordinator.world(|world| world.accepted.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_is_clipped_is_told_and_one_that_is_not_is_not() {
    for (step, outside) in [(0.5, None), (3.0, Some(2))] {
        let coordinator = Coordinator::new(1);
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let trainer = By(move |model: &Parameters| {
            let mut parameters = model.clone();
            parameters.values_mut()[..2].iter_mut().for_each(|value| *value += step);
            trained(parameters)
        });
        let journal = client_sdk::journal::MemoryJournal::new();
        let app = coordinator.app().enrollment_token("t").journal(journal).trainer(trainer);
        let mut participant = app.on_event(move |event| seen.lock().unwrap().push(event.clone())).build().unwrap();
        participant.run(std::future::pending()).await.unwrap();
        let told = told.lock().unwrap();
        let clipped: Vec<_> = told.iter().filter(|event| event.name() == "clipped").collect();
        assert_eq!(clipped.len(), usize::from(outside.is_some()), "{step}: {clipped:?}");
        if let (Some(outside), [event]) = (outside, &clipped[..]) {
            let data = event.data();
            assert_eq!((&data["coordinates"], &data["range"]), (&outside.into(), &1.0.into()), "{data}");
        }
    }
}
