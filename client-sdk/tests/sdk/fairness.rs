//! q-FFL on the wire: updates weighed by the loss of the received model, in the words that secure aggregation sums.

use std::time::Duration;

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{Codec, Fairness, MetricValue, Parameters, QFfl, QuantizationParams, Update};
use client_sdk::runner::{Job, Next, Runner};
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};
use secure_agg::modular::Modulus;
use secure_agg::packing;
use wire::participant::Assignment;

use crate::support::{Coordinator, failures};

/// Moves everything by a fixed step; its loss of whatever it received is the one given, if any.
struct Fixed(Option<f64>);

impl Trainer for Fixed {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().for_each(|value| *value += 0.25);
        Ok(Trained { parameters, examples: 50, metrics: vec![] })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(self.0.map(|value| ("loss".to_owned(), MetricValue { value, count: 9 })).into_iter().collect())
    }

    fn examples(&self) -> u64 {
        50
    }
}

fn fair(assignment: &mut Assignment) {
    assignment.encoding.clip_norm = Some(2.0);
    assignment.encoding.max_weight = 100_000;
    assignment.training.learning_rate = 0.1;
    assignment.training.fairness = Some(task_spec::Fairness { q: 1.0, loss_cap: 2.0, lipschitz: None });
}

async fn run(loss: Option<f64>, tweak: fn(&mut Assignment)) -> (Coordinator, Vec<String>) {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(tweak));
    let errors = failures(&coordinator, Fixed(loss)).await;
    (coordinator, errors)
}

fn params() -> QuantizationParams {
    QuantizationParams {
        parameters: 5,
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: Some(2.0),
        max_weight: 100_000,
        max_cohort: 10,
        metrics: 2,
    }
}

async fn sent(loss: f64, codec: &Codec) -> (i64, f64) {
    let (coordinator, errors) = run(Some(loss), fair).await;
    assert!(errors.is_empty(), "{errors:?}");
    uploaded(&coordinator, codec)
}

/// What was uploaded: the weight, and a parameter's word over the scale.
fn uploaded(coordinator: &Coordinator, codec: &Codec) -> (i64, f64) {
    let body = coordinator.world(|world| world.accepted[&1].clone());
    let modulus = Modulus::new(32).unwrap();
    let words = packing::unpack(&body, codec.len(), modulus).unwrap();
    (modulus.centre(words[5]), modulus.centre(words[0]) as f64 / codec.scale())
}

#[tokio::test(start_paused = true)]
async fn a_worse_loss_weighs_more_and_the_words_are_the_rules() {
    let codec = Codec::new(params()).unwrap();
    let rule = QFfl::new(Fairness { q: 1.0, lipschitz: 10.0, loss_cap: 2.0 }, &params()).unwrap();
    let mut last = 0.0;
    for loss in [0.1, 0.5, 2.0] {
        let update = Update { delta: vec![0.25; 5], examples: 50, metrics: vec![] };
        let expected = rule.contribution(loss, update).unwrap();
        let (weight, pull) = sent(loss, &codec).await;
        assert_eq!(weight, expected.examples.cast_signed());
        let exact = expected.examples as f64 * f64::from(expected.delta[0]);
        assert!((pull - exact).abs() * codec.scale() <= 1.0, "{pull} {exact}");
        assert!(pull > last);
        last = pull;
    }
}

/// One round of an app with its own training, which returns these measurements of the received model.
fn answered(measured: Vec<(String, MetricValue)>) -> Coordinator {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(fair));
    let app = coordinator.app().enrollment_token("token").journal(MemoryJournal::new());
    let runner = Runner::start(app).unwrap();
    loop {
        match runner.next(Duration::from_secs(60)) {
            Next::Job(job) => {
                let Job { mut parameters, answer, .. } = *job;
                parameters.values_mut().iter_mut().for_each(|value| *value += 0.25);
                answer.finish(Trained { parameters, examples: 50, metrics: measured.clone() }).unwrap();
            }
            Next::Waiting => {}
            Next::Ended(end) => {
                end.unwrap();
                return coordinator;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_in_the_answer_of_an_app_counts_as_one_that_a_trainer_measured() {
    let codec = Codec::new(params()).unwrap();
    let metric = |name: &str, value| (name.to_owned(), MetricValue { value, count: 9 });
    let coordinator = answered(vec![metric("train_loss", 0.1), metric("loss", 0.5)]);
    assert_eq!(uploaded(&coordinator, &codec).0, sent(0.5, &codec).await.0);
    // That of the training is another.
    let without = answered(vec![metric("train_loss", 0.5)]);
    without.world(|world| assert!(world.sent.is_empty() && world.abandoned == [(1, "training_failed")]));
}

/// Also returns a loss from training, whose meaning is unknown.
struct Unclear;

impl Trainer for Unclear {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let metrics = vec![("loss".to_owned(), MetricValue { value: 0.5, count: 9 })];
        Ok(Trained { metrics, ..Fixed(None).train(model, job)? })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(vec![])
    }

    fn examples(&self) -> u64 {
        50
    }
}

#[tokio::test(start_paused = true)]
async fn the_loss_that_a_trainer_says_in_training_weighs_nothing() {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.tweak = Some(fair));
    let errors = failures(&coordinator, Unclear).await;
    assert!(errors.len() == 1 && errors[0].contains("\"loss\""), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_loss_or_a_bound_nothing_is_sent() {
    let (coordinator, errors) = run(None, fair).await;
    assert!(errors.len() == 1 && errors[0].contains("\"loss\""), "{errors:?}");
    let (unbounded, _) = run(Some(1.0), |assignment| {
        fair(assignment);
        assignment.encoding.clip_norm = None;
    })
    .await;
    for (coordinator, reason) in [(coordinator, "training_failed"), (unbounded, "refused")] {
        coordinator.world(|world| {
            assert!(world.sent.is_empty(), "something was sent");
            assert_eq!(world.abandoned, [(1, reason)]);
        });
    }
}
