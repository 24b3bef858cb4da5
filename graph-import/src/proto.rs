//! The messages of ONNX (`onnx/onnx.proto3`), with the fields that are read or written here.

use prost::Message;

/// A model: a graph, and the operators and functions that it relies on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    #[prost(int64, tag = "1")]
    pub(crate) ir_version: i64,
    #[prost(string, tag = "2")]
    pub(crate) producer_name: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub(crate) metadata: Vec<Entry>,
    #[prost(message, repeated, tag = "25")]
    pub(crate) functions: Vec<Function>,
}

/// A version of a set of operators.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OperatorSet {
    /// Empty for ONNX's own.
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
}

/// Operations in an order in which each finds its inputs.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) sparse: Vec<Sparse>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) outputs: Vec<ValueInfo>,
}

/// A sparse tensor; only its presence matters.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sparse {
    #[prost(message, optional, tag = "1")]
    pub(crate) values: Option<Tensor>,
}

/// A named list of nodes that others use as one operator.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) outputs: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) nodes: Vec<Node>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) opset_import: Vec<OperatorSet>,
    #[prost(string, tag = "10")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) defaults: Vec<Attribute>,
}

/// One operation; an empty name among the inputs stands for one that is left out.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) operator: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(crate) domain: String,
}

/// A named constant of a node.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(float, tag = "2")]
    pub(crate) float: f32,
    #[prost(int64, tag = "3")]
    pub(crate) integer: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) string: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub(crate) tensor: Option<Tensor>,
    #[prost(message, optional, tag = "6")]
    pub(crate) graph: Option<Graph>,
    #[prost(float, repeated, tag = "7")]
    pub(crate) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub(crate) integers: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(crate) strings: Vec<Vec<u8>>,
    #[prost(int32, tag = "20")]
    pub(crate) kind: i32,
    /// In a function: the attribute of the call that gives the value.
    #[prost(string, tag = "21")]
    pub(crate) reference: String,
}

/// A constant; its data are little-endian and row-major.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(crate) element: i32,
    #[prost(float, repeated, tag = "4")]
    pub(crate) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) int32s: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(crate) int64s: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(crate) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(crate) raw: Vec<u8>,
    #[prost(double, repeated, tag = "10")]
    pub(crate) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(crate) uint64s: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) external: Vec<Entry>,
    #[prost(int32, tag = "14")]
    pub(crate) location: i32,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// Values of [`Tensor::element`].
pub(crate) mod element {
    pub(crate) const FLOAT: i32 = 1;
    pub(crate) const UINT8: i32 = 2;
    pub(crate) const INT8: i32 = 3;
    pub(crate) const UINT16: i32 = 4;
    pub(crate) const INT16: i32 = 5;
    pub(crate) const INT32: i32 = 6;
    pub(crate) const INT64: i32 = 7;
    pub(crate) const STRING: i32 = 8;
    pub(crate) const BOOL: i32 = 9;
    pub(crate) const FLOAT16: i32 = 10;
    pub(crate) const DOUBLE: i32 = 11;
    pub(crate) const UINT32: i32 = 12;
    pub(crate) const UINT64: i32 = 13;
    pub(crate) const BFLOAT16: i32 = 16;
}

/// An input or output of the graph.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) kind: Option<ValueType>,
}

/// Type of a value; sequences, maps and optional values have no tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(message, optional, tag = "1")]
    pub(crate) tensor: Option<TensorType>,
}

/// Type and shape of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(crate) element: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<Shape>,
}

/// Sizes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(crate) dims: Vec<Dimension>,
}

/// One size.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dimension {
    #[prost(oneof = "Size", tags = "1, 2")]
    pub(crate) size: Option<Size>,
}

/// A size, or a name for one that differs from call to call.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Size {
    #[prost(int64, tag = "1")]
    Fixed(i64),
    #[prost(string, tag = "2")]
    Named(String),
}
