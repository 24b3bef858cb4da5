//! Completes a task that names an architecture: the sizes that follow from its table, and the tensors.

use serde_json::Value;
use task_spec::{BatchNorm, ModelSpec, TensorDeclaration, matches_pattern};

use super::{Architecture, ArchitectureError, of_table};

/// A key of a task that cannot be completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {detail}")]
pub struct Incomplete {
    /// Path of the key: `model.architecture`, `model.loss` or `model.tensors`.
    pub field: &'static str,
    /// What is wrong with it.
    pub detail: String,
}

const ARCHITECTURE: &str = "model.architecture";

/// Completes the sizes of `model.architecture` from the columns and the label of `model.table` and from `model.loss`,
/// `model.tensors` from `model.architecture`, and `model.personal` by running statistics that `model.batch_norm` keeps
/// local. Tensors that are written down stay; for an architecture that this build does not know, the tensors must be given.
///
/// # Errors
/// [`Incomplete`]
pub fn complete(model: &mut ModelSpec) -> Result<(), Incomplete> {
    let wrong = |detail| Incomplete { field: ARCHITECTURE, detail };
    let Some(value) = &mut model.architecture else {
        return Ok(());
    };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let has_sizes = Architecture::KINDS.contains(&kind.as_str());
    let known = has_sizes || kind == "graph";
    if !known && !model.tensors.is_empty() {
        return Ok(());
    }
    if let Some(table) = model.table.as_ref().filter(|table| has_sizes && table.label.is_some()) {
        let fitting = of_table::fitting(value, &kind, table, model.loss.take());
        let fitting = fitting.map_err(|why| wrong(format!("does not fit model.table: {why}")))?;
        *value = serde_json::to_value(fitting).map_err(|error| wrong(error.to_string()))?;
    }
    if model.loss.is_some() {
        let detail =
            "needs model.graph, or a `linear` or `mlp` with model.table: the ready models minimize cross-entropy";
        return Err(Incomplete { field: "model.loss", detail: detail.to_owned() });
    }
    let architecture: Architecture = serde_json::from_value(value.clone()).map_err(|error| wrong(error.to_string()))?;
    let tensors = declarations(&architecture).map_err(|error| wrong(error.to_string()))?;
    if let (Architecture::Graph(graph), Some(BatchNorm::Local)) = (&architecture, model.batch_norm) {
        keep_local(graph.graph(), &mut model.personal);
    }
    if model.tensors.is_empty() {
        model.tensors = tensors;
        return Ok(());
    }
    let same = model.tensors.len() == tensors.len()
        && model.tensors.iter().zip(&tensors).all(|(a, b)| a.name == b.name && a.shape == b.shape);
    if same {
        Ok(())
    } else {
        let detail = format!("are not those of the `{}` in {ARCHITECTURE}; leave them out", architecture.kind());
        Err(Incomplete { field: "model.tensors", detail })
    }
}

/// Adds patterns of the running statistics to those of the tensors that stay local: PyTorch's names if they match nothing else,
/// otherwise the name of each statistic.
fn keep_local(graph: &::graph::Graph, personal: &mut Vec<String>) {
    let statistics = graph.running_statistics();
    if statistics.is_empty() {
        return;
    }
    let is_any = |patterns: &[String], name: &str| patterns.iter().any(|pattern| matches_pattern(pattern, name));
    let usual = ["*running_mean", "*running_var"].map(str::to_owned);
    let mut tensors = graph.parameters.iter().enumerate();
    if tensors.all(|(position, tensor)| is_any(&usual, &tensor.name) == statistics.contains(&position)) {
        for pattern in usual {
            if !personal.contains(&pattern) {
                personal.push(pattern);
            }
        }
        return;
    }
    for position in statistics {
        let name = &graph.parameters[position].name;
        if !is_any(personal, name) {
            personal.push(name.clone());
        }
    }
}

/// Completes the model of a task in JSON. A task whose `model` cannot be read stays as it is: the coordinator rejects it with the key.
///
/// # Errors
/// [`Incomplete`]
pub fn complete_task(task: &mut Value) -> Result<(), Incomplete> {
    let Some(Value::Object(given)) = task.get_mut("model") else {
        return Ok(());
    };
    let Ok(mut model) = serde_json::from_value::<ModelSpec>(Value::Object(given.clone())) else {
        return Ok(());
    };
    complete(&mut model)?;
    let unwritable = |error: serde_json::Error| Incomplete { field: "model.tensors", detail: error.to_string() };
    if model.loss.is_none() {
        given.remove("loss");
    }
    if let Some(architecture) = model.architecture {
        given.insert("architecture".to_owned(), architecture);
    }
    if !model.personal.is_empty() {
        given.insert("personal".to_owned(), model.personal.into());
    }
    given.insert("tensors".to_owned(), serde_json::to_value(&model.tensors).map_err(unwritable)?);
    Ok(())
}

