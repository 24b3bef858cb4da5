//! Functions about participants that the app drives.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::{c_char, c_void};

use super::arguments::{can_give, give, optional, put, text};
use super::callbacks::{Context, TributaryCallbacks, TributaryDeviceState};
use super::code::TributaryCode;
use super::guard::guard;
use super::handles::Table;
use super::job::{self, TributaryJob};
use super::model::{self, TributaryModel};
use super::participant::{TributaryDataUse, callbacks_of, give_data_use};
use crate::error::TributaryError;
use crate::machine::{Circumstances, Machine, Todo};

/// A participant that the app drives: a number, to be copied freely. `tributary_machine_tick` returns the next step,
/// and `tributary_machine_perform` does it on the calling thread; it has no thread of its own. Any thread may use it,
/// until `tributary_machine_close`; afterwards calls return `TRIBUTARY_CODE_CLOSED`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryMachine {
    /// 0 is invalid.
    pub id: u64,
}

/// Input of a tick.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TributaryCircumstances {
    /// Milliseconds on a monotonic clock of the app, since a moment of its choice.
    pub elapsed_ms: u64,
    /// The device's state, for `device_conditions` of the options; ignored without these.
    pub device: TributaryDeviceState,
    /// Number of training examples; `TRIBUTARY_UNKNOWN` if it is as before.
    pub examples: i64,
}

/// The next step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TributaryTodo {
    /// Send a request and wait for its answer: perform.
    Send = 0,
    /// Fetch a model: perform.
    Fetch = 1,
    /// Train: perform, which takes as long as the app's training does.
    Train = 2,
    /// Read or write the journal: perform.
    Journal = 3,
    /// Another thread performs the step: tick again later, or when it has returned.
    Busy = 4,
    /// Wait until a moment.
    WaitUntil = 5,
}

/// Trains on the thread that calls `tributary_machine_perform`, if the step is TRAIN; it answers the job before it
/// returns. Without an answer the round is given up, unless `tributary_job_should_pause` and a checkpoint was saved:
/// then it is called again with the same job, and resumes. The handle is invalid when it has returned.
pub type TributaryTrain = Option<extern "C" fn(context: *mut c_void, job: TributaryJob)>;

static MACHINES: Table<Machine> = Table::new();

fn with(
    machine: TributaryMachine,
    work: impl FnOnce(&Machine) -> Result<TributaryCode, TributaryError>,
) -> TributaryCode {
    guard(|| work(&*MACHINES.get(machine.id)?))
}

/// Opens the journal, and puts the handle of a participant that the app drives into `machine`. `options` and
/// `callbacks` are those of `tributary_start`, but `device_state` must be NULL, since it comes with each tick. The
/// ticking thread delivers events. Opening is local: it neither starts a thread nor sends a request. Close it with
/// `tributary_machine_close`.
///
/// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_open(
    options: *const c_char,
    callbacks: *const TributaryCallbacks,
    machine: *mut TributaryMachine,
) -> TributaryCode {
    guard(|| {
        can_give(machine, "machine")?;
        let opened = Machine::open(text(options, "options")?.to_owned(), callbacks_of(callbacks)?)?;
        give(TributaryMachine { id: MACHINES.put(opened) }, machine, "machine")?;
        Ok(TributaryCode::Ok)
    })
}

/// Puts the next step into `todo`, and into `until_ms` the moment of WAIT_UNTIL, on the clock of `elapsed_ms`;
/// otherwise 0. It returns without waiting or starting a thread: it computes for microseconds, plus the time to hash
/// and encode outgoing data. While a thread performs the step, the answer is BUSY, unless the round is left: because
/// its time is up, or the conditions have not held for ten seconds and a checkpoint is missing.
///
/// Returns OK; ENDED once the participant has ended, and then always. Errors: the reason of an early end (ENROLLMENT,
/// JOURNAL, FAILED), ARGUMENT, CLOSED, IN_CALLBACK, OTHER_PROCESS.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_tick(
    machine: TributaryMachine,
    circumstances: *const TributaryCircumstances,
    todo: *mut TributaryTodo,
    until_ms: *mut u64,
) -> TributaryCode {
    with(machine, |machine| {
        can_give(todo, "todo")?;
        can_give(until_ms, "until_ms")?;
        let circumstances = optional(circumstances, "circumstances")?;
        let circumstances =
            circumstances.ok_or_else(|| TributaryError::Argument("circumstances is NULL".to_owned()))?;
        let TributaryCircumstances { elapsed_ms, device, examples } = circumstances;
        let examples = u64::try_from(examples).ok();
        let circumstances = Circumstances { elapsed_ms: Some(elapsed_ms), device: device.known(), examples };
        let (said, until) = match machine.tick(circumstances)? {
            Todo::Send => (TributaryTodo::Send, 0),
            Todo::Fetch => (TributaryTodo::Fetch, 0),
            Todo::Train => (TributaryTodo::Train, 0),
            Todo::Journal => (TributaryTodo::Journal, 0),
            Todo::Busy => (TributaryTodo::Busy, 0),
            Todo::WaitUntil { elapsed_ms } => (TributaryTodo::WaitUntil, elapsed_ms),
            Todo::Ended { end: _ } => return Ok(TributaryCode::Ended),
        };
        give(said, todo, "todo")?;
        give(until, until_ms, "until_ms")?;
        Ok(TributaryCode::Ok)
    })
}

