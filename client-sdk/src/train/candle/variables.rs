//! The parameters of a model on a candle device, with the optimizer of its plan.

use candle_core::{DType, Device, Tensor, Var};
use learning::{FixedClip, Layout};
use task_spec::{Precision, TrainingPlan};

use super::gradients::{ChunkLoss, are_finite, gradients};
use super::scale::LossScale;
use crate::train::adamw::{AdamW, StepSizes};
use crate::train::config::narrow;
use crate::train::constraints::Flat;
use crate::train::error::TrainError;
use crate::train::learner::{LearnerState, Score, StepResult};

/// The parameters and everything that changes them, given gradients.
pub(in crate::train) struct Variables<'a> {
    plan: &'a TrainingPlan,
    device: &'a Device,
    /// In the layout's order, in 32 bits.
    tensors: Vec<Var>,
    /// Empty until the first step with momentum.
    velocity: Vec<Tensor>,
    adamw: Option<AdamW>,
    /// AdamW's moments, of the gradients and of their squares; empty without it.
    moments: [Vec<Tensor>; 2],
    /// Number of steps taken.
    steps: u64,
    /// Anchor of the proximal term, by default the initial parameters; empty without the term.
    anchor: Vec<Tensor>,
    /// Factors on the gradients; empty if every parameter may change.
    free: Vec<Tensor>,
    /// Added to every gradient; empty without a correction.
    correction: Vec<Tensor>,
    scale: LossScale,
}

/// The element type of passes in this precision.
pub(in crate::train) fn element(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
        Precision::F16 => DType::F16,
    }
}

/// The tensors of a flat vector as variables of a device.
pub(super) fn variables(layout: &Layout, flat: &[f32], device: &Device) -> Result<Vec<Var>, TrainError> {
    let mut variables = Vec::with_capacity(layout.tensors().len());
    for (index, tensor) in layout.tensors().iter().enumerate() {
        // A checked layout's dimensions are below 2^28.
        let shape: Vec<usize> = tensor.shape.iter().filter_map(|&size| usize::try_from(size).ok()).collect();
        variables.push(Var::from_slice(&flat[layout.range(index)], shape, device)?);
    }
    Ok(variables)
}

impl<'a> Variables<'a> {
    pub(in crate::train) fn new(
        layout: &Layout,
        start: &[f32],
        plan: &'a TrainingPlan,
        device: &'a Device,
    ) -> Result<Self, TrainError> {
        let tensors = variables(layout, start, device)?;
        let anchor = if narrow(plan.proximal_mu) == 0.0 {
            Vec::new()
        } else {
            tensors.iter().map(|tensor| tensor.as_detached_tensor().copy()).collect::<Result<_, _>>()?
        };
        let adamw = AdamW::of(plan);
        let zeros = || -> Result<Vec<Tensor>, TrainError> {
            let tensors = tensors.iter().filter(|_| adamw.is_some());
            Ok(tensors.map(|tensor| tensor.as_detached_tensor().zeros_like()).collect::<Result<_, _>>()?)
        };
        let moments = [zeros()?, zeros()?];
        Ok(Self {
            plan,
            device,
            tensors,
            velocity: Vec::new(),
            adamw,
            moments,
            steps: 0,
            anchor,
            free: Vec::new(),
            correction: Vec::new(),
            scale: LossScale::new(plan.precision),
        })
    }

    /// The parameters, in the layout's order.
    pub(in crate::train) fn tensors(&self) -> &[Var] {
        &self.tensors
    }

    /// Number of steps taken.
    pub(in crate::train) fn steps(&self) -> u64 {
        self.steps
    }

    /// The factor on the loss before its gradient is computed.
    pub(in crate::train) fn factor(&self) -> f64 {
        self.scale.factor
    }

