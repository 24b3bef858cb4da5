//! Graphs as apps in Kotlin and Swift train and use them, compared with the SDK's own trainer on the same examples.

use std::ops::Range;
use std::sync::Arc;

use client_sdk::learning::Parameters;
use client_sdk::models::Architecture;
use client_sdk::runner::CallbackTrainer;
use client_sdk::train::{Device, GraphInputs, GraphPredictor};
use client_sdk::{
    Cancel, Checkpoints, Dataset, ModelTrainer, Purpose, Trained, Trainer as _, TrainerError, TrainingJob, TrainingPlan,
};
use serde_json::{Value, json};

use super::*;
use crate::machine::tests::model_after;

/// `y = concat(numbers, table[kind]) w`, of three numbers or three classes; zeros where `known` is false.
pub(crate) fn architecture(loss: &str) -> Value {
    let batch = json!({ "factor": 1, "batch": 1 });
    let graph = json!({
        "version": 1,
        "inputs": [
            { "name": "numbers", "element": "f32", "shape": [batch, { "offset": 2 }] },
            { "name": "kind", "element": "i64", "shape": [batch] },
            { "name": "known", "element": "bool", "shape": [batch] },
        ],
        "parameters": [{ "name": "table", "shape": [3, 2] }, { "name": "w", "shape": [4, 3] }],
        "nodes": [
            { "do": { "gather": { "axis": 0 } }, "of": [3, 1] },
            { "do": { "concat": { "axis": 1 } }, "of": [0, 5] },
            { "do": "mat_mul", "of": [6, 4] },
            { "do": { "cast": { "to": "f32" } }, "of": [2] },
            { "do": { "reshape": { "to": [batch, { "offset": 1 }] } }, "of": [8] },
            { "do": { "arithmetic": "mul" }, "of": [7, 9] },
        ],
        "outputs": [{ "name": "y", "value": 10 }],
    });
    json!({ "kind": "graph", "graph": graph, "loss": { "kind": loss } })
}

/// The list of its inputs in errors.
pub(crate) const LIST: &str =
    "its inputs are `numbers` (floats [batch, 2]), `kind` (integers [batch]), `known` (truth values [batch])";

/// Two numbers for each of these examples.
pub(crate) fn numbers(examples: Range<u8>) -> Vec<f32> {
    examples.flat_map(|example| [f32::from(example % 5) / 4.0 - 0.5, f32::from(example % 3) / 2.0]).collect()
}

pub(crate) fn kinds(examples: Range<u8>) -> Vec<i64> {
    examples.map(|example| i64::from(example % 3)).collect()
}

/// A byte for each truth value.
pub(crate) fn known(examples: Range<u8>) -> Vec<u8> {
    examples.map(|example| u8::from(example % 4 != 1)).collect()
}

fn truths_of(examples: Range<u8>) -> Vec<bool> {
    known(examples).iter().map(|&byte| byte == 1).collect()
}

/// The targets that the loss takes: three numbers, or a class.
pub(crate) fn targets(loss: &str, examples: Range<u8>) -> Targets {
    match loss {
        "mse" => Targets::Numbers(examples.flat_map(|example| [f32::from(example % 4), 1.0, -0.5]).collect()),
        _ => Targets::Classes(examples.map(|example| u32::from(example * 2 % 3)).collect()),
    }
}

pub(crate) fn parsed(architecture: &Value) -> Architecture {
    serde_json::from_value(architecture.clone()).unwrap()
}

pub(crate) fn start(architecture: &Value) -> Parameters {
    parsed(architecture).initial(1).unwrap()
}

fn job(architecture: &Value) -> TrainingJob {
    TrainingJob {
        task: "t".to_owned(),
        round: 1,
        purpose: Purpose::Shared,
        plan: TrainingPlan { steps: Some(3), batch_size: 4, learning_rate: 0.1, ..TrainingPlan::default() },
        architecture: Some(architecture.clone()),
        table: None,
        analytics: None,
        metrics: vec!["loss".to_owned(), "accuracy".to_owned()],
        seed: 5,
        deadline: None,
        cancel: Cancel::default(),
        checkpoints: Checkpoints::default(),
    }
}

