//! The sizes of a ready model that examples of some form need.

use serde_json::Value;

use super::{Architecture, InputKind};

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
