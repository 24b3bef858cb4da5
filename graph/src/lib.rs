//! A model as data.
//!
//! A [`Graph`] lists operations on tensors in execution order. It is imported from ONNX on the operator's machine
//! (crate `graph-import`), travels as JSON in a task, and is executed on devices (crate `client-sdk`). This crate
//! holds its types, its decoder with limits, and shape inference; it performs no I/O and executes nothing.
#![forbid(unsafe_code)]

mod attributes;
mod check;
mod cost;
mod decode;
mod element;
mod floats;
mod graph_error;
mod graph_model;
mod infer;
mod loss;
mod model;
mod operation;
mod shapes;
mod size;

pub use attributes::{
    Activation, Arithmetic, Comparison, Convolution, Direction, Logic, Padding, Pool, PoolKind, Recurrence,
    RecurrentCell, Reduction, Resampling, ResizeCoordinates,
};
pub use check::{BatchStatistics, MAX_BYTES, MAX_CONSTANT_BYTES, MAX_NODES};
pub use cost::{Cost, MAX_MEMORY, MAX_MULTIPLY_ADDS, cost, depends_on_parameters, depends_on_trained};
pub use decode::{decode, encode};
pub use element::Element;
pub use graph_error::GraphError;
pub use graph_model::GraphModel;
pub use infer::{Extent, Port, infer, slice_positions, wrapped};
pub use loss::Loss;
pub use model::{Constant, Graph, Input, Lengths, Node, Output, Parameter, ValueId, Values};
pub use operation::Operation;
pub use shapes::{MAX_ELEMENTS, MAX_RANK, Shapes, TensorType};
pub use size::{Point, Size};
