//! The speed of a graph's training on this machine.

use std::sync::Arc;
use std::time::Duration;

use graph::{Cost, GraphModel, cost, infer};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::sample::Sample;
use crate::train::graph::context::Statistics;
use crate::train::graph::executor::Executor;

/// Time after which the measurement ends.
const BUDGET: Duration = Duration::from_millis(50);
/// Maximum number of multiply-adds of a measured step, unless one example takes more: some milliseconds.
const STEP: u64 = 1 << 27;
/// Largest batch that is measured.
const BATCH: u32 = 32;
/// Seed of the inputs and of dropout.
const SEED: u64 = 1;

/// Multiply-adds per second, as [`Cost::multiply_adds`] counts them, of training steps on random inputs and one core.
/// `elapsed` is the time since any fixed moment. It takes 50 ms, or two steps on one example if they take longer.
///
/// # Errors
/// The limit that the graph exceeds, or the node that cannot compute.
pub fn training_speed(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    elapsed: impl Fn() -> Duration,
) -> Result<f64, String> {
    let graph = model.graph();
    let needed = |batch| Some(cost(graph, &infer(graph, Sample::point(graph, batch)).ok()?).multiply_adds);
    let mut halves = std::iter::successors(Some(BATCH), |&batch| (batch > 1).then_some(batch / 2));
    let batch = halves.find(|&batch| needed(batch).is_some_and(|adds| adds <= STEP)).unwrap_or(1);
    let sample = Sample::random(graph, batch, &mut ChaCha8Rng::seed_from_u64(SEED));
    let sample = sample.map_err(|error| error.to_string())?;
    let mut executor = Executor::new(Arc::clone(model));
    if batch > 1 {
        executor.normalize_by(Statistics::Batch);
    }
    let shapes = infer(graph, sample.point).map_err(|error| error.to_string())?;
    let Cost { multiply_adds, .. } = cost(graph, &shapes);
    sample.feed(&mut executor).map_err(|error| error.to_string())?;
    let mut gradient = vec![0.0; parameters.len()];
    let mut step = || {
        executor.set_parameters(parameters);
        executor.forward(Some(SEED)).map_err(|error| error.to_string())?;
        let delta = executor.value(model.output()).to_vec();
        executor.backward(model.output(), &delta, &mut gradient).map_err(|error| error.to_string())
    };
    // The first step allocates.
    step()?;
    let (began, mut steps) = (elapsed(), 0_u32);
    loop {
        step()?;
        steps += 1;
        let took = elapsed().saturating_sub(began);
        if took >= BUDGET {
            return Ok(multiply_adds as f64 * f64::from(steps) / took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::train::graph::imported::table;

    #[test]
    fn speed_is_cost_of_steps_over_time() {
        let (model, parameters) = table();
        // Each look at the clock is 20 ms later: three steps take 60 ms.
        let looks = Cell::new(0);
        let elapsed = || {
            looks.set(looks.get() + 1);
            Duration::from_millis(20 * looks.get())
        };
        let speed = training_speed(&model, &parameters, elapsed).unwrap();
        let shapes = infer(model.graph(), Sample::point(model.graph(), BATCH)).unwrap();
        let expected = cost(model.graph(), &shapes).multiply_adds as f64 * 3.0 / 0.06;
        assert!((speed - expected).abs() < 1e-6 * expected, "{speed}, not {expected}");
        assert_eq!(looks.get(), 4);
    }
}
