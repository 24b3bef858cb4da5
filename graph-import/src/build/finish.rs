//! From values that are needed to a graph.

use std::collections::BTreeMap;

use graph::{Constant, Element, Graph, Node, Operation, Output, Parameter, Size, ValueId};

use super::{Builder, Id, Initializer, Origin, Result};
use crate::data::Data;

/// Most elements of a constant that stands for a computed value.
const MAX_INLINE: usize = 1024;

/// How a needed value comes into the graph.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    None,
    Input,
    Parameter,
    Constant,
    /// Integers from a start to before an end.
    Range(Size, Size, i32),
    /// One element everywhere.
    Fill(Vec<Size>),
    Node,
}

/// A graph, the initializers of its parameters in order, and the names of initializers without a use.
pub(crate) struct Finished {
    pub(crate) graph: Graph,
    pub(crate) parameters: Vec<Initializer>,
    /// Positions of the parameters among all initializers.
    pub(crate) numbers: Vec<usize>,
    pub(crate) unused: Vec<String>,
}

struct Assembly {
    constants: Vec<Constant>,
    /// Constants of few elements by their shape and bytes.
    seen: BTreeMap<(Vec<i64>, u8, Vec<u8>), usize>,
    nodes: Vec<(Node, Vec<Source>)>,
    sources: Vec<Option<Source>>,
    outputs: u32,
}

/// Where a node's input comes from, before values are numbered.
#[derive(Clone, Copy, Debug)]
enum Source {
    Input(usize),
    Parameter(usize),
    Constant(usize),
    Result(u32),
}

impl Builder {
    /// The graph of what these outputs depend on.
    pub(crate) fn finish(mut self, outputs: &[(String, Id)]) -> std::result::Result<Finished, (String, String)> {
        let plans = self.plan(outputs)?;
        let mut assembly = Assembly {
            constants: Vec::new(),
            seen: BTreeMap::new(),
            nodes: Vec::new(),
            sources: vec![None; self.values.len()],
            outputs: 0,
        };
        let mut numbers = Vec::new();
        for (value, plan) in plans.iter().enumerate() {
            self.place(value, plan, &mut assembly, &mut numbers);
        }
        let mut used = vec![false; self.initializers.len()];
        numbers.iter().for_each(|number| used[*number] = true);
        let mut parameters = Vec::new();
        let mut unused = Vec::new();
        for (used, initializer) in used.iter().zip(std::mem::take(&mut self.initializers)) {
            match (used, initializer.values.is_empty()) {
                (true, _) => parameters.push(initializer),
                (false, false) => unused.push(initializer.name),
                (false, true) => {}
            }
        }
        let graph = self.assemble(assembly, &parameters, outputs);
        numbers.sort_unstable();
        Ok(Finished { graph, parameters, numbers, unused })
    }

    /// Decides for each value whether and how it comes into the graph.
    fn plan(&self, outputs: &[(String, Id)]) -> std::result::Result<Vec<Plan>, (String, String)> {
        let mut needed = vec![false; self.values.len()];
        let mut plans = vec![Plan::None; self.values.len()];
        for (_, id) in outputs {
            needed[id.0] = true;
        }
        for value in (0..self.values.len()).rev() {
            if !needed[value] {
                continue;
            }
            plans[value] = self.plan_one(value).map_err(|why| (self.name_of(value), why))?;
            if let (Plan::Node, Origin::Node(node)) = (&plans[value], &self.values[value].origin) {
                for input in &self.nodes[*node].inputs {
                    needed[input.0] = true;
                }
            }
        }
        Ok(plans)
    }

    fn name_of(&self, value: usize) -> String {
        match &self.values[value].origin {
            Origin::Node(node) => self.nodes[*node].name.clone(),
            Origin::Input(_) | Origin::Parameter(_) | Origin::Constant(_) | Origin::Computed => String::new(),
        }
    }

