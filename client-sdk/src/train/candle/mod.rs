//! Training on candle: every model, on every device candle knows.
//!
//! In 16-bit modes the parameters stay in 32 bits and are converted for each pass, so that small steps add up
//! (Micikevicius et al. 2018, "Mixed precision training"). [`Precision::F16`] has a small range: the loss is scaled up
//! before the gradients are computed. The scale halves after a step whose gradients overflow, which is skipped, and
//! doubles after many steps without overflow.

mod forward;

use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::log_softmax;
use learning::FixedClip;
use task_spec::{Precision, TrainingPlan};

use super::adamw::{AdamW, StepSizes};
use super::config::narrow;
use super::constraints::Flat;
use super::error::TrainError;
use super::examples::Examples;
use super::learner::{Learner, LearnerState, Score, StepResult};
use crate::models::Architecture;

/// A model on a candle device, ready to train.
pub(super) struct CandleLearner<'a> {
    architecture: &'a Architecture,
    plan: &'a TrainingPlan,
    device: &'a Device,
    parameters: Vec<Var>,
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
    /// Element type of the passes.
    dtype: DType,
    scale: LossScale,
    /// Maximum number of examples to compute at once.
    batch: usize,
}

/// The factor on the loss before its gradient is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossScale {
    factor: f64,
    /// Steps since it changed; `None` if it is constant.
    steps: Option<u32>,
}

impl LossScale {
    /// Number of consecutive steps without overflow after which it doubles.
    const PATIENCE: u32 = 2000;
    /// Beyond this the scaled loss itself would overflow.
    const MOST: f64 = 65_536.0;

    pub(super) fn new(precision: Precision) -> Self {
        match precision {
            Precision::F16 => Self { factor: Self::MOST, steps: Some(0) },
            Precision::F32 | Precision::Bf16 => Self { factor: 1.0, steps: None },
        }
    }

    /// Updates the scale after a step, given whether all gradients were finite; returns whether to apply the step.
    pub(super) fn after(&mut self, is_finite: bool) -> StepResult {
        let Some(steps) = &mut self.steps else { return StepResult::Taken };
        if !is_finite {
            (self.factor, *steps) = (self.factor / 2.0, 0);
            return StepResult::Skipped;
        }
        *steps += 1;
        if *steps == Self::PATIENCE {
            (self.factor, *steps) = ((self.factor * 2.0).min(Self::MOST), 0);
        }
        StepResult::Taken
    }
}

impl<'a> CandleLearner<'a> {
    pub(super) fn new(
        architecture: &'a Architecture,
        start: &[f32],
        plan: &'a TrainingPlan,
        device: &'a Device,
        batch: usize,
    ) -> Result<Self, TrainError> {
        let layout = architecture.layout().map_err(TrainError::from)?;
        let mut parameters = Vec::with_capacity(layout.tensors().len());
        for (index, tensor) in layout.tensors().iter().enumerate() {
            // A checked layout's dimensions are below 2^28.
            let shape: Vec<usize> = tensor.shape.iter().filter_map(|&size| usize::try_from(size).ok()).collect();
            parameters.push(Var::from_slice(&start[layout.range(index)], shape, device)?);
        }
        let anchor = if narrow(plan.proximal_mu) == 0.0 {
            Vec::new()
        } else {
            parameters.iter().map(|parameter| parameter.as_detached_tensor().copy()).collect::<Result<_, _>>()?
        };
        let adamw = AdamW::of(plan);
        let zeros = || -> Result<Vec<Tensor>, TrainError> {
            let parameters = parameters.iter().filter(|_| adamw.is_some());
            Ok(parameters.map(|parameter| parameter.as_detached_tensor().zeros_like()).collect::<Result<_, _>>()?)
        };
        let moments = [zeros()?, zeros()?];
        let dtype = match plan.precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        };
        Ok(Self {
            architecture,
            plan,
            device,
            parameters,
            velocity: Vec::new(),
            adamw,
            moments,
            steps: 0,
            anchor,
            free: Vec::new(),
            correction: Vec::new(),
            dtype,
            scale: LossScale::new(plan.precision),
            batch,
        })
    }

    /// Splits a flat vector into tensors shaped like the parameters.
    fn spread(&self, flat: &[f32]) -> Result<Vec<Tensor>, TrainError> {
        let mut rest = flat;
        let mut tensors = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let (values, after) = rest.split_at(parameter.elem_count());
            tensors.push(Tensor::from_slice(values, parameter.shape(), self.device)?);
            rest = after;
        }
        Ok(tensors)
    }

    /// Logits and targets of the chosen examples.
    fn forward(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Tensor, Tensor), TrainError> {
        let (input, targets) = match *examples {
            Examples::Labelled { features, labels, width } => {
                let rows = gather(features, chosen, width);
                let labels = gather(labels, chosen, 1);
                (Tensor::from_vec(rows, (chosen.len(), width), self.device)?.to_dtype(self.dtype)?, labels)
            }
            Examples::Text { inputs, targets, length } => {
                let rows = gather(inputs, chosen, length);
                let targets = gather(targets, chosen, length);
                (Tensor::from_vec(rows, (chosen.len(), length), self.device)?, targets)
            }
            Examples::Tensors { .. } => {
                return Err(TrainError::WrongKind { kind: "ready", needs: "rows or characters" });
            }
        };
        let count = targets.len();
        let targets = Tensor::from_vec(targets, count, self.device)?;
        let parameters = self.parameters.iter().map(|parameter| parameter.as_tensor().to_dtype(self.dtype));
        let parameters: Vec<Tensor> = parameters.collect::<Result<_, _>>()?;
        let logits = forward::logits(self.architecture, &parameters, &input)?;
        Ok((logits.to_dtype(DType::F32)?, targets))
    }

    /// The gradient of the scaled mean loss of the chosen examples, for each parameter that has one.
    fn backward(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        let (logits, targets) = self.forward(examples, chosen)?;
        let mean = cross_entropy(&logits, &targets)?;
        let predictions = targets.elem_count();
        #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^53")]
        let loss = f64::from(mean.to_scalar::<f32>()?) * predictions as f64;
        let scaled = if self.scale.factor == 1.0 { mean } else { mean.affine(self.scale.factor, 0.0)? };
        let gradients = scaled.backward()?;
        let gradients = self.parameters.iter().map(|parameter| gradients.get(parameter).cloned()).collect();
        Ok((Score { loss, correct: 0, predictions: predictions as u64 }, gradients))
    }

    /// The gradients of a step's examples, in chunks, unscaled.
    fn gradients(&self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
        let (mut score, mut sums) = (Score::default(), vec![None; self.parameters.len()]);
        for chunk in chosen.chunks(self.batch) {
            let (part, gradients) = self.backward(examples, chunk)?;
            score.add(part);
            #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
            let part = chunk.len() as f64 / chosen.len() as f64 / self.scale.factor;
            for (sum, gradient) in sums.iter_mut().zip(gradients) {
                let Some(gradient) = gradient else { continue };
                let gradient = if part == 1.0 { gradient } else { gradient.affine(part, 0.0)? };
                *sum = Some(match sum.take() {
                    Some(sum) => (sum + gradient)?,
                    None => gradient,
                });
            }
        }
        Ok((score, sums))
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
}

