//! From a participant to a coordinator of a test: at once, or over a line that is long or cut for a while.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use client_sdk::identity::Identity;
use client_sdk::transport::{Download, HttpRequest, Request, Response, Transport, TransportError};
use tokio::time::{Instant, sleep};
use wire::participant::ModelRef;
use wire::problem::{Problem, ProblemType};
use wire::{Attempt, TaskId};

/// How often what waits at the far end of a long line looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A coordinator of a test, which answers at once.
pub(crate) trait FakeCoordinator: Send + Sync {
    /// The answer to a request, of the kind that goes with it.
    fn answer(&self, request: Request) -> Response;

    /// Appends a model version's file, from byte `sink.bytes()` on.
    fn fetch(&self, _: TaskId, _: &ModelRef, _: &mut Download) -> Result<(), TransportError> {
        unreachable!("there is no round")
    }

    /// The certificate for the next request.
    fn identify(&self, _: Option<&Identity>) {}

    /// What a device is about to say, before it is known whether it arrives.
    fn observe(&self, _: Attempt, _: &'static str, _: Vec<u8>) {}
}

/// What happens to a request instead of its normal course.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Lost,
    /// It takes effect, its answer is lost.
    AnswerLost,
    Refused(ProblemType, Option<Duration>),
    /// Of a fetch: half of the bytes come.
    Half,
    /// Of a fetch: other bytes come.
    Garbage,
    None,
}

impl Fault {
    /// Result of a request that has this `effect` if it arrives.
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
    /// Until then, all requests are lost.
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

/// One participant's connection. A short line answers immediately; on a long one, polls wait at its far end.
pub(crate) struct Link<C> {
    pub(crate) coordinator: C,
    pub(crate) long: Option<LongLine>,
}

impl<C: FakeCoordinator> Link<C> {
    pub(crate) fn to(coordinator: C) -> Self {
        Self { coordinator, long: None }
    }

    /// Sends the request to the coordinator, and repeats a long poll until the result is there.
    async fn ask(&self, line: &LongLine, request: &Request) -> Result<Response, TransportError> {
        line.carry().await?;
        let end = Instant::now() + request.wait();
        let mut response = self.coordinator.answer(request.clone());
        while response.is_nothing_yet() && Instant::now() < end {
            sleep(LOOK_AGAIN).await;
            response = self.coordinator.answer(request.clone());
        }
        line.carry().await?;
        Ok(response)
    }
}

#[async_trait]
impl<C: FakeCoordinator> Transport for Link<C> {
    fn identify(&self, identity: &Identity) -> Result<(), TransportError> {
        self.coordinator.identify(Some(identity));
        Ok(())
    }

    async fn send(&self, request: &Request) -> Response {
        let Some(line) = &self.long else { return self.coordinator.answer(request.clone()) };
        if let Request::CheckIn(request) = request {
            line.told.lock().unwrap().extend(request.round_trip_ms);
        }
        let response = self.ask(line, request).await;
        response.unwrap_or_else(|error| HttpRequest::of(request).read(Err(error)))
    }

    async fn fetch_model(&self, task: TaskId, model: &ModelRef, sink: &mut Download) -> Result<(), TransportError> {
        let Some(line) = &self.long else { return self.coordinator.fetch(task, model, sink) };
        line.carry().await?;
        let fetched = self.coordinator.fetch(task, model, sink);
        line.carry().await?;
        fetched
    }
}
