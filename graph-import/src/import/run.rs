//! Visits the nodes of a file in order and lowers each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use graph::{Element, Size};

use super::file::{Imported, Shared, Stored, Tensor};
use crate::build::{Builder, Id, Initializer, Readers};
use crate::data::{self, Data};
use crate::decode::{is_onnx, opset};
use crate::error::{ImportError, Place, Warning};
use crate::lower::{self, Context};
use crate::options::{BatchNorm, Options};
use crate::points::Points;
use crate::proto::{Attribute, Function, Graph, Model, Node};
use crate::traps;

/// Most nodes that are visited, those of functions at each call.
const MAX_NODES: usize = 200_000;
/// Most functions and branches within each other.
const MAX_DEPTH: usize = 32;

/// Names that are visible, and whether those around are, too.
#[derive(Debug, Default)]
struct Scope {
    names: HashMap<String, Id>,
    sees_outer: bool,
}

/// What the nodes of a graph or function share.
#[derive(Clone, Copy)]
struct Around<'a> {
    opset: i64,
    /// Attributes of the call, in a function.
    call: Option<(&'a Function, &'a Node)>,
}

/// One pass over a file at certain points.
pub(super) struct Run<'a> {
    graph: &'a Graph,
    functions: BTreeMap<(&'a str, &'a str), &'a Function>,
    options: &'a Options,
    builder: Builder,
    scopes: Vec<Scope>,
    visited: usize,
    warnings: Vec<Warning>,
    /// Convolutions with a bias of an invented name.
    folded: Vec<Warning>,
    has_batch_norm: bool,
    /// Names in the file of the builder's initializers.
    file_names: Vec<String>,
}

impl<'a> Run<'a> {
    pub(super) fn new(model: &'a Model, graph: &'a Graph, options: &'a Options, points: Points) -> Self {
        let functions = model.functions.iter();
        Self {
            graph,
            functions: functions.map(|f| ((f.domain.as_str(), f.name.as_str()), f)).collect(),
            options,
            builder: Builder::new(points),
            scopes: vec![Scope::default()],
            visited: 0,
            warnings: Vec::new(),
            folded: Vec::new(),
            has_batch_norm: false,
            file_names: Vec::new(),
        }
    }

    pub(super) fn run(
        mut self,
        opset: i64,
        stored: &[Stored],
        inputs: &[graph::Input],
    ) -> Result<Imported, ImportError> {
        let mut initialized = BTreeSet::new();
        for initializer in stored {
            let id = self.initializer(initializer);
            initialized.insert(id);
            self.define(&initializer.name, id)
                .map_err(|why| ImportError::Initializer { name: initializer.name.clone(), why })?;
        }
        self.builder.end_initializers();
        let mut inputs = inputs.iter();
        let names: Vec<&str> = self.graph.inputs.iter().map(|value| value.name.as_str()).collect();
        for (number, name) in names.iter().enumerate() {
            let wrong = |why: String| ImportError::Input { name: (*name).to_owned(), why };
            if let Some(value) = self.options.values.get(*name) {
                let id = self.fixed_input(number, *value).map_err(wrong)?;
                self.define(name, id).map_err(wrong)?;
            } else if self.look_up(name).is_none_or(|id| !initialized.contains(&id)) {
                let Some(input) = inputs.next() else { continue };
                let id = self.builder.input(input.clone()).map_err(wrong)?;
                self.define(name, id).map_err(wrong)?;
            }
        }
        let graph = self.graph;
        self.nodes(&graph.nodes, Around { opset, call: None }, 0)?;
        self.finish()
    }

    fn initializer(&mut self, stored: &Stored) -> Id {
        let Stored { name, shape, data } = stored;
        match data {
            Shared::Others(data) => self.builder.constant(name, shape.clone(), data.clone()),
            Shared::Floats(values) if self.is_parameter(name, shape, values) => {
                self.file_names.push(name.clone());
                let name = self.options.names.get(name).unwrap_or(name).clone();
                self.builder.parameter(Initializer { name, shape: shape.clone(), values: Rc::clone(values) })
            }
            Shared::Floats(values) => self.builder.constant(name, shape.clone(), Data::F32(values.to_vec())),
        }
    }

