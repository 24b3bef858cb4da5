//! The preprocessing of a table in front of a model's graph: inputs are the table's columns, as raw numbers and words.

use std::collections::BTreeSet;

use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use task_spec::{EmptyCell, TableColumn, TableSpec};

use super::graph::{Builder, integer, integers, strings};
use super::proto::{Dimension, Element, Graph, Model, OperatorSet, Shape, Size, TensorType, ValueInfo, ValueType};

/// The set of operators with LabelEncoder, which turns words into codes.
const ML_DOMAIN: &str = "ai.onnx.ml";
const ML_OPERATORS: i64 = 2;
/// Numbers of `ModelProto.graph` and `GraphProto.input`.
const GRAPH: u32 = 7;
const INPUT: u32 = 11;
/// Codes of words that are not listed, and of empty cells with an indicator.
const OTHER: i64 = -1;
const EMPTY: i64 = -2;
/// Prefix of the names of added tensors.
const ADDED: &str = "table.";
/// Name of the output in units of the label.
const PREDICTION: &str = "prediction";

/// Replaces the input `input` of an ONNX file by the columns of a table: FP32 or STRING, `[batch, 1]` each. NaN and "" are empty cells. The
/// name of an output that predicts a scaled label adds the output `prediction`, in units of the label.
///
/// Words must be written as in the task. A cell that the task rejects is not rejected: an unlisted word sets no input, and numbers may be
/// out of range.
///
/// # Errors
/// The file cannot be read, or a column has the name of another tensor.
pub fn with_columns(file: &[u8], table: &TableSpec, input: &str, output: &str) -> Result<Vec<u8>, String> {
    let mut builder = Builder::default();
    let mut parts = Vec::new();
    for (at, column) in table.features.iter().enumerate() {
        let part = format!("{ADDED}{at}");
        match column.one_of.is_empty() {
            true => number(&mut builder, column, &part, &mut parts),
            false => words(&mut builder, column, &part, &mut parts),
        }
    }
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    builder.node("Concat", &names, input, vec![integer("axis", 1)]);
    let mut front = builder.end("");
    front.inputs = table.features.iter().map(input_of).collect();

    let mut found = Vec::new();
    for (number, whole, payload) in fields(file)? {
        if number != GRAPH {
            found.extend_from_slice(whole);
            continue;
        }
        check_names(table, payload)?;
        let mut graph = front.encode_to_vec();
        for (number, whole, _) in fields(payload)? {
            if number != INPUT {
                graph.extend_from_slice(whole);
            }
        }
        graph.extend(in_units(table, output).encode_to_vec());
        encode_key(GRAPH, WireType::LengthDelimited, &mut found);
        encode_varint(graph.len() as u64, &mut found);
        found.extend(graph);
    }
    let more = OperatorSet { domain: ML_DOMAIN.to_owned(), version: ML_OPERATORS };
    let model = Model { opset_import: vec![more], ..Model::default() };
    found.extend(model.encode_to_vec());
    Ok(found)
}

/// Rejects a column with the name of a tensor of the graph, or of one that is added.
fn check_names(table: &TableSpec, graph: &[u8]) -> Result<(), String> {
    let graph = Graph::decode(graph).map_err(|error| format!("it is no ONNX file: {error}"))?;
    let constants = graph.initializers.iter().map(|constant| &constant.name);
    let computed = graph.nodes.iter().flat_map(|node| &node.outputs);
    let inputs = graph.inputs.iter().map(|input| &input.name);
    let taken: BTreeSet<&str> = constants.chain(computed).chain(inputs).map(String::as_str).collect();
    let is_taken = |name: &str| taken.contains(name) || name == PREDICTION || name.starts_with(ADDED);
    match table.features.iter().find(|feature| is_taken(&feature.column)) {
        Some(feature) => Err(format!("the column `{}` has the name of a tensor of the model", feature.column)),
        None => Ok(()),
    }
}

/// A column as an input of the graph.
fn input_of(column: &TableColumn) -> ValueInfo {
    value(&column.column, if column.one_of.is_empty() { Element::Float } else { Element::String })
}

fn value(name: &str, element: Element) -> ValueInfo {
    let dims = [Size::Named("batch".to_owned()), Size::Fixed(1)].map(|size| Dimension { size: Some(size) });
    let tensor = TensorType { element: element.into(), shape: Some(Shape { dims: dims.to_vec() }) };
    ValueInfo { name: name.to_owned(), kind: Some(ValueType { tensor: Some(tensor) }) }
}

#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
fn narrow(number: f64) -> f32 {
    number as f32
}

/// A number, filled in and scaled, and the indicator of empty cells.
fn number(builder: &mut Builder, column: &TableColumn, part: &str, parts: &mut Vec<String>) {
    let [empty, fill, filled, low, shifted, scale, scaled, indicator] =
        ["empty", "fill", "filled", "low", "shifted", "scale", "scaled", "indicator"]
            .map(|step| format!("{part}.{step}"));
    let mut x = column.column.clone();
    if let Ok(EmptyCell::Number(number) | EmptyCell::Indicated(number)) = column.empty_cell() {
        builder.node("IsNaN", &[&x], &empty, vec![]);
        builder.floats(&fill, &[1], [narrow(number)]);
        builder.node("Where", &[&empty, &fill, &x], &filled, vec![]);
        x = filled;
    }
    if let Some((least, most)) = column.range() {
        builder.floats(&low, &[1], [narrow(least)]);
        builder.floats(&scale, &[1], [narrow(most - least)]);
        builder.node("Sub", &[&x, &low], &shifted, vec![]);
        builder.node("Div", &[&shifted, &scale], &scaled, vec![]);
        x = scaled;
    }
    parts.push(x);
    if column.has_indicator() {
        builder.node("Cast", &[&empty], &indicator, vec![integer("to", Element::Float as i64)]);
        parts.push(indicator);
    }
}

