//! Requests made ahead of the machine ([`Machine::prefetch`]), and the measured round-trip time.

use std::collections::VecDeque;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::prefetch::Prefetch;
use crate::participant::machine::Machine;
use crate::participant::states::action::{Action, Input};
use crate::transport::Response;

/// The pending result of an action.
pub(in crate::participant) type Answer = Pin<Box<dyn Future<Output = Input> + Send>>;

/// Prefetched requests, pending or answered. Dropping one cancels it.
#[derive(Default)]
pub(super) struct Prefetches(Vec<(Prefetch, State)>);

enum State {
    Pending(Answer),
    Answered(Box<Input>),
}

impl Prefetches {
    /// The prefetched answer to an action, if there is one.
    pub(in crate::participant) fn take(&mut self, action: &Action) -> Option<Answer> {
        let name = Prefetch::of(action)?;
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(match self.0.swap_remove(at).1 {
            State::Pending(answer) => answer,
            State::Answered(input) => Box::pin(ready(*input)),
        })
    }

    /// Starts the requests that the machine will make next, and cancels those that it will not make.
    pub(in crate::participant) fn follow(&mut self, machine: &Machine, start: impl Fn(Action) -> Option<Answer>) {
        let named = |action| Some((Prefetch::of(&action)?, action));
        let next: Vec<_> = machine.prefetch().into_iter().filter_map(named).collect();
        self.0.retain(|(known, _)| next.iter().any(|(name, _)| name == known));
        for (name, action) in next {
            if self.0.iter().all(|(known, _)| *known != name) {
                self.0.extend(start(action).map(|answer| (name, State::Pending(answer))));
            }
        }
    }

    /// Polls all of them. Drops a request that failed or whose result is not there yet: the machine repeats it later.
    pub(in crate::participant) fn advance(&mut self, context: &mut Context<'_>) {
        self.0.retain_mut(|(_, state)| {
            let State::Pending(answer) = state else { return true };
            match answer.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(
                    input @ (Input::Response(Response::Announced(Ok(Some(_))))
                    | Input::Fetched { result: Ok(()), .. }
                    | Input::Given(_)),
                ) => {
                    *state = State::Answered(Box::new(input));
                    true
                }
                Poll::Ready(_) => false,
            }
        });
    }
}

/// Round-trip time of the connection: the minimum of recent measurements, since every other delay only adds to it.
#[derive(Default)]
pub(super) struct RoundTrip {
    recent: VecDeque<Duration>,
}

impl RoundTrip {
    /// Number of recent measurements considered.
    const RECENT: usize = 8;

    pub(in crate::participant) fn measured(&mut self, took: Duration) {
        if self.recent.len() == Self::RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(took);
    }

    /// Zero before the first measurement.
    pub(in crate::participant) fn least(&self) -> Duration {
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