    /// Splits a flat vector into tensors shaped like the parameters.
    fn spread(&self, flat: &[f32]) -> Result<Vec<Tensor>, TrainError> {
        let mut rest = flat;
        let mut tensors = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let (values, after) = rest.split_at(tensor.elem_count());
            tensors.push(Tensor::from_slice(values, tensor.shape(), self.device)?);
            rest = after;
        }
        Ok(tensors)
    }

    /// The unscaled gradients of a step's examples, for each parameter that has one: see [`gradients`].
    pub(super) fn gradients(
        &self,
        chosen: &[usize],
        batch: usize,
        loss: ChunkLoss<'_>,
    ) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        gradients(&self.tensors, self.scale.factor, chosen, batch, loss)
    }

    /// Takes a step along unscaled gradients, unless they overflowed 16 bits. Parameters without a gradient stay as they are.
    pub(in crate::train) fn step(
        &mut self,
        gradients: Vec<Option<Tensor>>,
        rate: f32,
    ) -> Result<StepResult, TrainError> {
        let is_finite = self.scale.steps.is_none() || are_finite(&gradients)?;
        if self.scale.after(is_finite) == StepResult::Skipped {
            return Ok(StepResult::Skipped);
        }
        let factor = self.clip(&gradients)?;
        self.steps += 1;
        let adamw = self.adamw.map(|adamw| (adamw, adamw.sizes(rate, self.steps)));
        let mut velocity = Vec::new();
        for (index, gradient) in gradients.into_iter().enumerate() {
            let Some(gradient) = gradient else {
                velocity.push(self.velocity_without_gradient(index)?);
                continue;
            };
            let gradient = self.adjusted(index, gradient, factor)?;
            let value = self.tensors[index].as_detached_tensor();
            if let Some((adamw, sizes)) = adamw {
                let step = Self::adamw_step(&mut self.moments, index, &gradient, adamw, sizes)?;
                let mut decay = value.affine(f64::from(1.0 - sizes.kept), 0.0)?;
                if let Some(free) = self.free.get(index) {
                    decay = (decay * free)?;
                }
                self.tensors[index].set(&((&value - decay)? - step)?)?;
                continue;
            }
            let moved = match self.velocity.get(index) {
                Some(velocity) => (velocity.affine(narrow(self.plan.momentum).into(), 0.0)? + gradient)?,
                None => gradient,
            };
            self.tensors[index].set(&(&value - moved.affine(f64::from(rate), 0.0)?)?)?;
            velocity.push(moved);
        }
        if narrow(self.plan.momentum) != 0.0 {
            self.velocity = velocity;
        }
        Ok(StepResult::Taken)
    }

    /// The velocity of a parameter that a step leaves as it is.
    fn velocity_without_gradient(&self, index: usize) -> Result<Tensor, TrainError> {
        match self.velocity.get(index) {
            Some(velocity) => Ok(velocity.clone()),
            None => Ok(self.tensors[index].as_detached_tensor().zeros_like()?),
        }
    }

    /// A gradient, clipped by `factor`, with the terms of the plan and the constraints.
    fn adjusted(&self, index: usize, gradient: Tensor, factor: f64) -> Result<Tensor, TrainError> {
        let [weight_decay, proximal_mu] =
            [self.plan.weight_decay, self.plan.proximal_mu].map(|value| f64::from(narrow(value)));
        let value = self.tensors[index].as_detached_tensor();
        let mut gradient = gradient;
        if factor < 1.0 {
            gradient = gradient.affine(factor, 0.0)?;
        }
        if weight_decay != 0.0 && self.adamw.is_none() {
            gradient = (gradient + value.affine(weight_decay, 0.0)?)?;
        }
        if let Some(anchor) = self.anchor.get(index) {
            let pull = (&value - anchor)?;
            gradient = (gradient + pull.affine(proximal_mu, 0.0)?)?;
        }
        if let Some(correction) = self.correction.get(index) {
            gradient = (gradient + correction)?;
        }
        if let Some(free) = self.free.get(index) {
            gradient = (gradient * free)?;
        }
        Ok(gradient)
    }

    /// Updates AdamW's moments of a parameter: how far it goes down.
    fn adamw_step(
        moments: &mut [Vec<Tensor>; 2],
        index: usize,
        gradient: &Tensor,
        adamw: AdamW,
        sizes: StepSizes,
    ) -> Result<Tensor, TrainError> {
        let [means, squares] = moments;
        let [beta1, beta2, epsilon] = [adamw.beta1, adamw.beta2, adamw.epsilon].map(f64::from);
        means[index] = (&means[index] + (gradient - &means[index])?.affine(1.0 - beta1, 0.0)?)?;
        squares[index] = (squares[index].affine(beta2, 0.0)? + gradient.sqr()?.affine(1.0 - beta2, 0.0)?)?;
        let root = squares[index].sqrt()?.affine(1.0 / f64::from(sizes.root), epsilon)?;
        Ok((means[index].affine(f64::from(sizes.rate), 0.0)? / root)?)
    }

    /// Factor that clips the gradients' norm; frozen parameters do not count.
    fn clip(&self, gradients: &[Option<Tensor>]) -> Result<f64, TrainError> {
        let clip = self.plan.gradient_clip.and_then(|norm| FixedClip::new(narrow(norm)).ok());
        let Some(clip) = clip else { return Ok(1.0) };
        let mut squares = 0.0;
        for (index, gradient) in gradients.iter().enumerate() {
            let Some(gradient) = gradient else { continue };
            let free = self.free.get(index).map(|free| gradient * free).transpose()?;
            squares += f64::from(free.as_ref().unwrap_or(gradient).sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
        Ok(clip.factor(squares.sqrt()))
    }

    /// Constraints from the next step on.
    pub(in crate::train) fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        if let Some(anchor) = constraints.anchor.filter(|_| narrow(self.plan.proximal_mu) != 0.0) {
            self.anchor = self.spread(anchor)?;
        }
        if !constraints.free.is_empty() {
            self.free = self.spread(&constraints.free)?;
        }
        if let Some(correction) = constraints.correction {
            self.correction = self.spread(correction)?;
        }
        Ok(())
    }

    /// The flat parameters, in the layout's order.
    pub(in crate::train) fn values(&self) -> Result<Vec<f32>, TrainError> {
        let mut flat = Vec::new();
        for tensor in &self.tensors {
            flat.extend(tensor.as_detached_tensor().flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(flat)
    }

    /// The state between two steps.
    pub(in crate::train) fn state(&self) -> Result<LearnerState, TrainError> {
        let mut moments = Vec::new();
        let [means, squares] = &self.moments;
        for moment in [&self.velocity, means, squares].into_iter().filter(|moment| !moment.is_empty()) {
            let mut flat = Vec::new();
            for tensor in moment {
                flat.extend(tensor.flatten_all()?.to_vec1::<f32>()?);
            }
            moments.push(flat);
        }
        let scale = self.scale.steps.map(|steps| (self.scale.factor, steps));
        Ok(LearnerState { values: self.values()?, moments, steps: self.steps, scale })
    }

    /// Goes on from a state of the same model and plan.
    pub(in crate::train) fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        for (tensor, values) in self.tensors.iter().zip(self.spread(&state.values)?) {
            tensor.set(&values)?;
        }
        match &state.moments[..] {
            [velocity] => self.velocity = self.spread(velocity)?,
            [means, squares] => self.moments = [self.spread(means)?, self.spread(squares)?],
            _ => {}
        }
        self.steps = state.steps;
        if let Some((factor, steps)) = state.scale {
            self.scale = LossScale { factor, steps: Some(steps) };
        }
        Ok(())
    }
}
