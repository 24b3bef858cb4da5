//! The contents of a file.

use std::rc::Rc;

use graph::{Element, Graph};

use crate::data::{self, Data};
use crate::error::{ImportError, Warning};
use crate::{proto, traps};

/// A parameter's name, shape and first values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name in the graph.
    pub name: String,
    /// Its sizes; empty for a single number.
    pub shape: Vec<u32>,
    /// Its elements in row-major order.
    pub values: Vec<f32>,
}

/// What a file contains.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The graph that computes the file's outputs.
    pub graph: Graph,
    /// The values of its parameters, in the graph's order.
    pub parameters: Vec<Tensor>,
    /// What an operator should look at before training.
    pub warnings: Vec<Warning>,
}

/// An initializer with its elements.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) shape: Vec<i64>,
    pub(super) data: Shared,
}

/// Elements, shared by several tries.
#[derive(Clone, Debug)]
pub(super) enum Shared {
    Floats(Rc<Vec<f32>>),
    Others(Data),
}

/// An initializer of the file.
pub(super) fn read(tensor: proto::Tensor, warnings: &mut Vec<Warning>) -> Result<Stored, ImportError> {
    let (name, element) = (tensor.name.clone(), tensor.element);
    let wrong = |why: String| ImportError::Initializer { name: name.clone(), why };
    if name.is_empty() {
        return Err(wrong("it has no name".to_owned()));
    }
    let (shape, data) = data::decode(tensor).map_err(wrong)?;
    if let Some(from) = data::other_float(element) {
        warnings.push(Warning::Converted { name: name.clone(), from });
    }
    let data = match data {
        Data::F32(values) => Shared::Floats(Rc::new(values)),
        data @ (Data::I64(_) | Data::Bool(_)) => Shared::Others(data),
    };
    Ok(Stored { name, shape, data })
}

/// Makes initializers of the named floats in `Constant` nodes, if the file has no others: PaddlePaddle writes weights so.
pub(super) fn weights_to_initializers(graph: &mut proto::Graph) {
    let is_float = |tensor: &proto::Tensor| data::element_of(tensor.element) == Ok(Element::F32);
    if graph.initializers.iter().any(is_float) {
        return;
    }
    let is_weight = |tensor: &proto::Tensor| is_float(tensor) && data::count(&tensor.dims).is_ok_and(|count| count > 1);
    for node in std::mem::take(&mut graph.nodes) {
        match (&node.outputs[..], &node.attributes[..]) {
            ([name], [proto::Attribute { tensor: Some(tensor), .. }])
                if node.operator == "Constant" && !traps::is_invented(name) && is_weight(tensor) =>
            {
                graph.initializers.push(proto::Tensor { name: name.clone(), ..tensor.clone() });
            }
            _ => graph.nodes.push(node),
        }
    }
}
