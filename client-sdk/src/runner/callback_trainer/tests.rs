//! Analyses, answered by a function.

use learning::AnalyticsSpec;
use serde_json::json;

use super::*;

fn job() -> TrainingJob {
    let column = json!({ "type": "category", "name": "group", "categories": 2 });
    let spec = json!({ "kind": "statistics", "max_rows": 10, "columns": [column] });
    TrainingJob { analytics: Some(serde_json::from_value(spec).unwrap()), ..TrainingJob::of_test() }
}

fn able() -> Capabilities {
    Capabilities { analyses: true, ..Capabilities::default() }
}

#[test]
fn a_function_that_says_it_answers_analyses_is_asked_for_rows() {
    let (table, mut widths) = (Table::new(1, vec![1.0, 0.0]).unwrap(), Vec::new());
    let give = |Job { parameters, constraints, answer, .. }: Job| {
        assert!(parameters.values().is_empty());
        widths.push(constraints.analysis().map(AnalyticsSpec::width));
        answer.rows(table.clone()).unwrap();
    };
    let mut called = CallbackTrainer::new(2, give).with_capabilities(able());
    assert_eq!(*called.table(&job()).unwrap(), table);
    drop(called);
    assert_eq!(widths, [Some(1)]);
}

#[test]
fn a_function_that_does_not_say_so_is_not_asked() {
    let mut called = CallbackTrainer::new(2, |job: Job| panic!("{job:?}"));
    let refused = called.table(&job()).unwrap_err();
    assert!(
        matches!(refused, TrainerError::Refused(_)) && refused.to_string().contains("`answers_analyses`"),
        "{refused}"
    );
}

#[test]
fn a_model_is_no_answer() {
    let train = |Job { parameters, answer, .. }: Job| {
        answer.finish(Trained { parameters, examples: 1, metrics: vec![] }).unwrap();
    };
    let failed = CallbackTrainer::new(2, train).with_capabilities(able()).table(&job()).unwrap_err();
    assert!(failed.to_string().contains("it takes rows, and no model"), "{failed}");
    let nothing = CallbackTrainer::new(2, drop::<Job>).with_capabilities(able()).table(&job()).unwrap_err();
    assert!(nothing.to_string().contains("without an answer"), "{nothing}");
}
