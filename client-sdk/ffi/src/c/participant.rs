//! Functions about participants.
//!
//! This file is free of `unsafe` blocks. Exporting a name counts as unsafe, since another library might have the same.
#![expect(unsafe_code, reason = "`no_mangle`: all names begin with tributary_")]

use std::ffi::c_char;
use std::sync::Arc;

use super::arguments::{can_give, give, optional, put, text};
use super::callbacks::TributaryCallbacks;
use super::code::TributaryCode;
use super::guard::{guard, last_error};
use super::handles::Table;
use super::job::{self, TributaryJob};
use crate::app::callbacks::Callbacks;
use crate::app::conditions::DataUse;
use crate::error::TributaryError;
use crate::participant::{Next, Participant, withdraw};

/// A participant: a number, to be copied freely. Any thread may use it. It stands for the participant from
/// `tributary_start` until `tributary_close`; afterwards, and where it is made up, calls return `TRIBUTARY_CODE_CLOSED`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryParticipant {
    /// 0 is invalid.
    pub id: u64,
}

static PARTICIPANTS: Table<Participant> = Table::new();

pub(super) fn with(
    participant: TributaryParticipant,
    work: impl FnOnce(&Participant) -> Result<TributaryCode, TributaryError>,
) -> TributaryCode {
    guard(|| work(&*PARTICIPANTS.get(participant.id)?))
}

fn done(result: Result<(), TributaryError>) -> Result<TributaryCode, TributaryError> {
    result.map(|()| TributaryCode::Ok)
}

/// The callbacks of an app; all are absent if `callbacks` is NULL.
pub(super) fn callbacks_of(callbacks: *const TributaryCallbacks) -> Result<Callbacks, TributaryError> {
    let callbacks = optional(callbacks, "callbacks")?;
    if callbacks.is_some_and(|set| set.load_secret.is_some() != set.save_secret.is_some()) {
        return Err(TributaryError::Argument("load_secret and save_secret go together".to_owned()));
    }
    if callbacks.is_some_and(|set| set.begin_request.is_some() != set.show_certificate.is_some()) {
        return Err(TributaryError::Argument("begin_request and show_certificate go together".to_owned()));
    }
    Ok(callbacks.map_or_else(Callbacks::default, TributaryCallbacks::into_callbacks))
}

/// The version of the library, as text. Belongs to the library, for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Copies the reason for the last error of a call on this thread into `buffer`; an empty text before the first error.
/// `length`, unless NULL, gets the size that the text needs with its NUL; `TRIBUTARY_CODE_TOO_SMALL` if the buffer has
/// less.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_last_error(buffer: *mut c_char, size: usize, length: *mut usize) -> TributaryCode {
    guard(|| put(&last_error(), buffer, size, length))
}

/// Starts a participant on a thread of its own, and puts its handle into `participant`.
///
/// `options` is a JSON object in UTF-8: `server`, `journal`, `ca_pem`, at first `token`, and the other options of
/// docs/OPTIONS.md, with defaults. It may be freed when the call returns. `callbacks` may be NULL; see
/// `TributaryCallbacks` for the lifetime of its functions and context. Close the participant with `tributary_close`.
///
/// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_start(
    options: *const c_char,
    callbacks: *const TributaryCallbacks,
    participant: *mut TributaryParticipant,
) -> TributaryCode {
    guard(|| {
        can_give(participant, "participant")?;
        let callbacks = callbacks_of(callbacks)?;
        let started = Participant::start(text(options, "options")?.to_owned(), callbacks)?;
        give(TributaryParticipant { id: PARTICIPANTS.put(started) }, participant, "participant")?;
        Ok(TributaryCode::Ok)
    })
}

/// Waits for the next job for at most `limit_ms` milliseconds, and puts its handle into `job`. Threads may call
/// concurrently; each job goes to one of them.
///
/// Returns OK; NOTHING if the limit has passed without a job: call again; ENDED once the participant has ended, and
/// then always. Errors: the reason of an early end (ENROLLMENT, JOURNAL, FAILED), CLOSED (also if another thread closes
/// it), IN_CALLBACK.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_next(
    participant: TributaryParticipant,
    limit_ms: u64,
    job: *mut TributaryJob,
) -> TributaryCode {
    with(participant, |participant| {
        can_give(job, "job")?;
        match participant.next(limit_ms)? {
            Next::Job { job: found } => {
                give(job::hand_out(Arc::clone(&found))?, job, "job")?;
                Ok(TributaryCode::Ok)
            }
            Next::Waiting => Ok(TributaryCode::Nothing),
            Next::Ended { end: _ } => Ok(TributaryCode::Ended),
        }
    })
}

/// Pauses, and stops requests until `tributary_resume`. A job under way should pause: once it has saved a checkpoint,
/// or in ten seconds, it is withdrawn, and comes again if its round still waits. Without a checkpoint by then its round
/// is given up, as is any other without a finished update. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_pause(participant: TributaryParticipant) -> TributaryCode {
    with(participant, |participant| done(participant.pause()))
}

