//! Nodes, constants and sizes of a file under construction.

use std::collections::{BTreeSet, HashMap};

use graph::{Element, Graph, Shapes, Size, TensorType, ValueId, Values};

use super::error::ExportError;
use crate::proto::{self, Attribute, Node, Tensor};

/// A file under construction.
pub(super) struct Writer<'a> {
    graph: &'a Graph,
    /// Types and ranks of the values; sizes are those of one batch and length.
    shapes: Shapes,
    /// The same for the longest sequences.
    longest: Shapes,
    names: Vec<Option<String>>,
    /// The beginning of invented names.
    prefix: String,
    /// Number of invented names.
    invented: usize,
    nodes: Vec<Node>,
    initializers: Vec<Tensor>,
    /// Names of vectors of integers.
    vectors: HashMap<Vec<i64>, String>,
    /// Names of sizes that depend on the batch or the length, as vectors of one integer.
    sizes: HashMap<Size, String>,
    /// Name of the graph's node that is written.
    place: String,
    /// Names of nodes, each of which a file has once.
    places: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    /// An empty file for values with these types and names.
    pub(super) fn new(graph: &'a Graph, [shapes, longest]: [Shapes; 2], names: Vec<Option<String>>) -> Self {
        let mut prefix = "tributary.".to_owned();
        let outputs = graph.outputs.iter().map(|output| &output.name);
        let given: Vec<&String> = names.iter().flatten().chain(outputs).collect();
        while given.iter().any(|name| name.starts_with(&prefix)) {
            prefix.push('_');
        }
        Self {
            graph,
            shapes,
            longest,
            prefix,
            names,
            invented: 0,
            nodes: Vec::new(),
            initializers: Vec::new(),
            vectors: HashMap::new(),
            sizes: HashMap::new(),
            place: String::new(),
            places: BTreeSet::new(),
        }
    }

    /// The nodes and constants.
    pub(super) fn end(self) -> (Vec<Node>, Vec<Tensor>) {
        (self.nodes, self.initializers)
    }

    /// Begins the nodes of a graph's node with this name, which may be empty.
    pub(super) fn begin(&mut self, place: &str) {
        place.clone_into(&mut self.place);
    }

    /// The name of a value.
    pub(super) fn name(&self, value: ValueId) -> String {
        let given = self.names.get(value.0 as usize).cloned().flatten();
        given.unwrap_or_else(|| format!("{}{}", self.prefix, value.0))
    }

    /// Type and rank of a value; its sizes are those of one batch and length.
    pub(super) fn kind(&self, value: ValueId) -> &TensorType {
        self.shapes.get(value)
    }

    /// The type of a value with the sizes of the longest sequences.
    pub(super) fn longest(&self, value: ValueId) -> &TensorType {
        self.longest.get(value)
    }

    fn invent(&mut self) -> String {
        self.invented += 1;
        format!("{}n{}", self.prefix, self.invented)
    }

    /// Adds a node with one result of a new name, which it returns.
    pub(super) fn node(&mut self, operator: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        let output = self.invent();
        self.node_to(operator, inputs, &output, attributes);
        output
    }

    /// Adds a node with one result of a given name.
    pub(super) fn node_to(&mut self, operator: &str, inputs: &[&str], output: &str, attributes: Vec<Attribute>) {
        self.node_to_all(operator, inputs, vec![output.to_owned()], attributes);
    }

    /// Adds a node with results of given names.
    pub(super) fn node_to_all(
        &mut self,
        operator: &str,
        inputs: &[&str],
        outputs: Vec<String>,
        attributes: Vec<Attribute>,
    ) {
        let is_new = !self.place.is_empty() && self.places.insert(self.place.clone());
        self.nodes.push(Node {
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs,
            name: if is_new { self.place.clone() } else { String::new() },
            operator: operator.to_owned(),
            attributes,
            domain: String::new(),
        });
    }

    /// An initializer of floats.
    pub(super) fn floats(&mut self, name: &str, shape: &[u32], values: &[f32]) {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializers.push(tensor(name, shape, proto::element::FLOAT, raw));
    }

    /// An initializer of integers.
    fn integers(&mut self, name: &str, shape: &[u32], values: &[i64]) {
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.initializers.push(tensor(name, shape, proto::element::INT64, raw));
    }

    /// A constant of the graph, as a node: an import takes initializers of floats as parameters.
    pub(super) fn constant(&mut self, name: &str, shape: &[u32], values: &Values) {
        let (element, raw) = match values {
            Values::F32(values) => (Element::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Values::I64(values) => (Element::I64, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Values::Bool(values) => (Element::Bool, values.iter().map(|&value| u8::from(value)).collect()),
        };
        let value = Some(tensor("", shape, element_of(element), raw));
        let value = Attribute { name: "value".to_owned(), tensor: value, kind: 4, ..Attribute::default() };
        self.node_to("Constant", &[], name, vec![value]);
    }

    /// A single float without axes.
    pub(super) fn float(&mut self, value: f32) -> String {
        let name = self.invent();
        self.floats(&name, &[], &[value]);
        name
    }

    /// A single integer without axes.
    pub(super) fn integer(&mut self, value: i64) -> String {
        let name = self.invent();
        self.integers(&name, &[], &[value]);
        name
    }

    /// A vector of integers.
    pub(super) fn vector(&mut self, values: &[i64]) -> String {
        if let Some(name) = self.vectors.get(values) {
            return name.clone();
        }
        let name = self.invent();
        self.integers(&name, &[u32::try_from(values.len()).unwrap_or(u32::MAX)], values);
        self.vectors.insert(values.to_vec(), name.clone());
        name
    }

    /// A size as a vector of one integer.
    ///
    /// # Errors
    /// [`ExportError::Length`].
    pub(super) fn size(&mut self, size: Size) -> Result<String, ExportError> {
        let Size { factor, batch, length, offset } = size;
        if let Some(fixed) = fixed(size) {
            return Ok(self.vector(&[fixed]));
        }
        if let Some(name) = self.sizes.get(&size) {
            return Ok(name.clone());
        }
        let powers = [(Size::BATCH, batch), (Size::LENGTH, length)];
        let mut product: Option<String> = None;
        for base in powers.into_iter().flat_map(|(base, power)| std::iter::repeat_n(base, usize::from(power))) {
            let base = self.base(base)?;
            product = Some(match product {
                None => base,
                Some(product) => self.node("Mul", &[&product, &base], vec![]),
            });
        }
        let mut result = product.unwrap_or_default();
        for (operator, number, neutral) in [("Mul", factor, 1), ("Add", offset, 0)] {
            if number != neutral {
                let number = self.vector(&[number]);
                result = self.node(operator, &[&result, &number], vec![]);
            }
        }
        self.sizes.insert(size, result.clone());
        Ok(result)
    }

    /// The batch or the length, from the axis of an input.
    fn base(&mut self, size: Size) -> Result<String, ExportError> {
        if let Some(name) = self.sizes.get(&size) {
            return Ok(name.clone());
        }
        let axis = |input: &graph::Input| input.shape.iter().position(|found| *found == size);
        let found = self.graph.inputs.iter().find_map(|input| Some((input.name.clone(), axis(input)?)));
        let (input, axis) = found.ok_or(ExportError::Length)?;
        let axis = i64::try_from(axis).unwrap_or(i64::MAX);
        let name = self.node("Shape", &[&input], vec![integer("start", axis), integer("end", axis + 1)]);
        self.sizes.insert(size, name.clone());
        Ok(name)
    }

    /// Sizes as a vector; `None` becomes -1, which stands for what the others leave.
    ///
    /// # Errors
    /// [`ExportError::Length`].
    pub(super) fn sizes(&mut self, sizes: &[Option<Size>]) -> Result<String, ExportError> {
        let known: Option<Vec<i64>> = sizes.iter().map(|size| size.map_or(Some(-1), fixed)).collect();
        if let Some(known) = known {
            return Ok(self.vector(&known));
        }
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            parts.push(match size {
                Some(size) => self.size(*size)?,
                None => self.vector(&[-1]),
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(match parts[..] {
            [one] => one.to_owned(),
            _ => self.node("Concat", &parts, vec![integer("axis", 0)]),
        })
    }

    /// A size as a single integer without axes.
    ///
    /// # Errors
    /// [`ExportError::Length`].
    pub(super) fn scalar(&mut self, size: Size) -> Result<String, ExportError> {
        if let Some(fixed) = fixed(size) {
            return Ok(self.integer(fixed));
        }
        let (size, axes) = (self.size(size)?, self.vector(&[0]));
        Ok(self.node("Squeeze", &[&size, &axes], vec![]))
    }
}

fn tensor(name: &str, shape: &[u32], element: i32, raw: Vec<u8>) -> Tensor {
    let dims = shape.iter().map(|&size| i64::from(size)).collect();
    Tensor { dims, element, name: name.to_owned(), raw, ..Tensor::default() }
}

/// The value of a size that depends on nothing.
pub(super) fn fixed(size: Size) -> Option<i64> {
    let is_fixed = size.factor == 0 || (size.batch, size.length) == (0, 0);
    is_fixed.then(|| size.factor.saturating_add(size.offset))
}

/// An attribute of one integer.
pub(super) fn integer(name: &str, value: i64) -> Attribute {
    Attribute { name: name.to_owned(), integer: value, kind: 2, ..Attribute::default() }
}

/// An attribute of one float.
pub(super) fn float(name: &str, value: f32) -> Attribute {
    Attribute { name: name.to_owned(), float: value, kind: 1, ..Attribute::default() }
}

/// An attribute of text.
pub(super) fn text(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), string: value.as_bytes().to_vec(), kind: 3, ..Attribute::default() }
}

/// An attribute of integers.
pub(super) fn integers(name: &str, values: Vec<i64>) -> Attribute {
    Attribute { name: name.to_owned(), integers: values, kind: 7, ..Attribute::default() }
}

/// An attribute of a type of elements, as `Cast` takes it.
pub(super) fn element(name: &str, element: Element) -> Attribute {
    integer(name, i64::from(element_of(element)))
}

/// ONNX's number of a type of elements.
pub(super) fn element_of(element: Element) -> i32 {
    match element {
        Element::F32 => proto::element::FLOAT,
        Element::I64 => proto::element::INT64,
        Element::Bool => proto::element::BOOL,
    }
}
