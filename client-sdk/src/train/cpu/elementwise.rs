//! Loops over whole buffers: bias, ReLU, the optimizer's step. `dispatch` compiles them for the CPU's instructions, but
//! only closures that consume their operands: others are wrapped in a separate function, which is compiled for the
//! oldest processor.

use std::iter;

use learning::FixedClip;
use learning::clip::norm;
use pulp::Arch;
use task_spec::TrainingPlan;

use super::super::adamw::AdamW;
use super::super::config::narrow;
use super::buffer::Buffer;

/// Adds `row` to each of `rows`.
pub(super) fn add_to_rows(arch: Arch, row: &[f32], rows: &mut [f32]) {
    let rows = rows.chunks_exact_mut(row.len());
    arch.dispatch(
        #[inline(always)]
        || {
            for target in rows {
                for (target, &value) in target.iter_mut().zip(row) {
                    *target += value;
                }
            }
        },
    );
}

/// Adds each of `rows` to `sum`.
pub(super) fn add_rows(arch: Arch, rows: &[f32], sum: &mut [f32]) {
    let rows = rows.chunks_exact(sum.len());
    arch.dispatch(
        #[inline(always)]
        || {
            for row in rows {
                for (sum, &value) in sum.iter_mut().zip(row) {
                    *sum += value;
                }
            }
        },
    );
}

/// Replaces negative values by zero. Keeps NaN, so that divergence is detected.
pub(super) fn relu(arch: Arch, values: &mut [f32]) {
    arch.dispatch(
        #[inline(always)]
        || {
            for value in values {
                *value = if *value <= 0.0 { 0.0 } else { *value };
            }
        },
    );
}

/// Clears the gradient where the ReLU's output is zero.
pub(super) fn mask(arch: Arch, gradient: &mut [f32], outputs: &[f32]) {
    arch.dispatch(
        #[inline(always)]
        || {
            for (gradient, &output) in iter::zip(gradient, outputs) {
                *gradient = if output == 0.0 { 0.0 } else { *gradient };
            }
        },
    );
}

/// Stochastic gradient descent or AdamW, with only the state that it needs.
pub(super) struct Optimizer {
    momentum: f32,
    weight_decay: f32,
    proximal_mu: f32,
    adamw: Option<AdamW>,
    /// Number of steps taken.
    steps: u64,
    /// Empty without momentum.
    velocity: Buffer,
    /// AdamW's moments; empty without it.
    mean: Buffer,
    square: Buffer,
    /// Anchor of the proximal term, by default the initial parameters; empty without the term.
    anchor: Buffer,
    /// Factors on the gradient: 0 for frozen parameters; empty if all are trained.
    free: Buffer,
    /// Added to every gradient; empty without a correction.
    correction: Buffer,
    /// Bound on the gradient's norm.
    clip: Option<FixedClip>,
}

impl Optimizer {
    pub(super) fn new(plan: &TrainingPlan, parameters: &[f32]) -> Self {
        let (momentum, proximal_mu) = (narrow(plan.momentum), narrow(plan.proximal_mu));
        let mut anchor = Buffer::zeros(if proximal_mu == 0.0 { 0 } else { parameters.len() });
        if proximal_mu != 0.0 {
            anchor.copy_from_slice(parameters);
        }
        let adamw = AdamW::of(plan);
        let moment = || Buffer::zeros(if adamw.is_some() { parameters.len() } else { 0 });
        Self {
            momentum,
            // AdamW's is separate from the gradient.
            weight_decay: if adamw.is_some() { 0.0 } else { narrow(plan.weight_decay) },
            steps: 0,
            mean: moment(),
            square: moment(),
            adamw,
            proximal_mu,
            velocity: Buffer::zeros(if momentum == 0.0 { 0 } else { parameters.len() }),
            anchor,
            free: Buffer::zeros(0),
            correction: Buffer::zeros(0),
            clip: plan.gradient_clip.and_then(|norm| FixedClip::new(narrow(norm)).ok()),
        }
    }

