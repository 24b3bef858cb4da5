//! Jobs with requirements beyond the plan, and analyses.

use std::sync::{Arc, Mutex};

use client_sdk::learning::analytics::{AnalyticsState, ColumnStatistics};
use client_sdk::learning::{AnalyticsSpec, ExactSum, Parameters};
use client_sdk::runner::{Capabilities, Job, JobConstraints, Runner, checked_rows};
use client_sdk::{Analytics, Builder, Event, MetricValue, Origin, Purpose, REACH, Trained};
use secure_agg::modular::Modulus;
use secure_agg::packing;
use serde_json::json;
use task_spec::{AdapterScope, Personalization, Solver};
use wire::participant::Assignment;

use super::{app, is_over, job};
use crate::support::{Coordinator, words};

fn within() -> Capabilities {
    Capabilities { within: true, ..Capabilities::default() }
}

fn ditto(assignment: &mut Assignment) {
    assignment.encoding.personalization = Some(Personalization::Ditto { lambda: 0.5, epochs: Some(7) });
}

fn scaffold(assignment: &mut Assignment) {
    assignment.training.learning_rate = 0.1;
    assignment.encoding.max_weight = 1;
    assignment.encoding.solver = Some(Solver::Scaffold { population: 4, steps: Some(10) });
}

fn lora(assignment: &mut Assignment) {
    assignment.encoding.personalization = Some(Personalization::Lora {
        layers: vec!["base".into()],
        rank: 1,
        alpha: Some(3.0),
        adapters: AdapterScope::Personal,
        epochs: None,
        base_sha256: None,
    });
}

fn federation(rounds: u32, tweak: fn(&mut Assignment)) -> Coordinator {
    let coordinator = Coordinator::new(rounds);
    coordinator.world(|world| world.tweak = Some(tweak));
    coordinator
}

/// Adds to every parameter, and returns accuracies of the initial and of the personalized model.
fn answer(job: Job, number: f32, accuracy: f64) {
    let Job { mut parameters, answer, .. } = job;
    parameters.values_mut().iter_mut().for_each(|value| *value += number);
    let metric = |name: &str, value| (name.to_owned(), MetricValue { value, count: 3 });
    let personal = metric("personal_accuracy", accuracy + 0.125);
    let metrics = vec![metric("accuracy", accuracy), metric("train_loss", 0.5), metric(REACH, 0.5), personal];
    answer.finish(Trained { parameters, examples: 3, metrics }).unwrap();
}

/// What was said of one model.
type Measured = Vec<(String, f64)>;

/// Takes down what was said of received models.
fn listening(builder: Builder) -> (Builder, Arc<Mutex<Vec<Measured>>>) {
    let told = Arc::<Mutex<Vec<Measured>>>::default();
    let heard = Arc::clone(&told);
    let builder = builder.on_event(move |event| {
        if let Event::Evaluated { metrics, .. } = event {
            let metrics = metrics.iter().map(|(name, metric)| (name.clone(), metric.value));
            heard.lock().unwrap().push(metrics.collect());
        }
    });
    (builder, told)
}

/// The model's origin, values and metrics.
fn own_model(runner: &Runner) -> (Origin, Vec<f32>, Measured) {
    let model = runner.ask(|running| running.model_of("task")).unwrap().unwrap().unwrap();
    let metrics = model.metrics().iter().map(|(name, metric)| (name.clone(), metric.value));
    (model.origin(), model.parameters().values().to_vec(), metrics.collect())
}

#[test]
fn a_round_of_ditto_is_a_job_of_each_model_and_the_second_answer_is_the_own_one() {
    let coordinator = federation(2, ditto);
    let (builder, told) = listening(app(&coordinator));
    let runner = Runner::start_with(builder, within()).unwrap();
    let mut own_before: Option<Parameters> = None;
    for round in 1..=2 {
        let shared = job(&runner);
        assert_eq!((shared.training.round, shared.training.purpose), (round, Purpose::Shared));
        assert!(matches!(shared.constraints, JobConstraints::Free), "{:?}", shared.constraints);
        let received = shared.parameters.clone();
        answer(shared, 0.5, 0.25);
        let own = job(&runner);
        assert_eq!((own.training.round, own.training.purpose), (round, Purpose::Own));
        assert_eq!((own.training.plan.epochs, own.training.plan.proximal_mu), (7, 0.5));
        assert_eq!(own.constraints.anchor(), Some(&received));
        assert!(
            own.constraints.correction().is_none() && !own.constraints.is_frozen(0) && own.constraints.base().is_none()
        );
        assert_eq!(own.parameters, own_before.unwrap_or(received));
        let mut after = own.parameters.clone();
        after.values_mut().iter_mut().for_each(|value| *value += 10.0);
        own_before = Some(after);
        answer(own, 10.0, 0.75);
    }
    assert!(is_over(&runner));
    let expected = vec![("accuracy".to_owned(), 0.875)];
    assert_eq!(own_model(&runner), (Origin::Personalized { round: 2 }, vec![20.0; 5], expected));
    assert_eq!(coordinator.world(|world| world.accepted.len()), 2);
    // Of the received models; what the second jobs began with were others.
    assert_eq!(*told.lock().unwrap(), vec![vec![("accuracy".to_owned(), 0.25)]; 2]);
}

