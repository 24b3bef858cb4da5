//! Requests that were made before the machine asked for them ([`Machine::prefetch`]), and how long a round trip takes.

use std::collections::VecDeque;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::action::{Action, Input};
use super::machine::Machine;
use super::prefetch::Prefetch;
use crate::transport::{Request, Response};

/// What comes of an action.
pub(super) type Answer = Pin<Box<dyn Future<Output = Input> + Send>>;

/// Requests on their way, or answered already. One that is dropped is given up.
#[derive(Default)]
pub(super) struct Prefetches(Vec<(Prefetch, State)>);

enum State {
    Pending(Answer),
    Answered(Box<Input>),
}

impl Prefetches {
    /// The answer to what the machine asks for, if it was asked for before.
    pub(super) fn take(&mut self, action: &Action) -> Option<Answer> {
        let name = Prefetch::of(action)?;
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(match self.0.swap_remove(at).1 {
            State::Pending(answer) => answer,
            State::Answered(input) => Box::pin(ready(*input)),
        })
    }

    /// Makes the requests that the machine will ask for next, and gives up those that it will not.
    pub(super) fn follow(&mut self, machine: &Machine, start: impl Fn(Action) -> Option<Answer>) {
        let named = |action| Some((Prefetch::of(&action)?, action));
        let next: Vec<_> = machine.prefetch().into_iter().filter_map(named).collect();
        self.0.retain(|(known, _)| next.iter().any(|(name, _)| name == known));
        for (name, action) in next {
            if self.0.iter().all(|(known, _)| *known != name) {
                self.0.extend(start(action).map(|answer| (name, State::Pending(answer))));
            }
        }
    }

    /// Goes on with all of them. One that failed, or had nothing to tell yet, is forgotten: it is made when its time has come.
    pub(super) fn advance(&mut self, context: &mut Context<'_>) {
        self.0.retain_mut(|(_, state)| {
            let State::Pending(answer) = state else { return true };
            match answer.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(
                    input @ (Input::Response(Response::Announced(Ok(Some(_)))) | Input::Fetched { result: Ok(()), .. }),
                ) => {
                    *state = State::Answered(Box::new(input));
                    true
                }
                Poll::Ready(_) => false,
            }
        });
    }
}

/// How long a request and its answer take on this line: the least of what was measured lately, since everything else that
/// takes time only adds to it.
#[derive(Default)]
pub(super) struct RoundTrip {
    recent: VecDeque<Duration>,
}

impl RoundTrip {
    /// Measurements that count.
    const RECENT: usize = 8;

    /// Whether this is answered at once, whatever the round is doing.
    pub(super) fn is_measured_by(request: &Request) -> bool {
        match request {
            Request::Enroll(_)
            | Request::Renew(_)
            | Request::Answer { .. }
            | Request::Abandon(_)
            | Request::AbortStatement { .. }
            | Request::AbortStatements { .. } => true,
            Request::CheckIn(_) | Request::Announcement { .. } | Request::Evidence { .. } | Request::Upload(_) => false,
        }
    }

    pub(super) fn measured(&mut self, took: Duration) {
        if self.recent.len() == Self::RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
    }

    /// Zero before the first measurement.
    pub(super) fn least(&self) -> Duration {
        self.recent.iter().min().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_the_least_of_the_last_eight() {
        let mut line = RoundTrip::default();
        assert_eq!(line.least(), Duration::ZERO);
        for millis in [9, 3, 7, 8, 8, 8, 8, 8] {
            line.measured(Duration::from_millis(millis));
        }
        assert_eq!(line.least(), Duration::from_millis(3));
        line.measured(Duration::from_millis(8));
        assert_eq!(line.least(), Duration::from_millis(3), "the first, not the least, was forgotten");
        line.measured(Duration::from_millis(8));
        assert_eq!(line.least(), Duration::from_millis(7));
    }
}
