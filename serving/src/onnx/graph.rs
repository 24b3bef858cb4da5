//! A graph under construction.

use learning::Parameters;

use super::proto::{Attribute, AttributeKind, Element, Graph, Node, Tensor};

/// Adds operations and constants; each output has the name that it is given.
#[derive(Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    constants: Vec<Tensor>,
}

impl Builder {
    pub(super) fn node(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: Vec<Attribute>) {
        self.node_of("", operator, inputs, output, attributes);
    }

    /// An operation of another set of operators than ONNX's own.
    pub(super) fn node_of(
        &mut self,
        domain: &str,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<Attribute>,
    ) {
        self.nodes.push(Node {
            domain: domain.to_owned(),
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![output.to_owned()],
            operator: operator.to_owned(),
            attributes,
        });
    }

    /// A constant of these values in row-major order.
    pub(super) fn floats(&mut self, name: &str, dims: &[u64], values: impl IntoIterator<Item = f32>) {
        let raw: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        self.constant(
            name,
            dims.iter().map(|&dim| i64::try_from(dim).unwrap_or(i64::MAX)).collect(),
            Element::Float,
            raw,
        );
    }

    /// A vector of integers: a shape, or axes.
    pub(super) fn integers(&mut self, name: &str, values: &[i64]) {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, vec![i64::try_from(values.len()).unwrap_or(i64::MAX)], Element::Int64, raw);
    }

    /// The tensors of a model as they are, under their names.
    pub(super) fn tensors<'a>(&mut self, model: &Parameters, names: impl IntoIterator<Item = &'a str>) {
        for name in names {
            let (shape, values) = tensor(model, name);
            self.floats(name, shape, values.iter().copied());
        }
    }

    fn constant(&mut self, name: &str, dims: Vec<i64>, element: Element, raw: Vec<u8>) {
        self.constants.push(Tensor { dims, element: element.into(), name: name.to_owned(), raw: raw.into() });
    }

    pub(super) fn end(self, name: &str) -> Graph {
        let Self { nodes, constants: initializers } = self;
        Graph { nodes, name: name.to_owned(), initializers, inputs: Vec::new(), outputs: Vec::new() }
    }
}

/// The shape and the values of a tensor that the model's architecture has.
pub(super) fn tensor<'m>(model: &'m Parameters, name: &str) -> (&'m [u64], &'m [f32]) {
    match model.layout().find(name) {
        Some(index) => (&model.layout().tensors()[index].shape, model.tensor(index)),
        None => (&[], &[]),
    }
}

pub(super) fn integer(name: &str, value: i64) -> Attribute {
    Attribute { integer: value, ..attribute(name, AttributeKind::Integer) }
}

pub(super) fn integers(name: &str, values: &[i64]) -> Attribute {
    Attribute { integers: values.to_vec(), ..attribute(name, AttributeKind::Integers) }
}

pub(super) fn strings(name: &str, values: &[&str]) -> Attribute {
    let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    Attribute { strings, ..attribute(name, AttributeKind::Strings) }
}

fn attribute(name: &str, kind: AttributeKind) -> Attribute {
    Attribute { name: name.to_owned(), kind: kind.into(), ..Attribute::default() }
}
