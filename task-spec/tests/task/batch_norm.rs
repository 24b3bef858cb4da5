//! What a task states about the running statistics of its graph.

use serde_json::{Value, json};
use task_spec::{BatchNorm, Personalization, TaskSpec};

use super::{DEPLOYMENT, SMALL, parse};

/// A task with a normalized product: tensors `w`, `scale`, `bias`, `mean` and `variance`.
fn task(norm: &Value) -> TaskSpec {
    let shapes = [("w", vec![2, 3]), ("scale", vec![3]), ("bias", vec![3]), ("mean", vec![3]), ("variance", vec![3])];
    let tensors: Vec<_> = shapes.iter().map(|(name, shape)| json!({ "name": name, "shape": shape })).collect();
    let graph = json!({
        "version": 2,
        "inputs": [{ "name": "x", "element": "f32", "shape": [{ "factor": 1, "batch": 1 }, { "offset": 2 }] }],
        "parameters": tensors,
        "nodes": [{ "do": "mat_mul", "of": [0, 1] }, { "do": { "batch_norm": norm }, "of": [6, 2, 3, 4, 5] }],
        "outputs": [{ "name": "y", "value": 7 }],
    });
    let mut spec = parse(SMALL);
    spec.model.architecture = Some(json!({ "kind": "graph", "graph": graph, "loss": { "kind": "cross_entropy" } }));
    spec.model.tensors = serde_json::from_value(tensors.into()).expect("they are declared as a task does");
    spec
}

fn by_batch() -> Value {
    json!({ "epsilon": 1e-5, "momentum": 0.1 })
}

/// Problems of a task with these statistics, after a change.
fn problems(stated: Option<BatchNorm>, change: impl FnOnce(&mut TaskSpec)) -> Vec<String> {
    let mut spec = task(&by_batch());
    spec.model.batch_norm = stated;
    change(&mut spec);
    let found = spec.check(&DEPLOYMENT).err().unwrap_or_default();
    found.into_iter().map(|problem| format!("{} {}", problem.field, problem.problem)).collect()
}

#[test]
fn stated_statistics_are_accepted() {
    assert_eq!(problems(Some(BatchNorm::Averaged), |_| ()), [""; 0]);
    let keep = |spec: &mut TaskSpec| spec.model.personal = vec!["mean".into(), "var*".into()];
    assert_eq!(problems(Some(BatchNorm::Local), keep), [""; 0]);
    let fed_bn = |spec: &mut TaskSpec| {
        spec.model.personal = vec!["mean".into(), "variance".into(), "scale".into(), "bias".into()];
        spec.personalization = Some(Personalization::FedBn {});
        spec.metrics = vec!["personal_accuracy".into()];
    };
    assert_eq!(problems(Some(BatchNorm::Local), fed_bn), [""; 0]);
    let ditto = |spec: &mut TaskSpec| {
        spec.personalization = Some(Personalization::Ditto { lambda: 0.1, epochs: None });
        spec.metrics = vec!["personal_accuracy".into()];
    };
    assert_eq!(problems(Some(BatchNorm::Averaged), ditto), [""; 0]);
    // A frozen graph needs no statement.
    let frozen = task(&json!({ "epsilon": 1e-5 }));
    assert_eq!(frozen.check(&DEPLOYMENT), Ok(()));
    assert!(!serde_json::to_string(&frozen).unwrap().contains("batch_norm\":\""));
}

#[test]
fn contradictions_are_rejected_by_name() {
    let none = |_: &mut TaskSpec| ();
    let method = |method: Personalization| {
        move |spec: &mut TaskSpec| {
            spec.personalization = Some(method);
            spec.metrics = vec!["personal_accuracy".into()];
        }
    };
    let lora = serde_json::from_value(json!({ "method": "lora", "layers": ["w"], "rank": 1 })).unwrap();
    let apfl = Personalization::Apfl { alpha: 0.5, alpha_rate: 0.1 };
    let (averaged, local) = (Some(BatchNorm::Averaged), Some(BatchNorm::Local));
    for (found, why) in [
        (problems(None, none), "model.batch_norm must be \"averaged\" or \"local\""),
        (problems(Some(BatchNorm::Frozen), none), "model.batch_norm must be \"averaged\" or \"local\""),
        (problems(local, none), "model.personal must name \"mean\", a running statistic"),
        (
            problems(averaged, |spec| spec.model.personal = vec!["var*".into()]),
            "model.personal names \"variance\", a running statistic",
        ),
        (
            problems(averaged, method(lora)),
            "personalization.method is \"lora\", which trains without running statistics",
        ),
        (problems(averaged, method(apfl)), "personalization.method is \"apfl\""),
        (
            problems(local, method(Personalization::FedRep { head_epochs: 1 })),
            "personalization.method is \"fed_rep\", which keeps other tensors local: take \"fed_per\"",
        ),
        (
            problems(averaged, |spec| spec.training.batch_size = 1),
            "training.batch_size must be at least 2: batch normalization needs more than one value per channel",
        ),
    ] {
        assert!(found.iter().any(|problem| problem.contains(why)), "{why}: {found:?}");
    }
}

#[test]
fn statement_without_such_a_graph_is_rejected() {
    let mut frozen = task(&json!({ "epsilon": 1e-5 }));
    frozen.model.batch_norm = Some(BatchNorm::Averaged);
    let mut ready = parse(SMALL);
    ready.model.batch_norm = Some(BatchNorm::Local);
    for (spec, mode) in [(frozen, "averaged"), (ready, "local")] {
        let found = spec.check(&DEPLOYMENT).unwrap_err();
        assert_eq!(found[0].field, "model.batch_norm");
        assert!(found[0].problem.contains(&format!("imported with `--batch-norm {mode}`")), "{}", found[0].problem);
    }
}
