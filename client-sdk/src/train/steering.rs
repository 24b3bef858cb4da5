//! Steering between two steps of a training: it ends early, or leaves its state to resume later with the same bits.

use learning::contribution::fed_nova::Reach;
use zeroize::Zeroizing;

use super::learner::{LearnerState, Score};
use crate::trainer::Interrupt;

/// The action of a training between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// The current state is the result.
    Enough,
    /// Save the state, and go on.
    Save,
    /// Save the state, and stop.
    Pause,
}

/// Decides between the steps.
pub(crate) trait Steering {
    /// The last saved state of a training that did not end.
    fn resume(&mut self) -> Option<Zeroizing<Vec<u8>>>;
    /// Called with the number of steps tried.
    fn next(&mut self, steps: u64) -> Next;
    /// Keeps the state; whether it could.
    fn save(&mut self, state: &[u8]) -> bool;
    /// Maximum number of bytes of a training step of a graph. Default: [`graph::MAX_MEMORY`].
    fn memory(&self) -> u64 {
        graph::MAX_MEMORY
    }
    /// What ends a step before it is complete; by default nothing.
    fn interrupt(&self) -> Interrupt {
        Interrupt::default()
    }
}

/// Ends a training when a function returns false.
pub(super) struct While<'a>(pub(super) &'a mut dyn FnMut(u64) -> bool);

impl Steering for While<'_> {
    fn resume(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        None
    }

    fn next(&mut self, steps: u64) -> Next {
        if (self.0)(steps) { Next::GoOn } else { Next::Enough }
    }

    fn save(&mut self, _: &[u8]) -> bool {
        false
    }
}

/// The state of a training between two steps. The order of examples follows from the number of steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RunState {
    pub(super) tried: u64,
    pub(super) taken: u64,
    pub(super) reach: Reach,
    pub(super) score: Score,
}

/// Format of the written state.
const FORMAT: u8 = 1;

impl RunState {
    /// Writes it with the state of the model, for a training on so many examples.
    pub(super) fn write(&self, examples: usize, learner: &LearnerState) -> Zeroizing<Vec<u8>> {
        let [velocity, distance] = self.reach.state();
        let (factor, steps) = learner.scale.unwrap_or_default();
        let vectors = || std::iter::once(&learner.values).chain(&learner.moments);
        let mut bytes = Zeroizing::new(Vec::with_capacity(128 + 4 * vectors().map(Vec::len).sum::<usize>()));
        bytes.extend_from_slice(&[FORMAT, u8::from(learner.scale.is_some())]);
        for number in [
            examples as u64,
            self.tried,
            self.taken,
            velocity.to_bits(),
            distance.to_bits(),
            self.score.loss.to_bits(),
            self.score.correct,
            self.score.predictions,
            factor.to_bits(),
            steps.into(),
            learner.moments.len() as u64,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        vectors().flatten().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        bytes
    }

    /// Reads it for a training on so many examples, that begins with `start`, of a model of so many parameters; `None` if it is
    /// of another.
    pub(super) fn read(start: &Self, examples: usize, parameters: usize, bytes: &[u8]) -> Option<(Self, LearnerState)> {
        let (&[format, has_scale], rest) = bytes.split_first_chunk()?;
        let (numbers, rest) = rest.split_at_checked(11 * 8)?;
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut number = || numbers.next();
        let (count, tried, taken) = (number()?, number()?, number()?);
        let mut reach = start.reach;
        reach.restore([f64::from_bits(number()?), f64::from_bits(number()?)]);
        let score = Score { loss: f64::from_bits(number()?), correct: number()?, predictions: number()? };
        let scale = (f64::from_bits(number()?), u32::try_from(number()?).ok()?);
        let moments = usize::try_from(number()?).ok().filter(|moments| *moments <= 2)?;
        let is_ours = format == FORMAT && count == examples as u64 && rest.len() == (1 + moments) * parameters * 4;
        if !is_ours || parameters == 0 {
            return None;
        }
        let values = rest.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let values: Vec<f32> = values.collect();
        let mut vectors = values.chunks(parameters).map(<[f32]>::to_vec);
        let state = LearnerState {
            values: vectors.next()?,
            moments: vectors.collect(),
            steps: taken,
            scale: (has_scale == 1).then_some(scale),
        };
        Some((Self { tried, taken, reach, score }, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> RunState {
        RunState { tried: 0, taken: 0, reach: Reach::new(0.9, 0.1), score: Score::default() }
    }

    #[test]
    fn a_state_comes_back_bit_for_bit_and_one_of_another_training_does_not() {
        let mut run = start();
        (0..7).for_each(|_| run.reach.step(0.1));
        run.score = Score { loss: 0.1 + 0.2, correct: 3, predictions: 70 };
        (run.tried, run.taken) = (7, 6);
        for (moments, scale) in [(0, None), (1, Some((1024.0, 5))), (2, None)] {
            let moments = vec![vec![f32::MIN_POSITIVE, -0.0, 3.5]; moments];
            let learner = LearnerState { values: vec![0.1, 0.2, 0.3], moments, steps: 6, scale };
            let bytes = run.write(60, &learner);
            assert_eq!(RunState::read(&start(), 60, 3, &bytes), Some((run.clone(), learner)));
            assert_eq!(RunState::read(&start(), 61, 3, &bytes), None, "other examples");
            assert_eq!(RunState::read(&start(), 60, 4, &bytes), None, "another model");
            assert_eq!(RunState::read(&start(), 60, 3, &bytes[..bytes.len() - 1]), None);
            assert_eq!(RunState::read(&start(), 60, 3, &[]), None);
        }
    }
}
