//! Requests of a participant to the coordinator, and their responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::upload::PartTree;
use wire::participant::{
    AbandonReason, Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, Receipt,
    RefusalCode, RenewRequest, UploadReply,
};
use wire::{Attempt, Digest, ParticipantId};

use super::error::TransportError;

/// A masked input on its way.
#[derive(Clone)]
pub struct Upload {
    pub place: Attempt,
    pub participant: ParticipantId,
    /// SHA-256 of `body`, which is sent whole.
    pub sha256: Digest,
    /// Words modulo 2^b, packed.
    pub body: Bytes,
    /// With secure aggregation: `secure_agg::messages::MaskedInput`, the participant's signature on the body.
    pub signed: Option<Bytes>,
}

/// Parts of a masked input on its way.
#[derive(Clone)]
pub struct Manifest {
    pub place: Attempt,
    pub participant: ParticipantId,
    pub tree: Arc<PartTree>,
    /// As in [`Upload`], on the tree's root.
    pub signed: Option<Bytes>,
}

/// A part of a masked input on its way.
#[derive(Clone)]
pub struct Part {
    pub place: Attempt,
    pub participant: ParticipantId,
    /// Its place in the input, counted from 0.
    pub number: u32,
    pub body: Bytes,
}

/// A place to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abandonment {
    pub place: Attempt,
    pub participant: ParticipantId,
    pub reason: AbandonReason,
    /// The code of the refusal, with [`AbandonReason::Refused`].
    pub refusal: Option<RefusalCode>,
}

/// A request to the coordinator. It may be repeated.
#[derive(Clone)]
pub enum Request {
    /// Exchanges a one-time token for a certificate.
    Enroll(EnrollRequest),
    Renew(RenewRequest),
    /// Waits for work.
    CheckIn(CheckInRequest),
    /// Sends a masked input.
    Upload(Upload),
    /// Announces the parts of a masked input. The coordinator returns the missing parts, or accepts the input if it is complete.
    Manifest(Manifest),
    /// Sends a part of a masked input.
    Part(Part),
    /// Waits for an announcement of the coordinator in a secure aggregation session.
    Announcement {
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    },
    /// Fetches a dealer's signed shares when some of them do not open.
    Evidence {
        place: Attempt,
        dealer: ParticipantId,
    },
    /// Sends a secure aggregation message, encoded.
    Answer {
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    },
    /// Gives up a place.
    Abandon(Abandonment),
}

impl Request {
    /// The attempt at a round that the request is about, if it is about one.
    #[must_use]
    pub fn place(&self) -> Option<Attempt> {
        match self {
            Self::Upload(upload) => Some(upload.place),
            Self::Manifest(manifest) => Some(manifest.place),
            Self::Part(part) => Some(part.place),
            Self::Abandon(abandonment) => Some(abandonment.place),
            Self::Announcement { place, .. } | Self::Evidence { place, .. } | Self::Answer { place, .. } => {
                Some(*place)
            }
            Self::Enroll(_) | Self::Renew(_) | Self::CheckIn(_) => None,
        }
    }

    /// How long the coordinator may hold the request until it has something to tell.
    #[must_use]
    pub fn wait(&self) -> Duration {
        match self {
            Self::CheckIn(request) => Duration::from_millis(request.wait_ms),
            Self::Announcement { wait, .. } => *wait,
            Self::Enroll(_)
            | Self::Renew(_)
            | Self::Upload(_)
            | Self::Manifest(_)
            | Self::Part(_)
            | Self::Evidence { .. }
            | Self::Answer { .. }
            | Self::Abandon(_) => Duration::ZERO,
        }
    }
}

/// The answer to a request, or the error.
pub enum Response {
    /// To [`Request::Enroll`].
    Enrolled(Result<EnrollReply, TransportError>),
    /// To [`Request::Renew`].
    Renewed(Result<EnrollReply, TransportError>),
    /// To [`Request::CheckIn`].
    CheckedIn(Result<CheckInReply, TransportError>),
    /// To [`Request::Upload`].
    Uploaded(Result<Receipt, TransportError>),
    /// To [`Request::Manifest`]: the receipt, or the parts that are missing.
    Manifested(Result<UploadReply, TransportError>),
    /// To [`Request::Part`]: whether it is stored.
    PartStored(Result<(), TransportError>),
    /// To [`Request::Announcement`], encoded. `None` if it is not available yet.
    Announced(Result<Option<Bytes>, TransportError>),
    /// To [`Request::Evidence`], encoded.
    Evidenced(Result<Bytes, TransportError>),
    /// To [`Request::Answer`]: whether the coordinator accepted the answer.
    Answered(Result<(), TransportError>),
    /// To [`Request::Abandon`].
    Abandoned(Result<(), TransportError>),
}

impl Response {
    /// Whether the coordinator's result is still pending.
    #[must_use]
    pub fn is_nothing_yet(&self) -> bool {
        matches!(self, Self::CheckedIn(Ok(CheckInReply::ComeBack { .. })) | Self::Announced(Ok(None)))
    }
}
