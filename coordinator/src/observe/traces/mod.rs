//! Traces of updates and rounds, exported to a collector (OTLP).
//!
//! A sample of the assigned updates is traced, each in its own trace: the draw, the participant's requests, the sum with its input, its
//! release and the published version. A round has a trace, too, with its phases and steps; an update's spans in common with its round link
//! to it. Ids are derived from the sealing key and the assignment, so that all coordinators compute the same ones without storing them.
//! They contain a proof of their origin: requests with other ids are not traced.
//!
//! Spans exclude participants' identities, and all their data except its size.

mod export;
mod span;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use federation::id::{Attempt, ParticipantId};
use federation::round::Round;
use federation::time::Timestamp;
use http::HeaderMap;
use ring::hmac;
use wire::TraceContext;
use wire::headers::TRACEPARENT;

use crate::random::Random;

pub use export::{Collector, CollectorError, SpanQueue};
pub(crate) use span::During;
use span::SpanKind;
pub use span::TraceSpan;

/// Maximum traced updates of one round: the first found.
const FOLLOWED_MAX: usize = 64;
/// Maximum participants of a round examined for traced updates.
pub(crate) const COHORT_MAX: u32 = 10_000;

/// Maximum number of draws with remembered traced updates.
const DRAWS_MAX: usize = 256;

/// The traces of a coordinator, if enabled. Clones share it.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Following>>);

struct Following {
    key: hmac::Key,
    /// Threshold for the last 63 bits of traced ids.
    below: u64,
    random: Random,
    queue: SpanQueue,
    /// The last draws of this process, with the participants of traced updates.
    draws: Mutex<VecDeque<(Attempt, Vec<ParticipantId>)>>,
}

