//! The operations of a simulated world. The world takes one operation after the other from its
//! [`Queue`](crate::queue::Queue) and performs it; only operations change it. A new kind of event, such as a worker
//! that dies or a message that arrives twice, is one more variant.
//!
//! `action` numbers a device's actions: an operation for an earlier action is void.

use client_sdk::participant::machine::Input;
use client_sdk::transport::Request;
use wire::TaskId;
use wire::participant::ModelRef;

use crate::SimulationError;
use crate::in_process::{Advance, Participant};
use crate::regional::RegionalTraining;
use crate::training::TrainingHandle;

pub(crate) enum Operation {
    /// A device's wait is over, or its round's deadline has passed.
    Tick { device: u32, action: u64 },
    /// A request reaches the coordinator.
    Arrive { device: u32, action: u64, request: Request },
    /// A request for a model reaches the coordinator.
    Fetch { device: u32, action: u64, task: TaskId, model: ModelRef },
    /// An answer reaches the device.
    Answer { device: u32, action: u64, input: Box<Input> },
    /// The device has finished a computation.
    Computed { device: u32, job: TrainingHandle<Computed> },
    /// The world waits for a region's training.
    Region { region: u32, action: u64, job: TrainingHandle<Result<RegionalTraining, SimulationError>> },
    /// There may be a result for an open poll.
    Look { device: u32, action: u64 },
    /// An open poll ends without a result.
    PollEnds { device: u32, action: u64 },
    /// A device that dropped out restarts from its journal.
    Return { device: u32 },
    /// The coordinator's background work runs.
    Step,
}

/// A participant returned from a thread, and its next action; `None` if the device was off.
pub(crate) type Computed = (Box<Participant>, Option<Advance>);