/// An input for each word, for other words, and for empty cells.
fn words(builder: &mut Builder, column: &TableColumn, part: &str, parts: &mut Vec<String>) {
    let [code, codes, equal, inputs] = ["code", "codes", "equal", "inputs"].map(|step| format!("{part}.{step}"));
    let mut keys: Vec<&str> = column.one_of.iter().map(String::as_str).collect();
    let mut values: Vec<i64> = (0_i64..).take(keys.len()).collect();
    let mut listed = values.clone();
    if column.other {
        listed.push(OTHER);
    }
    match column.empty_cell() {
        Ok(EmptyCell::Word(position)) => {
            keys.push("");
            values.push(values[position]);
        }
        Ok(EmptyCell::Indicated(_)) => {
            keys.push("");
            values.push(EMPTY);
            listed.push(EMPTY);
        }
        Ok(EmptyCell::Refused | EmptyCell::Number(_)) | Err(_) => {}
    }
    let attributes =
        vec![strings("keys_strings", &keys), integers("values_int64s", &values), integer("default_int64", OTHER)];
    builder.node_of(ML_DOMAIN, "LabelEncoder", &[&column.column], &code, attributes);
    builder.integers(&codes, &listed);
    builder.node("Equal", &[&code, &codes], &equal, vec![]);
    builder.node("Cast", &[&equal], &inputs, vec![integer("to", Element::Float as i64)]);
    parts.push(inputs);
}

/// The output in units of the label, if that is a scaled number.
fn in_units(table: &TableSpec, output: &str) -> Graph {
    let Some((low, high)) = table.label.as_ref().and_then(TableColumn::range) else { return Graph::default() };
    let mut builder = Builder::default();
    builder.floats("table.label.low", &[1], [narrow(low)]);
    builder.floats("table.label.scale", &[1], [narrow(high - low)]);
    builder.node("Mul", &[output, "table.label.scale"], "table.label.scaled", vec![]);
    builder.node("Add", &["table.label.scaled", "table.label.low"], PREDICTION, vec![]);
    let mut graph = builder.end("");
    graph.outputs = vec![value(PREDICTION, Element::Float)];
    graph
}

/// A field of a message: its number, its bytes with the key, and those of its value.
type Field<'a> = (u32, &'a [u8], &'a [u8]);

/// The fields of a message.
fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, String> {
    let broken = |error: &dyn std::fmt::Display| format!("it is no ONNX file: {error}");
    let mut rest = message;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let begin = rest;
        let (number, kind) = decode_key(&mut rest).map_err(|error| broken(&error))?;
        let length = match kind {
            WireType::Varint => {
                let after = rest;
                decode_varint(&mut rest).map_err(|error| broken(&error))?;
                let length = after.len() - rest.len();
                rest = after;
                length
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut rest).map_err(|error| broken(&error))?;
                usize::try_from(length).unwrap_or(usize::MAX)
            }
            WireType::StartGroup | WireType::EndGroup => return Err(broken(&"it has groups")),
        };
        let (payload, after) = rest.split_at_checked(length).ok_or_else(|| broken(&"it is cut off"))?;
        found.push((number, &begin[..begin.len() - after.len()], payload));
        rest = after;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use client_sdk::models::{Architecture, Linear};
    use wire::Digest;

    use super::*;

    /// `.ci/onnx.py` compares what ONNX Runtime computes.
    #[test]
    fn columns_replace_the_input_and_nothing_is_lost() {
        let table = serde_json::json!({
            "features": [
                { "column": "age", "low": 0, "high": 100, "missing": "indicator", "mean": 50 },
                { "column": "ward", "one_of": ["icu", "er"], "other": true },
            ],
            "label": { "column": "days", "low": 0, "high": 60 },
        });
        let table: TableSpec = serde_json::from_value(table).unwrap();
        let architecture = Architecture::Linear(Linear { inputs: 5, classes: 2 });
        let model = architecture.initial(1).unwrap();
        let file = super::super::encode(&architecture, &model, Digest([7; 32])).unwrap();
        let changed = with_columns(&file, &table, "input", "scores").unwrap();
        let [before, after] = [&file, &changed].map(|file| Model::decode(&file[..]).unwrap());
        let (old, new) = (before.graph.unwrap(), after.graph.unwrap());
        let names = |values: &[ValueInfo]| values.iter().map(|value| value.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&new.inputs), ["age", "ward"]);
        assert_eq!(names(&new.outputs), ["scores", "classes", "prediction"]);
        assert!(new.nodes.ends_with(&in_units(&table, "scores").nodes) && new.name == old.name);
        let own = new.nodes.len() - 2 - old.nodes.len();
        assert_eq!(&new.nodes[own..new.nodes.len() - 2], &old.nodes[..]);
        assert_eq!((new.nodes[own - 1].operator.as_str(), &new.nodes[own - 1].outputs[0][..]), ("Concat", "input"));
        assert!(old.initializers.iter().all(|constant| new.initializers.contains(constant)));
        assert_eq!((before.metadata, after.opset_import.len()), (after.metadata, 2));
        for name in ["input", "scores", "fc.weight", "prediction", "table.0"] {
            let mut table = table.clone();
            table.features[1].column = name.to_owned();
            assert!(with_columns(&file, &table, "input", "scores").unwrap_err().contains(name), "{name}");
        }
        for length in 1..file.len().min(300) {
            let _ = with_columns(&file[..length], &table, "input", "scores");
        }
    }
}