impl Traces {
    /// Traces this fraction of all updates. `key` must be the same for all coordinators of a database.
    pub(crate) fn new(key: hmac::Key, sample_ratio: f64, random: Random, queue: SpanQueue) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and was checked")]
        let below = (sample_ratio * 2f64.powi(63)) as u64;
        Self(Some(Arc::new(Following { key, below, random, queue, draws: Mutex::default() })))
    }

    /// The trace of an update, if sampled; its root span is the draw.
    pub(crate) fn update(&self, attempt: Attempt, participant: ParticipantId) -> Option<TraceContext> {
        let following = self.0.as_ref()?;
        let context = following.context(b"update", attempt, participant.0.as_bytes());
        following.is_followed(context).then_some(context)
    }

    /// The trace of a round.
    fn round(&self, attempt: Attempt) -> Option<TraceContext> {
        Some(self.0.as_ref()?.context(b"round/", attempt, &[]))
    }

    /// The trace of a request's header, if a coordinator created and samples it.
    pub(crate) fn of_request(&self, headers: &HeaderMap) -> Option<TraceContext> {
        let following = self.0.as_ref()?;
        let claimed: TraceContext = headers.get(TRACEPARENT)?.to_str().ok()?.parse().ok()?;
        let nonce = *claimed.trace.first_chunk()?;
        let genuine = following.proven(nonce);
        (genuine.trace == claimed.trace && following.is_followed(genuine)).then_some(claimed)
    }

    /// Records a request of a trace.
    pub(crate) fn request(&self, of: TraceContext, method: &str, route: &str, status: u16, during: During) {
        self.push(|id| {
            let span = TraceSpan::new(of, id, format!("{method} {route}"), SpanKind::Server, during);
            let span = span.with("http.request.method", method).with("http.route", route);
            span.with("http.response.status_code", i64::from(status)).failed_if(status >= 500)
        });
    }

    /// Records a step of a round, or the end of a phase.
    pub(crate) fn step(&self, attempt: Attempt, name: &'static str, failed: bool, during: During) {
        let Some(round) = self.round(attempt) else { return };
        self.push(|id| {
            let span = TraceSpan::new(round, id, name, SpanKind::Internal, during);
            span.of(attempt).failed_if(failed)
        });
    }

    /// Records the end of a round, the parent of its other spans.
    pub(crate) fn ended(&self, round: &Round, outcome: &'static str, at: Timestamp) {
        let (Some(following), Some(context)) = (&self.0, self.round(round.key)) else { return };
        let during = During { began: round.opened_at, ended: at };
        let span = TraceSpan::root(context, "round", during).of(round.key).with("tributary.outcome", outcome);
        following.queue.push(span.failed_if(outcome == "failed"));
    }

    /// Records the draw, the start of the traces of sampled updates.
    pub(crate) fn drawn(&self, attempt: Attempt, cohort: &[ParticipantId], during: During) {
        let Some(following) = &self.0 else { return };
        let mut whose = Vec::new();
        for (participant, context) in self.followed(attempt, cohort.iter().copied()) {
            whose.push(participant);
            let span = TraceSpan::root(context, "draw", during).of(attempt);
            following.queue.push(self.linked(span, attempt));
        }
        let mut draws = following.draws();
        draws.truncate(DRAWS_MAX - 1);
        draws.push_front((attempt, whose));
    }

    /// The participants with traced updates of this attempt; `None` if unknown, since another process may have drawn them. Empty without
    /// traces.
    pub(crate) fn followed_of(&self, attempt: Attempt) -> Option<Vec<ParticipantId>> {
        let Some(following) = &self.0 else { return Some(Vec::new()) };
        let draws = following.draws();
        draws.iter().find(|(drawn, _)| *drawn == attempt).map(|(_, whose)| whose.clone())
    }

    /// Records work on these participants' updates.
    pub(crate) fn updates(
        &self,
        attempt: Attempt,
        participants: impl IntoIterator<Item = ParticipantId>,
        name: &'static str,
        during: During,
    ) {
        for (_, context) in self.followed(attempt, participants) {
            self.push(|id| {
                let span = TraceSpan::new(context, id, name, SpanKind::Internal, during).of(attempt);
                self.linked(span, attempt)
            });
        }
    }

    fn followed(
        &self,
        attempt: Attempt,
        participants: impl IntoIterator<Item = ParticipantId>,
    ) -> impl Iterator<Item = (ParticipantId, TraceContext)> {
        let participants = self.0.is_some().then_some(participants).into_iter().flatten();
        let followed = move |participant| Some((participant, self.update(attempt, participant)?));
        participants.filter_map(followed).take(FOLLOWED_MAX)
    }

    fn linked(&self, span: TraceSpan, attempt: Attempt) -> TraceSpan {
        match self.round(attempt) {
            Some(round) => span.linked_to(round),
            None => span,
        }
    }

    fn push(&self, span: impl FnOnce([u8; 8]) -> TraceSpan) {
        if let Some(following) = &self.0 {
            following.queue.push(span(following.random.bytes()));
        }
    }
}