    /// The rules of the crate's documentation.
    fn is_parameter(&self, name: &String, shape: &[i64], values: &[f32]) -> bool {
        if self.options.constants.contains(name) || values.is_empty() {
            return false;
        }
        let is_single = shape.is_empty() || (values.len() == 1 && traps::is_invented(name));
        let is_frozen = traps::is_running_statistic(name) && self.options.batch_norm == BatchNorm::Frozen;
        let looks_constant = is_single || is_frozen || values.iter().any(|value| !value.is_finite());
        self.options.parameters.contains(name) || !looks_constant
    }

    fn fixed_input(&mut self, number: usize, value: f64) -> Result<Id, String> {
        let kind = self.graph.inputs[number].kind.as_ref().and_then(|kind| kind.tensor.as_ref());
        let tensor = kind.ok_or("it is no tensor")?;
        let rank = tensor.shape.as_ref().map_or(0, |shape| shape.dims.len());
        #[expect(clippy::cast_possible_truncation, reason = "the operator gives the number")]
        let data = match data::element_of(tensor.element)? {
            Element::F32 => Data::F32(vec![value as f32]),
            Element::I64 => Data::I64(vec![value as i64]),
            Element::Bool => Data::Bool(vec![value != 0.0]),
        };
        Ok(self.builder.constant("", vec![1; rank], data))
    }

    fn define(&mut self, name: &str, id: Id) -> Result<(), String> {
        let scope = self.scopes.last_mut().ok_or("no scope")?;
        match scope.names.insert(name.to_owned(), id) {
            Some(_) => Err(format!("`{name}` is defined twice")),
            None => Ok(()),
        }
    }

    fn look_up(&self, name: &str) -> Option<Id> {
        for scope in self.scopes.iter().rev() {
            match scope.names.get(name) {
                Some(id) => return Some(*id),
                None if !scope.sees_outer => return None,
                None => {}
            }
        }
        None
    }

