//! Data distributed to participants, with a common test set.

use crate::{DataError, Dataset, Labelled, Partition};

/// Every participant's data, and a held-out test set.
#[derive(Clone, Debug, PartialEq)]
pub struct Federated {
    /// Each participant's own data, never empty.
    pub shards: Vec<Dataset>,
    /// Held-out data, of the same kind and shape.
    pub test: Dataset,
    /// A name for each participant (a number, a speaker), as many as `shards`.
    pub names: Vec<String>,
    /// A one-line description for people.
    pub description: String,
}

impl Federated {
    /// Distributes `train` to `participants`.
    ///
    /// # Errors
    /// As for [`Partition::partition`], and [`DataError::Incompatible`] if `test` has another shape than `train`.
    pub fn partitioned(
        train: &Labelled,
        test: Labelled,
        partition: Partition,
        participants: usize,
        seed: u64,
        source: &str,
    ) -> Result<Self, DataError> {
        if (train.width, train.classes) != (test.width, test.classes) {
            return Err(DataError::Incompatible(format!("{train:?} to train and {test:?} to test differ in shape")));
        }
        let parts = partition.partition(&train.labels, train.classes, participants, seed)?;
        Ok(Self {
            shards: parts.iter().map(|part| Dataset::Labelled(train.subset(part))).collect(),
            test: Dataset::Labelled(test),
            names: numbered(participants),
            description: format!("{source}, {} examples for {participants} participants, {partition}", train.len()),
        })
    }
}

/// Numbers as names.
pub(crate) fn numbered(participants: usize) -> Vec<String> {
    (0..participants).map(|index| format!("participant-{index}")).collect()
}
