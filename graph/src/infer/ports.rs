//! What a prediction takes and gives: names, types and sizes of inputs and outputs.

use super::infer;
use crate::element::Element;
use crate::graph_error::GraphError;
use crate::model::{Graph, Input, Lengths, Output};
use crate::size::{Point, Size};

/// The size of an axis of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The same in every prediction.
    Fixed(usize),
    /// The number of examples.
    Batch,
    /// The length of the sequences.
    Length,
    /// Another function of the length.
    FromLength,
    /// Another function of the batch.
    FromBatch,
}

/// An input or output of a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the graph.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Sizes of its axes, outermost first.
    pub shape: Vec<Extent>,
}

impl Port {
    /// Whether the first axis is the batch and the sizes of the other axes do not depend on it, so that each example has
    /// elements of its own.
    #[must_use]
    pub fn is_by_example(&self) -> bool {
        let depends = |extent: &Extent| match extent {
            Extent::Fixed(_) | Extent::Length | Extent::FromLength => false,
            Extent::Batch | Extent::FromBatch => true,
        };
        matches!(&self.shape[..], [Extent::Batch, others @ ..] if !others.iter().any(depends))
    }
}

impl Graph {
    /// The inputs in order.
    #[must_use]
    pub fn input_ports(&self) -> Vec<Port> {
        let port = |input: &Input| {
            let shape = input.shape.iter().map(|size| extent(*size)).collect();
            Port { name: input.name.clone(), element: input.element, shape }
        };
        self.inputs.iter().map(port).collect()
    }

    /// The outputs in order. An axis has the extent that its sizes show at two batches and two lengths.
    ///
    /// # Errors
    /// [`GraphError`] as of [`infer`].
    pub fn output_ports(&self) -> Result<Vec<Port>, GraphError> {
        let Lengths { least, most } = self.lengths.unwrap_or(Lengths { least: 1, most: 1 });
        // The first two differ in the batch alone.
        let points = [(1, least), (2, least), (3, most)].map(|(batch, length)| Point { batch, length });
        let [first, second, third] = points.map(|point| infer(self, point));
        let shapes = [first?, second?, third?];
        let port = |output: &Output| {
            let found = shapes.each_ref().map(|shapes| shapes.get(output.value));
            let sizes = |axis: usize| found.map(|kind| kind.shape.get(axis).copied().unwrap_or_default());
            let shape = (0..found[0].rank()).map(|axis| observed(sizes(axis), points)).collect();
            Port { name: output.name.clone(), element: found[0].element, shape }
        };
        Ok(self.outputs.iter().map(port).collect())
    }

    /// Batch and length of inputs with these shapes, in the graph's order.
    ///
    /// # Errors
    /// [`GraphError::Tensor`] names the first input whose shape does not fit, and gives its right shape.
    pub fn point_of(&self, shapes: &[&[usize]]) -> Result<Point, GraphError> {
        if shapes.len() != self.inputs.len() {
            let detail = format!("takes {} inputs, not {}", self.inputs.len(), shapes.len());
            return Err(GraphError::Graph(detail));
        }
        let pairs = || self.inputs.iter().zip(shapes);
        let find = |wanted: Size| {
            let axes = pairs().flat_map(|(input, shape)| input.shape.iter().zip(shape.iter()));
            axes.filter(|(size, _)| **size == wanted).find_map(|(_, found)| u32::try_from(*found).ok())
        };
        let least = self.lengths.map_or(1, |lengths| lengths.least);
        let point = Point { batch: find(Size::BATCH).unwrap_or(1), length: find(Size::LENGTH).unwrap_or(least) };
        for (input, shape) in pairs() {
            let is_right = |(size, found): (&Size, &usize)| {
                size.at(point).and_then(|size| usize::try_from(size).ok()) == Some(*found) && *found > 0
            };
            if input.shape.len() != shape.len() || !input.shape.iter().zip(*shape).all(is_right) {
                let detail = format!("has the shape {shape:?}; {} is right", described(input));
                return Err(GraphError::Tensor { kind: "input", name: input.name.clone(), detail });
            }
        }
        Ok(point)
    }
}

fn extent(size: Size) -> Extent {
    match size {
        Size::BATCH => Extent::Batch,
        Size::LENGTH => Extent::Length,
        Size { factor, batch, length, offset } if factor == 0 || (batch, length) == (0, 0) => {
            usize::try_from(factor.saturating_add(offset)).map_or(Extent::FromLength, Extent::Fixed)
        }
        Size { batch: 0, .. } => Extent::FromLength,
        Size { .. } => Extent::FromBatch,
    }
}

