//! Gradients of a step's mean loss.

use candle_core::{Tensor, Var};

use crate::train::error::TrainError;
use crate::train::learner::Score;

/// Returns the score of a chunk of examples, and the gradients of its mean loss, one for each variable that has one.
pub(in crate::train) type ChunkGradients<'a> =
    &'a mut dyn FnMut(&[usize]) -> Result<(Score, Vec<Option<Tensor>>), TrainError>;

/// Returns the mean loss of a chunk of examples, one number in 32 bits, and its number of predictions.
pub(super) type ChunkLoss<'a> = &'a mut dyn FnMut(&[usize]) -> Result<(Tensor, usize), TrainError>;

/// The gradients of the mean loss of the chosen examples, for each variable that has one, in chunks of at most `batch` examples. The
/// gradients of a chunk are those of its loss multiplied by `factor`; the result is divided by it.
pub(in crate::train) fn in_chunks(
    factor: f64,
    chosen: &[usize],
    batch: usize,
    gradients: ChunkGradients<'_>,
) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
    let (mut score, mut sums) = (Score::default(), Vec::new());
    for chunk in chosen.chunks(batch) {
        let (own, gradients) = gradients(chunk)?;
        score.add(own);
        #[expect(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
        let part = chunk.len() as f64 / chosen.len() as f64 / factor;
        sums.resize(gradients.len(), None);
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

/// [`in_chunks`] of a loss that candle differentiates.
pub(super) fn gradients(
    variables: &[Var],
    factor: f64,
    chosen: &[usize],
    batch: usize,
    loss: ChunkLoss<'_>,
) -> Result<(Score, Vec<Option<Tensor>>), TrainError> {
    in_chunks(factor, chosen, batch, &mut |chunk| {
        let (mean, predictions) = loss(chunk)?;
        #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^53")]
        let sum = f64::from(mean.to_scalar::<f32>()?) * predictions as f64;
        let score = Score { loss: sum, correct: 0, predictions: predictions as u64 };
        let scaled = if factor == 1.0 { mean } else { mean.affine(factor, 0.0)? };
        let gradients = scaled.backward()?;
        Ok((score, variables.iter().map(|variable| gradients.get(variable).cloned()).collect()))
    })
}

/// Gradients as a flat vector, in the variables' order; zeros for variables without one.
pub(in crate::train) fn flat(variables: &[Var], gradients: &[Option<Tensor>]) -> Result<Vec<f32>, TrainError> {
    let mut flat = Vec::new();
    for (variable, gradient) in variables.iter().zip(gradients) {
        match gradient {
            Some(gradient) => flat.extend(gradient.flatten_all()?.to_vec1::<f32>()?),
            None => flat.resize(flat.len() + variable.elem_count(), 0.0),
        }
    }
    Ok(flat)
}

/// Whether every value is finite.
pub(super) fn are_finite(gradients: &[Option<Tensor>]) -> Result<bool, TrainError> {
    for gradient in gradients.iter().flatten() {
        // A sum of magnitudes hides nothing: infinities cannot cancel.
        if !gradient.abs()?.sum_all()?.to_scalar::<f32>()?.is_finite() {
            return Ok(false);
        }
    }
    Ok(true)
}
