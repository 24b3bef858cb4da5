//! How batch normalizations of an imported model train.

use graph_import::BatchNorm;

/// Values of `model.batch_norm`.
#[derive(Clone, Copy, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// By running statistics, which are constants
    Frozen,
    /// By the batch; running statistics stay on each device
    Local,
    /// By the batch; running statistics are averaged like parameters
    Averaged,
}

impl Mode {
    /// The mode that a task has to state.
    pub(super) fn stated(self) -> Option<&'static str> {
        match self {
            Self::Frozen => None,
            Self::Local => Some("local"),
            Self::Averaged => Some("averaged"),
        }
    }
}

impl From<Mode> for BatchNorm {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Frozen => Self::Frozen,
            Mode::Local | Mode::Averaged => Self::Batch,
        }
    }
}
