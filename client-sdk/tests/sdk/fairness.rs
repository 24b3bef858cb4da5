//! q-FFL on the wire: updates weighed by the loss of the received model, in the words that secure aggregation sums.

use client_sdk::learning::{Codec, Fairness, MetricValue, Parameters, QFfl, QuantizationParams, Update};
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

/// What was uploaded: the weight, and a parameter's word over the scale.
async fn sent(loss: f64, codec: &Codec) -> (i64, f64) {
    let (coordinator, errors) = run(Some(loss), fair).await;
    assert!(errors.is_empty(), "{errors:?}");
    let body = coordinator.world(|world| world.accepted[&1].clone());
    let modulus = Modulus::new(32).unwrap();
    let words = packing::unpack(&body, codec.len(), modulus).unwrap();
    (modulus.centre(words[5]), modulus.centre(words[0]) as f64 / codec.scale())
}

#[tokio::test(start_paused = true)]
async fn a_worse_loss_weighs_more_and_the_words_are_the_rules() {
    let params = QuantizationParams {
        parameters: 5,
        modulus_bits: 32,
        clip_range: 1.0,
        clip_norm: Some(2.0),
        max_weight: 100_000,
        max_cohort: 10,
        metrics: 2,
    };
    let codec = Codec::new(params).unwrap();
    let rule = QFfl::new(Fairness { q: 1.0, lipschitz: 10.0, loss_cap: 2.0 }, &params).unwrap();
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
