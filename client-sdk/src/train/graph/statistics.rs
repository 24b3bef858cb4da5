//! The running statistics of a graph's batch normalizations in training.

use std::ops::Range;

use graph::{BatchStatistics, Graph};

use super::executor::Executor;

/// A batch normalization that trains by the statistics of the batch.
struct Layer {
    node: usize,
    momentum: f32,
    /// Positions of its running mean and variance in [`RunningStatistics::moved`].
    mean: Range<usize>,
    variance: Range<usize>,
}

/// The running statistics of a graph. Every chunk of a step moves them; they become parameters when the step is taken.
#[derive(Default)]
pub(super) struct RunningStatistics {
    layers: Vec<Layer>,
    /// Numbers of each mean and variance among those of all parameters, ascending.
    places: Vec<Range<usize>>,
    /// For each of them, whether it stays as it is.
    frozen: Vec<bool>,
    /// The statistics one after the other, moved by the chunks of a step.
    moved: Vec<f32>,
    /// Number of the graph's parameters.
    parameters: usize,
}

impl RunningStatistics {
    pub(super) fn new(graph: &Graph) -> Self {
        let statistics = graph.running_statistics();
        let (mut places, mut first) = (Vec::new(), 0);
        for (position, parameter) in graph.parameters.iter().enumerate() {
            let size: usize = parameter.shape.iter().map(|&size| size as usize).product();
            if statistics.contains(&position) {
                places.push(first..first + size);
            }
            first += size;
        }
        let moved = |position: usize| {
            let number = statistics.range(..position).count();
            let start = places[..number].iter().map(Range::len).sum();
            start..start + places[number].len()
        };
        let layer = |BatchStatistics { node, mean, variance, momentum }: BatchStatistics| Layer {
            node,
            momentum,
            mean: moved(mean),
            variance: moved(variance),
        };
        let layers = graph.batch_statistics().into_iter().map(layer).collect();
        Self { layers, frozen: vec![false; places.len()], places, moved: Vec::new(), parameters: first }
    }

    /// Whether the graph has none.
    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Leaves statistics as they are whose factor in `free` is 0. Returns the optimizer's factors on the gradients: those
    /// in `free`, and 0 for all statistics. Empty factors stand for 1.
    pub(super) fn constrain(&mut self, free: &[f32]) -> Vec<f32> {
        if self.is_empty() {
            return free.to_vec();
        }
        let mut factors = if free.is_empty() { vec![1.0; self.parameters] } else { free.to_vec() };
        for (numbers, frozen) in self.places.iter().zip(&mut self.frozen) {
            *frozen = free.get(numbers.start) == Some(&0.0);
            factors[numbers.clone()].fill(0.0);
        }
        factors
    }

    /// Begins a step with these parameters.
    pub(super) fn begin(&mut self, parameters: &[f32]) {
        self.moved.clear();
        self.places.iter().for_each(|numbers| self.moved.extend_from_slice(&parameters[numbers.clone()]));
    }

    /// Moves the statistics by the batch that was computed last.
    pub(super) fn add(&mut self, executor: &Executor) {
        for Layer { node, momentum, mean, variance } in &self.layers {
            // Mean, inverse deviation and unbiased variance of each channel.
            let saved = executor.saved(*node);
            let channels = saved.len() / 3;
            for (numbers, batch) in [(mean, &saved[..channels]), (variance, &saved[2 * channels..])] {
                for (running, batch) in self.moved[numbers.clone()].iter_mut().zip(batch) {
                    *running = (1.0 - momentum) * *running + momentum * batch;
                }
            }
        }
    }

    /// Ends a step: copies the moved statistics to the parameters.
    pub(super) fn end(&self, parameters: &mut [f32]) {
        let mut moved = &self.moved[..];
        for (numbers, frozen) in self.places.iter().zip(&self.frozen) {
            let (own, rest) = moved.split_at(numbers.len());
            moved = rest;
            if !frozen {
                parameters[numbers.clone()].copy_from_slice(own);
            }
        }
    }
}
