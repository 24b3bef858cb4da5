//! An analysis: an app gives its rows, and only counts and sums of them leave the device.

use client_sdk::runner::checked_rows;

use crate::error::TributaryError;
use crate::job::Job;

impl Job {
    /// Submits rows of `width` numbers, with the value to predict of each if the analysis predicts one. Rows that do
    /// not fit leave the job open.
    pub(crate) fn hand_in_rows(
        &self,
        width: usize,
        values: Vec<f64>,
        targets: Option<Vec<f64>>,
    ) -> Result<(), TributaryError> {
        self.of_this_process()?;
        self.hand_in_table(checked_rows(self.constraints().analysis(), width, values, targets)?)
    }
}

#[cfg_attr(feature = "uniffi", uniffi::export)]
impl Job {
    /// The job's analysis as the JSON object of its task: `kind`, `max_rows`, `columns` and further parameters. Null if
    /// the job trains a model. Only an app with `answers_analyses` in its options gets an analysis. Its parameters
    /// are empty, except those of an evaluation (`kind`), which are the model to measure: the rows are its predictions, the probability
    /// of each class or one number, and the targets the true classes or numbers.
    #[must_use]
    pub fn analysis(&self) -> Option<String> {
        self.training().analytics.as_ref().map(|analytics| analytics.to_value().to_string())
    }

    /// Submits this device's rows for an analysis: rows of `width` numbers (64-bit floats, little-endian), with the
    /// columns of the analysis in their order, and the value to predict of each row if it predicts one. The rows stay
    /// on the device: only the counts and sums of the analysis leave it, masked as the task prescribes. Give the same
    /// rows in the same order in each round.
    ///
    /// # Errors
    /// [`TributaryError::Update`] if the rows do not fit the analysis, or the job trains a model, and the job still takes an answer;
    /// [`TributaryError::Overdue`], [`TributaryError::Answered`], [`TributaryError::OtherProcess`].
    pub fn give_rows(&self, rows: Vec<u8>, width: u64, targets: Option<Vec<u8>>) -> Result<(), TributaryError> {
        let targets = targets.map(|targets| doubles(&targets)).transpose()?;
        self.hand_in_rows(usize::try_from(width).unwrap_or(usize::MAX), doubles(&rows)?, targets)
    }
}

/// Numbers of 64 bits as Kotlin and Swift hand them over.
fn doubles(bytes: &[u8]) -> Result<Vec<f64>, TributaryError> {
    let (doubles, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        let text = format!("{} bytes are no numbers, of 8 bytes each", bytes.len());
        return Err(TributaryError::Update(text));
    }
    Ok(doubles.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
}
