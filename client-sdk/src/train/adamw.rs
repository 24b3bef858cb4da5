//! AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"), in the order of operations of PyTorch's.

use task_spec::{LocalOptimizer, TrainingPlan};

use super::config::narrow;

/// The numbers of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AdamW {
    pub(super) beta1: f32,
    pub(super) beta2: f32,
    pub(super) epsilon: f32,
    pub(super) weight_decay: f32,
}

/// Factors of a step, corrected for the moments' start at zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StepSizes {
    /// The kept fraction of a parameter: 1 - rate · decay.
    pub(super) kept: f32,
    /// rate / (1 - β₁ᵗ).
    pub(super) rate: f32,
    /// √(1 - β₂ᵗ).
    pub(super) root: f32,
}

impl AdamW {
    /// `None` for a plan with another optimizer.
    pub(super) fn of(plan: &TrainingPlan) -> Option<Self> {
        match plan.optimizer {
            LocalOptimizer::Sgd {} => None,
            LocalOptimizer::AdamW { beta1, beta2, epsilon } => {
                let [beta1, beta2, epsilon, weight_decay] = [beta1, beta2, epsilon, plan.weight_decay].map(narrow);
                Some(Self { beta1, beta2, epsilon, weight_decay })
            }
        }
    }

    /// The sizes of the step of this number, from 1.
    pub(super) fn sizes(&self, rate: f32, step: u64) -> StepSizes {
        let step = i32::try_from(step).unwrap_or(i32::MAX);
        let left = |beta: f32| 1.0 - f64::from(beta).powi(step);
        StepSizes {
            kept: narrow(1.0 - f64::from(rate) * f64::from(self.weight_decay)),
            rate: narrow(f64::from(rate) / left(self.beta1)),
            root: narrow(left(self.beta2).sqrt()),
        }
    }

    /// Updates the moments of one coordinate by its gradient: how far its parameter goes down.
    #[inline(always)]
    pub(super) fn step(&self, sizes: StepSizes, gradient: f32, mean: &mut f32, square: &mut f32) -> f32 {
        *mean += (gradient - *mean) * (1.0 - self.beta1);
        *square = *square * self.beta2 + (1.0 - self.beta2) * gradient * gradient;
        sizes.rate * *mean / (square.sqrt() / sizes.root + self.epsilon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `client-sdk/tests/golden/adamw.py` with PyTorch.
    const GOLDEN: &str = include_str!("../../tests/golden/adamw.json");

    #[derive(serde::Deserialize)]
    struct Run {
        learning_rate: f32,
        beta1: f32,
        beta2: f32,
        epsilon: f32,
        weight_decay: f32,
        /// By step, then coordinate.
        gradients: Vec<Vec<f32>>,
        /// Before the first step, and after each.
        parameters: Vec<Vec<f32>>,
    }

    #[cfg(feature = "candle")]
    #[test]
    fn it_takes_the_steps_of_candles() {
        use candle_core::{Device, Tensor, Var};
        use candle_nn::{AdamW as Theirs, Optimizer as _, ParamsAdamW};

        let runs: Vec<Run> = serde_json::from_str(GOLDEN).unwrap();
        for Run { learning_rate, beta1, beta2, epsilon, weight_decay, gradients, parameters } in runs {
            let [lr, beta1, beta2, eps, weight_decay] =
                [learning_rate, beta1, beta2, epsilon, weight_decay].map(f64::from);
            let parameter = Var::new(parameters[0].as_slice(), &Device::Cpu).unwrap();
            let theirs = ParamsAdamW { lr, beta1, beta2, eps, weight_decay };
            let mut theirs = Theirs::new(vec![parameter.clone()], theirs).unwrap();
            let [beta1, beta2, epsilon, weight_decay] = [beta1, beta2, eps, weight_decay].map(narrow);
            let adamw = AdamW { beta1, beta2, epsilon, weight_decay };
            let (mut values, mut moments) = (parameters[0].clone(), vec![(0.0, 0.0); parameters[0].len()]);
            for (step, gradient) in (1..).zip(&gradients) {
                // A loss with this gradient.
                let weights = Tensor::new(gradient.as_slice(), &Device::Cpu).unwrap();
                let loss = (parameter.as_tensor() * weights).unwrap().sum_all().unwrap();
                theirs.backward_step(&loss).unwrap();
                let sizes = adamw.sizes(learning_rate, step);
                for ((value, gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(&mut moments) {
                    *value = *value * sizes.kept - adamw.step(sizes, *gradient, mean, square);
                }
                for (ours, expected) in values.iter().zip(parameter.to_vec1::<f32>().unwrap()) {
                    assert!((ours - expected).abs() <= 1e-5 * expected.abs().max(0.1), "{step}: {ours} {expected}");
                }
            }
        }
    }

    #[test]
    fn it_takes_the_steps_of_pytorchs() {
        let runs: Vec<Run> = serde_json::from_str(GOLDEN).unwrap();
        assert!(runs.len() >= 3);
        for run in runs {
            let Run { learning_rate, beta1, beta2, epsilon, weight_decay, gradients, parameters } = run;
            let adamw = AdamW { beta1, beta2, epsilon, weight_decay };
            let mut values = parameters[0].clone();
            let mut moments = vec![(0.0, 0.0); values.len()];
            for (step, (gradient, expected)) in (1..).zip(gradients.iter().zip(&parameters[1..])) {
                let sizes = adamw.sizes(learning_rate, step);
                for ((value, gradient), (mean, square)) in values.iter_mut().zip(gradient).zip(&mut moments) {
                    *value = *value * sizes.kept - adamw.step(sizes, *gradient, mean, square);
                }
                for (found, expected) in values.iter().zip(expected) {
                    assert!((found - expected).abs() <= 2e-6 * expected.abs().max(0.1), "{step}: {found} {expected}");
                }
            }
        }
    }
}
