//! Ready models as ONNX files, for other servers of models: input and outputs are those of `tributary infer serve`.

mod columns;
mod graph;
mod proto;

use client_sdk::models::{Architecture, Cnn, Gru};
use learning::Parameters;
use prost::Message as _;
use wire::Digest;

use crate::server::v2::{Datatype, Signature, TensorMetadata, signature};
pub use columns::with_columns;
use graph::{Builder, integer, integers, tensor};
use proto::{Dimension, Element, Entry, Graph, Model, OperatorSet, Shape, Size, TensorType, ValueInfo, ValueType};

/// Version of the file's form, and of the operators: what every ONNX Runtime since 1.13 (2022) reads.
const IR_VERSION: i64 = 8;
const OPERATORS: i64 = 17;
/// Most bytes of a message of Protocol Buffers.
pub const MAX_BYTES: u64 = (1 << 31) - 1;

/// A model as an ONNX file; `None` for an architecture that has no graph here. `source` is the digest of the safetensors file that it was
/// made from, which the file names.
pub fn encode(architecture: &Architecture, model: &Parameters, source: Digest) -> Option<Vec<u8>> {
    let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
    let file = Model {
        ir_version: IR_VERSION,
        producer_name: "tributary".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph_of(architecture, model)?),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPERATORS }],
        metadata: vec![entry("tributary.safetensors_sha256", source.to_string())],
    };
    Some(file.encode_to_vec())
}

fn graph_of(architecture: &Architecture, model: &Parameters) -> Option<Graph> {
    let Signature { inputs, outputs } = signature(architecture).ok()?;
    let ([input], [scores, classes]) = (&inputs[..], &outputs[..]) else { return None };
    let [from, to] = [input, scores].map(|tensor| &*tensor.name);
    let mut builder = Builder::default();
    match architecture {
        Architecture::Linear(_) => {
            builder.tensors(model, ["fc.weight", "fc.bias"]);
            affine(&mut builder, from, "fc", to);
        }
        Architecture::Mlp(sizes) => dense(&mut builder, model, from, sizes.hidden.len() + 1, to),
        Architecture::Cnn(sizes) => convolutional(&mut builder, model, sizes, from, to),
        Architecture::Gru(sizes) => recurrent(&mut builder, model, sizes, from, to),
        // A graph is written by `graph_import::export`; other kinds are those of a later SDK.
        _ => return None,
    }
    builder.node("ArgMax", &[to], &classes.name, vec![integer("axis", -1), integer("keepdims", 0)]);
    let mut graph = builder.end(architecture.kind());
    graph.inputs = vec![value(input)];
    graph.outputs = outputs.iter().map(value).collect();
    Some(graph)
}

/// A tensor that the graph takes or gives. Sizes that differ from call to call have names: the same name, the same size.
fn value(tensor: &TensorMetadata) -> ValueInfo {
    let element = match tensor.datatype {
        Datatype::Fp32 => Element::Float,
        Datatype::Int64 => Element::Int64,
        Datatype::Int32 => Element::Int32,
        Datatype::Bool => Element::Bool,
    };
    let size = |(index, &size): (usize, &i64)| match (size, index) {
        (-1, 0) => Size::Named("batch".to_owned()),
        (-1, _) => Size::Named("length".to_owned()),
        (fixed, _) => Size::Fixed(fixed),
    };
    let dims = tensor.shape.iter().enumerate().map(|dim| Dimension { size: Some(size(dim)) }).collect();
    let tensor_type = TensorType { element: element.into(), shape: Some(Shape { dims }) };
    ValueInfo { name: tensor.name.clone().into_owned(), kind: Some(ValueType { tensor: Some(tensor_type) }) }
}

/// `x W^T + b` of a layer whose tensors are constants.
fn affine(builder: &mut Builder, input: &str, layer: &str, output: &str) {
    let (weight, bias) = (format!("{layer}.weight"), format!("{layer}.bias"));
    builder.node("Gemm", &[input, &weight, &bias], output, vec![integer("transB", 1)]);
}

/// Layers `fc1` to `fcN` with ReLU between them.
fn dense(builder: &mut Builder, model: &Parameters, input: &str, layers: usize, output: &str) {
    let mut x = input.to_owned();
    for number in 1..=layers {
        let layer = format!("fc{number}");
        builder.tensors(model, [format!("{layer}.weight").as_str(), &format!("{layer}.bias")]);
        if number == layers {
            affine(builder, &x, &layer, output);
        } else {
            affine(builder, &x, &layer, &format!("{layer}.out"));
            builder.node("Relu", &[&format!("{layer}.out")], &format!("{layer}.relu"), vec![]);
            x = format!("{layer}.relu");
        }
    }
}

fn convolutional(builder: &mut Builder, model: &Parameters, sizes: &Cnn, input: &str, output: &str) {
    builder.integers("image", &[-1, sizes.channels.into(), sizes.height.into(), sizes.width.into()]);
    builder.node("Reshape", &[input, "image"], "pixels", vec![]);
    let mut x = "pixels".to_owned();
    for layer in ["conv1", "conv2"] {
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{layer}.{part}"));
        builder.tensors(model, [weight.as_str(), &bias]);
        let [out, relu, pooled] = ["out", "relu", "pooled"].map(|step| format!("{layer}.{step}"));
        // 5x5, and the image's size is kept.
        let attributes = vec![integers("kernel_shape", &[5, 5]), integers("pads", &[2, 2, 2, 2])];
        builder.node("Conv", &[&x, &weight, &bias], &out, attributes);
        builder.node("Relu", &[&out], &relu, vec![]);
        // An odd last row or column is dropped.
        let attributes = vec![integers("kernel_shape", &[2, 2]), integers("strides", &[2, 2])];
        builder.node("MaxPool", &[&relu], &pooled, attributes);
        x = pooled;
    }
    builder.node("Flatten", &[&x], "features", vec![integer("axis", 1)]);
    dense(builder, model, "features", 2, output);
}

