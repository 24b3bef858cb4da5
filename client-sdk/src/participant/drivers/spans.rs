//! Trace spans of a round: the duration of each action of the driver, where the coordinator traces the update.
//!
//! A span has a name of this file and two times. It is free of values, metrics, examples and keys.

use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, digest};
use wire::participant::CheckInReply;
use wire::{Attempt, TraceContext};

use crate::clock::{Clock, Now};
use crate::participant::api::event::Span;
use crate::participant::states::action::{Action, Input};
use crate::transport::{Request, Response};

const TRAIN: &str = "train";

/// The traced round, and the span in progress.
#[derive(Default)]
pub(super) struct Spans {
    followed: Option<Followed>,
    under_way: Option<(&'static str, Now)>,
    /// When the training that is under way was over, and its update is encoded.
    encoded_from: Arc<Mutex<Option<Now>>>,
}

struct Followed {
    place: Attempt,
    /// Where the coordinator's part of the trace is.
    parent: TraceContext,
    /// The round's own span, which the others are parts of.
    context: TraceContext,
    began: Now,
}

impl Spans {
    /// Notes a new assignment with a trace, and returns the trace context for its requests.
    pub(in crate::participant) fn hear(&mut self, input: &Input, now: Now) -> Option<(Attempt, TraceContext)> {
        let Input::Response(Response::CheckedIn(Ok(CheckInReply::Assigned(assignment)))) = input else { return None };
        let place = assignment.attempt_key();
        let parent: TraceContext = assignment.traceparent.as_deref()?.parse().ok()?;
        let context = TraceContext { span: id(parent, "round", now), ..parent };
        self.followed = Some(Followed { place, parent, context, began: now });
        Some((place, context))
    }

    /// Notes the start of an action. A request for other work ends the round, whose span is returned.
    pub(in crate::participant) fn begin(&mut self, action: &Action, now: Now) -> Option<Span> {
        self.under_way = None;
        if let Action::Send(Request::CheckIn(_)) = action {
            let Followed { parent, context, began, .. } = self.followed.take()?;
            let took = now.elapsed.saturating_sub(began.elapsed);
            return Some(Span { parent, id: context.span, name: "round", began: began.wall, took });
        }
        let place = self.followed.as_ref()?.place;
        self.under_way = name(action, place).map(|name| (name, now));
        None
    }

    /// The callback for the moment when a training is over, and its update is encoded.
    pub(super) fn encoding_begins(&self, clock: &Arc<dyn Clock>) -> impl FnMut() + Send + use<> {
        let (moment, clock) = (Arc::clone(&self.encoded_from), Arc::clone(clock));
        *moment.lock().unwrap_or_else(PoisonError::into_inner) = None;
        move || *moment.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock.now())
    }

    /// The spans of the action that has ended, if it is followed.
    pub(in crate::participant) fn end(&mut self, now: Now) -> [Option<Span>; 2] {
        let Some((name, began)) = self.under_way.take() else { return [None, None] };
        let encoded_from = self.encoded_from.lock().unwrap_or_else(PoisonError::into_inner).take();
        match encoded_from.filter(|_| name == TRAIN) {
            Some(moment) => [self.span(TRAIN, began, moment), self.span("clip and mask", moment, now)],
            None => [self.span(name, began, now), None],
        }
    }

    fn span(&self, name: &'static str, began: Now, ended: Now) -> Option<Span> {
        let parent = self.followed.as_ref()?.context;
        let took = ended.elapsed.saturating_sub(began.elapsed);
        Some(Span { parent, id: id(parent, name, began), name, began: began.wall, took })
    }
}

/// The span name of an action, if it belongs to this attempt.
fn name(action: &Action, place: Attempt) -> Option<&'static str> {
    match action {
        Action::Send(request) => {
            let properties = request.properties();
            properties.span.filter(|_| properties.place == Some(place))
        }
        Action::Fetch { task, .. } => (*task == place.task).then_some("download"),
        Action::Train(_) => Some(TRAIN),
        Action::Persist(_) => Some("persist"),
        Action::Load(_) => Some("load"),
        Action::Evaluate(_) | Action::WaitUntil(_) | Action::Finished(_) => None,
    }
}

/// A span id that is unique in the trace: only one span begins by this name at that moment.
fn id(context: TraceContext, name: &str, began: Now) -> [u8; 8] {
    let moment = began.elapsed.as_nanos().to_be_bytes();
    let made = digest(&SHA256, &[&context.trace[..], &context.span, name.as_bytes(), &moment].concat());
    let mut id = [0; 8];
    id.copy_from_slice(&made.as_ref()[..8]);
    id
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::Timestamp;
    use wire::participant::CheckInRequest;

    use super::*;

    fn at(ms: u64) -> Now {
        Now { elapsed: Duration::from_millis(ms), wall: Timestamp(1_000 + i64::try_from(ms).unwrap()) }
    }

    #[test]
    fn a_round_ends_with_the_next_check_in_and_training_has_two_parts() {
        let place = Attempt { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round: 3, attempt: 1 };
        let parent = TraceContext { trace: [1; 16], span: [2; 8] };
        let context = TraceContext { span: [3; 8], ..parent };
        let mut spans = Spans { followed: Some(Followed { place, parent, context, began: at(0) }), ..Spans::default() };
        assert_eq!(spans.begin(&Action::Load("x".to_owned()), at(1)), None);
        let [Some(load), None] = spans.end(at(2)) else { panic!("loading is one span") };
        assert_eq!((load.name, load.parent, load.began), ("load", context, Timestamp(1_001)));
        spans.under_way = Some((TRAIN, at(10)));
        *spans.encoded_from.lock().unwrap() = Some(at(17));
        let [Some(train), Some(mask)] = spans.end(at(20)) else { panic!("two parts") };
        assert_eq!((train.name, train.took), ("train", Duration::from_millis(7)));
        assert_eq!((mask.name, mask.took), ("clip and mask", Duration::from_millis(3)));
        assert!(train.id != mask.id && train.id != load.id);
        let other = Attempt { round: 4, ..place };
        let evidence =
            Request::Evidence { place: other, dealer: "00000000-0000-0000-0000-000000000002".parse().unwrap() };
        assert_eq!(name(&Action::Send(evidence), place), None, "another round's");
        let check_in: CheckInRequest = serde_json::from_str(r#"{"examples":1}"#).unwrap();
        let check_in = Action::Send(Request::CheckIn(check_in));
        let Some(round) = spans.begin(&check_in, at(30)) else { panic!("the round is over") };
        assert_eq!((round.name, round.parent, round.id), ("round", parent, context.span));
        assert_eq!(round.took, Duration::from_millis(30));
        assert_eq!(spans.begin(&check_in, at(31)), None);
        assert_eq!(spans.end(at(32)), [None, None]);
    }
}
