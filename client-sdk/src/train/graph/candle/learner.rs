//! A graph in training on a candle device.

use std::sync::Arc;

use candle_core::{Device, Tensor};
use graph::{GraphModel, Input, TensorType};
use task_spec::TrainingPlan;

use super::executor::CandleExecutor;
use super::pass::Pass;
use crate::models::Architecture;
use crate::train::candle::{Variables, element, flat, in_chunks};
use crate::train::config::narrow;
use crate::train::constraints::Flat;
use crate::train::error::TrainError;
use crate::train::examples::Examples;
use crate::train::graph::examples::{ChosenTargets, feed, point};
use crate::train::graph::learner::dropout_seed;
use crate::train::graph::loss;
use crate::train::graph::tensor::Tensor as Elements;
use crate::train::learner::{Learner, LearnerState, Score, StepResult};
use crate::trainer::Interrupt;

/// A graph on a candle device, in training or evaluation.
pub(in crate::train) struct CandleGraph<'a> {
    model: &'a GraphModel,
    executor: CandleExecutor<'a>,
    variables: Variables<'a>,
    /// Maximum number of examples in a chunk.
    batch: usize,
    inputs: Vec<Elements>,
    targets: ChosenTargets,
}

impl<'a> CandleGraph<'a> {
    /// The graph with these parameters, for chunks of at most `batch` examples.
    pub(in crate::train) fn new(
        model: &'a Arc<GraphModel>,
        start: &[f32],
        plan: &'a TrainingPlan,
        device: &'a Device,
        batch: usize,
    ) -> Result<Self, TrainError> {
        let graph = model.graph();
        let empty = |input: &Input| Elements::zeros(&TensorType { element: input.element, shape: vec![0] });
        let layout = Architecture::Graph(Arc::clone(model)).layout()?;
        Ok(Self {
            model,
            executor: CandleExecutor::new(graph, device, element(plan.precision))?,
            variables: Variables::new(&layout, start, plan, device)?,
            batch,
            inputs: graph.inputs.iter().map(empty).collect(),
            targets: ChosenTargets::default(),
        })
    }

    /// Computes the outputs of the chosen examples.
    fn pass(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        parameters: Vec<Tensor>,
        dropout: Option<u64>,
    ) -> Result<Pass<'a>, TrainError> {
        feed(&mut self.inputs, examples, chosen);
        self.executor.forward(&self.inputs, parameters, point(examples, chosen.len()), dropout)
    }

    /// The outputs of the chosen examples, without gradients.
    fn outputs(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        let parameters = self.executor.fixed(self.variables.tensors())?;
        Ok(self.pass(examples, chosen, parameters, None)?.floats(self.model.output())?)
    }

    /// The gradients of a chunk's mean loss, which is multiplied by the factor of 16-bit passes.
    fn backward(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
    ) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        let parameters = self.executor.variables(self.variables.tensors())?;
        let seed = dropout_seed(self.variables.steps(), chosen);
        let pass = self.pass(examples, chosen, parameters, Some(seed))?;
        let output = self.model.output();
        let values = pass.floats(output)?;
        let mut delta = vec![0.0; values.len()];
        let score = loss::score(self.model.loss(), &values, self.targets.take(examples, chosen), &mut delta);
        if !score.loss.is_finite() {
            let cause = pass.first_not_finite()?;
            return Err(TrainError::Execution(cause.unwrap_or_else(|| "the loss is not finite".to_owned())));
        }
        let factor = narrow(self.variables.factor());
        delta.iter_mut().for_each(|delta| *delta *= factor);
        let mut gradients = pass.backward(output, &delta, self.executor.interrupt())?;
        // As on the CPU, a parameter without influence has a gradient of 0, so that decay and proximal terms apply to it.
        for (gradient, variable) in gradients.iter_mut().zip(self.variables.tensors()) {
            if gradient.is_none() {
                *gradient = Some(variable.as_detached_tensor().zeros_like()?);
            }
        }
        Ok((score, gradients))
    }

    /// The gradients of a step's examples, in chunks, unscaled.
    fn gradients(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
    ) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        let (factor, batch) = (self.variables.factor(), self.batch);
        in_chunks(factor, chosen, batch, &mut |chunk| self.backward(examples, chunk))
    }
}

impl Learner for CandleGraph<'_> {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        Ok((score, self.variables.step(gradients, rate)?))
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        Ok((score, flat(self.variables.tensors(), &gradients)?))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        let values = self.outputs(examples, chosen)?;
        Ok(loss::score(self.model.loss(), &values, self.targets.take(examples, chosen), &mut []))
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        self.outputs(examples, chosen)
    }

    fn interrupt_by(&mut self, interrupt: Interrupt) {
        self.executor.interrupt_by(interrupt);
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        self.variables.constrain(constraints)
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        self.variables.values()
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        self.variables.state()
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.variables.restore(state)
    }
}
