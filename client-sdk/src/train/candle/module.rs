//! Training of an app's own candle module by a task's plan.

use std::cell::Cell;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::VarBuilder;
use learning::{Layout, Parameters};
use task_spec::{Precision, TrainingPlan};

use super::builder::{TaskTensors, listed};
use super::gradients::{flat, gradients};
use super::variables::{Variables, element, variables};
use super::verify;
use crate::train::adapted::{AdaptedBase, Gradient, train_on_gradients};
use crate::train::batches::Batches;
use crate::train::config::{Sgd, check as check_plan};
use crate::train::error::TrainError;
use crate::train::learner::{LearnerState, Score, StepResult};
use crate::train::steering::Steering;
use crate::train::{EVALUATION_BATCH, Stepper, Trained, run, trained};
use crate::trainer::Constraints;

/// Builds the app's module and returns the mean loss of the chosen examples.
pub(crate) type ModuleLoss<'a> = &'a dyn Fn(VarBuilder<'static>, &[usize]) -> candle_core::Result<Tensor>;

/// Builds the app's module and returns named means over the chosen examples.
pub(crate) type ModuleScore<'a> = &'a dyn Fn(VarBuilder<'static>, &[usize]) -> candle_core::Result<Vec<(String, f64)>>;

/// An app's module and its training examples.
#[derive(Clone, Copy)]
pub(crate) struct Module<'a> {
    pub(crate) loss: ModuleLoss<'a>,
    /// Number of training examples.
    pub(crate) count: usize,
    pub(crate) device: &'a Device,
    /// Whether the passes compute in the plan's precision; otherwise in 32 bits.
    pub(crate) has_precision: bool,
    /// Names of the tensors that do not train.
    pub(crate) frozen: &'a [String],
    /// Whether the gradients were compared with finite differences, or need not be. A training that compares sets it.
    pub(crate) is_verified: &'a Cell<bool>,
}

impl Module<'_> {
    fn dtype(&self, plan: &TrainingPlan) -> DType {
        if self.has_precision { element(plan.precision) } else { DType::F32 }
    }

    /// For each tensor, whether the app froze it.
    fn frozen(&self, layout: &Layout) -> Result<Vec<bool>, TrainError> {
        let names: Vec<&str> = layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        if let Some(unknown) = self.frozen.iter().find(|name| !names.contains(&name.as_str())) {
            let names = listed(&names);
            return Err(TrainError::OtherTensors(format!("the app freezes `{unknown}`, and the task's are {names}")));
        }
        Ok(names.iter().map(|name| self.frozen.iter().any(|frozen| frozen == name)).collect())
    }

    /// The mean loss of the chosen examples, one number in 32 bits.
    fn mean(&self, tensors: &Arc<TaskTensors>, dtype: DType, chosen: &[usize]) -> Result<Tensor, TrainError> {
        let loss = (self.loss)(tensors.builder(dtype, self.device), chosen).map_err(|error| {
            let problem = tensors.problem(&error);
            problem.map_or(TrainError::Module(error), TrainError::OtherTensors)
        })?;
        if let Some(unused) = tensors.unused() {
            return Err(TrainError::OtherTensors(format!("the module does not take {unused} of the task")));
        }
        if loss.elem_count() != 1 {
            return Err(TrainError::LossShape(loss.dims().to_vec()));
        }
        Ok(loss.reshape(())?.to_dtype(DType::F32)?)
    }
}

/// Trains a module from `start`, which has the task's tensors.
///
/// # Errors
/// As [`train_steered`](crate::train::train_steered), and those of modules.
pub(crate) fn train_module(
    module: Module<'_>,
    start: &Parameters,
    Sgd { plan, seed }: Sgd<'_>,
    constraints: Constraints<'_>,
    steering: &mut dyn Steering,
) -> Result<Trained, TrainError> {
    check_plan(plan)?;
    if module.count == 0 {
        return Err(TrainError::NoExamples);
    }
    constraints.check(start)?;
    let plan = &in_precision(&module, plan);
    let by_app = module.frozen(start.layout())?;
    let held: Vec<bool> =
        if constraints.frozen.is_empty() { vec![false; by_app.len()] } else { constraints.frozen.to_vec() };
    let frozen: Vec<bool> = by_app.iter().zip(&held).map(|(&app, &held)| app || held).collect();
    let constraints = Constraints { frozen: &frozen, ..constraints };
    constraints.check(start)?;
    let mut batches = Batches::new(module.count, Sgd { plan, seed });
    let mut variables = Variables::new(start.layout(), start.values(), plan, module.device)?;
    variables.constrain(&constraints.flat(start))?;
    let held = kept(&variables, &held)?;
    let tensors =
        TaskTensors::new(start.layout(), variables.tensors().iter().map(|variable| variable.as_tensor().clone()));
    let (dtype, batch) = (module.dtype(plan), batches.chunk());
    let passes = Passes { module, tensors, layout: start.layout(), by_app, dtype, batch };
    let mut steps = OnModule { passes, variables, held, has_stepped: false };
    let run = run(plan, start, module.count, &mut batches, steering, &mut steps)?;
    trained(&run, plan, steps.variables.values()?, start, module.count)
}