/// The extent of an axis with these sizes at these points, of which the first two differ in the batch alone.
fn observed(sizes: [usize; 3], points: [Point; 3]) -> Extent {
    let is = |of: fn(Point) -> u32| sizes.iter().zip(points).all(|(size, point)| *size == of(point) as usize);
    if sizes.iter().all(|size| *size == sizes[0]) {
        Extent::Fixed(sizes[0])
    } else if is(|point| point.batch) {
        Extent::Batch
    } else if is(|point| point.length) {
        Extent::Length
    } else if sizes[0] == sizes[1] {
        Extent::FromLength
    } else {
        Extent::FromBatch
    }
}

/// The shape of an input in words, for example `[batch, length, 4]`.
fn described(input: &Input) -> String {
    let word = |size: &Size| match extent(*size) {
        Extent::Fixed(size) => size.to_string(),
        Extent::Batch => "batch".to_owned(),
        Extent::Length => "length".to_owned(),
        Extent::FromLength | Extent::FromBatch => {
            let Size { factor, batch, length, offset } = *size;
            format!("{factor} * batch^{batch} * length^{length} + {offset}")
        }
    };
    format!("[{}]", input.shape.iter().map(word).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Arithmetic;
    use crate::model::{Node, Parameter};
    use crate::operation::Operation;

    /// Tokens and a number for each example; the outputs are scores by token, and the numbers.
    fn graph() -> Graph {
        let input = |name: &str, element, shape: &[Size]| Input { name: name.into(), element, shape: shape.to_vec() };
        let mut graph = Graph {
            version: Graph::VERSION,
            lengths: Some(Lengths { least: 1, most: 9 }),
            inputs: vec![
                input("tokens", Element::I64, &[Size::BATCH, Size::LENGTH]),
                input("number", Element::F32, &[Size::BATCH]),
            ],
            parameters: vec![Parameter { name: "table".into(), shape: vec![5, 3] }],
            constants: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        let node = |operation, inputs| Node { name: String::new(), operation, inputs };
        graph.nodes.push(node(Operation::Gather { axis: 0 }, vec![graph.parameter(0), graph.input(0)]));
        let twice = Operation::Arithmetic(Arithmetic::Add);
        graph.nodes.push(node(twice, vec![graph.input(1), graph.input(1)]));
        let first = graph.first_result();
        graph.outputs.push(Output { name: "scores".into(), value: first });
        graph.outputs.push(Output { name: "twice".into(), value: crate::ValueId(first.0 + 1) });
        graph
    }

    #[test]
    fn ports_show_names_types_and_extents() {
        let graph = graph();
        let port = |name: &str, element, shape: &[Extent]| Port { name: name.into(), element, shape: shape.to_vec() };
        let tokens = port("tokens", Element::I64, &[Extent::Batch, Extent::Length]);
        assert_eq!(graph.input_ports(), [tokens, port("number", Element::F32, &[Extent::Batch])]);
        let scores = port("scores", Element::F32, &[Extent::Batch, Extent::Length, Extent::Fixed(3)]);
        let outputs = graph.output_ports().unwrap();
        assert_eq!(outputs, [scores, port("twice", Element::F32, &[Extent::Batch])]);
        assert!(outputs.iter().all(Port::is_by_example));
        assert!(!port("x", Element::F32, &[Extent::Batch, Extent::Batch]).is_by_example());
        assert!(!port("x", Element::F32, &[Extent::Fixed(3), Extent::Fixed(3)]).is_by_example());
    }

    #[test]
    fn point_of_shapes_gives_batch_and_length() {
        let graph = graph();
        assert_eq!(graph.point_of(&[&[2, 7], &[2]]).unwrap(), Point { batch: 2, length: 7 });
        for (shapes, why) in [
            ([&[2, 7][..], &[3]], "input `number`: has the shape [3]; [batch] is right"),
            ([&[2][..], &[2]], "input `tokens`: has the shape [2]; [batch, length] is right"),
            ([&[0, 7][..], &[0]], "input `tokens`: has the shape [0, 7]"),
        ] {
            let error = graph.point_of(&shapes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(graph.point_of(&[&[2, 7]]).unwrap_err().to_string().contains("takes 2 inputs, not 1"));
    }
}
