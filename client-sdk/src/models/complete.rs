//! Completes a task that names an architecture: the sizes that follow from its table, and the tensors.

use serde_json::Value;
use task_spec::{ModelSpec, TensorDeclaration};

use super::{Architecture, ArchitectureError, InputKind};

/// A key of a task that cannot be completed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {detail}")]
pub struct Incomplete {
    /// Path of the key: `model.architecture` or `model.tensors`.
    pub field: &'static str,
    /// What is wrong with it.
    pub detail: String,
}

const ARCHITECTURE: &str = "model.architecture";

/// Completes the sizes of `model.architecture` from the columns of `model.table`, and `model.tensors` from `model.architecture`. Tensors
/// that are written down stay; for an architecture that this build does not know, the tensors must be given.
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
    let table = model.table.as_ref().filter(|_| has_sizes);
    if let Some((table, classes)) = table.and_then(|table| Some((table, table.classes()?))) {
        let fitting = sized(Some(value), &kind, InputKind::Features(table.width()), classes);
        let fitting = fitting.map_err(|why| wrong(format!("does not fit model.table: {why}")))?;
        *value = serde_json::to_value(fitting).map_err(|error| wrong(error.to_string()))?;
    }
    let architecture: Architecture = serde_json::from_value(value.clone()).map_err(|error| wrong(error.to_string()))?;
    let tensors = declarations(&architecture).map_err(|error| wrong(error.to_string()))?;
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
    if let Some(architecture) = model.architecture {
        given.insert("architecture".to_owned(), architecture);
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

/// The model for examples of this form: of the kind and sizes in `asked`, or else of the `usual` kind and the sizes that fit.
///
/// # Errors
/// What the model takes that the examples are not.
pub fn sized(asked: Option<&Value>, usual: &str, input: InputKind, classes: usize) -> Result<Architecture, String> {
    let kind = asked.and_then(|asked| asked.get("kind")?.as_str()).unwrap_or(usual);
    if let (Some(asked), "graph") = (asked, kind) {
        return graph_for(asked, input, classes);
    }
    let classes = u32::try_from(classes).map_err(|_| format!("{classes} classes are too many for a model"))?;
    let fitting = Architecture::fitting(kind, input, classes).map_err(|error| error.to_string())?;
    let Some(asked) = asked.and_then(Value::as_object) else { return Ok(fitting) };
    let mut sizes = serde_json::to_value(&fitting).map_err(|error| error.to_string())?;
    sizes.as_object_mut().into_iter().for_each(|sizes| sizes.extend(asked.clone()));
    let architecture: Architecture = serde_json::from_value(sizes).map_err(|error| error.to_string())?;
    if (architecture.input(), architecture.classes()) != (fitting.input(), fitting.classes()) {
        let sizes = serde_json::to_string(&fitting).unwrap_or_default();
        return Err(format!("has other sizes than these data, which need {sizes}: leave inputs and classes out"));
    }
    Ok(architecture)
}

/// The graph of a task, if it takes these examples.
fn graph_for(asked: &Value, input: InputKind, classes: usize) -> Result<Architecture, String> {
    let graph: Architecture = serde_json::from_value(asked.clone()).map_err(|error| error.to_string())?;
    if (graph.input(), graph.classes() as usize) == (input, classes) {
        return Ok(graph);
    }
    Err(format!(
        "is a graph for {:?} with {} classes; these data are {input:?} with {classes}",
        graph.input(),
        graph.classes()
    ))
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