/// The tensors of an architecture as a task declares them.
///
/// # Errors
/// Any [`ArchitectureError`]
pub fn declarations(architecture: &Architecture) -> Result<Vec<TensorDeclaration>, ArchitectureError> {
    // The layout bounds the number of parameters.
    architecture.layout()?;
    architecture.tensors()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_in_json_gets_the_tensors_of_its_architecture() {
        let mut task =
            json!({ "name": "digits", "model": { "architecture": { "kind": "mlp", "hidden": [3] }, "seed": 7 } });
        complete_task(&mut task).unwrap();
        let names: Vec<_> = task["model"]["tensors"].as_array().unwrap().iter().map(|tensor| &tensor["name"]).collect();
        assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
        assert_eq!((&task["model"]["seed"], &task["name"]), (&json!(7), &json!("digits")));
        let once = task.clone();
        complete_task(&mut task).unwrap();
        assert_eq!(task, once, "a complete task stays as it is");
    }

    /// A task whose graph normalizes by the batch, with these names of the running statistics and of the bias.
    fn normalized(names: [&str; 3], stated: &str) -> Value {
        let [mean, variance, bias] = names;
        let shapes = [("w", vec![2, 3]), ("scale", vec![3]), (bias, vec![3]), (mean, vec![3]), (variance, vec![3])];
        let tensors: Vec<_> = shapes.iter().map(|(name, shape)| json!({ "name": name, "shape": shape })).collect();
        let norm = json!({ "batch_norm": { "epsilon": 1e-5, "momentum": 0.1 } });
        let graph = json!({
            "version": 2,
            "inputs": [{ "name": "x", "element": "f32", "shape": [{ "factor": 1, "batch": 1 }, { "offset": 2 }] }],
            "parameters": tensors,
            "nodes": [{ "do": "mat_mul", "of": [0, 1] }, { "do": norm, "of": [6, 2, 3, 4, 5] }],
            "outputs": [{ "name": "y", "value": 7 }],
        });
        let architecture = json!({ "kind": "graph", "graph": graph, "loss": { "kind": "cross_entropy" } });
        json!({ "model": { "architecture": architecture, "batch_norm": stated, "personal": ["w"] } })
    }

    #[test]
    fn local_statistics_become_personal() {
        let personal = |names: [&str; 3], stated: &str| {
            let mut task = normalized(names, stated);
            complete_task(&mut task).unwrap();
            let once = task.clone();
            complete_task(&mut task).unwrap();
            assert_eq!(task, once);
            assert_eq!(task["model"]["tensors"][4]["init"], "ones");
            task["model"]["personal"].clone()
        };
        let usual = ["bn.running_mean", "bn.running_var", "bn.bias"];
        assert_eq!(personal(usual, "local"), json!(["w", "*running_mean", "*running_var"]));
        assert_eq!(personal(usual, "averaged"), json!(["w"]));
        // A pattern would match a tensor that is shared.
        let others = ["mean", "bn.running_var", "my_running_mean"];
        assert_eq!(personal(others, "local"), json!(["w", "mean", "bn.running_var"]));
    }

    #[test]
    fn a_table_gives_the_sizes() {
        let features =
            json!([{ "column": "age", "low": 0, "high": 120 }, { "column": "ward", "one_of": ["icu", "general"] }]);
        let table = json!({ "features": features, "label": { "column": "back", "one_of": ["no", "yes"] } });
        let mut task = json!({ "model": { "architecture": { "kind": "linear" }, "table": table } });
        complete_task(&mut task).unwrap();
        assert_eq!(task["model"]["architecture"], json!({ "kind": "linear", "inputs": 3, "classes": 2 }));
        assert_eq!(task["model"]["tensors"][0]["shape"], json!([2, 3]));
    }

    #[test]
    fn what_cannot_be_completed_is_named_or_left_to_the_coordinator() {
        let mut wrong = json!({ "model": { "architecture": { "kind": "resnet" } } });
        let error = complete_task(&mut wrong).unwrap_err();
        assert_eq!(error.field, "model.architecture");
        assert!(error.to_string().starts_with("model.architecture unknown variant `resnet`"), "{error}");
        let mut other =
            json!({ "model": { "architecture": { "kind": "mlp" }, "tensors": [{ "name": "w", "shape": [2] }] } });
        assert!(
            complete_task(&mut other).unwrap_err().to_string().starts_with("model.tensors are not those of the `mlp`")
        );
        for mut plain in [
            json!({ "name": "a" }),
            json!({ "model": { "tensors": [{ "name": "w", "shape": [2], "init": "zeros" }] } }),
        ] {
            let before = plain.clone();
            complete_task(&mut plain).unwrap();
            assert_eq!(plain["model"]["tensors"], before["model"]["tensors"]);
        }
        let mut misspelt = json!({ "model": { "architecture": { "kind": "mlp" }, "tensor": [] } });
        let before = misspelt.clone();
        complete_task(&mut misspelt).unwrap();
        assert_eq!(misspelt, before);
    }
}
