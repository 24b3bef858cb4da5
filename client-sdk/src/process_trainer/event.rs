//! Events of a program.

/// A line of `progress.jsonl`; further fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Steps taken so far.
    pub step: u64,
    /// Steps that it will take.
    #[serde(default)]
    pub of: Option<u64>,
    /// Of the last step or steps.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Examples trained on in a second, by all of its processes.
    #[serde(default)]
    pub samples_per_s: Option<f64>,
    /// Seconds of a step.
    #[serde(default)]
    pub step_s: Option<f64>,
    /// Seconds of it in which processes waited for each other's numbers.
    #[serde(default)]
    pub communication_s: Option<f64>,
    /// The part of the time that its devices were busy, 0 to 1.
    #[serde(default)]
    pub utilisation: Option<f64>,
    /// How many processes train.
    #[serde(default)]
    pub processes: Option<u32>,
}

/// State of a program, for the app to show.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProgramEvent {
    /// It was started: the first time for a job, or again.
    Started {
        /// From 1.
        start: u32,
    },
    /// It wrote a line of progress.
    Progress(Progress),
    /// It failed, and is started again.
    Failed {
        /// In words.
        reason: String,
    },
}
