//! The number of examples that a device computes at once, by the memory that they take.

use graph::{GraphModel, Point, cost, infer};

use super::examples::point;
use crate::train::error::TrainError;
use crate::train::examples::Examples;

/// The largest of `most`, half of it, a quarter and so on whose training step stays within `limit` bytes.
///
/// # Errors
/// [`TrainError::Memory`] if one example exceeds the limit; [`TrainError::Graph`] for a length that the graph does not
/// compute.
pub(in crate::train) fn chunk(
    model: &GraphModel,
    examples: &Examples<'_>,
    most: usize,
    limit: u64,
) -> Result<usize, TrainError> {
    let needed = |point: Point| -> Result<u64, TrainError> {
        Ok(cost(model.graph(), &infer(model.graph(), point).map_err(TrainError::Graph)?).memory)
    };
    let mut count = most.max(1);
    loop {
        let bytes = match needed(point(examples, count)) {
            Ok(bytes) if bytes <= limit => return Ok(count),
            Ok(bytes) => bytes,
            Err(error) if count == 1 => return Err(error),
            // A larger batch than the graph computes.
            Err(_) => u64::MAX,
        };
        if count == 1 {
            return Err(TrainError::Memory { bytes, limit });
        }
        count /= 2;
    }
}

/// The same for training. A batch normalization by the batch needs all of it at once, so nothing smaller than `most` will do.
///
/// # Errors
/// As [`chunk`]; [`TrainError::BatchMemory`] if `most` examples exceed the limit, [`TrainError::Graph`] if they exceed that of
/// all graphs.
pub(in crate::train) fn training_chunk(
    model: &GraphModel,
    examples: &Examples<'_>,
    most: usize,
    limit: u64,
) -> Result<usize, TrainError> {
    let count = chunk(model, examples, most, limit)?;
    if count == most.max(1) || model.graph().batch_statistics().is_empty() {
        return Ok(count);
    }
    let shapes = infer(model.graph(), point(examples, most)).map_err(TrainError::Graph)?;
    Err(TrainError::BatchMemory { examples: most, bytes: cost(model.graph(), &shapes).memory, limit })
}

/// Number of examples that a batch needs, so that each channel has more than one value: 1 or 2.
///
/// # Errors
/// [`TrainError::Graph`] for a length that the graph does not compute.
pub(in crate::train) fn least_batch(model: &GraphModel, examples: &Examples<'_>) -> Result<usize, TrainError> {
    let least = model.graph().least_batch(point(examples, 1).length).map_err(TrainError::Graph)?;
    Ok(least as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Architecture, Mlp};
    use crate::train::graph::tests::mlp_graph;

    #[test]
    fn chunk_shrinks_to_the_limit_and_names_it() {
        let Architecture::Graph(model) = mlp_graph(&Mlp { inputs: 6, hidden: vec![9], classes: 3 }) else {
            unreachable!("it is a graph")
        };
        let (features, labels) = (vec![0.0; 64 * 6], vec![0; 64]);
        let examples = Examples::Labelled { features: &features, labels: &labels, width: 6 };
        let within = |limit| chunk(&model, &examples, 64, limit);
        let shapes = infer(model.graph(), Point { batch: 16, length: 1 }).unwrap();
        let bytes = cost(model.graph(), &shapes).memory;
        assert_eq!((within(u64::MAX).unwrap(), within(bytes).unwrap(), within(bytes - 1).unwrap()), (64, 16, 8));
        let error = within(100).unwrap_err();
        assert!(error.to_string().contains("this device's limit is 100"), "{error}");
    }
}
