//! Settings derived from `[analytics]` of a task, and the keys named in its errors.

use recipe::TaskModel;
use serde_json::json;
use task_spec::{SpecError, TaskSpec};

fn task(change: impl FnOnce(&mut serde_json::Value)) -> TaskSpec {
    let mut text = json!({
        "name": "clusters",
        "rounds": { "count": 8, "select_max": 20 },
        "analytics": {
            "kind": "k_means", "max_rows": 100, "clusters": 3, "iterations": 1,
            "columns": [{ "name": "x", "low": -1.0, "high": 1.0, "repeat": 2 }],
        },
    });
    change(&mut text);
    serde_json::from_value(text).unwrap()
}

fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> SpecError {
    TaskModel::new(&task(change)).unwrap_err().remove(0)
}

#[test]
fn a_session_agrees_on_the_sums_of_the_analysis() {
    let model = TaskModel::new(&task(|_| ())).unwrap();
    let codec = model.tensors.analysis.as_ref().unwrap().codec();
    let session = model.session.as_ref().unwrap();
    assert_eq!(session.model.words, codec.len() as u64);
    assert_eq!(session.model.input_bound, codec.input_bound());
    assert_eq!(model.tensors.shared.len(), codec.values());
    let other = TaskModel::new(&task(|text| text["analytics"]["seed"] = json!(1))).unwrap();
    assert_ne!(other.session.unwrap().application, session.application, "participants agree on the analysis, too");
    assert!(model.first_version(&task(|_| ())).unwrap().starts_with(b"{\"k_means\":"));
}

#[test]
fn what_cannot_work_names_the_key_to_mend() {
    let error = refusal(|text| text["rounds"]["count"] = json!(10));
    assert_eq!(error.to_string(), "rounds.count: is 10, but this analysis takes 8 rounds, so it must be 8");
    let error = refusal(|text| text["analytics"]["clusters"] = json!(0));
    assert_eq!(error.to_string(), "analytics.clusters: is 0; it must be 1 to 1024");
    assert_eq!(refusal(|text| text["analytics"]["kind"] = json!("medians")).field, "analytics");
    assert_eq!(refusal(|text| text["analytics"]["columns"][0]["repeat"] = json!(9999)).field, "analytics.columns");
    let narrow = |text: &mut serde_json::Value| {
        text["rounds"]["select_max"] = json!(1024);
        text["aggregation"] = json!({ "modulus_bits": 16 });
        text["secure_aggregation"] = json!({ "modulus_bits": 16 });
        text["analytics"]["max_rows"] = json!(1);
    };
    assert!(TaskModel::new(&task(narrow)).is_ok(), "five bits of a word are enough");
    let wide = |text: &mut serde_json::Value| {
        narrow(text);
        text["secure_aggregation"] = json!({ "enabled": false });
        text["rounds"]["select_max"] = json!(60_000);
    };
    assert_eq!(refusal(wide).field, "aggregation.modulus_bits");
}

#[test]
fn columns_of_a_table_are_those_of_the_analysis() {
    let survival = |table: serde_json::Value| {
        move |text: &mut serde_json::Value| {
            let time = json!({ "type": "time", "name": "days", "step": 1, "steps": 30 });
            let arm = json!({ "type": "category", "name": "arm", "categories": 2 });
            text["rounds"]["count"] = json!(1);
            text["analytics"] = json!({ "kind": "survival", "max_rows": 100, "columns": [time, arm] });
            text["model"] = json!({ "table": table });
        }
    };
    let (time, arm, label) =
        (json!({ "column": "days" }), json!({ "column": "arm", "one_of": ["a", "b"] }), json!({ "column": "died" }));
    assert!(TaskModel::new(&task(survival(json!({ "features": [time, arm], "label": label })))).is_ok());
    let error = refusal(survival(json!({ "features": [time, arm] })));
    assert_eq!(error.to_string(), "model.table.label: must name the column with the target");
    let error = refusal(survival(json!({ "features": [time], "label": label })));
    assert_eq!(error.to_string(), "model.table.features: names 1 columns, and the analysis has 2");
    let wards = json!({ "column": "ward", "one_of": ["a", "b"], "other": true });
    let error = refusal(survival(json!({ "features": [time, wards], "label": label })));
    assert_eq!(error.to_string(), "model.table.features[1].one_of: `ward` has 3 words, and the analysis 2 categories");
    let error = refusal(survival(json!({ "features": [arm, arm], "label": label })));
    assert!(error.to_string().contains("`arm` has words, and the column of the analysis is a number"), "{error}");
    let counts = |text: &mut serde_json::Value| {
        let category = json!({ "type": "category", "name": "c", "categories": 2 });
        text["rounds"]["count"] = json!(1);
        text["analytics"] = json!({ "kind": "contingency", "max_rows": 100, "columns": [category, category] });
        text["model"] = json!({ "table": { "features": [time, arm], "label": label } });
    };
    assert_eq!(refusal(counts).to_string(), "model.table.label: must be left out: there is no target");
}

