//! What may happen in a simulated world, one variant each. The world takes one operation after the other out of its
//! [`Queue`](crate::queue::Queue) and performs it; nothing else changes it. Whatever else is to happen to a federation, such
//! as a worker that dies or a message that comes twice, is one more variant.
//!
//! `action` numbers what a device does: an operation about something it no longer does is void.

use client_sdk::participant::machine::{Input, Request};
use wire::TaskId;
use wire::participant::ModelRef;

use crate::in_process::{Advance, Participant};
use crate::training::TrainingHandle;

pub(crate) enum Operation {
    /// Time has passed for a device that waited, or its round's deadline has come.
    Tick { device: u32, action: u64 },
    /// A request reaches the coordinator.
    Arrive { device: u32, action: u64, request: Request },
    /// A request for a model reaches the coordinator.
    Fetch { device: u32, action: u64, task: TaskId, model: ModelRef },
    /// An answer reaches the device.
    Answer { device: u32, action: u64, input: Box<Input> },
    /// The device has computed what it does next.
    Computed { device: u32, job: TrainingHandle<Computed> },
    /// There may be something for a poll that is held open.
    Look { device: u32, action: u64 },
    /// A poll was held open for as long as it was meant to be.
    PollEnds { device: u32, action: u64 },
    /// A device that vanished starts again from its journal.
    Return { device: u32 },
    /// The coordinator's background work looks for something to do.
    Step,
}

/// A participant that was lent, and what it wants to do next; nothing if it was off.
pub(crate) type Computed = (Box<Participant>, Option<Advance>);
