//! Inputs of a graph by name.

use std::sync::Arc;

use graph::{Element, Extent, Graph, GraphModel, Port};

use crate::models::Architecture;
use crate::train::error::TrainError;

/// The kind of model in errors.
pub(super) const KIND: &str = "graph";

/// The graph of a task's model.
///
/// # Errors
/// [`TrainError::WrongKind`] for a model whose inputs have no names.
pub(crate) fn graph_of(architecture: Architecture) -> Result<Arc<GraphModel>, TrainError> {
    let needs = match architecture {
        Architecture::Graph(model) => return Ok(model),
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) => "rows of features, without names",
        Architecture::Gru(_) => "sequences of characters, without names",
    };
    Err(TrainError::WrongKind { kind: architecture.kind(), needs })
}

/// The values of a graph's inputs, given by name in any order, in the graph's order.
///
/// # Errors
/// [`TrainError::Inputs`] names an input that is unknown, missing or given twice, and lists the graph's inputs.
pub(crate) fn in_order<'a, T>(
    graph: &Graph,
    given: impl IntoIterator<Item = (&'a str, T)>,
) -> Result<Vec<T>, TrainError> {
    let mut found: Vec<Option<T>> = graph.inputs.iter().map(|_| None).collect();
    for (name, value) in given {
        let position = graph.inputs.iter().position(|input| input.name == name);
        let position = position.ok_or_else(|| misfit(graph, &format!("no input `{name}`")))?;
        if found[position].replace(value).is_some() {
            return Err(misfit(graph, &format!("the input `{name}` once, not twice")));
        }
    }
    let named = graph.inputs.iter().zip(found);
    let named = named.map(|(input, value)| {
        value.ok_or_else(|| misfit(graph, &format!("the input `{}`, which is missing", input.name)))
    });
    named.collect()
}

/// The error of inputs that do not fit: what the graph takes instead, and a list of its inputs.
pub(super) fn misfit(graph: &Graph, takes: &str) -> TrainError {
    let size = |extent: &Extent| match extent {
        Extent::Fixed(size) => size.to_string(),
        Extent::Batch | Extent::FromBatch => "batch".to_owned(),
        Extent::Length | Extent::FromLength => "length".to_owned(),
    };
    let listed = |input: Port| {
        let shape: Vec<_> = input.shape.iter().map(size).collect();
        format!("`{}` ({} [{}])", input.name, described(input.element), shape.join(", "))
    };
    let inputs: Vec<_> = graph.input_ports().into_iter().map(listed).collect();
    TrainError::Inputs { kind: KIND, what: format!("{takes}; its inputs are {}", inputs.join(", ")) }
}

/// The elements of a tensor in words.
pub(super) fn described(element: Element) -> &'static str {
    match element {
        Element::F32 => "floats",
        Element::I64 => "integers",
        Element::Bool => "truth values",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::graph::imported::table;

    #[test]
    fn names_in_any_order_are_put_in_order() {
        let (model, _) = table();
        let order = |given: &[(&'static str, u8)]| {
            in_order(model.graph(), given.iter().copied()).map_err(|error| error.to_string())
        };
        assert_eq!(order(&[("kind", 1), ("numbers", 2)]), Ok(vec![2, 1]));
        assert_eq!(order(&[("numbers", 2), ("kind", 1)]), Ok(vec![2, 1]));
        for (given, why) in [
            (&[("numbers", 2)][..], "the input `kind`, which is missing"),
            (&[], "the input `numbers`, which is missing"),
            (&[("numbers", 2), ("kind", 1), ("Kind", 1)], "no input `Kind`"),
            (&[("kind", 1), ("numbers", 2), ("kind", 1)], "the input `kind` once, not twice"),
        ] {
            let list = "its inputs are `numbers` (floats [batch, 4]), `kind` (integers [batch])";
            assert_eq!(order(given), Err(format!("the graph model takes {why}; {list}")));
        }
    }
}
