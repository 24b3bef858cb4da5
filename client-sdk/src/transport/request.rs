//! Requests of a participant to the coordinator, and their responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::upload::PartTree;
use wire::contributions::SignedContributions;
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
    /// The record of another coordinator's version that the update comes from.
    pub below: Option<Digest>,
}

/// Parts of a masked input on its way.
#[derive(Clone)]
pub struct Manifest {
    pub place: Attempt,
    pub participant: ParticipantId,
    pub tree: Arc<PartTree>,
    /// As in [`Upload`], on the tree's root.
    pub signed: Option<Bytes>,
    /// The record of another coordinator's version that the update comes from.
    pub below: Option<Digest>,
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
    /// Revokes the participant at its own request.
    Withdraw,
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

/// What holds of a request, whatever its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestProperties {
    /// The request's name, for logs.
    pub name: &'static str,
    /// The attempt at a round that the request is about, if it is about one.
    pub place: Option<Attempt>,
    /// Name of its span in the trace of the round.
    pub span: Option<&'static str>,
    /// How long the coordinator may hold the request until it has something to tell.
    pub wait: Duration,
    /// Whether the coordinator answers it immediately in any state of the round.
    pub is_immediate: bool,
}

impl Request {
    /// The table of all requests' properties.
    #[must_use]
    pub fn properties(&self) -> RequestProperties {
        const NOW: Duration = Duration::ZERO;
        let (name, place, span, wait, is_immediate) = match self {
            Self::Enroll(_) => ("enroll", None, None, NOW, true),
            Self::Renew(_) => ("renew", None, None, NOW, true),
            Self::Withdraw => ("withdraw", None, None, NOW, true),
            Self::CheckIn(request) => ("check-in", None, None, Duration::from_millis(request.wait_ms), false),
            Self::Upload(upload) => ("upload", Some(upload.place), Some("upload"), NOW, false),
            Self::Manifest(manifest) => ("manifest", Some(manifest.place), Some("announce parts"), NOW, false),
            Self::Part(part) => ("part", Some(part.place), Some("upload a part"), NOW, false),
            Self::Announcement { place, wait, .. } => {
                ("announcement", Some(*place), Some("wait for the cohort"), *wait, false)
            }
            Self::Evidence { place, .. } => ("evidence", Some(*place), Some("get evidence"), NOW, false),
            Self::Answer { what, place, .. } => {
                let span = match what {
                    Answer::KeyShares => "deal shares",
                    Answer::Complaint => "complain",
                    Answer::Consistency => "sign the survivors",
                    Answer::UnmaskShares => "open the sum",
                };
                ("answer", Some(*place), Some(span), NOW, true)
            }
            Self::Abandon(abandonment) => ("abandon", Some(abandonment.place), Some("give up"), NOW, true),
        };
        RequestProperties { name, place, span, wait, is_immediate }
    }

    /// See [`RequestProperties::place`].
    #[must_use]
    pub fn place(&self) -> Option<Attempt> {
        self.properties().place
    }

    /// See [`RequestProperties::wait`].
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.properties().wait
    }
}

/// The answer to a request, or the error.
pub enum Response {
    /// To [`Request::Enroll`].
    Enrolled(Result<EnrollReply, TransportError>),
    /// To [`Request::Renew`].
    Renewed(Result<EnrollReply, TransportError>),
    /// To [`Request::Withdraw`].
    Withdrawn(Result<SignedContributions, TransportError>),
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