/// Whether every value is finite.
fn are_finite(gradients: &[Option<Tensor>]) -> Result<bool, TrainError> {
    for gradient in gradients.iter().flatten() {
        // A sum of magnitudes keeps every infinity: they cannot cancel.
        if !gradient.abs()?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Learner for CandleLearner<'_> {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        let is_finite = self.scale.steps.is_none() || are_finite(&gradients)?;
        if self.scale.after(is_finite) == StepResult::Skipped {
            return Ok((score, StepResult::Skipped));
        }
        let factor = self.clip(&gradients)?;
        let [momentum, weight_decay, proximal_mu] =
            [self.plan.momentum, self.plan.weight_decay, self.plan.proximal_mu].map(|value| f64::from(narrow(value)));
        self.steps += 1;
        let adamw = self.adamw.map(|adamw| (adamw, adamw.sizes(rate, self.steps)));
        let mut velocity = Vec::new();
        for (index, (parameter, gradient)) in self.parameters.iter().zip(gradients).enumerate() {
            let Some(mut gradient) = gradient else { continue };
            let value = parameter.as_detached_tensor();
            if factor < 1.0 {
                gradient = gradient.affine(factor, 0.0)?;
            }
            if weight_decay != 0.0 && adamw.is_none() {
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
            if let Some((adamw, sizes)) = adamw {
                let step = Self::adamw_step(&mut self.moments, index, &gradient, adamw, sizes)?;
                let mut decay = value.affine(f64::from(1.0 - sizes.kept), 0.0)?;
                if let Some(free) = self.free.get(index) {
                    decay = (decay * free)?;
                }
                parameter.set(&((&value - decay)? - step)?)?;
                continue;
            }
            if let Some(velocity) = self.velocity.get(index) {
                gradient = (velocity.affine(momentum, 0.0)? + gradient)?;
            }
            parameter.set(&(&value - gradient.affine(f64::from(rate), 0.0)?)?)?;
            velocity.push(gradient);
        }
        if momentum != 0.0 {
            self.velocity = velocity;
        }
        Ok((score, StepResult::Taken))
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let (score, gradients) = self.gradients(examples, chosen)?;
        let mut flat = Vec::new();
        for (parameter, gradient) in self.parameters.iter().zip(gradients) {
            match gradient {
                Some(gradient) => flat.extend(gradient.flatten_all()?.to_vec1::<f32>()?),
                None => flat.resize(flat.len() + parameter.elem_count(), 0.0),
            }
        }
        Ok((score, flat))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        let (logits, targets) = self.forward(examples, chosen)?;
        let logits = logits.detach();
        let right = log_softmax(&logits, D::Minus1)?.gather(&targets.unsqueeze(1)?, 1)?;
        let loss = -f64::from(right.sum_all()?.to_scalar::<f32>()?);
        let hits = logits.argmax(D::Minus1)?.eq(&targets)?.to_dtype(DType::U32)?.to_vec1::<u32>()?;
        let correct = hits.iter().map(|&hit| u64::from(hit)).sum();
        Ok(Score { loss, correct, predictions: hits.len() as u64 })
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        let (logits, _) = self.forward(examples, chosen)?;
        Ok(logits.detach().flatten_all()?.to_vec1()?)
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
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

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        let mut flat = Vec::new();
        for parameter in &self.parameters {
            flat.extend(parameter.as_detached_tensor().flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(flat)
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
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

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        for (parameter, values) in self.parameters.iter().zip(self.spread(&state.values)?) {
            parameter.set(&values)?;
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

/// The chosen rows of a matrix.
fn gather<T: Copy>(rows: &[T], chosen: &[usize], width: usize) -> Vec<T> {
    chosen.iter().flat_map(|&row| &rows[row * width..][..width]).copied().collect()
}
