//! From a graph with its parameters to an ONNX file.

mod elementwise;
mod error;
mod layers;
mod movement;
mod names;
mod operations;
mod writer;

use std::collections::BTreeSet;

use graph::{Extent, Graph, Point, Port, infer};
use prost::Message as _;

pub use self::error::ExportError;
use self::writer::{Writer, element_of};
use crate::error::MAX_BYTES;
use crate::proto::{
    Dimension, Entry, Graph as OnnxGraph, Model, OperatorSet, Shape, Size, TensorType, ValueInfo, ValueType,
};

/// Version of the file's form: ONNX Runtime since 1.14 (2023) reads it.
const IR_VERSION: i64 = 8;
/// Version of ONNX's operators.
const OPSET: i64 = 18;

/// Writes a graph as an ONNX file (opset 18). Inputs, outputs and parameters keep their names. Parameters are initializers, and
/// constants are nodes. Running variances below 0 are written as 0, which a graph computes with. The batch is the symbolic size `batch`, the length of sequences is `length`. Dropout is left out: the
/// file is for predictions.
///
/// `parameters` has the values of all parameters in the graph's order, each in row-major order. `metadata` becomes the
/// file's `metadata_props`.
///
/// # Errors
/// [`ExportError`].
pub fn export(graph: &Graph, parameters: &[f32], metadata: &[(&str, &str)]) -> Result<Vec<u8>, ExportError> {
    graph.check()?;
    let (least, most) = graph.lengths.map_or((1, 1), |lengths| (lengths.least, lengths.most));
    let at = |length| infer(graph, Point { batch: 1, length });
    let outputs = graph.output_ports()?;
    let mut writer = Writer::new(graph, [at(least)?, at(most)?], names(graph)?);
    write_parameters(&mut writer, graph, parameters)?;
    for (position, constant) in graph.constants.iter().enumerate() {
        let name = writer.name(graph.constant(position));
        writer.constant(&name, &constant.shape, &constant.values);
    }
    let mut next = graph.first_result().0;
    for node in &graph.nodes {
        let results = next..next + node.operation.outputs();
        next = results.end;
        writer.begin(&node.name);
        operations::write(&mut writer, node, results)?;
    }
    for output in &graph.outputs {
        let name = writer.name(output.value);
        if name != output.name {
            writer.begin("");
            writer.node_to("Identity", &[&name], &output.name, vec![]);
        }
    }
    let (nodes, initializers) = writer.end();
    let written = OnnxGraph {
        nodes,
        name: "graph".to_owned(),
        initializers,
        sparse: Vec::new(),
        inputs: graph.input_ports().iter().map(value).collect(),
        outputs: outputs.iter().map(value).collect(),
    };
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: "tributary".to_owned(),
        graph: Some(written),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        metadata: metadata.iter().map(entry).collect(),
        functions: Vec::new(),
    };
    match model.encoded_len() {
        length if length > MAX_BYTES => Err(ExportError::TooLarge(length)),
        _ => Ok(model.encode_to_vec()),
    }
}

/// Names of the values that have one: inputs, parameters, constants, and results that are outputs; the others are `None`.
fn names(graph: &Graph) -> Result<Vec<Option<String>>, ExportError> {
    let mut names: Vec<Option<String>> = Vec::with_capacity(graph.value_count());
    let mut taken = BTreeSet::new();
    let named = graph.inputs.iter().map(|input| ("input", &input.name));
    let named = named.chain(graph.parameters.iter().map(|parameter| ("parameter", &parameter.name)));
    for (kind, name) in named {
        if !taken.insert(name) {
            return Err(ExportError::Name { kind, name: name.clone() });
        }
        names.push(Some(name.clone()));
    }
    for output in &graph.outputs {
        if !taken.insert(&output.name) {
            return Err(ExportError::Name { kind: "output", name: output.name.clone() });
        }
    }
    for constant in &graph.constants {
        let is_free = !constant.name.is_empty() && taken.insert(&constant.name);
        names.push(is_free.then(|| constant.name.clone()));
    }
    names.resize(graph.value_count(), None);
    for output in graph.outputs.iter().filter(|output| output.value >= graph.first_result()) {
        // Of several names of a result the first one is its own; the others are copies.
        names[output.value.0 as usize].get_or_insert_with(|| output.name.clone());
    }
    Ok(names)
}