    fn plan_one(&self, number: usize) -> Result<Plan> {
        let value = &self.values[number];
        match (&value.origin, &value.known) {
            (Origin::Input(_), _) => return Ok(Plan::Input),
            (Origin::Parameter(_), _) => return Ok(Plan::Parameter),
            (Origin::Constant(_), _) => return Ok(Plan::Constant),
            (Origin::Node(_), None) => return Ok(Plan::Node),
            (Origin::Node(_) | Origin::Computed, _) => {}
        }
        if let Some([known]) = value.known.as_deref()
            && known.len() <= MAX_INLINE
        {
            return Ok(Plan::Constant);
        }
        if let Some(plan) = self.plan_range(number) {
            return Ok(plan);
        }
        if let Some(plan) = self.plan_fill(number) {
            return Ok(plan);
        }
        match (&value.origin, value.known.as_deref()) {
            (Origin::Node(_), _) => Ok(Plan::Node),
            (_, Some([_])) => Ok(Plan::Constant),
            _ => Err("a tensor that depends on the batch and the length in this way is not supported".to_owned()),
        }
    }

    /// Integers in equal steps; a single integer that differs is a range of one.
    fn plan_range(&self, number: usize) -> Option<Plan> {
        let value = &self.values[number];
        let known: Vec<&Vec<i64>> = (0..self.points.len())
            .map(|point| match self.known_at(Id(number), point)?.data {
                Data::I64(values) => Some(values),
                Data::F32(_) | Data::Bool(_) => None,
            })
            .collect::<Option<_>>()?;
        if value.shapes[0].len() > 1 || known.iter().any(|values| values.is_empty()) {
            return None;
        }
        let longest = known.iter().max_by_key(|values| values.len())?;
        let step = if longest.len() > 1 { longest[1].checked_sub(longest[0])? } else { 1 };
        let is_even = |values: &&Vec<i64>| values.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step));
        if step == 0 || !known.iter().all(is_even) {
            return None;
        }
        let firsts: Vec<i64> = known.iter().map(|values| values[0]).collect();
        let ends: Vec<i64> =
            known.iter().map(|values| values.last().and_then(|last| last.checked_add(step))).collect::<Option<_>>()?;
        Some(Plan::Range(self.points.fit(&firsts)?, self.points.fit(&ends)?, i32::try_from(step).ok()?))
    }

    fn plan_fill(&self, number: usize) -> Option<Plan> {
        let shapes = &self.values[number].shapes;
        let first = self.known_at(Id(number), 0)?.data;
        let same = |point: usize| {
            let data = self.known_at(Id(number), point)?.data;
            (data.len() > 0 && data.is_uniform()).then(|| data.pick(&[0]))
        };
        let element = same(0)?;
        if first.len() < 2
            || !(1..self.points.len()).all(|point| same(point).is_some_and(|other| other.is_same(&element)))
        {
            return None;
        }
        let size = |axis: usize| self.points.fit(&shapes.iter().map(|shape| shape[axis]).collect::<Vec<_>>());
        (0..shapes[0].len()).map(size).collect::<Option<Vec<_>>>().map(Plan::Fill)
    }

    /// Adds what a value needs to the assembly.
    fn place(&self, number: usize, plan: &Plan, assembly: &mut Assembly, parameters: &mut Vec<usize>) {
        let value = &self.values[number];
        let source = match (plan, &value.origin) {
            (Plan::None, _) => return,
            (Plan::Input, Origin::Input(input)) => Source::Input(*input),
            (Plan::Parameter, Origin::Parameter(parameter)) => {
                parameters.push(*parameter);
                Source::Parameter(*parameter)
            }
            (Plan::Range(start, end, step), _) => {
                let range = Operation::Range { start: *start, end: *end, step: *step };
                let source = assembly.node(range, &self.name_of(number), Vec::new());
                if value.shapes[0].is_empty() {
                    assembly.node(Operation::Reshape { to: Vec::new() }, &self.name_of(number), vec![source])
                } else {
                    source
                }
            }
            (Plan::Fill(shape), _) => {
                let Some(known) = self.known_at(Id(number), 0) else { return };
                let scalar = assembly.constant("", &[], known.data.pick(&[0]));
                assembly.node(Operation::Fill { shape: shape.clone() }, &self.name_of(number), vec![scalar])
            }
            (Plan::Node, Origin::Node(node)) => self.place_node(number, *node, assembly),
            (_, origin) => {
                let Some(known) = self.known_at(Id(number), 0) else { return };
                let name = if let Origin::Constant(name) = origin { name.as_str() } else { "" };
                assembly.constant(name, known.shape, known.data.clone())
            }
        };
        assembly.sources[number] = Some(source);
    }

    fn place_node(&self, number: usize, node: usize, assembly: &mut Assembly) -> Source {
        let node = &self.nodes[node];
        // Another result of the same node may be in place.
        for other in node.first..node.first + node.operation.outputs() as usize {
            if let Some(Source::Result(result)) = assembly.sources[other] {
                return Source::Result(result - offset(other, node.first) + offset(number, node.first));
            }
        }
        let inputs = node.inputs.iter().filter_map(|id| assembly.sources[id.0]).collect();
        match assembly.node(node.operation.clone(), &node.name, inputs) {
            Source::Result(result) => Source::Result(result + offset(number, node.first)),
            other => other,
        }
    }

    fn assemble(self, assembly: Assembly, parameters: &[Initializer], outputs: &[(String, Id)]) -> Graph {
        let inputs = self.inputs.len();
        let used: Vec<usize> = {
            let mut used: Vec<usize> = assembly
                .sources
                .iter()
                .filter_map(|source| if let Some(Source::Parameter(number)) = source { Some(*number) } else { None })
                .collect();
            used.sort_unstable();
            used
        };
        let results = inputs + parameters.len() + assembly.constants.len();
        let number = |source: &Source| {
            let number = match source {
                Source::Input(number) => *number,
                Source::Parameter(number) => inputs + used.partition_point(|other| other < number),
                Source::Constant(number) => inputs + parameters.len() + number,
                Source::Result(number) => results + *number as usize,
            };
            ValueId(u32::try_from(number).unwrap_or(u32::MAX))
        };
        let nodes = assembly
            .nodes
            .into_iter()
            .map(|(node, sources)| Node { inputs: sources.iter().map(number).collect(), ..node });
        let parameter =
            |initializer: &Initializer| Parameter { name: initializer.name.clone(), shape: sizes(&initializer.shape) };
        let output = |(name, id): &(String, Id)| {
            let value = assembly.sources[id.0].as_ref().map_or(ValueId(u32::MAX), number);
            Output { name: name.clone(), value }
        };
        let version = if self.running.is_empty() { Graph::VERSION } else { Graph::BATCH_STATISTICS };
        Graph {
            version,
            // Found once the graph is complete.
            lengths: None,
            parameters: parameters.iter().map(parameter).collect(),
            outputs: outputs.iter().map(output).collect(),
            constants: assembly.constants,
            nodes: nodes.collect(),
            inputs: self.inputs,
        }
    }
}

