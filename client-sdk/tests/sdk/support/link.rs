//! From a participant to a coordinator of a test: at once, or over a line that is long or cut for a while.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use client_sdk::identity::Identity;
use client_sdk::participant::machine::{Input, Request};
use client_sdk::transport::{Abandonment, Transport, TransportError, Upload};
use tokio::time::{Instant, sleep};
use wire::participant::{
    Announcement, Answer, CheckInReply, CheckInRequest, EnrollReply, EnrollRequest, ModelRef, Receipt, RenewRequest,
};
use wire::problem::{Problem, ProblemType};
use wire::{Attempt, ParticipantId, TaskId};

/// How often what waits at the far end of a long line looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A coordinator of a test, which answers at once.
pub(crate) trait FakeCoordinator: Send + Sync {
    /// The answer to a request, of the kind that goes with it.
    fn answer(&self, request: Request) -> Input;

    /// Appends a model version's file, from byte `sink.len()` on.
    fn fetch(&self, _: TaskId, _: &ModelRef, _: &mut Vec<u8>) -> Result<(), TransportError> {
        unreachable!("there is no round")
    }

    /// The certificate that is shown with what is asked next.
    fn identify(&self, _: Option<&Identity>) {}

    /// What a device is about to say, before it is known whether it arrives.
    fn observe(&self, _: Attempt, _: &'static str, _: Vec<u8>) {}
}

/// What happens to a request instead of its normal course.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It never arrives.
    Lost,
    /// It takes effect, its answer is lost.
    AnswerLost,
    /// It is refused.
    Refused(ProblemType, Option<Duration>),
    /// Of a fetch: half of the bytes come.
    Half,
    /// Of a fetch: other bytes come.
    Garbage,
    /// It goes through.
    None,
}

impl Fault {
    /// What comes of a request that has this `effect` where nothing goes wrong.
    pub(crate) fn apply<T>(self, effect: impl FnOnce(&Self) -> Result<T, TransportError>) -> Result<T, TransportError> {
        match self {
            Self::Lost => lost(),
            Self::AnswerLost => effect(&self).and_then(|_| lost()),
            Self::Refused(kind, retry_after) => {
                Err(TransportError::Problem { problem: Box::new(Problem::new(kind, "scripted")), retry_after })
            }
            Self::Half | Self::Garbage | Self::None => effect(&self),
        }
    }
}

pub(crate) fn lost<T>() -> Result<T, TransportError> {
    Err(TransportError::unreachable("scripted"))
}

pub(crate) fn problem<T>(kind: ProblemType) -> Result<T, TransportError> {
    Err(Problem::new(kind, "scripted").into())
}

/// A line on which everything takes its time in both directions.
pub(crate) struct LongLine {
    pub(crate) one_way: Duration,
    /// Nothing gets through meanwhile.
    pub(crate) cut: Range<Instant>,
    /// What participants say of their lines.
    pub(crate) told: Arc<Mutex<BTreeSet<u32>>>,
}

impl LongLine {
    async fn carry(&self) -> Result<(), TransportError> {
        sleep(self.one_way).await;
        match self.cut.contains(&Instant::now()) {
            true => Err(TransportError::unreachable("the line is cut")),
            false => Ok(()),
        }
    }
}

/// One participant's connection. Nothing waits on a short line; on a long one, polls wait at its far end.
pub(crate) struct Link<C> {
    pub(crate) coordinator: C,
    pub(crate) long: Option<LongLine>,
}

impl<C: FakeCoordinator> Link<C> {
    pub(crate) fn to(coordinator: C) -> Self {
        Self { coordinator, long: None }
    }

    /// Has the coordinator asked, and again for up to `wait` while the answer is `early`.
    async fn exchange<T: Send>(
        &self,
        wait: Duration,
        early: fn(&Result<T, TransportError>) -> bool,
        ask: impl Fn() -> Result<T, TransportError> + Send + Sync,
    ) -> Result<T, TransportError> {
        let Some(line) = &self.long else { return ask() };
        line.carry().await?;
        let end = Instant::now() + wait;
        let mut answer = ask();
        while early(&answer) && Instant::now() < end {
            sleep(LOOK_AGAIN).await;
            answer = ask();
        }
        line.carry().await?;
        answer
    }
}

/// Sends a request that does not wait; its answer is of this kind.
macro_rules! ask {
    ($link:ident, $kind:ident, $request:expr) => {
        $link.exchange(Duration::ZERO, |_| false, || heard!($link, $kind, $request)).await
    };
}

macro_rules! heard {
    ($link:ident, $kind:ident, $request:expr) => {
        match $link.coordinator.answer($request) {
            Input::$kind(answer) => answer,
            _ => unreachable!("the answer to something else"),
        }
    };
}

#[async_trait]
impl<C: FakeCoordinator> Transport for Link<C> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.coordinator.identify(Some(identity));
        Ok(())
    }

    async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollReply, TransportError> {
        ask!(self, Enrolled, Request::Enroll(request.clone()))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<EnrollReply, TransportError> {
        ask!(self, Renewed, Request::Renew(request.clone()))
    }

    async fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReply, TransportError> {
        if let Some(line) = &self.long {
            line.told.lock().unwrap().extend(request.round_trip_ms);
        }
        let early = |reply: &Result<_, _>| matches!(reply, Ok(CheckInReply::ComeBack { .. }));
        let ask = || heard!(self, CheckedIn, Request::CheckIn(request.clone()));
        self.exchange(Duration::from_millis(request.wait_ms), early, ask).await
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Vec<u8>) -> Result<(), TransportError> {
        let sink = Mutex::new(sink);
        self.exchange(Duration::ZERO, |_| false, || self.coordinator.fetch(task, model, &mut sink.lock().unwrap()))
            .await
    }

    async fn upload(&self, upload: &Upload) -> Result<Receipt, TransportError> {
        ask!(self, Uploaded, Request::Upload(upload.clone()))
    }

    async fn announcement(
        &self,
        what: Announcement,
        place: Attempt,
        participant: ParticipantId,
        wait: Duration,
    ) -> Result<Option<Bytes>, TransportError> {
        let ask = || heard!(self, Announced, Request::Announcement { what, place, participant, wait });
        self.exchange(wait, |said| matches!(said, Ok(None)), ask).await
    }

    async fn evidence(&self, place: Attempt, dealer: ParticipantId) -> Result<Bytes, TransportError> {
        ask!(self, Evidenced, Request::Evidence { place, dealer })
    }

    async fn answer(
        &self,
        what: Answer,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        ask!(self, Answered, Request::Answer { what, place, participant, body: body.clone() })
    }

    async fn abandon(&self, abandonment: &Abandonment) -> Result<(), TransportError> {
        ask!(self, Abandoned, Request::Abandon(*abandonment))
    }

    async fn abort_statement(
        &self,
        place: Attempt,
        participant: ParticipantId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        ask!(self, Answered, Request::AbortStatement { place, participant, body: body.clone() })
    }

    async fn abort_statements(&self, place: Attempt) -> Result<Option<Bytes>, TransportError> {
        ask!(self, Announced, Request::AbortStatements { place })
    }
}