/// The participant's result of a job that `app` answers.
pub(crate) fn trained(architecture: &Value, mut app: impl FnMut(Arc<Job>) + Send) -> Result<Trained, TrainerError> {
    CallbackTrainer::new(0, |job| app(Arc::new(Job::new(job, None)))).train(&start(architecture), &job(architecture))
}

/// The first eight examples are trained on, and the next three are held out.
pub(crate) const TRAINED: Range<u8> = 0..8;
pub(crate) const HELD_OUT: Range<u8> = 8..11;

/// The same by the SDK's own trainer, with the inputs in the graph's order.
pub(crate) fn expected(loss: &str) -> Trained {
    let dataset = |examples: Range<u8>| Dataset::Tensors {
        inputs: vec![
            Elements::F32(numbers(examples.clone())),
            Elements::I64(kinds(examples.clone())),
            Elements::Bool(truths_of(examples.clone())),
        ],
        targets: targets(loss, examples.clone()),
        count: examples.len(),
        length: 1,
    };
    let (architecture, job) = (architecture(loss), job(&architecture(loss)));
    let mut trainer = ModelTrainer::new(dataset(TRAINED), dataset(HELD_OUT), Device::Cpu);
    let mut trained = trainer.train(&start(&architecture), &job).unwrap();
    trained.metrics.extend(trainer.evaluate(&start(&architecture), &job).unwrap());
    assert_ne!(trained.parameters.values(), start(&architecture).values(), "it learnt");
    trained
}