fn offset(number: usize, first: usize) -> u32 {
    u32::try_from(number - first).unwrap_or(0)
}

fn sizes(shape: &[i64]) -> Vec<u32> {
    shape.iter().map(|size| u32::try_from(*size).unwrap_or(u32::MAX)).collect()
}

impl Assembly {
    fn node(&mut self, operation: Operation, name: &str, inputs: Vec<Source>) -> Source {
        let first = self.outputs;
        self.outputs += operation.outputs();
        self.nodes.push((Node { name: name.to_owned(), operation, inputs: Vec::new() }, inputs));
        Source::Result(first)
    }

    fn constant(&mut self, name: &str, shape: &[i64], data: Data) -> Source {
        let key = (data.len() <= 64).then(|| (shape.to_vec(), kind(data.element()), bytes(&data)));
        if let Some(number) = key.as_ref().and_then(|key| self.seen.get(key)) {
            return Source::Constant(*number);
        }
        let number = self.constants.len();
        if let Some(key) = key {
            self.seen.insert(key, number);
        }
        self.constants.push(Constant { name: name.to_owned(), shape: sizes(shape), values: data.into_values() });
        Source::Constant(number)
    }
}

fn kind(element: Element) -> u8 {
    match element {
        Element::F32 => 0,
        Element::I64 => 1,
        Element::Bool => 2,
    }
}

fn bytes(data: &Data) -> Vec<u8> {
    match data {
        Data::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::Bool(values) => values.iter().map(|value| u8::from(*value)).collect(),
    }
}
