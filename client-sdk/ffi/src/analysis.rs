//! An analysis: an app gives its rows, and what leaves the device is what is counted of them.

use client_sdk::runner::checked_rows;

use crate::error::TributaryError;
use crate::job::Job;

impl Job {
    /// The analysis that the job is, as the JSON object of its task; nothing if it trains a model.
    pub(crate) fn analysis(&self) -> Option<String> {
        self.training().analytics.as_ref().map(|analytics| analytics.to_value().to_string())
    }

    /// Hands in rows of `width` numbers, with what is to be predicted of each if the analysis predicts something. Rows that do not fit
    /// leave the job open.
    pub(crate) fn give_rows(
        &self,
        width: usize,
        values: Vec<f64>,
        targets: Option<Vec<f64>>,
    ) -> Result<(), TributaryError> {
        self.of_this_process()?;
        self.hand_in_rows(checked_rows(self.manner().analysis(), width, values, targets)?)
    }
}