    fn nodes(&mut self, nodes: &[Node], around: Around<'_>, depth: usize) -> Result<(), ImportError> {
        for node in nodes {
            let place = Place {
                number: self.visited,
                name: node.name.clone(),
                operator: if is_onnx(&node.domain) {
                    node.operator.clone()
                } else {
                    format!("{}::{}", node.domain, node.operator)
                },
            };
            self.visited += 1;
            let wrong = |why: String| ImportError::Node { place: place.clone(), why };
            if self.visited > MAX_NODES {
                return Err(wrong(format!("the file has more than {MAX_NODES} nodes")));
            }
            if depth > MAX_DEPTH {
                return Err(wrong(format!("functions and branches are more than {MAX_DEPTH} deep")));
            }
            self.builder.check_stored().map_err(wrong)?;
            let substituted = substitute(node, around);
            let node = substituted.as_ref().unwrap_or(node);
            let inputs = self.inputs_of(node).map_err(wrong)?;
            let function = self.functions.get(&(node.domain.as_str(), node.operator.as_str())).copied();
            let results = match function {
                Some(function) => self.call((function, node), &inputs, around.opset, depth, &place)?,
                None if node.operator == "If" && is_onnx(&node.domain) => {
                    self.branch(node, &inputs, around, depth, &place)?
                }
                None => self.lower(node, inputs, around.opset, &place).map_err(wrong)?,
            };
            for (number, name) in node.outputs.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                let id = results.get(number).copied().flatten();
                // A result that is not supported is an error only where it is read.
                if let Some(id) = id {
                    self.define(name, id).map_err(wrong)?;
                } else if function.is_some() {
                    return Err(wrong(format!("the function does not compute its result {number}")));
                }
            }
        }
        Ok(())
    }

    fn inputs_of(&self, node: &Node) -> Result<Vec<Option<Id>>, String> {
        let input = |name: &String| {
            if name.is_empty() {
                return Ok(None);
            }
            self.look_up(name).map(Some).ok_or_else(|| {
                format!("it reads `{name}`, which no input, initializer or earlier node gives (or an unsupported result of one)")
            })
        };
        node.inputs.iter().map(input).collect()
    }

    fn lower(
        &mut self,
        node: &Node,
        inputs: Vec<Option<Id>>,
        opset: i64,
        place: &Place,
    ) -> Result<Vec<Option<Id>>, String> {
        if !is_onnx(&node.domain) {
            return Err(lower::why_foreign(&node.domain));
        }
        self.note_readers(node, &inputs, place);
        self.builder.begin(&node.name);
        let mut context = Context {
            builder: &mut self.builder,
            node,
            inputs,
            opset,
            dropout: self.options.dropout,
            batch_norm: self.options.batch_norm,
            warnings: &mut self.warnings,
            place,
        };
        let results = lower::lower(&mut context)?;
        Ok(results.into_iter().map(Some).collect())
    }

    /// Remembers which nodes read a parameter, and what that says about the exporter.
    fn note_readers(&mut self, node: &Node, inputs: &[Option<Id>], place: &Place) {
        self.has_batch_norm |= node.operator == "BatchNormalization";
        for (position, id) in inputs.iter().enumerate() {
            let Some((number, initializer)) = id.and_then(|id| self.builder.initializer(id)) else { continue };
            let name = initializer.name.clone();
            if node.operator == "Conv" && position == 2 && traps::is_invented(&self.file_names[number]) {
                self.folded.push(Warning::FoldedBatchNorm { place: place.clone(), bias: name });
            }
            let readers = self.builder.readers.entry(number).or_default();
            match node.operator.as_str() {
                "Shape" | "Size" | "Identity" | "Dropout" => {}
                "CastLike" if position == 1 => {}
                // Parts of one tensor, for example the gates of a recurrence.
                "Slice" | "Split" => readers.add_slice(),
                _ => readers.add(place.to_string()),
            }
        }
    }

    fn call(
        &mut self,
        (function, node): (&Function, &Node),
        inputs: &[Option<Id>],
        outer: i64,
        depth: usize,
        place: &Place,
    ) -> Result<Vec<Option<Id>>, ImportError> {
        let wrong = |why: String| ImportError::Node { place: place.clone(), why };
        // A function that names no version of ONNX's operators uses none, or those of its caller.
        let opset = if function.opset_import.iter().any(|set| is_onnx(&set.domain)) {
            opset(&function.opset_import).map_err(|why| wrong(format!("the function `{}`: {why}", function.name)))?
        } else {
            outer
        };
        let mut scope = Scope::default();
        for (name, id) in function.inputs.iter().zip(inputs) {
            if let Some(id) = id {
                scope.names.insert(name.clone(), *id);
            }
        }
        self.scopes.push(scope);
        let around = Around { opset, call: Some((function, node)) };
        let done = self.nodes(&function.nodes, around, depth + 1);
        let results = function.outputs.iter().map(|name| self.look_up(name)).collect();
        self.scopes.pop();
        done.map(|()| results)
    }

    fn branch(
        &mut self,
        node: &Node,
        inputs: &[Option<Id>],
        around: Around<'_>,
        depth: usize,
        place: &Place,
    ) -> Result<Vec<Option<Id>>, ImportError> {
        let wrong = |why: &str| ImportError::Node { place: place.clone(), why: why.to_owned() };
        let condition = inputs.first().copied().flatten().and_then(|id| self.builder.fixed(id));
        let Some(Data::Bool(condition)) = condition else {
            return Err(wrong("its condition depends on the examples, the batch or the length; it must be fixed"));
        };
        let wanted = if condition.first() == Some(&true) { "then_branch" } else { "else_branch" };
        let branch = node.attributes.iter().find(|attribute| attribute.name == wanted);
        let Some(graph) = branch.and_then(|attribute| attribute.graph.as_ref()) else {
            return Err(wrong("the chosen branch is missing"));
        };
        self.scopes.push(Scope { names: HashMap::new(), sees_outer: true });
        for tensor in &graph.initializers {
            let mut ignored = Vec::new();
            let stored = super::file::read(tensor.clone(), &mut ignored)?;
            let id = self.initializer(&stored);
            self.define(&stored.name, id).map_err(|why| wrong(&why))?;
        }
        let done = self.nodes(&graph.nodes, around, depth + 1);
        let results = graph.outputs.iter().map(|output| self.look_up(&output.name)).collect();
        self.scopes.pop();
        done.map(|()| results)
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        let outputs = self.outputs()?;
        if !self.has_batch_norm {
            self.warnings.append(&mut self.folded);
        }
        let (names, trained) = (&self.file_names, &self.options.parameters);
        self.builder
            .freeze_others(|number| traps::is_running_statistic(&names[number]) && !trained.contains(&names[number]));
        let readers = std::mem::take(&mut self.builder.readers);
        let finished = self.builder.finish(&outputs).map_err(|(name, why)| ImportError::Node {
            place: Place { number: 0, name, operator: "computed sizes".to_owned() },
            why,
        })?;
        if finished.parameters.is_empty() {
            let what = "the outputs depend on no float initializer, so there is nothing to train";
            return Err(ImportError::Model(what.to_owned()));
        }
        for number in &finished.numbers {
            let name = &self.file_names[*number];
            if let Some(Readers { names, .. }) = readers.get(number).filter(|readers| readers.names.len() > 1)
                && !self.options.tied.contains(name)
            {
                return Err(ImportError::Merged { name: name.clone(), readers: names.clone() });
            }
            if traps::is_invented(name) && !self.options.names.contains_key(name) {
                self.warnings.push(Warning::InventedName(name.clone()));
            }
        }
        self.warnings.extend(finished.unused.into_iter().map(Warning::Unused));
        self.warnings.extend(traps::equal_parameters(&finished.parameters));
        if let Some(name) = traps::duplicate(finished.parameters.iter().map(|parameter| parameter.name.as_str())) {
            return Err(ImportError::Initializer {
                name: name.to_owned(),
                why: "two parameters have this name".to_owned(),
            });
        }
        let shapes = finished.graph.parameters.iter().map(|parameter| parameter.shape.clone());
        let parameters = finished.parameters.into_iter().zip(shapes).map(|(parameter, shape)| Tensor {
            name: parameter.name,
            shape,
            values: Rc::unwrap_or_clone(parameter.values),
        });
        Ok(Imported { parameters: parameters.collect(), graph: finished.graph, warnings: self.warnings })
    }

    fn outputs(&mut self) -> Result<Vec<(String, Id)>, ImportError> {
        let mut outputs = Vec::new();
        let wanted = &self.options.outputs;
        let all: Vec<&String> = if wanted.is_empty() {
            self.graph.outputs.iter().map(|value| &value.name).collect()
        } else {
            wanted.iter().collect()
        };
        for name in all {
            let wrong = |why: &str| ImportError::Output { name: name.clone(), why: why.to_owned() };
            let Some(id) = self.look_up(name) else { return Err(wrong("no node computes it")) };
            let is_batch =
                |&axis: &usize| self.builder.fit(&self.builder.dims(id, axis)).is_ok_and(|size| size == Size::BATCH);
            let batch = (0..self.builder.rank(id)).find(is_batch);
            if batch == Some(0) {
                outputs.push((self.options.names.get(name).unwrap_or(name).clone(), id));
            } else if outputs.is_empty() || !wanted.is_empty() {
                let seen =
                    batch.map_or_else(|| "it has no batch".to_owned(), |axis| format!("its axis {axis} is the batch"));
                return Err(wrong(&format!("{seen}; the first axis must be: export it so, or choose another output")));
            } else {
                self.warnings.push(Warning::DroppedOutput(name.clone()));
            }
        }
        if outputs.is_empty() { Err(ImportError::Model("the file has no outputs".to_owned())) } else { Ok(outputs) }
    }
}

/// A node of a function with the attributes of the call, if it refers to any.
fn substitute(node: &Node, around: Around<'_>) -> Option<Node> {
    let (function, call) = around.call?;
    if node.attributes.iter().all(|attribute| attribute.reference.is_empty()) {
        return None;
    }
    let find = |list: &[Attribute], name: &str| list.iter().find(|attribute| attribute.name == name).cloned();
    let attributes = node.attributes.iter().filter_map(|attribute| {
        if attribute.reference.is_empty() {
            return Some(attribute.clone());
        }
        let given =
            find(&call.attributes, &attribute.reference).or_else(|| find(&function.defaults, &attribute.reference))?;
        Some(Attribute { name: attribute.name.clone(), ..given })
    });
    Some(Node { attributes: attributes.collect(), ..node.clone() })
}