/// The first output of the initial model for these examples.
pub(crate) fn output(architecture: &Value, examples: Range<u8>) -> Vec<f32> {
    let Architecture::Graph(model) = parsed(architecture) else { panic!("it is a graph") };
    let (numbers, kinds, known) = (numbers(examples.clone()), kinds(examples.clone()), truths_of(examples.clone()));
    let columns = [Borrowed::F32(&numbers), Borrowed::I64(&kinds), Borrowed::Bool(&known)];
    let inputs = GraphInputs { columns: &columns, count: examples.len(), length: 1 };
    GraphPredictor::new(model, Arc::new(start(architecture))).unwrap().first_output(inputs).unwrap().values
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn columns(examples: Range<u8>) -> Vec<Column> {
    let integers = kinds(examples.clone()).iter().flat_map(|kind| kind.to_le_bytes()).collect();
    vec![
        Column { name: "kind".to_owned(), elements: ColumnElements::Integers { bytes: integers } },
        Column {
            name: "numbers".to_owned(),
            elements: ColumnElements::Floats { bytes: le(&numbers(examples.clone())) },
        },
        Column { name: "known".to_owned(), elements: ColumnElements::Truths { bytes: known(examples) } },
    ]
}

fn of(loss: &str, examples: Range<u8>) -> GraphExamples {
    let targets = match targets(loss, examples.clone()) {
        Targets::Classes(classes) => GraphTargets::Classes { classes },
        Targets::Numbers(numbers) => GraphTargets::Numbers { bytes: le(&numbers) },
    };
    GraphExamples { columns: columns(examples.clone()), targets, count: examples.len() as u64, length: 1 }
}

#[test]
fn columns_in_any_order_train_the_same_bits() {
    for loss in ["mse", "cross_entropy"] {
        let trained = trained(&architecture(loss), |job| {
            job.train_graph(of(loss, TRAINED), Some(of(loss, HELD_OUT))).unwrap();
            assert_eq!(job.train_graph(of(loss, TRAINED), None), Err(TributaryError::Answered));
        });
        let (trained, expected) = (trained.unwrap(), expected(loss));
        assert_eq!(bits(trained.parameters.values()), bits(expected.parameters.values()), "{loss}");
        assert_eq!((trained.examples, trained.metrics), (8, expected.metrics), "{loss}");
    }
}

#[test]
fn columns_that_do_not_fit_leave_the_job_open() {
    let refused = |change: fn(&mut GraphExamples)| {
        let mut why = String::new();
        let left = trained(&architecture("cross_entropy"), |job| {
            let mut examples = of("cross_entropy", TRAINED);
            change(&mut examples);
            match job.train_graph(examples, None) {
                Err(TributaryError::Update(text)) => why = text,
                other => panic!("{other:?}"),
            }
            job.refuse("it does not fit".to_owned()).unwrap();
        });
        assert!(matches!(left, Err(TrainerError::Refused(_))));
        why
    };
    for (change, why) in [
        ((|examples| drop(examples.columns.remove(1))) as fn(&mut GraphExamples), "`numbers`, which is missing"),
        (|examples| drop(examples.columns.pop()), "`known`, which is missing"),
        (|examples| examples.columns[0].name = "Kind".to_owned(), "no input `Kind`"),
        (|examples| examples.columns[0].elements = examples.columns[1].elements.clone(), "1 integers an example"),
        (|examples| examples.columns[0].elements = examples.columns[2].elements.clone(), "1 integers an example"),
        (|examples| examples.columns[2].elements = examples.columns[0].elements.clone(), "1 truth values an example"),
    ] {
        let text = refused(change);
        assert!(text.contains(why) && text.contains(LIST), "{text}");
    }
    let no_floats = |examples: &mut GraphExamples| {
        examples.columns[1].elements = ColumnElements::Floats { bytes: vec![0; 7] };
    };
    assert!(refused(no_floats).contains("7 bytes are no floats"));
    let no_integers = |examples: &mut GraphExamples| {
        examples.columns[0].elements = ColumnElements::Integers { bytes: vec![0; 12] };
    };
    assert!(refused(no_integers).contains("12 bytes are no integers"));
    let no_truths = |examples: &mut GraphExamples| {
        examples.columns[2].elements = ColumnElements::Truths { bytes: vec![1, 0, 7, 1, 1, 1, 1, 1] };
    };
    assert!(
        refused(no_truths).contains("column `known`: byte 2 of its truth values is 7; 0 is false, and 1 is true"),
        "{}",
        refused(no_truths)
    );
}

#[test]
fn model_predicts_columns_by_name() {
    let architecture = architecture("mse");
    let model = model_after(&architecture, |job| job.train_graph(of("mse", TRAINED), None));
    let found = model.predict(columns(HELD_OUT), 3, 1).unwrap();
    assert_eq!(found, le(&output(&architecture, HELD_OUT)));
    for (columns, count, why) in [
        (columns(HELD_OUT)[..1].to_vec(), 3, "`numbers`, which is missing"),
        (columns(HELD_OUT), 4, "2 floats an example as its input `numbers`; 4 examples with 6 floats"),
        (columns(HELD_OUT), u64::MAX, "2 floats an example as its input `numbers`"),
    ] {
        match model.predict(columns, count, 1) {
            Err(TributaryError::Argument(text)) => assert!(text.contains(why) && text.contains(LIST), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(model.predict(columns(HELD_OUT), 0, 1), Err(TributaryError::Argument(_))));
}

#[test]
fn model_without_names_refuses_columns() {
    let linear = json!({ "kind": "linear", "inputs": 2, "classes": 3 });
    let left = trained(&linear, |job| {
        let refused = job.train_graph(of("cross_entropy", TRAINED), None).unwrap_err().to_string();
        assert!(refused.contains("the linear model needs rows of features, without names"), "{refused}");
        job.refuse("no graph".to_owned()).unwrap();
    });
    assert!(matches!(left, Err(TrainerError::Refused(_))));
}
