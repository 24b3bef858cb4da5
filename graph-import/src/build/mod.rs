//! Values and nodes of a graph in the making, with their shapes at several points.

mod eval;
mod finish;
mod names;
mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use graph::{Element, Input, Operation, Reduction, Size};

pub(crate) use self::eval::Known;
pub(crate) use self::names::Readers;
use self::names::label;
pub(crate) use self::shape::broadcast;
use crate::data::Data;
use crate::points::Points;

/// Most elements of a result that is computed at import.
const MAX_KNOWN: i64 = 1 << 18;
/// Most elements that are computed at import in all, and that constants of nodes have in all.
const MAX_WORK: usize = 1 << 27;
/// Most elements of a value that plays the part of an attribute.
const MAX_FIXED: usize = 4096;
/// Most nodes of a graph in the making.
const MAX_NODES: usize = 1 << 20;

/// Number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(usize);

/// Where a value comes from.
#[derive(Clone, Debug)]
enum Origin {
    Input(usize),
    /// Position among the initializers.
    Parameter(usize),
    Constant(String),
    /// Computed from shapes.
    Computed,
    Node(usize),
}

#[derive(Clone, Debug)]
struct Value {
    element: Element,
    shapes: Vec<Vec<i64>>,
    /// For each point, or once if it is the same at all.
    known: Option<Vec<Data>>,
    origin: Origin,
}

#[derive(Clone, Debug)]
struct Node {
    name: String,
    operation: Operation,
    inputs: Vec<Id>,
    /// The first result; others follow.
    first: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Initializer {
    pub(crate) name: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) values: Rc<Vec<f32>>,
}

/// A graph in the making.
#[derive(Debug)]
pub(crate) struct Builder {
    points: Points,
    inputs: Vec<Input>,
    initializers: Vec<Initializer>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    work: usize,
    /// Elements of constants, those of the file's own initializers excepted.
    stored: usize,
    /// Name of the node that is lowered.
    place: String,
    /// Nodes that read a parameter, by its position among the initializers.
    pub(crate) readers: BTreeMap<usize, Readers>,
    /// Running statistics that training moves.
    running: BTreeSet<Id>,
}

type Result<T> = std::result::Result<T, String>;

impl Builder {
    pub(crate) fn new(points: Points) -> Self {
        Self {
            points,
            inputs: Vec::new(),
            initializers: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            work: 0,
            stored: 0,
            place: String::new(),
            readers: BTreeMap::new(),
            running: BTreeSet::new(),
        }
    }

    /// Sets the name of the node that is lowered.
    pub(crate) fn begin(&mut self, name: &str) {
        self.place = label(name);
    }

    /// Ends the file's own initializers, whose size is that of the file.
    pub(crate) fn end_initializers(&mut self) {
        self.stored = 0;
    }

    /// Checks that the nodes visited so far do not bring too many constants, as those of functions do at each call.
    pub(crate) fn check_stored(&self) -> Result<()> {
        if self.stored > MAX_WORK {
            return Err(format!("the constants of nodes have more than {MAX_WORK} elements in all"));
        }
        Ok(())
    }

    pub(crate) fn points(&self) -> &Points {
        &self.points
    }

    fn push(&mut self, value: Value) -> Id {
        self.values.push(value);
        Id(self.values.len() - 1)
    }

    pub(crate) fn input(&mut self, input: Input) -> Result<Id> {
        let shapes = self.shapes_of(&input.shape)?;
        shapes.iter().try_for_each(|shape| crate::data::count(shape).map(drop))?;
        let (element, origin) = (input.element, Origin::Input(self.inputs.len()));
        self.inputs.push(input);
        Ok(self.push(Value { element, shapes, known: None, origin }))
    }

    pub(crate) fn parameter(&mut self, initializer: Initializer) -> Id {
        let shapes = vec![initializer.shape.clone(); self.points.len()];
        let origin = Origin::Parameter(self.initializers.len());
        self.stored = self.stored.saturating_add(initializer.values.len());
        self.initializers.push(initializer);
        self.push(Value { element: Element::F32, shapes, known: None, origin })
    }

    pub(crate) fn constant(&mut self, name: &str, shape: Vec<i64>, data: Data) -> Id {
        let shapes = vec![shape; self.points.len()];
        let (element, origin) = (data.element(), Origin::Constant(label(name)));
        self.stored = self.stored.saturating_add(data.len());
        self.push(Value { element, shapes, known: Some(vec![data]), origin })
    }

    /// Adds a single float.
    pub(crate) fn scalar(&mut self, value: f32) -> Id {
        self.constant("", Vec::new(), Data::F32(vec![value]))
    }

    /// Adds a single integer.
    pub(crate) fn integer(&mut self, value: i64) -> Id {
        self.constant("", Vec::new(), Data::I64(vec![value]))
    }