fn write_parameters(writer: &mut Writer<'_>, graph: &Graph, values: &[f32]) -> Result<(), ExportError> {
    let count = |shape: &[u32]| shape.iter().map(|&size| size as usize).product::<usize>();
    let expected = graph.parameters.iter().map(|parameter| count(&parameter.shape)).sum();
    if values.len() != expected {
        return Err(ExportError::Parameters { expected, found: values.len() });
    }
    let variances: BTreeSet<usize> = graph.batch_statistics().iter().map(|layer| layer.variance).collect();
    let mut rest = values;
    for (position, parameter) in graph.parameters.iter().enumerate() {
        let (own, after) = rest.split_at(count(&parameter.shape));
        rest = after;
        if variances.contains(&position) {
            let own: Vec<f32> = own.iter().map(|value| value.max(0.0)).collect();
            writer.floats(&parameter.name, &parameter.shape, &own);
        } else {
            writer.floats(&parameter.name, &parameter.shape, own);
        }
    }
    Ok(())
}

/// An input or output of the file.
fn value(port: &Port) -> ValueInfo {
    let size = |extent: &Extent| match extent {
        Extent::Fixed(size) => i64::try_from(*size).ok().map(Size::Fixed),
        Extent::Batch => Some(Size::Named("batch".to_owned())),
        Extent::Length => Some(Size::Named("length".to_owned())),
        Extent::FromLength | Extent::FromBatch => None,
    };
    let dims = port.shape.iter().map(|extent| Dimension { size: size(extent) }).collect();
    let tensor = TensorType { element: element_of(port.element), shape: Some(Shape { dims }) };
    ValueInfo { name: port.name.clone(), kind: Some(ValueType { tensor: Some(tensor) }) }
}

#[cfg(test)]
mod tests {
    use graph::{Activation, Element, Input, Node, Operation, Output, Parameter, Size as GraphSize};

    use super::*;
    use crate::{Options, import};

    /// `y = relu(x w)` for `[batch, 2]`.
    fn graph() -> Graph {
        let mut graph = Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![Input {
                name: "x".into(),
                element: Element::F32,
                shape: vec![GraphSize::BATCH, GraphSize::fixed(2)],
            }],
            parameters: vec![Parameter { name: "w".into(), shape: vec![2, 3] }],
            constants: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        let (x, w, product) = (graph.input(0), graph.parameter(0), graph.first_result());
        let node = |operation, inputs| Node { name: String::new(), operation, inputs };
        graph.nodes.push(node(Operation::MatMul, vec![x, w]));
        graph.nodes.push(node(Operation::Activation(Activation::Relu), vec![product]));
        graph.outputs.push(Output { name: "y".into(), value: graph::ValueId(product.0 + 1) });
        graph
    }

    #[test]
    fn export_is_imported_as_the_same_graph() {
        let graph = graph();
        let values = [1.0, -2.0, 3.0, 4.0, 5.0, -6.0];
        let file = export(&graph, &values, &[("origin", "a test")]).unwrap();
        let model = Model::decode(&file[..]).unwrap();
        assert_eq!((model.metadata[0].key.as_str(), model.metadata[0].value.as_str()), ("origin", "a test"));
        let imported = import(&file, &Options::default()).unwrap();
        assert_eq!(imported.graph, graph);
        assert_eq!(imported.parameters[0].values, values);
    }

    #[test]
    fn result_with_several_names_is_copied() {
        let mut graph = graph();
        let (y, x) = (graph.outputs[0].value, graph.input(0));
        graph.outputs.push(Output { name: "again".into(), value: y });
        graph.outputs.push(Output { name: "echo".into(), value: x });
        let imported = import(&export(&graph, &[0.0; 6], &[]).unwrap(), &Options::default()).unwrap();
        assert_eq!(imported.graph.outputs, graph.outputs);
    }

    #[test]
    fn node_names_are_written_once() {
        let mut graph = graph();
        graph.nodes.iter_mut().for_each(|node| node.name = "layer".into());
        let file = export(&graph, &[0.0; 6], &[]).unwrap();
        let nodes = Model::decode(&file[..]).unwrap().graph.unwrap().nodes;
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["layer", ""]);
    }

    #[test]
    fn export_names_what_is_wrong() {
        let error = export(&graph(), &[0.0; 5], &[]).unwrap_err().to_string();
        assert!(error.contains("parameters of 6 values, and 5 were given"), "{error}");
        let mut twice = graph();
        twice.outputs[0].name = "x".into();
        let error = export(&twice, &[0.0; 6], &[]).unwrap_err().to_string();
        assert!(error.contains("the output `x` has the name of another tensor"), "{error}");
    }
}