/// Trains adapters of the frozen model `adapted.base`.
///
/// # Errors
/// As [`train_module`], and [`TrainError::Constraints`] for adapters of another model.
pub(crate) fn train_module_adapters(
    module: Module<'_>,
    adapted: AdaptedBase<'_>,
    sgd: Sgd<'_>,
    steering: &mut dyn Steering,
) -> Result<Trained, TrainError> {
    let layout = adapted.base.layout();
    let by_app = module.frozen(layout)?;
    let batch = Batches::new(module.count, sgd).chunk();
    let mut gradient = |merged: &Parameters, chosen: &[usize]| {
        let merged = variables(layout, merged.values(), module.device)?;
        let tensors = TaskTensors::new(layout, merged.iter().map(|variable| variable.as_tensor().clone()));
        let passes = Passes { module, tensors, layout, by_app: by_app.clone(), dtype: DType::F32, batch };
        let (score, gradients) = gradients(&merged, 1.0, chosen, batch, &mut |chunk| passes.loss(chunk))?;
        passes.check(&merged, &gradients, chosen)?;
        Ok((score, flat(&merged, &gradients)?))
    };
    let gradient: Gradient<'_> = &mut gradient;
    train_on_gradients(adapted, module.count, sgd, steering, gradient)
}

/// The mean over the chosen examples, in chunks of at most `batch`, of numbers that `score` computes for a chunk from the builder
/// of a module.
///
/// # Errors
/// [`TrainError::OtherTensors`] and [`TrainError::Module`], and [`TrainError::NotFinite`] for a mean that is not finite.
pub(crate) fn evaluate_module(
    parameters: &Parameters,
    device: &Device,
    count: usize,
    score: ModuleScore<'_>,
) -> Result<Vec<(String, f64)>, TrainError> {
    let layout = parameters.layout();
    let tensors = variables(layout, parameters.values(), device)?;
    let tensors = TaskTensors::new(layout, tensors.iter().map(Var::as_detached_tensor));
    let all: Vec<usize> = (0..count).collect();
    let mut means: Vec<(String, f64)> = Vec::new();
    for chosen in all.chunks(EVALUATION_BATCH) {
        let scores = score(tensors.builder(DType::F32, device), chosen).map_err(|error| {
            let problem = tensors.problem(&error);
            problem.map_or(TrainError::Module(error), TrainError::OtherTensors)
        })?;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let share = chosen.len() as f64 / count as f64;
        for (name, value) in scores {
            match means.iter_mut().find(|(known, _)| *known == name) {
                Some((_, mean)) => *mean += share * value,
                None => means.push((name, share * value)),
            }
        }
    }
    if means.iter().any(|(_, mean)| !mean.is_finite()) {
        return Err(TrainError::NotFinite);
    }
    Ok(means)
}

/// The plan with the precision of the passes.
fn in_precision(module: &Module<'_>, plan: &TrainingPlan) -> TrainingPlan {
    let precision = if module.has_precision { plan.precision } else { Precision::F32 };
    TrainingPlan { precision, ..plan.clone() }
}

/// Copies of the tensors that must stay as they are, even if the module's forward pass sets them.
fn kept(variables: &Variables<'_>, held: &[bool]) -> Result<Vec<(usize, Tensor)>, TrainError> {
    let held = variables.tensors().iter().enumerate().zip(held).filter(|(_, held)| **held);
    held.map(|((index, variable), _)| Ok((index, variable.as_detached_tensor().copy()?))).collect()
}

/// The passes of a module over the task's tensors.
struct Passes<'a> {
    module: Module<'a>,
    tensors: Arc<TaskTensors>,
    layout: &'a Layout,
    /// For each tensor, whether the app froze it.
    by_app: Vec<bool>,
    /// Element type of the passes.
    dtype: DType,
    /// Maximum number of examples to compute at once.
    batch: usize,
}

impl Passes<'_> {
    /// The mean loss of the chosen examples, and their number.
    fn loss(&self, chosen: &[usize]) -> Result<(Tensor, usize), TrainError> {
        Ok((self.module.mean(&self.tensors, self.dtype, chosen)?, chosen.len()))
    }

    /// Checks the gradients of a first step on the chosen examples: each tensor has one and, once, a finite difference agrees
    /// with it.
    fn check(&self, variables: &[Var], gradients: &[Option<Tensor>], chosen: &[usize]) -> Result<(), TrainError> {
        let names: Vec<&str> = self.layout.tensors().iter().map(|tensor| tensor.name.as_str()).collect();
        let without = names.iter().zip(gradients).zip(&self.by_app);
        let without = without.filter(|((_, gradient), frozen)| gradient.is_none() && !**frozen);
        let without: Vec<&str> = without.map(|((name, _), _)| *name).collect();
        if !without.is_empty() {
            return Err(TrainError::NoGradient { tensors: listed(&without) });
        }
        if self.module.is_verified.get() {
            return Ok(());
        }
        let chosen = &chosen[..chosen.len().min(self.batch).min(verify::EXAMPLES)];
        let loss = || self.module.mean(&self.tensors, DType::F32, chosen);
        verify::verify(variables, &names, &self.by_app, &loss)?;
        self.module.is_verified.set(true);
        Ok(())
    }
}

/// A module in training.
struct OnModule<'a> {
    passes: Passes<'a>,
    variables: Variables<'a>,
    /// Tensors that constraints freeze, by index, with their values.
    held: Vec<(usize, Tensor)>,
    /// Whether a step's gradients were checked.
    has_stepped: bool,
}

impl Stepper for OnModule<'_> {
    fn step(&mut self, chosen: &[usize], rate: f32) -> Result<(Score, StepResult), TrainError> {
        let passes = &self.passes;
        let (score, gradients) = self.variables.gradients(chosen, passes.batch, &mut |chunk| passes.loss(chunk))?;
        if !self.has_stepped {
            passes.check(self.variables.tensors(), &gradients, chosen)?;
            self.has_stepped = true;
        }
        let result = self.variables.step(gradients, rate)?;
        for (index, value) in &self.held {
            self.variables.tensors()[*index].set(value)?;
        }
        Ok((score, result))
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        self.variables.state()
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.variables.restore(state)
    }
}
