//! Functions about participants.
//!
//! No `unsafe` block is here; exporting a name counts as unsafe, since another library might have the same.
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
use crate::participant::{Next, Participant};

/// A participant: a number, to be copied freely. Any thread may use it. It stands for the participant from
/// `tributary_start` until `tributary_close`; afterwards, and where it is made up, calls return `TRIBUTARY_CODE_CLOSED`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TributaryParticipant {
    /// 0 is no participant.
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

/// The callbacks of an app; none if there are none.
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

/// Copies the reason for the last error of a call on this thread into `buffer`; an empty text if there was none.
/// `length`, unless NULL, gets the size that the text needs with its NUL; `TRIBUTARY_CODE_TOO_SMALL` if the buffer has less.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_last_error(buffer: *mut c_char, size: usize, length: *mut usize) -> TributaryCode {
    guard(|| put(&last_error(), buffer, size, length))
}

/// Starts a participant on a thread of its own, and puts its handle into `participant`.
///
/// `options` is a JSON object in UTF-8: `server`, `journal`, `ca_pem`, at first `token`, and all else that docs/OPTIONS.md lists, with
/// defaults. It is not needed any more when the call returns. `callbacks` may be NULL; see `TributaryCallbacks` for how long what it points
/// to must stay. Close what was started with `tributary_close`.
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

/// Waits for the next job for at most `limit_ms` milliseconds, and puts its handle into `job`. Threads may ask at the same time;
/// each job goes to one of them.
///
/// Returns OK; NOTHING if there is none yet: ask again; ENDED once the participant has ended, and then always. Errors: why it
/// ended early (ENROLLMENT, JOURNAL, FAILED), CLOSED (also if it is closed meanwhile), IN_CALLBACK.
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

/// Rests, and sends nothing until `tributary_resume`. A job under way should pause: once it has saved a checkpoint, or in ten seconds, it is
/// taken back, and comes again if its round still waits. If it has saved none by then, its round is given up, as is any other whose update is
/// not made. Does not wait.
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

/// Sets the number of training examples that the coordinator is told of; `tributary_job_finish` sets it, too. Does not wait.
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

/// Copies what was spent on each private task, from the participant's own ledger, into `buffer` as a JSON array, as
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

/// Copies what was spent on all tasks together, and the limit on it, into `buffer` as a JSON object, as
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

/// Copies what the participant refused so far, and why, into `buffer` as a JSON array, the latest last, as `tributary_last_error` does with
/// its text: of each of the last fifty reasons the attempt that was refused last (`task`, `round`, `attempt`), `code` (what the coordinator
/// was told, or null), `reason` (in words, which stay on the device), `at_ms` (since 1970) and `times`. Earlier processes with this journal
/// count.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_refusals(
    participant: TributaryParticipant,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> TributaryCode {
    with(participant, |participant| put(&participant.refusals()?, buffer, size, length))
}

/// Copies the condition of the device that holds the participant up now into `buffer`, as `tributary_last_error` does with its text: its
/// name (`charging`, `unmetered`, `idle`, `battery`, `thermal` or `data_cap`), a colon, and the same in words. NOTHING if none does.
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

/// Puts into `used` what was sent and received.
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

/// Asks the participant to stop, and returns at once; `tributary_next` says when it has.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_stop(participant: TributaryParticipant) -> TributaryCode {
    with(participant, |participant| done(participant.stop()))
}

/// Stops the participant, waits for its end for at most `limit_ms` milliseconds, and forgets the handle; a few seconds are
/// enough while a request is under way. Jobs that were handed out are overdue afterwards, and still have to be freed.
///
/// After OK no callback is called any more. After TIMEOUT a callback does not return: its thread is left behind, and what
/// `TributaryCallbacks` points to must stay. Errors: CLOSED, IN_CALLBACK.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_close(participant: TributaryParticipant, limit_ms: u64) -> TributaryCode {
    with(participant, |running| {
        let has_ended = running.close(limit_ms)?;
        PARTICIPANTS.take(participant.id)?;
        Ok(if has_ended { TributaryCode::Ok } else { TributaryCode::Timeout })
    })
}