    /// Sets anchor, frozen parameters and correction, from the next step on.
    pub(super) fn constrain(&mut self, anchor: Option<Buffer>, free: Option<Buffer>, correction: Option<Buffer>) {
        if let Some(correction) = correction {
            self.correction = correction;
        }
        if let Some(anchor) = anchor.filter(|_| self.proximal_mu != 0.0) {
            self.anchor = anchor;
        }
        if let Some(free) = free {
            self.free = free;
        }
    }

    /// The vectors that it keeps from step to step.
    pub(super) fn moments(&self) -> impl Iterator<Item = &Buffer> {
        [&self.velocity, &self.mean, &self.square].into_iter().filter(|moment| !moment.is_empty())
    }

    /// The same, for a state after so many steps.
    pub(super) fn moments_mut(&mut self, steps: u64) -> impl Iterator<Item = &mut Buffer> {
        self.steps = steps;
        [&mut self.velocity, &mut self.mean, &mut self.square].into_iter().filter(|moment| !moment.is_empty())
    }

    /// Number of steps taken.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Clips the gradient's norm; frozen parameters do not count.
    fn clip(&self, gradient: &mut [f32]) {
        let Some(clip) = self.clip else { return };
        for (gradient, &free) in gradient.iter_mut().zip(&*self.free) {
            *gradient *= free;
        }
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let factor = clip.factor(norm(gradient)) as f32;
        if factor < 1.0 {
            gradient.iter_mut().for_each(|gradient| *gradient *= factor);
        }
    }

    /// Takes a step against `gradient`, which is overwritten.
    pub(super) fn step(&mut self, arch: Arch, learning_rate: f32, parameters: &mut [f32], gradient: &mut [f32]) {
        self.clip(gradient);
        let Self { momentum, weight_decay, proximal_mu, .. } = *self;
        self.steps += 1;
        let adamw = self.adamw.map(|adamw| (adamw, adamw.sizes(learning_rate, self.steps)));
        let (mean, square) = (&mut self.mean, &mut self.square);
        let (velocity, anchor, free, correction) = (&mut self.velocity, &self.anchor, &self.free, &self.correction);
        arch.dispatch(
            #[inline(always)]
            || {
                if weight_decay != 0.0 {
                    for (gradient, &parameter) in gradient.iter_mut().zip(&*parameters) {
                        *gradient += weight_decay * parameter;
                    }
                }
                for ((gradient, &parameter), &anchor) in gradient.iter_mut().zip(&*parameters).zip(&**anchor) {
                    *gradient += proximal_mu * (parameter - anchor);
                }
                for (gradient, &correction) in gradient.iter_mut().zip(&**correction) {
                    *gradient += correction;
                }
                for (gradient, &free) in gradient.iter_mut().zip(&**free) {
                    *gradient *= free;
                }
                for (velocity, gradient) in velocity.iter_mut().zip(&mut *gradient) {
                    *velocity = momentum * *velocity + *gradient;
                    *gradient = *velocity;
                }
                if let Some((adamw, sizes)) = adamw {
                    for (gradient, (mean, square)) in gradient.iter_mut().zip(iter::zip(&mut **mean, &mut **square)) {
                        *gradient = adamw.step(sizes, *gradient, mean, square);
                    }
                    if free.is_empty() {
                        parameters.iter_mut().for_each(|parameter| *parameter *= sizes.kept);
                    }
                    // Frozen parameters do not decay either.
                    for (parameter, &free) in parameters.iter_mut().zip(&**free) {
                        *parameter *= 1.0 - (1.0 - sizes.kept) * free;
                    }
                    for (parameter, &step) in iter::zip(parameters, &*gradient) {
                        *parameter -= step;
                    }
                    return;
                }
                for (parameter, &gradient) in iter::zip(parameters, &*gradient) {
                    *parameter -= learning_rate * gradient;
                }
            },
        );
    }
}
