//! The order of examples: shuffled for each pass, a pure function of the seed. All examples of a step are returned at
//! once; [`Batches::chunk`] is how many to compute at once.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::config::Sgd;

/// Returns the indices of each step until the configured epochs or steps are used up.
pub(super) struct Batches {
    order: Vec<usize>,
    rng: ChaCha8Rng,
    size: usize,
    chunk: usize,
    /// Position in `order`; a new pass begins at `end`.
    position: usize,
    /// End of a pass.
    end: usize,
    /// Steps left.
    left: u64,
    /// Passes over the examples, unless the plan counts steps.
    epochs: Option<u32>,
}

impl Batches {
    /// Steps over `accumulate` batches of `batch_size` of `count` examples, or over all if there are
    /// fewer.
    pub(super) fn new(count: usize, Sgd { plan, seed }: Sgd<'_>) -> Self {
        let within = |size: u64| usize::try_from(size).unwrap_or(usize::MAX).clamp(1, count.max(1));
        let chunk = within(plan.batch_size.into());
        let size = within(u64::from(plan.batch_size) * u64::from(plan.accumulate));
        let per_epoch = count.div_ceil(size) as u64;
        let left = plan.steps.map_or_else(|| u64::from(plan.epochs) * per_epoch, u64::from);
        let epochs = plan.steps.is_none().then_some(plan.epochs);
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { order: (0..count).collect(), rng, size, chunk, position: count, end: count, left, epochs }
    }

    /// The same without a last chunk of fewer examples, which are others in each pass. Not all examples are left out.
    pub(super) fn of_at_least(mut self, least: usize) -> Self {
        let last = self.order.len() % self.chunk;
        if last < least && last < self.order.len() {
            self.end = self.order.len() - last;
            self.position = self.end;
            if let Some(epochs) = self.epochs {
                self.left = u64::from(epochs) * self.end.div_ceil(self.size) as u64;
            }
        }
        self
    }

    /// Maximum number of examples to compute at once.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// Whether all steps are done.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0 || self.order.is_empty()
    }

    /// Leaves out so many steps, which were taken before.
    pub(super) fn skip(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.next().is_none() {
                break;
            }
        }
    }

    /// The indices of the next step.
    pub(super) fn next(&mut self) -> Option<&[usize]> {
        if self.is_over() {
            return None;
        }
        self.left -= 1;
        if self.position == self.end {
            self.order.shuffle(&mut self.rng);
            self.position = 0;
        }
        let start = self.position;
        self.position = (start + self.size).min(self.end);
        Some(&self.order[start..self.position])
    }
}

#[cfg(test)]
mod tests {
    use task_spec::TrainingPlan;

    use super::*;

    fn all(count: usize, plan: &TrainingPlan) -> Vec<Vec<usize>> {
        let mut batches = Batches::new(count, Sgd { plan, seed: 0 });
        std::iter::from_fn(|| batches.next().map(<[usize]>::to_vec)).collect()
    }

    #[test]
    fn each_epoch_takes_every_example_once_in_another_order() {
        let plan = TrainingPlan { epochs: 2, batch_size: 4, ..TrainingPlan::default() };
        let batches = all(10, &plan);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2, 4, 4, 2]);
        let (first, second) = (batches[..3].concat(), batches[3..].concat());
        assert_ne!(first, second);
        for mut epoch in [first, second] {
            epoch.sort_unstable();
            assert_eq!(epoch, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn steps_go_round_the_data_and_a_large_batch_takes_what_is_there() {
        let plan = TrainingPlan { steps: Some(5), batch_size: 100, ..TrainingPlan::default() };
        assert_eq!(all(3, &plan).iter().map(Vec::len).collect::<Vec<_>>(), [3; 5]);
    }

    #[test]
    fn a_step_takes_as_many_batches_as_are_accumulated() {
        let plan = TrainingPlan { batch_size: 3, accumulate: 2, ..TrainingPlan::default() };
        assert_eq!(all(10, &plan).iter().map(Vec::len).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(all(10, &plan), all(10, &TrainingPlan { batch_size: 6, ..TrainingPlan::default() }));
        assert_eq!(Batches::new(10, Sgd { plan: &plan, seed: 0 }).chunk(), 3);
    }

    #[test]
    fn the_seed_decides() {
        let plan = TrainingPlan { batch_size: 10, ..TrainingPlan::default() };
        let first = |seed| Batches::new(50, Sgd { plan: &plan, seed }).next().map(<[usize]>::to_vec);
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