impl Following {
    fn draws(&self) -> MutexGuard<'_, VecDeque<(Attempt, Vec<ParticipantId>)>> {
        self.draws.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self, kind: &[u8; 6], attempt: Attempt, participant: &[u8]) -> TraceContext {
        let Attempt { task, round, attempt } = attempt;
        let text = [kind, &task.0.as_bytes()[..], &round.to_be_bytes(), &attempt.to_be_bytes(), participant].concat();
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&hmac::sign(&self.key, &text).as_ref()[..8]);
        self.proven(nonce)
    }

    /// The trace id of these eight bytes: the bytes and a MAC.
    fn proven(&self, nonce: [u8; 8]) -> TraceContext {
        let proof = hmac::sign(&self.key, &nonce);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace[..8].copy_from_slice(&nonce);
        trace[8..].copy_from_slice(&proof.as_ref()[..8]);
        span.copy_from_slice(&proof.as_ref()[8..16]);
        TraceContext { trace, span }
    }

    /// Decided by the trace id alone, like OpenTelemetry's samplers.
    fn is_followed(&self, context: TraceContext) -> bool {
        let mut last = [0; 8];
        last.copy_from_slice(&context.trace[8..]);
        u64::from_be_bytes(last) >> 1 < self.below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(seed: u8, ratio: f64) -> (Traces, tokio::sync::mpsc::Receiver<TraceSpan>) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[seed; 32]);
        let (queue, spans) = SpanQueue::new();
        (Traces::new(key, ratio, Random::from_seed(1), queue), spans)
    }

    fn place(round: u32) -> Attempt {
        Attempt { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round, attempt: 1 }
    }

    fn participants(count: u128) -> Vec<ParticipantId> {
        (0..count).map(|n| ParticipantId(uuid::Uuid::from_u128(n))).collect()
    }

    fn header(context: TraceContext) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, context.to_string().parse().unwrap());
        headers
    }

    #[test]
    fn all_who_have_the_key_make_the_same_ids_and_know_them() {
        let ((one, _a), (other, _b), (stranger, _c)) = (traces(1, 1.0), traces(1, 1.0), traces(2, 1.0));
        let id = participants(1)[0];
        let context = one.update(place(1), id).unwrap();
        assert_eq!(other.update(place(1), id), Some(context));
        assert_ne!(other.update(place(2), id), Some(context));
        let of_participant = TraceContext { span: [7; 8], ..context };
        assert_eq!(other.of_request(&header(of_participant)), Some(of_participant));
        assert_eq!(stranger.of_request(&header(of_participant)), None);
        let invented = TraceContext { trace: [9; 16], span: [7; 8] };
        assert_eq!(one.of_request(&header(invented)), None);
        assert_eq!(one.of_request(&HeaderMap::new()), None);
        assert_eq!(Traces::default().of_request(&header(of_participant)), None);
    }

    #[test]
    fn the_part_that_is_followed_is_the_part_that_was_asked_for() {
        for (ratio, expected) in [(0.0, 0..=0), (0.01, 60..=140), (0.5, 4_800..=5_200), (1.0, 10_000..=10_000)] {
            let (traces, _spans) = traces(3, ratio);
            let followed = participants(10_000).into_iter().filter_map(|id| traces.update(place(1), id)).count();
            assert!(expected.contains(&followed), "{followed} at {ratio}");
        }
    }

    #[test]
    fn a_queue_that_nobody_empties_takes_no_more_than_it_holds() {
        let (traces, mut spans) = traces(4, 1.0);
        let during = During { began: Timestamp(1), ended: Timestamp(2) };
        for round in 0..5_000 {
            traces.step(place(round), "open_round", false, during);
        }
        let mut held = 0;
        while spans.try_recv().is_ok() {
            held += 1;
        }
        assert_eq!(held, export::QUEUE_SPANS);
    }

    #[test]
    fn a_cohort_of_which_nobody_is_followed_is_not_looked_through_again() {
        let (traces, _spans) = traces(6, 0.01);
        let during = During { began: Timestamp(1), ended: Timestamp(2) };
        assert_eq!(traces.followed_of(place(1)), None, "another process may have drawn it");
        let cohort = participants(10);
        let is_followed = |round| cohort.iter().any(|id| traces.update(place(round), *id).is_some());
        let (nobody, somebody) = ((1..).find(|n| !is_followed(*n)).unwrap(), (1..).find(|n| is_followed(*n)).unwrap());
        traces.drawn(place(nobody), &cohort, during);
        traces.drawn(place(somebody), &cohort, during);
        let those =
            |round| cohort.iter().copied().filter(|id| traces.update(place(round), *id).is_some()).collect::<Vec<_>>();
        let (none, some) = (those(nobody), those(somebody));
        assert!(none.is_empty() && !some.is_empty());
        assert_eq!(traces.followed_of(place(nobody)), Some(none));
        assert_eq!(traces.followed_of(place(somebody)), Some(some));
        for round in 1_000..1_000 + u32::try_from(DRAWS_MAX).unwrap() {
            traces.drawn(place(round), &cohort, during);
        }
        assert_eq!(traces.followed_of(place(nobody)), None, "it is forgotten, and looked through");
        assert_eq!(traces.0.as_ref().unwrap().draws().len(), DRAWS_MAX);
        assert_eq!(Traces::default().followed_of(place(1)), Some(Vec::new()));
    }

    #[test]
    fn of_a_large_round_few_updates_are_followed() {
        let (traces, mut spans) = traces(5, 1.0);
        let during = During { began: Timestamp(1), ended: Timestamp(2) };
        traces.drawn(place(1), &participants(1_000), during);
        let mut told = 0;
        while let Ok(span) = spans.try_recv() {
            assert!(span.is_root() && span.name() == "draw");
            told += 1;
        }
        assert_eq!(told, FOLLOWED_MAX);
    }
}