/// ONNX has a GRU in PyTorch's form (`linear_before_reset`), with the gates in another order and a dimension for directions.
fn recurrent(builder: &mut Builder, model: &Parameters, sizes: &Gru, input: &str, output: &str) {
    builder.tensors(model, ["embedding.weight"]);
    builder.integers("directions", &[1]);
    // By position, then example.
    builder.node("Transpose", &[input], "characters", vec![integers("perm", &[1, 0])]);
    builder.node("Gather", &["embedding.weight", "characters"], "embedded", vec![integer("axis", 0)]);
    let mut x = "embedded".to_owned();
    for layer in 0..sizes.layers {
        let [w, r, b] = ["w", "r", "b"].map(|part| format!("gru.{part}_l{layer}"));
        for (name, from) in [(&w, "weight_ih"), (&r, "weight_hh")] {
            let (shape, values) = tensor(model, &format!("gru.{from}_l{layer}"));
            builder.floats(name, &[&[1], shape].concat(), update_first(values));
        }
        let biases = ["bias_ih", "bias_hh"].map(|part| update_first(tensor(model, &format!("gru.{part}_l{layer}")).1));
        builder.floats(&b, &[1, 6 * u64::from(sizes.hidden)], biases.concat());
        let [states, out] = ["states", "out"].map(|step| format!("gru.{step}_l{layer}"));
        let attributes = vec![integer("hidden_size", sizes.hidden.into()), integer("linear_before_reset", 1)];
        builder.node("GRU", &[&x, &w, &r, &b], &states, attributes);
        builder.node("Squeeze", &[&states, "directions"], &out, vec![]);
        x = out;
    }
    builder.node("Transpose", &[&x], "states", vec![integers("perm", &[1, 0, 2])]);
    let (shape, values) = tensor(model, "fc.weight");
    builder.floats("fc.weight_t", &[shape[1], shape[0]], transposed(values, shape));
    builder.tensors(model, ["fc.bias"]);
    builder.node("MatMul", &["states", "fc.weight_t"], "fc.out", vec![]);
    builder.node("Add", &["fc.out", "fc.bias"], output, vec![]);
}

/// PyTorch has the gates reset, update, candidate, ONNX update, reset, candidate; each is a third.
fn update_first(gates: &[f32]) -> Vec<f32> {
    let third = gates.len() / 3;
    [&gates[third..2 * third], &gates[..third], &gates[2 * third..]].concat()
}

/// A matrix with its rows as columns.
fn transposed(values: &[f32], shape: &[u64]) -> Vec<f32> {
    let columns = shape.get(1).and_then(|&columns| usize::try_from(columns).ok()).unwrap_or(1);
    (0..columns).flat_map(|column| values.iter().skip(column).step_by(columns).copied()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use client_sdk::models::{Linear, Mlp};

    use super::*;

    /// `.ci/onnx.py` compares what ONNX Runtime computes; here, every operation finds what it takes, and each number is there.
    #[test]
    fn a_graph_is_whole() {
        let two_layers = Gru { layers: 2, ..Gru::with_vocabulary(7) };
        let all = [
            Architecture::Linear(Linear { inputs: 5, classes: 3 }),
            Architecture::Mlp(Mlp { inputs: 5, hidden: vec![4, 6], classes: 3 }),
            Architecture::Cnn(Cnn::default()),
            Architecture::Gru(Gru::with_vocabulary(7)),
            Architecture::Gru(two_layers),
        ];
        let kinds: HashSet<_> = all.iter().map(Architecture::kind).collect();
        assert_eq!(kinds, Architecture::KINDS.into(), "each kind has a graph");
        for architecture in all {
            let model = architecture.initial(1).unwrap();
            let file = encode(&architecture, &model, Digest([7; 32])).unwrap();
            let graph = Model::decode(&file[..]).unwrap().graph.unwrap();
            let mut known: HashSet<_> = graph.inputs.iter().map(|input| input.name.clone()).collect();
            known.extend(graph.initializers.iter().map(|constant| constant.name.clone()));
            for node in &graph.nodes {
                assert!(node.inputs.iter().all(|input| known.contains(input)), "{node:?}");
                assert!(node.outputs.iter().all(|output| known.insert(output.clone())), "{node:?}");
            }
            assert!(graph.outputs.iter().all(|output| known.contains(&output.name)));
            let floats = graph.initializers.iter().filter(|constant| constant.element() == Element::Float);
            let numbers = floats.flat_map(|constant| constant.raw.chunks_exact(4));
            let mut numbers: Vec<_> = numbers.map(|raw| u32::from_le_bytes(raw.try_into().unwrap())).collect();
            let mut values: Vec<_> = model.values().iter().map(|value| value.to_bits()).collect();
            numbers.sort_unstable();
            values.sort_unstable();
            assert_eq!(numbers, values, "{}", architecture.kind());
        }
    }

    #[test]
    fn gates_and_matrices_are_put_in_onnxs_order() {
        assert_eq!(update_first(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [3.0, 4.0, 1.0, 2.0, 5.0, 6.0]);
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
