//! Models of a table that minimize a loss of their own: `linear` and `mlp` as graphs.

use std::sync::Arc;

use ::graph::{Activation, Element, Graph, GraphModel, Input, Loss, Node, Operation, Output, Parameter, Size, ValueId};
use serde_json::Value;
use task_spec::TableSpec;

use super::sizes::sized;
use super::{Architecture, InputKind};

/// The model of a task with a table: the ready one, or its layers as a graph if it minimizes another loss.
///
/// # Errors
/// What does not fit the table.
pub(super) fn fitting(
    asked: &Value,
    kind: &str,
    table: &TableSpec,
    loss: Option<Loss>,
) -> Result<Architecture, String> {
    let loss = loss.or(table.predicts_number().then_some(Loss::Mse));
    let Some(loss) = loss else {
        return sized(Some(asked), kind, InputKind::Features(table.width()), table.classes().unwrap_or_default());
    };
    let outputs = match (&loss, table.classes()) {
        (Loss::CrossEntropy { .. }, Some(classes)) => classes,
        (Loss::BceWithLogits { .. }, Some(2)) => 1,
        (Loss::Mse | Loss::Huber { .. } | Loss::Poisson, None) => 1,
        (Loss::CrossEntropy { .. }, _) => {
            return Err("minimizes cross_entropy, which needs a label with one_of".to_owned());
        }
        (Loss::BceWithLogits { .. }, _) => {
            return Err(
                "minimizes bce_with_logits, which needs a label with two words in one_of, no and yes".to_owned()
            );
        }
        (Loss::NextToken { .. }, _) => return Err("minimizes next_token, which is for text".to_owned()),
        (Loss::Mse | Loss::Huber { .. } | Loss::Poisson, Some(_)) => {
            return Err(format!("minimizes {}, which needs a number as label, without one_of", loss.name()));
        }
    };
    let ready = sized(Some(asked), kind, InputKind::Features(table.width()), outputs)?;
    let layers = match &ready {
        Architecture::Linear(_) => 1,
        Architecture::Mlp(mlp) => mlp.hidden.len() + 1,
        Architecture::Cnn(_) | Architecture::Gru(_) | Architecture::Graph(_) => {
            return Err(format!("is `{kind}`; a table with the loss {} is learned by linear or mlp", loss.name()));
        }
    };
    dense(&ready, table.width(), layers, loss)
}

/// A graph of dense layers, with ReLU between them, that has the tensors of a ready model.
fn dense(ready: &Architecture, width: usize, layers: usize, loss: Loss) -> Result<Architecture, String> {
    let tensors = ready.tensors().map_err(|error| error.to_string())?;
    let narrow = |size: u64| u32::try_from(size).map_err(|_| format!("has a tensor of {size} rows"));
    let parameter = |tensor: task_spec::TensorDeclaration| {
        let shape = tensor.shape.into_iter().map(narrow).collect::<Result<_, _>>()?;
        Ok::<_, String>(Parameter { name: tensor.name, shape })
    };
    let width = i64::try_from(width).map_err(|_| format!("has {width} inputs"))?;
    let mut graph = Graph {
        version: Graph::VERSION,
        lengths: None,
        inputs: vec![Input {
            name: "row".to_owned(),
            element: Element::F32,
            shape: vec![Size::BATCH, Size::fixed(width)],
        }],
        parameters: tensors.into_iter().map(parameter).collect::<Result<_, _>>()?,
        constants: Vec::new(),
        nodes: Vec::new(),
        outputs: Vec::new(),
    };
    let mut last = graph.input(0);
    for layer in 0..layers {
        if layer > 0 {
            last = push(&mut graph, Operation::Activation(Activation::Relu), vec![last]);
        }
        let product = Operation::Gemm { transpose_a: false, transpose_b: true, alpha: 1.0, beta: 1.0 };
        let (weight, bias) = (graph.parameter(2 * layer), graph.parameter(2 * layer + 1));
        last = push(&mut graph, product, vec![last, weight, bias]);
    }
    graph.outputs.push(Output { name: "prediction".to_owned(), value: last });
    let model = GraphModel::new(graph, loss).map_err(|error| error.to_string())?;
    Ok(Architecture::Graph(Arc::new(model)))
}

/// Adds a node with one result; returns the result.
fn push(graph: &mut Graph, operation: Operation, inputs: Vec<ValueId>) -> ValueId {
    // Values are counted in 32 bits, which the graph's check ensures.
    let result = ValueId(u32::try_from(graph.value_count()).unwrap_or(u32::MAX));
    graph.nodes.push(Node { name: String::new(), operation, inputs });
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(label: &Value) -> TableSpec {
        let features = json!([{ "column": "age", "low": 0, "high": 120 }, { "column": "ward", "one_of": ["a", "b"] }]);
        serde_json::from_value(json!({ "features": features, "label": label })).unwrap()
    }

    #[test]
    fn numbers_are_predicted_by_a_graph_with_the_tensors_of_the_ready_model() {
        let number = table(&json!({ "column": "days", "low": 0, "high": 60 }));
        for (asked, names) in [
            (json!({ "kind": "linear" }), &["fc.weight", "fc.bias"][..]),
            (json!({ "kind": "mlp", "hidden": [4] }), &["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]),
        ] {
            let kind = asked["kind"].as_str().unwrap();
            for loss in [None, Some(Loss::Huber { delta: 0.5 }), Some(Loss::Poisson)] {
                let Architecture::Graph(graph) = fitting(&asked, kind, &number, loss.clone()).unwrap() else {
                    panic!("no graph")
                };
                assert_eq!((graph.loss(), graph.classes()), (&loss.unwrap_or(Loss::Mse), None));
                let found: Vec<_> = graph.graph().parameters.iter().map(|parameter| parameter.name.as_str()).collect();
                assert_eq!((&found[..], &graph.graph().parameters[0].shape[1]), (names, &3));
            }
        }
    }

    #[test]
    fn losses_fit_the_label() {
        let words = table(&json!({ "column": "back", "one_of": ["no", "yes"] }));
        let number = table(&json!({ "column": "days" }));
        let linear = json!({ "kind": "linear" });
        let of = |table, loss| fitting(&linear, "linear", table, loss);
        assert!(matches!(of(&words, None), Ok(Architecture::Linear(_))));
        let logit = of(&words, Some(Loss::BceWithLogits { positive_weight: 1.0 })).unwrap();
        assert_eq!((logit.classes(), logit.has_accuracy()), (1, true));
        assert_eq!(of(&words, Some(Loss::CROSS_ENTROPY)).unwrap().classes(), 2);
        for (table, loss, why) in [
            (&words, Loss::Mse, "needs a number as label"),
            (&number, Loss::CROSS_ENTROPY, "needs a label with one_of"),
            (&number, Loss::BceWithLogits { positive_weight: 1.0 }, "two words"),
            (&number, Loss::NextToken { ignore: None }, "for text"),
        ] {
            let said = of(table, Some(loss)).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let said = fitting(&json!({ "kind": "gru" }), "gru", &number, None).unwrap_err();
        assert!(said.contains("gru"), "{said}");
    }
}