    /// Adds a value that is known at each point.
    pub(crate) fn computed(&mut self, shapes: Vec<Vec<i64>>, data: Vec<Data>) -> Id {
        let element = data.first().map_or(Element::I64, Data::element);
        self.stored = data.iter().fold(self.stored, |sum, data| sum.saturating_add(data.len()));
        self.push(Value { element, shapes, known: Some(data), origin: Origin::Computed })
    }

    /// Makes a constant of a parameter.
    pub(crate) fn freeze(&mut self, id: Id) {
        if let Origin::Parameter(number) = self.values[id.0].origin {
            let initializer = &mut self.initializers[number];
            let (name, values) = (initializer.name.clone(), std::mem::take(&mut initializer.values));
            self.values[id.0].known = Some(vec![Data::F32(Rc::unwrap_or_clone(values))]);
            self.values[id.0].origin = Origin::Constant(name);
        }
    }

    /// Keeps the running statistics of a batch normalization as parameters, if both are some.
    pub(crate) fn keep_running(&mut self, statistics: [Id; 2]) -> bool {
        let are_parameters = statistics.iter().all(|id| self.initializer(*id).is_some());
        if are_parameters {
            self.running.extend(statistics);
        }
        are_parameters
    }

    /// Makes constants of parameters, by their positions among the initializers, if no batch normalization moves them.
    pub(crate) fn freeze_others(&mut self, is_statistic: impl Fn(usize) -> bool) {
        for id in (0..self.values.len()).map(Id) {
            if self.initializer(id).is_some_and(|(number, _)| is_statistic(number)) && !self.running.contains(&id) {
                self.freeze(id);
            }
        }
    }

    /// Adds a node with one result.
    pub(crate) fn add(&mut self, operation: Operation, inputs: &[Id]) -> Result<Id> {
        Ok(self.add_all(operation, inputs)?[0])
    }

    /// Adds a node, and computes its result if it reads nothing but known elements.
    pub(crate) fn add_all(&mut self, operation: Operation, inputs: &[Id]) -> Result<Vec<Id>> {
        if self.nodes.len() >= MAX_NODES {
            return Err(format!("the file takes more than {MAX_NODES} operations"));
        }
        let elements: Vec<Element> = inputs.iter().map(|id| self.element(*id)).collect();
        let element = shape::element(&operation, &elements);
        let mut results: Vec<Vec<Vec<i64>>> = vec![Vec::new(); operation.outputs() as usize];
        for (number, point) in self.points.iter().enumerate() {
            let shapes: Vec<&[i64]> = inputs.iter().map(|id| self.values[id.0].shapes[number].as_slice()).collect();
            for (result, shape) in results.iter_mut().zip(shape::infer(&operation, &shapes, point)?) {
                crate::data::count(&shape)?;
                result.push(shape);
            }
        }
        let known = if results.len() == 1 { self.compute(&operation, inputs, &results[0])? } else { None };
        let node = Node { name: self.place.clone(), operation, inputs: inputs.to_vec(), first: self.values.len() };
        self.nodes.push(node);
        let origin = Origin::Node(self.nodes.len() - 1);
        let mut known = known.into_iter();
        Ok(results
            .into_iter()
            .map(|shapes| self.push(Value { element, shapes, known: known.next(), origin: origin.clone() }))
            .collect())
    }

    fn compute(&mut self, operation: &Operation, inputs: &[Id], shapes: &[Vec<i64>]) -> Result<Option<Vec<Data>>> {
        // Sizes beside a 0 take time as well.
        let small = |shape: &Vec<i64>| shape.iter().map(|size| (*size).max(1)).product::<i64>() <= MAX_KNOWN;
        let is_known = |id: &Id| self.values[id.0].known.is_some() && self.values[id.0].shapes.iter().all(small);
        if !inputs.iter().all(is_known) || !shapes.iter().all(small) {
            return Ok(None);
        }
        let mut all = Vec::new();
        let points: Vec<_> = self.points.iter().collect();
        for (number, point) in points.into_iter().enumerate() {
            let known: Option<Vec<Known<'_>>> = inputs.iter().map(|id| self.known_at(*id, number)).collect();
            let Some(known) = known else { return Ok(None) };
            let Some(data) = eval::evaluate(operation, &known, &shapes[number], point) else { return Ok(None) };
            let read = known.iter().map(|known| known.data.len()).sum::<usize>();
            self.count_work(data.len().saturating_add(read))?;
            all.push(data);
        }
        if all.windows(2).all(|pair| pair[0].is_same(&pair[1])) {
            all.truncate(1);
        }
        Ok(Some(all))
    }

    /// Counts elements that are computed.
    fn count_work(&mut self, elements: usize) -> Result<()> {
        self.work = self.work.saturating_add(elements);
        if self.work > MAX_WORK {
            return Err(format!("the file computes more than {MAX_WORK} elements from constants"));
        }
        Ok(())
    }

