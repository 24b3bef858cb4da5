//! Attributes of nodes, and inputs that play their part.

use super::context::{Context, Result, small};
use crate::build::Id;
use crate::data::{Data, MAX_RANK};
use crate::proto::Attribute;

impl Context<'_> {
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.node.attributes.iter().find(|attribute| attribute.name == name)
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |attribute| attribute.integer)
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).map_or(default, |attribute| attribute.float)
    }

    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|attribute| attribute.integers.clone())
    }

    pub(crate) fn text(&self, name: &str, default: &str) -> String {
        self.attribute(name)
            .map_or_else(|| default.to_owned(), |attribute| String::from_utf8_lossy(&attribute.string).into_owned())
    }

    /// A list of one number for each spatial axis.
    pub(crate) fn spatial(&self, name: &str, axes: usize, default: u32) -> Result<Vec<u32>> {
        let Some(values) = self.ints(name) else { return Ok(vec![default; axes]) };
        if values.len() != axes {
            return Err(format!("its attribute `{name}` has {} numbers for {axes} spatial axes", values.len()));
        }
        values.iter().map(|value| small(*value, name)).collect()
    }

    /// Integers that are the same at all points.
    pub(crate) fn fixed_ints(&self, id: Id, what: &str) -> Result<Vec<i64>> {
        match self.builder.fixed(id) {
            Some(Data::I64(values)) => Ok(values),
            Some(Data::F32(_) | Data::Bool(_)) => Err(format!("{what} must be integers")),
            None => Err(format!("{what} must be fixed, but depends on the examples, the batch or the length")),
        }
    }

    /// Floats that are the same at all points.
    pub(crate) fn fixed_floats(&self, id: Id, what: &str) -> Result<Vec<f32>> {
        match self.builder.fixed(id).map(|data| data.cast(graph::Element::F32)) {
            Some(Data::F32(values)) => Ok(values),
            Some(Data::I64(_) | Data::Bool(_)) | None => {
                Err(format!("{what} must be fixed, but depends on the examples, the batch or the length"))
            }
        }
    }

    pub(crate) fn fixed_float(&self, id: Id, what: &str) -> Result<f32> {
        let values = self.fixed_floats(id, what)?;
        if let [value] = values[..] { Ok(value) } else { Err(format!("{what} must be one number")) }
    }

    /// Integers from an attribute, which later versions made an input.
    pub(crate) fn ints_of(&self, name: &str, input: usize) -> Result<Option<Vec<i64>>> {
        match (self.attribute(name), self.optional(input)) {
            (Some(attribute), _) => Ok(Some(attribute.integers.clone())),
            (None, Some(id)) => self.fixed_ints(id, name).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Axes, ascending and counted from 0.
    pub(crate) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<u32>> {
        if rank > MAX_RANK {
            return Err(format!("it has {rank} axes; at most {MAX_RANK} are supported"));
        }
        let mut axes: Vec<u32> = axes.iter().map(|axis| self.axis(*axis, rank)).collect::<Result<_>>()?;
        axes.sort_unstable();
        if axes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("an axis is listed twice".to_owned());
        }
        Ok(axes)
    }
}
