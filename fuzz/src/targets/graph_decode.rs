//! Untrusted graphs, as a coordinator sends them. An accepted graph has one form, and its cost is known before a device
//! allocates anything.

use graph::{
    Graph, GraphError, GraphModel, Lengths, Loss, MAX_MEMORY, MAX_MULTIPLY_ADDS, Point, cost, decode, encode, infer,
};

use super::graph_import::{FILES, imported};
use crate::mutate::Dice;

/// Numbers that a hostile coordinator tries.
const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "32",
    "33",
    "255",
    "65536",
    "16777216",
    "268435456",
    "2147483647",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
    "1e38",
    "-1e-45",
];
/// Variants of an input that are tried.
const VARIANTS: usize = 16;

pub fn run(data: &[u8]) {
    check(data);
    let mut dice = Dice::new(0, &String::from_utf8_lossy(data));
    for _ in 0..VARIANTS {
        check(&with_other_number(data, &mut dice));
    }
}

/// The input with another number: one of [`NUMBERS`], or another one of the input. Changed bytes alone are rarely JSON.
fn with_other_number(data: &[u8], dice: &mut Dice) -> Vec<u8> {
    let is_digit = |at: usize| data.get(at).is_some_and(u8::is_ascii_digit);
    let starts: Vec<usize> = (0..data.len()).filter(|&at| is_digit(at) && (at == 0 || !is_digit(at - 1))).collect();
    if starts.is_empty() {
        return data.to_vec();
    }
    let number = |start: usize| start..(start..data.len()).find(|&at| !is_digit(at)).unwrap_or(data.len());
    let old = number(starts[dice.below(starts.len())]);
    let new = match dice.below(3) {
        0 => &data[number(starts[dice.below(starts.len())])],
        _ => NUMBERS[dice.below(NUMBERS.len())].as_bytes(),
    };
    [&data[..old.start], new, &data[old.end..]].concat()
}

fn check(data: &[u8]) {
    let Ok(graph) = decode(data) else { return };
    let written = encode(&graph).expect("an accepted graph has finite attributes");
    assert_eq!(decode(&written).as_ref(), Ok(&graph), "a graph has one form");
    let Lengths { least, most } = graph.lengths.unwrap_or(Lengths { least: 1, most: 1 });
    for length in [least, least + (most - least) / 2, most] {
        for batch in [1, 7, 33, 1024] {
            priced(&graph, Point { batch, length });
        }
    }
    for loss in ["cross_entropy", "next_token", "mse"] {
        if let Some(Ok(model)) = Loss::of_name(loss).map(|loss| GraphModel::new(graph.clone(), loss)) {
            let value = serde_json::to_value(&model).expect("a model is JSON");
            assert_eq!(serde_json::from_value::<GraphModel>(value).expect("a model is read back"), model);
            assert!(model.predictions(Point { batch: 1, length: least }) > 0);
        }
    }
}

/// Infers the shapes for a batch and a length, and holds the cost against the limits.
fn priced(graph: &Graph, point: Point) {
    match infer(graph, point) {
        Ok(shapes) => {
            let cost = cost(graph, &shapes);
            assert!(cost.memory <= MAX_MEMORY && cost.forward <= cost.multiply_adds);
            assert!(cost.multiply_adds <= MAX_MULTIPLY_ADDS * u64::from(point.batch));
            assert_eq!(shapes.all().len(), graph.value_count());
            let output = shapes.get(graph.outputs[0].value);
            assert_eq!(output.shape.first(), Some(&(point.batch as usize)));
        }
        Err(GraphError::Format(detail)) => panic!("{detail}: the graph was read before"),
        Err(GraphError::Graph(_) | GraphError::Tensor { .. } | GraphError::Node { .. }) => {}
    }
}

/// The graphs of exported networks.
pub fn seeds() -> Vec<Vec<u8>> {
    FILES.iter().map(|file| encode(&imported(file)).expect("a graph is JSON")).collect()
}
