//! Errors of a simulation, explained for the user.

use simulation::SimulationError;

use crate::failure::{Exit, Failure};

/// The failure to report.
pub(super) fn failure(error: SimulationError) -> Failure {
    let exit = match &error {
        SimulationError::Invalid(_) | SimulationError::Refused(_) => Exit::Usage,
        SimulationError::Data(_) => Exit::Data,
        SimulationError::Coordinator(_) => Exit::Server,
        SimulationError::Participant { .. } => Exit::Training,
        SimulationError::Threads(_) => Exit::Internal,
    };
    Failure::new(exit, error)
}