#[test]
fn what_is_measured_of_the_own_model_is_not_said_of_the_received_one() {
    let coordinator = federation(1, |assignment| {
        assignment.encoding.personalization = Some(Personalization::Elastic { alpha: 0.25 });
    });
    let (builder, told) = listening(app(&coordinator));
    let runner = Runner::start(builder).unwrap();
    let own = job(&runner);
    assert_eq!(own.training.purpose, Purpose::Own);
    answer(own, 0.5, 0.25);
    assert!(is_over(&runner));
    assert_eq!(*told.lock().unwrap(), [Measured::new()]);
    assert_eq!(own_model(&runner).2, [("accuracy".to_owned(), 0.375)]);
}

#[test]
fn an_app_that_does_not_say_that_it_can_does_not_get_the_job() {
    for (tweak, is_controlled, jobs) in
        [(ditto as fn(&mut Assignment), false, 1), (scaffold, true, 0), (lora, false, 1)]
    {
        let coordinator = federation(1, tweak);
        coordinator.world(|world| (world.scaffold, world.matrix) = (is_controlled, true));
        let runner = Runner::start(app(&coordinator)).unwrap();
        for _ in 0..jobs {
            let shared = job(&runner);
            assert_eq!(shared.training.purpose, Purpose::Shared);
            answer(shared, 0.5, 0.25);
        }
        assert!(is_over(&runner));
        coordinator.world(|world| assert!(world.sent.is_empty() && world.abandoned == [(1, "refused")]));
    }
}

#[test]
fn a_job_of_scaffold_says_what_corrects_its_gradients() {
    let coordinator = federation(1, scaffold);
    coordinator.world(|world| world.scaffold = true);
    let runner = Runner::start_with(app(&coordinator), within()).unwrap();
    let first = job(&runner);
    assert_eq!(first.training.purpose, Purpose::Shared);
    let correction = first.constraints.correction().unwrap();
    assert_eq!((correction.layout(), correction.values()), (first.parameters.layout(), &[0.0; 5][..]));
    assert!(first.constraints.anchor().is_none());
    answer(first, 0.25, 0.25);
    assert!(is_over(&runner));
    assert_eq!(coordinator.world(|world| (world.accepted.len(), world.abandoned.len())), (1, 0));
}

#[test]
fn a_job_of_adapters_brings_the_model_that_they_are_of() {
    let coordinator = federation(1, lora);
    coordinator.world(|world| world.matrix = true);
    let runner =
        Runner::start_with(app(&coordinator), Capabilities { adapters: true, ..Capabilities::default() }).unwrap();
    let shared = job(&runner);
    let received = shared.parameters.clone();
    answer(shared, 0.5, 0.25);
    let own = job(&runner);
    assert_eq!(own.training.purpose, Purpose::Own);
    let names: Vec<_> = own.parameters.layout().tensors().iter().map(|tensor| tensor.name.clone()).collect();
    assert_eq!(names, ["base.lora_a", "base.lora_b"]);
    let Some((base, adapters)) = own.constraints.base() else { panic!("{:?}", own.constraints) };
    assert_eq!((base, adapters.scale()), (&received, 3.0));
    let mut trained = own.parameters.clone();
    trained.values_mut().iter_mut().for_each(|value| *value += 2.0);
    let expected = adapters.merge(base, &trained).unwrap();
    answer(own, 2.0, 0.75);
    assert!(is_over(&runner));
    let said = vec![("accuracy".to_owned(), 0.875)];
    assert_eq!(own_model(&runner), (Origin::Personalized { round: 1 }, expected.values().to_vec(), said));
}