/// Performs the step of the last tick on this thread, and waits for it; the next tick then returns the following step.
/// `train` is called with `context` if the step is TRAIN and has a job. The evaluation of a task's last version lacks a
/// job, since only a trainer in Rust measures it; here it has no metrics. A training should pause after
/// `training_slice_ms` of the options, which an app that saves checkpoints may do (`tributary_job_should_pause`). While
/// it sends or fetches, a helper thread may look up the server's name, or read the model's file.
///
/// Returns OK; NOTHING if all steps are done or in progress on other threads. Errors: ARGUMENT, CLOSED, IN_CALLBACK,
/// OTHER_PROCESS.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_perform(
    machine: TributaryMachine,
    train: TributaryTrain,
    context: *mut c_void,
) -> TributaryCode {
    with(machine, |machine| {
        let train = train.ok_or_else(|| TributaryError::Argument("train is NULL".to_owned()))?;
        let context = Context(context);
        let did = machine.perform_with(move |found| {
            let context = context;
            // A job that cannot be handed out is dropped, and counts as failed.
            if let Ok(job) = job::hand_out(found) {
                train(context.0, job);
                job::forget(job);
            }
        })?;
        Ok(if did { TributaryCode::Ok } else { TributaryCode::Nothing })
    })
}

/// Has it end from the next tick on: an unfinished training is given up, and an update that waits to be sent stays in the journal.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_stop(machine: TributaryMachine) -> TributaryCode {
    with(machine, |machine| {
        machine.stop()?;
        Ok(TributaryCode::Ok)
    })
}

/// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_id(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| match machine.id()? {
        Some(id) => put(&id, buffer, size, length),
        None => Ok(TributaryCode::Nothing),
    })
}

/// The condition of the device that held it up at the last tick, in the form of `tributary_held_up`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_held_up(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| match machine.held_up()? {
        Some(held_up) => put(&held_up.in_words(), buffer, size, length),
        None => Ok(TributaryCode::Nothing),
    })
}

/// As `tributary_privacy_spent`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_privacy_spent(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| put(&machine.privacy_spent()?, buffer, size, length))
}

/// As `tributary_privacy_lifetime`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_privacy_lifetime(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| put(&machine.privacy_lifetime()?, buffer, size, length))
}

/// As `tributary_refusals`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_refusals(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| put(&machine.refusals()?, buffer, size, length))
}

/// Puts the bytes sent and received into `used`, as of the last tick.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_data_use(machine: TributaryMachine, used: *mut TributaryDataUse) -> TributaryCode {
    with(machine, |machine| {
        can_give(used, "used")?;
        give_data_use(machine.data_use()?, used)
    })
}

/// As `tributary_model`; reads the journal on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_model(
    machine: TributaryMachine,
    task: *const c_char,
    model: *mut TributaryModel,
) -> TributaryCode {
    with(machine, |machine| {
        can_give(model, "model")?;
        model::hand_out(machine.model(text(task, "task")?.to_owned())?, model)
    })
}

/// As `tributary_models`; reads the journal on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_models(
    machine: TributaryMachine,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(machine, |machine| put(&serde_json::Value::from(machine.models()?).to_string(), buffer, size, length))
}

/// Forgets the machine immediately; the journal allows it to continue. The journal is free once all threads have left
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_machine_close(machine: TributaryMachine) -> TributaryCode {
    guard(|| MACHINES.take(machine.id).map(|_| TributaryCode::Ok))
}