fn evaluation(model: serde_json::Value) -> TaskSpec {
    let text = json!({
        "name": "validation",
        "rounds": { "count": 1, "select_max": 20 },
        "analytics": { "kind": "evaluation", "max_rows": 100 },
        "model": model,
    });
    serde_json::from_value(text).unwrap()
}

#[test]
fn target_of_an_evaluation_is_that_of_its_model() {
    let label = |label: serde_json::Value| json!({ "table": { "features": [{ "column": "age" }], "label": label }, "architecture": { "kind": "own", "classes": 9 } });
    let class = |classes: u32| json!({ "type": "class", "classes": classes });
    for (model, expected) in [
        (label(json!({ "column": "y", "one_of": ["no", "yes"] })), class(2)),
        (
            label(json!({ "column": "y", "low": 0.0, "high": 60.0 })),
            json!({ "type": "real", "low": 0.0, "high": 60.0 }),
        ),
        (json!({ "architecture": { "kind": "linear", "inputs": 3, "classes": 4 } }), class(4)),
        (json!({ "architecture": { "kind": "gru", "vocabulary": 80 } }), class(80)),
        (json!({ "architecture": { "kind": "own" } }), json!(null)),
    ] {
        let mut spec = evaluation(model);
        TaskModel::complete(&mut spec).unwrap();
        assert_eq!(spec.analytics.unwrap().to_value()["target"], expected);
    }
    let stated = |target: serde_json::Value, model: serde_json::Value| {
        let mut spec = evaluation(model);
        let text = json!({ "kind": "evaluation", "max_rows": 9, "target": target });
        spec.analytics = serde_json::from_value(text).unwrap();
        TaskModel::complete(&mut spec).map(|()| spec.analytics.unwrap().to_value()["target"].clone())
    };
    let wide = json!({ "type": "real", "low": -5.0, "high": 90.0 });
    let days = label(json!({ "column": "y", "low": 0.0, "high": 60.0 }));
    assert_eq!(stated(wide.clone(), days.clone()).unwrap(), wide, "another range");
    let four = json!({ "architecture": { "kind": "linear", "inputs": 3, "classes": 4 } });
    for (target, model, expected) in [
        (class(3), four.clone(), "states 3 classes, and the model has 4"),
        (class(3), days, "states classes, and the model predicts a number"),
        (wide, four, "states a number, and the model predicts a class"),
    ] {
        let error = stated(target, model).unwrap_err().remove(0);
        assert!(error.field == "analytics.target" && error.problem.contains(expected), "{error}");
    }
}

#[test]
fn model_too_large_for_a_state_is_refused() {
    let of_size = |size: u64| {
        let mut spec = evaluation(json!({ "tensors": [{ "name": "w", "shape": [size] }] }));
        spec.analytics = serde_json::from_value(
            json!({ "kind": "evaluation", "max_rows": 9, "target": { "type": "class", "classes": 2 } }),
        )
        .unwrap();
        TaskModel::new(&spec)
    };
    assert_eq!(of_size(12_000_000).unwrap().tensors.evaluated.unwrap().len(), 12_000_000);
    let error = of_size(13_000_000).unwrap_err().remove(0);
    assert_eq!(error.field, "model.tensors");
    assert!(error.problem.contains("an evaluation takes models of at most"), "{error}");
}