fn ages() -> Analytics {
    let columns = json!([
        { "type": "real", "name": "age", "low": 0.0, "high": 128.0, "edges": [18.0, 65.0] },
        { "type": "category", "name": "group", "categories": 2 },
    ]);
    serde_json::from_value(json!({ "kind": "statistics", "max_rows": 100, "columns": columns })).unwrap()
}

/// An analysis task, and an app that may support analyses.
fn analysis(able: bool) -> (Coordinator, Runner) {
    let coordinator = Coordinator::new(1);
    coordinator.world(|world| world.analysis = Some(ages()));
    let able = Capabilities { analyses: able, ..Capabilities::default() };
    let runner = Runner::start_with(app(&coordinator), able).unwrap();
    (coordinator, runner)
}

/// Answers it with three people.
fn give_rows(Job { constraints, answer, .. }: Job) {
    let values = vec![16.0, 0.0, 40.0, 1.0, 94.0, 1.0];
    answer.rows(checked_rows(constraints.analysis(), 2, values, None).unwrap()).unwrap();
}

#[test]
fn an_analysis_is_a_job_that_takes_rows_and_what_is_sent_is_what_it_counts_of_them() {
    let (coordinator, runner) = analysis(true);
    let asked = job(&runner);
    assert!(asked.parameters.layout().is_empty());
    assert_eq!(asked.training.analytics, Some(ages()));
    let Some(AnalyticsSpec::Statistics(spec)) = asked.constraints.analysis() else { panic!("{:?}", asked.constraints) };
    assert_eq!(spec.columns.len(), 2);
    give_rows(asked);
    assert!(is_over(&runner));

    let (analysis, body) = (words::analysis(&ages()), coordinator.world(|world| world.accepted[&1].clone()));
    let sent = packing::unpack(&body, analysis.codec().len(), Modulus::new(32).unwrap()).unwrap();
    let sum = ExactSum::new(sent, 32, 1).unwrap().release_without_noise();
    let AnalyticsState::Statistics(found) = analysis.advance(&analysis.initial(), &sum).unwrap().state else {
        panic!("statistics")
    };
    let [ColumnStatistics::Real { mean, histogram, .. }, ColumnStatistics::Category { counts, .. }] = &*found.columns
    else {
        panic!("{found:?}")
    };
    assert_eq!((found.rows, *mean), (3, Some(50.0)));
    assert_eq!((&histogram[..], &counts[..]), (&[1, 1, 1][..], &[1, 2][..]));
}

#[test]
fn an_app_that_does_not_say_that_it_answers_analyses_gets_none_and_says_why() {
    let (coordinator, runner) = analysis(false);
    assert!(is_over(&runner));
    coordinator.world(|world| assert!(world.sent.is_empty() && world.abandoned == [(1, "refused")]));
    let refusals = runner.ask(|running| running.refusals()).unwrap();
    assert!(refusals[0].reason.contains("option `answers_analyses`"), "{refusals:?}");
}

#[test]
fn a_model_is_no_answer_to_an_analysis_and_rows_are_none_to_another_job() {
    let (coordinator, runner) = analysis(true);
    answer(job(&runner), 0.5, 0.25);
    assert!(is_over(&runner));
    coordinator.world(|world| assert!(world.sent.is_empty() && world.abandoned == [(1, "training_failed")]));

    let coordinator = Coordinator::new(1);
    let runner = Runner::start(app(&coordinator)).unwrap();
    let rows = checked_rows(Some(&AnalyticsSpec::read(&ages()).unwrap()), 2, vec![1.0, 0.0], None).unwrap();
    job(&runner).answer.rows(rows).unwrap();
    assert!(is_over(&runner));
    coordinator.world(|world| assert!(world.sent.is_empty() && world.abandoned == [(1, "training_failed")]));
}

#[test]
fn an_analysis_that_should_rest_comes_again_with_what_it_saved() {
    let (coordinator, runner) = analysis(true);
    let first = job(&runner);
    runner.pause();
    while !first.training.checkpoints.should_pause() {
        std::thread::yield_now();
    }
    first.training.checkpoints.save(b"half of the rows").unwrap();
    while !first.answer.is_overdue() {
        std::thread::yield_now();
    }
    runner.resume();
    let again = job(&runner);
    assert_eq!(again.training.checkpoints.load().unwrap().as_slice(), b"half of the rows");
    give_rows(again);
    assert!(is_over(&runner));
    coordinator.world(|world| assert!(world.abandoned.is_empty() && world.accepted.len() == 1));
}
