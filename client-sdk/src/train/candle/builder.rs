//! The task's tensors as a `VarBuilder`, from which an app's module takes its variables.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use learning::Layout;

/// Maximum number of names that an error lists.
const LISTED: usize = 8;

/// The task's tensors by name, and the names that a module took.
pub(super) struct TaskTensors {
    tensors: Vec<(String, Tensor)>,
    lookups: Mutex<Lookups>,
}

#[derive(Default)]
struct Lookups {
    taken: BTreeSet<usize>,
    /// The last request that found no tensor.
    problem: Option<String>,
}

impl TaskTensors {
    /// `tensors` are in the layout's order.
    pub(super) fn new(layout: &Layout, tensors: impl Iterator<Item = Tensor>) -> Arc<Self> {
        let names = layout.tensors().iter().map(|tensor| tensor.name.clone());
        Arc::new(Self { tensors: names.zip(tensors).collect(), lookups: Mutex::default() })
    }

    /// The builder of a module that computes in `dtype`.
    pub(super) fn builder(self: &Arc<Self>, dtype: DType, device: &Device) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(Handle(Arc::clone(self))), dtype, device.clone())
    }

    /// The request that made a module fail with this error; `None` if the error has another cause.
    pub(super) fn problem(&self, error: &Error) -> Option<String> {
        let problem = self.lookups.lock().unwrap_or_else(PoisonError::into_inner).problem.clone()?;
        error.to_string().contains(&problem).then_some(problem)
    }

    /// Names of the tensors that no module has taken; `None` if there are none.
    pub(super) fn unused(&self) -> Option<String> {
        let lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = self.tensors.iter().enumerate().filter(|(index, _)| !lookups.taken.contains(index));
        let unused: Vec<&str> = unused.map(|(_, (name, _))| name.as_str()).collect();
        (!unused.is_empty()).then(|| listed(&unused))
    }

    fn take(&self, name: &str, shape: Option<&Shape>) -> Result<Tensor> {
        let found = self.tensors.iter().position(|(own, _)| own == name);
        let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = match (found.map(|index| (index, &self.tensors[index].1)), shape) {
            (Some((_, tensor)), Some(shape)) if tensor.shape() != shape => {
                let (own, asked) = (tensor.dims(), shape.dims());
                format!("the module takes `{name}` with shape {asked:?}, and the task's has shape {own:?}")
            }
            (Some((index, tensor)), _) => {
                lookups.taken.insert(index);
                return Ok(tensor.clone());
            }
            (None, _) => {
                let names: Vec<&str> = self.tensors.iter().map(|(name, _)| name.as_str()).collect();
                format!("the module takes `{name}`, and the task's tensors are {}", listed(&names))
            }
        };
        lookups.problem = Some(problem.clone());
        Err(Error::msg(problem))
    }
}

/// Names in an error, at most [`LISTED`] of them.
pub(super) fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    let shown = shown.join(", ");
    if names.len() > LISTED { format!("{shown} and {} more", names.len() - LISTED) } else { shown }
}

struct Handle(Arc<TaskTensors>);

impl SimpleBackend for Handle {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.0.take(name, Some(&shape))?.to_device(device)?.to_dtype(dtype)
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.0.take(name, None)?.to_device(device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.tensors.iter().any(|(own, _)| own == name)
    }
}
