//! One request of a session, for an announcement or with a message: repeated unchanged until it succeeds or fails for
//! good.

use std::time::Duration;

use bytes::Bytes;
use wire::Attempt;
use wire::participant::{Announcement, Answer};

use crate::clock::Now;
use crate::participant::api::error::ParticipantError;
use crate::participant::journal::round_end::ExchangeError;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{AnnouncementPoll, Exchange, MessageUpload};
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Request, TransportError};

/// Result of an exchange.
pub(super) enum Reply<S, T> {
    Answered(T),
    /// The answer is pending: repeat the request.
    Again(S),
    /// The request has failed for good.
    Failed(ExchangeError),
}

impl Exchange {
    /// Whether the message is being sent.
    pub(super) fn is_uploading(&self) -> bool {
        matches!(self, Self::Upload(_))
    }

    pub(in crate::participant) fn action(&mut self, core: &Core, place: Attempt, now: Now) -> Action {
        match self {
            Self::Poll(poll) => poll.action(core, place, now),
            Self::Upload(upload) => upload.action(core, place, now),
        }
    }
}

impl AnnouncementPoll {
    pub(in crate::participant) fn new(what: Announcement) -> Self {
        Self { what, asked_at: Duration::ZERO, attempts: Attempts::default() }
    }

    pub(in crate::participant) fn action(&mut self, core: &Core, place: Attempt, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        self.asked_at = now.elapsed;
        self.request(core, place)
    }

    pub(in crate::participant) fn request(&self, core: &Core, place: Attempt) -> Action {
        let (what, wait) = (self.what, core.settings.wait);
        core.send(|participant| Request::Announcement { what, place, participant, wait })
    }

    pub(super) fn receive(
        mut self,
        core: &mut Core,
        result: Result<Option<Bytes>, TransportError>,
        now: Now,
    ) -> Reply<Self, Bytes> {
        match result {
            Ok(Some(message)) => Reply::Answered(message),
            Ok(None) => {
                // After a long poll, repeat the request at once. If the coordinator does not hold requests, pause first.
                let again = self.asked_at.saturating_add(core.settings.retry.first);
                self.attempts = Attempts::not_before(again);
                Reply::Again(self)
            }
            Err(error) => {
                let what = match self.what {
                    Announcement::Roster => "get the roster",
                    Announcement::Delivery => "get key shares",
                    Announcement::Survivors => "get the survivors",
                    Announcement::Agreement => "get the agreement",
                };
                failed(core, &error, self.attempts, what, now, |attempts| Self { attempts, ..self })
                    .map_or_else(Reply::Failed, Reply::Again)
            }
        }
    }
}

impl MessageUpload {
    pub(in crate::participant) fn new(what: Answer, body: impl Into<Bytes>) -> Self {
        Self { what, body: body.into(), attempts: Attempts::default() }
    }

    pub(in crate::participant) fn action(&self, core: &Core, place: Attempt, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let (what, body) = (self.what, self.body.clone());
        core.send(|participant| Request::Answer { what, place, participant, body })
    }

    pub(super) fn receive(self, core: &mut Core, result: Result<(), TransportError>, now: Now) -> Reply<Self, ()> {
        match result {
            Ok(()) => Reply::Answered(()),
            Err(error) => {
                let what = match self.what {
                    Answer::KeyShares => "send key shares",
                    Answer::Complaint => "send a complaint",
                    Answer::Consistency => "sign the survivors",
                    Answer::UnmaskShares => "send unmasking shares",
                };
                failed(core, &error, self.attempts, what, now, |attempts| Self { attempts, ..self })
                    .map_or_else(Reply::Failed, Reply::Again)
            }
        }
    }
}

/// Classifies an error: a retry, or the end of the exchange.
pub(in crate::participant) fn failed<S>(
    core: &mut Core,
    error: &TransportError,
    attempts: Attempts,
    what: &'static str,
    now: Now,
    again: impl FnOnce(Attempts) -> S,
) -> Result<S, ExchangeError> {
    let verdict = judge(error);
    if let Some(end) = core.fatal(error, verdict) {
        return Err(ExchangeError::Fatal(end));
    }
    match verdict {
        Verdict::Again(after) => Ok(again(attempts.again(core, now, what, error, after))),
        Verdict::RoundOver => Err(ExchangeError::RoundOver(error.to_string())),
        Verdict::Revoked | Verdict::Expired | Verdict::Refused => Err(ExchangeError::Rejected(error.clone())),
    }
}

/// For best-effort requests with at most `most` attempts: the next attempt, if this one failed and a retry may help.
pub(super) fn once_more(
    core: &mut Core,
    result: Result<(), TransportError>,
    attempts: Attempts,
    most: u32,
    what: &'static str,
    now: Now,
) -> Result<Option<Attempts>, ParticipantError> {
    let Err(error) = result else { return Ok(None) };
    let verdict = judge(&error);
    if let Some(end) = core.fatal(&error, verdict) {
        return Err(end);
    }
    match verdict {
        Verdict::Again(after) if attempts.failures + 1 < most => {
            Ok(Some(attempts.again(core, now, what, &error, after)))
        }
        Verdict::Again(_) | Verdict::RoundOver | Verdict::Refused | Verdict::Revoked | Verdict::Expired => Ok(None),
    }
}