    /// A reduction of known integers at each point; `None` if they are unknown or not reduced at import.
    pub(crate) fn reduce(&mut self, id: Id, by: Reduction, axes: &[u32]) -> Result<Option<Vec<Data>>> {
        let mut all = Vec::new();
        for number in 0..self.points.len() {
            let Some(size) = self.known_at(id, number).map(|known| known.data.len()) else { return Ok(None) };
            self.count_work(size)?;
            let Some(data) = self.known_at(id, number).and_then(|known| eval::reduce(known, by, axes)) else {
                return Ok(None);
            };
            all.push(data);
        }
        Ok(Some(all))
    }

    /// Elements of a value at a point, if they are known.
    pub(crate) fn known_at(&self, id: Id, number: usize) -> Option<Known<'_>> {
        let value = &self.values[id.0];
        let known = value.known.as_ref()?;
        let data = known.get(number).or_else(|| known.first())?;
        Some(Known { shape: &value.shapes[number], data })
    }

    /// Elements that are the same at all points; those of a parameter as it is in the file. `None` for others, and for
    /// more than any attribute has.
    pub(crate) fn fixed(&self, id: Id) -> Option<Data> {
        let value = &self.values[id.0];
        match (&value.known, &value.origin) {
            (Some(known), _) if known.len() == 1 => (known[0].len() <= MAX_FIXED).then(|| known[0].clone()),
            (None, Origin::Parameter(number)) if self.initializers[*number].values.len() <= MAX_FIXED => {
                Some(Data::F32(self.initializers[*number].values.to_vec()))
            }
            (_, Origin::Input(_) | Origin::Parameter(_) | Origin::Constant(_) | Origin::Computed | Origin::Node(_)) => {
                None
            }
        }
    }

    /// Whether the elements of a value are known.
    pub(crate) fn is_known(&self, id: Id) -> bool {
        self.values[id.0].known.is_some()
    }

    /// Integers of a vector or single number, each at all points.
    pub(crate) fn integers(&self, id: Id) -> Result<Vec<Vec<i64>>> {
        let mut columns: Vec<Vec<i64>> = Vec::new();
        for number in 0..self.points.len() {
            let known =
                self.known_at(id, number).ok_or("a size depends on the examples; it must follow from shapes")?;
            let Data::I64(row) = known.data else { return Err("sizes are no integers".to_owned()) };
            if row.len() > MAX_FIXED {
                return Err(format!("it has {} sizes or positions; at most {MAX_FIXED} are supported", row.len()));
            }
            columns.resize(row.len(), Vec::new());
            for (column, value) in columns.iter_mut().zip(row) {
                column.push(*value);
            }
        }
        if columns.iter().all(|column| column.len() == self.points.len()) {
            Ok(columns)
        } else {
            Err("the number of sizes depends on the batch or the length".to_owned())
        }
    }

    /// The size that has these values at the points.
    pub(crate) fn fit(&self, values: &[i64]) -> Result<Size> {
        let points = || self.points.iter().map(|p| (p.batch, p.length)).collect::<Vec<_>>();
        self.points.fit(values).ok_or_else(|| {
            format!(
                "a size has the values {values:?} at (batch, length) {:?}, which is no product of them plus a number; \
                 fix the symbol's size at import",
                points()
            )
        })
    }

    pub(crate) fn element(&self, id: Id) -> Element {
        self.values[id.0].element
    }

    pub(crate) fn shapes(&self, id: Id) -> &[Vec<i64>] {
        &self.values[id.0].shapes
    }

    pub(crate) fn rank(&self, id: Id) -> usize {
        self.values[id.0].shapes[0].len()
    }

    /// The values of a size along an axis, for each point.
    ///
    /// # Panics
    /// If the value has no such axis.
    pub(crate) fn dims(&self, id: Id, axis: usize) -> Vec<i64> {
        self.values[id.0].shapes.iter().map(|shape| shape[axis]).collect()
    }

    /// A size that is the same at all points.
    pub(crate) fn fixed_dim(&self, id: Id, axis: usize) -> Result<i64> {
        if axis >= self.rank(id) {
            return Err(format!("it needs an axis {axis}, but has {} axes", self.rank(id)));
        }
        let dims = self.dims(id, axis);
        let first = dims[0];
        if dims.iter().all(|dim| *dim == first) {
            Ok(first)
        } else {
            Err(format!("axis {axis} must have a fixed size, but depends on the batch or the length"))
        }
    }

    fn shapes_of(&self, shape: &[Size]) -> Result<Vec<Vec<i64>>> {
        let size = |size: &Size, point| size.at(point).ok_or_else(|| "a size overflows".to_owned());
        self.points.iter().map(|point| shape.iter().map(|s| size(s, point)).collect()).collect()
    }

    /// The initializer of a parameter.
    pub(crate) fn initializer(&self, id: Id) -> Option<(usize, &Initializer)> {
        match self.values[id.0].origin {
            Origin::Parameter(number) => Some((number, &self.initializers[number])),
            Origin::Input(_) | Origin::Constant(_) | Origin::Computed | Origin::Node(_) => None,
        }
    }
}