/// Ends a pause. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_resume(participant: TributaryParticipant) -> TributaryCode {
    with(participant, |participant| done(participant.resume()))
}

/// Has the participant ask `device_state` now. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_conditions_changed(participant: TributaryParticipant) -> TributaryCode {
    with(participant, |participant| done(participant.conditions_changed()))
}

/// Sets the number of training examples that is reported to the coordinator; `tributary_job_finish` sets it, too. Does
/// not wait.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_set_examples(participant: TributaryParticipant, examples: u64) -> TributaryCode {
    with(participant, |participant| done(participant.set_examples(examples)))
}

/// Copies the participant's id into `buffer`, as `tributary_last_error` does with its text. NOTHING before it is enrolled.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_id(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| match participant.id()? {
        Some(id) => put(&id, buffer, size, length),
        None => Ok(TributaryCode::Nothing),
    })
}

/// Copies the spending on each private task, from the participant's own ledger, into `buffer` as a JSON array, as
/// `tributary_last_error` does with its text.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_privacy_spent(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| put(&participant.privacy_spent()?, buffer, size, length))
}

/// Copies the spending on all tasks together, and the limit on it, into `buffer` as a JSON object, as
/// `tributary_last_error` does with its text.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_privacy_lifetime(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| put(&participant.privacy_lifetime()?, buffer, size, length))
}

/// Copies the participant's refusals and their reasons into `buffer` as a JSON array, the latest last, as
/// `tributary_last_error` does with its text. Each of the last fifty reasons has the attempt that was refused last
/// (`task`, `round`, `attempt`), `code` (sent to the coordinator, or null), `reason` (in words, which stay on the
/// device), `at_ms` (since 1970) and `times`. Refusals of earlier processes with this journal are included.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_refusals(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| put(&participant.refusals()?, buffer, size, length))
}

/// Copies the condition of the device that holds the participant up now into `buffer`, as `tributary_last_error` does
/// with its text: its name (`charging`, `unmetered`, `idle`, `battery`, `thermal` or `data_cap`), a colon, and the same
/// in words. NOTHING if all hold.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_held_up(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| match participant.held_up()? {
        Some(held_up) => put(&held_up.in_words(), buffer, size, length),
        None => Ok(TributaryCode::Nothing),
    })
}

/// Bytes sent and received, without those of TLS.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryDataUse {
    /// In this day of UTC.
    pub sent_today: u64,
    /// In this day of UTC.
    pub received_today: u64,
    /// Ever with this journal.
    pub sent: u64,
    /// Ever with this journal.
    pub received: u64,
}

/// Puts the bytes sent and received into `used`.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_data_use(participant: TributaryParticipant, used: *mut TributaryDataUse) -> TributaryCode {
    with(participant, |participant| {
        can_give(used, "used")?;
        give_data_use(participant.data_use()?, used)
    })
}

pub(super) fn give_data_use(counted: DataUse, used: *mut TributaryDataUse) -> Result<TributaryCode, TributaryError> {
    let DataUse { sent_today, received_today, sent, received } = counted;
    give(TributaryDataUse { sent_today, received_today, sent, received }, used, "used")?;
    Ok(TributaryCode::Ok)
}

/// Requests the participant's stop, and returns immediately; `tributary_next` returns ENDED once it has stopped.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_stop(participant: TributaryParticipant) -> TributaryCode {
    with(participant, |participant| done(participant.stop()))
}

/// Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Copies the coordinator's
/// signed statement about the rounds and versions that contain its updates, verified, into `buffer` as a JSON object, as
/// `tributary_last_error` does with its text: store it as evidence. `options` and `callbacks` are those of
/// `tributary_start`, and may be freed when the call returns.
///
/// Waits for the coordinator, for some minutes at most. After an error or TOO_SMALL, repeat the call. The journal stays as
/// it is; delete it to delete the device's own models.
///
/// Errors: ARGUMENT, CONFIGURATION, ENROLLMENT, JOURNAL (also while a participant has the journal), FAILED, IN_CALLBACK.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_withdraw(
    options: *const c_char,
    callbacks: *const TributaryCallbacks,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    guard(|| {
        let callbacks = callbacks_of(callbacks)?;
        let statement = withdraw(text(options, "options")?.to_owned(), callbacks)?;
        put(&statement, buffer, size, length)
    })
}

/// Stops the participant, waits for its end for at most `limit_ms` milliseconds, and forgets the handle; a few seconds are
/// enough while a request is under way. Jobs that were handed out are overdue afterwards, and still have to be freed.
///
/// Callbacks end before OK is returned. After TIMEOUT a callback is still running: its thread is left behind, and all
/// data behind `TributaryCallbacks` must stay. Errors: CLOSED, IN_CALLBACK.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_close(participant: TributaryParticipant, limit_ms: u64) -> TributaryCode {
    with(participant, |running| {
        let has_ended = running.close(limit_ms)?;
        PARTICIPANTS.take(participant.id)?;
        Ok(if has_ended { TributaryCode::Ok } else { TributaryCode::Timeout })
    })
}
