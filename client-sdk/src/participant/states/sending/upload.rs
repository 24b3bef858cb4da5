//! Sends the masked input, the same bytes each time, until there is a receipt or a permanent error.
//!
//! An input of several parts is announced first. The coordinator answers with the missing parts, or with the receipt once it has all
//! of them. After any failure the input is announced again: the coordinator may be another replica, or restarted. The participant
//! gives up on a coordinator that requests received parts again, after sending three times the size of the update.
//!
//! This state may be entered from the journal, after the app was killed during an upload.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use secure_agg::upload::PART_BYTES;
use wire::Attempt;
use wire::participant::{Receipt, RefusalCode, UploadReply};

use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::snapshot::Pending;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{Opening, OpeningPhase, Sending, State};
use crate::transport::retry::{Verdict, judge};
use crate::transport::{Manifest, Part, Request, TransportError, Upload};

/// How often a coordinator that loses accepted parts is sent as much as the whole update.
const MOST_TIMES: usize = 3;

impl Sending {
    pub(in crate::participant) fn new(pending: Pending, signed: Option<Bytes>) -> Self {
        Self { pending, missing: None, taken: 0, signed, attempts: Attempts::default() }
    }

    /// Number of parts of the update; 0 if it is sent whole.
    fn parts(&self) -> usize {
        self.pending.parts.as_ref().map_or(0, |tree| tree.parts().len())
    }

    /// The attempt whose sum is opened after the update is accepted, if it has a session.
    pub(in crate::participant) fn session_place(&self) -> Option<Attempt> {
        self.pending.session.as_ref().map(|session| session.place)
    }

    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let Pending { place, sha256, ref body, ref parts, below, .. } = self.pending;
        let (body, signed) = (body.clone(), self.signed.clone());
        let next = self.missing.as_ref().and_then(|missing| missing.front().copied());
        core.send(|participant| match (parts, next) {
            (None, _) => Request::Upload(Upload { place, participant, sha256, body, signed, below }),
            (Some(tree), None) => {
                Request::Manifest(Manifest { place, participant, tree: Arc::clone(tree), signed, below })
            }
            (Some(_), Some(number)) => {
                let body = body.slice(part_range(body.len(), number));
                Request::Part(Part { place, participant, number, body })
            }
        })
    }

    /// Which parts are to be sent, or the receipt.
    pub(in crate::participant) fn announced(
        self,
        core: &mut Core,
        result: Result<UploadReply, TransportError>,
        now: Now,
    ) -> State {
        match result {
            Ok(UploadReply::Accepted(receipt)) => self.uploaded(core, Ok(receipt), now),
            Ok(UploadReply::Missing { parts }) => {
                let known = self.parts();
                let is_ascending = parts.is_sorted_by(|one, next| one < next);
                if !is_ascending || parts.last().is_none_or(|last| *last as usize >= known) {
                    let error =
                        TransportError::protocol("the parts that it asks for are not some of the update's, in order");
                    return self.uploaded(core, Err(error), now);
                }
                self.send_missing(core, parts, now)
            }
            Err(error) => self.uploaded(core, Err(error), now),
        }
    }

    /// At once, unless the coordinator has taken them all before.
    fn send_missing(self, core: &mut Core, parts: Vec<u32>, now: Now) -> State {
        let times = self.taken / self.parts().max(1);
        if times == 0 {
            return State::Upload(Self { missing: Some(parts.into()), ..self });
        }
        let error =
            format!("the coordinator has taken as much as the update {times} times, and asks for parts of it again");
        if times < MOST_TIMES {
            let attempts = self.attempts.again(core, now, "send the update", &error, None);
            return State::Upload(Self { missing: Some(parts.into()), attempts, ..self });
        }
        let place = self.pending.place;
        core.events.push(Event::TrainingFailed { place, error });
        core.give_up(place, RefusalCode::NotTaken, Some(self.pending.local_state.not_sent()))
    }

    pub(in crate::participant) fn part_stored(
        mut self,
        core: &mut Core,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        if let Err(error) = result {
            return self.uploaded(core, Err(error), now);
        }
        if let Some(missing) = &mut self.missing {
            missing.pop_front();
        }
        self.taken = self.taken.saturating_add(1);
        // Each part that arrives for the first time shows that retrying helps.
        if self.taken <= self.parts() {
            self.attempts = Attempts::default();
        }
        State::Upload(self)
    }

    pub(in crate::participant) fn uploaded(
        self,
        core: &mut Core,
        result: Result<Receipt, TransportError>,
        now: Now,
    ) -> State {
        let Pending { place, sha256, .. } = self.pending;
        let error = match result {
            Ok(receipt) if receipt.sha256 == sha256 => return self.accepted(core),
            Ok(_) => TransportError::protocol("the receipt is for other bytes"),
            Err(error) => error,
        };
        let verdict = judge(&error);
        if let Some(end) = core.fatal(&error, verdict) {
            return State::Finished(Err(end));
        }
        match verdict {
            Verdict::Again(after) => {
                let attempts = self.attempts.again(core, now, "send the update", &error, after);
                State::Upload(Self { attempts, missing: None, ..self })
            }
            Verdict::RoundOver => core.round_over(place, &error.to_string(), Some(self.pending.local_state.not_sent())),
            Verdict::Revoked | Verdict::Expired | Verdict::Refused => {
                core.events.push(Event::TrainingFailed { place, error: error.to_string() });
                core.give_up(place, RefusalCode::NotTaken, Some(self.pending.local_state.not_sent()))
            }
        }
    }

    /// Without secure aggregation the round is complete; with it, the sum has yet to be opened.
    fn accepted(self, core: &mut Core) -> State {
        let Pending { place, sha256, body, local_state, session, .. } = self.pending;
        core.events.push(Event::Uploaded { place, bytes: body.len() as u64, sha256 });
        match session {
            Some(session) => State::Opening(Opening::new(OpeningPhase::Confirm, session, local_state)),
            None => core.answered(place, Some(local_state)),
        }
    }
}

/// Where a part lies in a body of this length.
fn part_range(length: usize, number: u32) -> Range<usize> {
    let start = (number as usize).saturating_mul(PART_BYTES).min(length);
    start..start.saturating_add(PART_BYTES).min(length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secure_agg::upload::PartTree;
    use wire::{Digest, Timestamp};
    use zeroize::Zeroizing;

    use super::*;
    use crate::entropy::SystemSecrets;
    use crate::identity::{Certified, SigningKey};
    use crate::participant::journal::settings::{Saved, Settings};
    use crate::participant::journal::snapshot::{IdentityRecord, LocalState, RoundCounters};
    use crate::participant::machine::Machine;
    use crate::participant::states::action::Input;
    use crate::transport::Response;

    /// Three parts, of which the last has five bytes.
    fn body() -> Bytes {
        (0..=u8::MAX).cycle().take(2 * PART_BYTES + 5).collect()
    }

    /// A machine that was restarted with an update to send.
    fn restarted(body: &Bytes) -> (Machine, Digest) {
        let certified = Certified {
            participant: "00000000-0000-0000-0000-000000000007".parse().unwrap(),
            name: "device".to_owned(),
            certificate_pem: String::new(),
            expires_at: Timestamp(i64::MAX),
            renew_at: Timestamp(i64::MAX),
        };
        let key = Arc::new(SigningKey::generate().unwrap());
        let identity = IdentityRecord { key, certified: Some(certified), token_sha256: None };
        let tree = PartTree::of(body);
        let (sha256, local_state) = (Digest(tree.name()), LocalState::NOTHING);
        let place = Attempt { task: "00000000-0000-0000-0000-000000000001".parse().unwrap(), round: 3, attempt: 1 };
        let parts = Some(Arc::new(tree));
        let pending = Pending { place, sha256, body: body.clone(), parts, local_state, session: None, below: None };
        let before = pending.encode(RoundCounters { released: &[], charges: 0 }).unwrap();
        let saved = Saved {
            identity: Some(identity.encode().unwrap()),
            round: Some(Zeroizing::new([&before[..], body].concat())),
            ..Saved::default()
        };
        let secrets = Box::new(SystemSecrets::new());
        let machine = Machine::new(Settings::default(), None, &saved, SigningKey::generate, [0; 32], secrets);
        (machine.unwrap(), sha256)
    }

    fn at(seconds: u64) -> Now {
        Now { elapsed: Duration::from_secs(seconds), wall: Timestamp(0) }
    }

    fn request(action: Action) -> Request {
        let Action::Send(request) = action else { panic!("it sends nothing") };
        request
    }

    fn manifested(parts: &[u32]) -> Input {
        Input::Response(Response::Manifested(Ok(UploadReply::Missing { parts: parts.to_vec() })))
    }

    fn stored(result: Result<(), TransportError>) -> Input {
        Input::Response(Response::PartStored(result))
    }

    /// The number of the part that is sent, whose bytes are those of the body.
    fn part(action: Action, body: &Bytes) -> u32 {
        let Request::Part(part) = request(action) else { panic!("it sends no part") };
        assert_eq!(part.body, body[part_range(body.len(), part.number)]);
        part.number
    }

    #[test]
    fn what_is_missing_is_sent_and_asked_for_again_after_a_failure() {
        let body = body();
        let (mut machine, root) = restarted(&body);
        let asks = |action| {
            let Request::Manifest(manifest) = request(action) else { panic!("it does not ask") };
            assert_eq!((Digest(manifest.tree.root()), manifest.tree.bytes()), (root, body.len() as u64));
        };
        asks(machine.poll(Input::Tick, at(1)));
        assert_eq!(part(machine.poll(manifested(&[0, 1, 2]), at(1)), &body), 0);
        assert_eq!(part(machine.poll(stored(Ok(())), at(1)), &body), 1);
        let lost = machine.poll(stored(Err(TransportError::unreachable("cut"))), at(1));
        assert!(matches!(lost, Action::WaitUntil(_)));
        // Another replica has the first one's parts, and more than was confirmed.
        asks(machine.poll(Input::Tick, at(100)));
        assert_eq!(part(machine.poll(manifested(&[2]), at(100)), &body), 2);
        asks(machine.poll(stored(Ok(())), at(100)));
        let receipt = Receipt { sha256: root, bytes: body.len() as u64, accepted_at: Timestamp(5) };
        let accepted = Input::Response(Response::Manifested(Ok(UploadReply::Accepted(receipt))));
        assert!(matches!(machine.poll(accepted, at(100)), Action::Persist(_)));
        let is_uploaded = |event: &Event| matches!(event, Event::Uploaded { sha256, .. } if *sha256 == root);
        assert!(machine.take_events().iter().any(is_uploaded));
    }

    #[test]
    fn parts_that_are_not_there_are_not_sent() {
        let body = body();
        for nonsense in [&[3][..], &[0, u32::MAX], &[], &[0, 0], &[1, 0]] {
            let (mut machine, _) = restarted(&body);
            machine.poll(Input::Tick, at(1));
            assert!(matches!(machine.poll(manifested(nonsense), at(1)), Action::WaitUntil(_)), "{nonsense:?}");
        }
    }

    #[test]
    fn a_coordinator_that_loses_every_part_is_sent_the_update_three_times() {
        let body = body();
        let (mut machine, _) = restarted(&body);
        let (mut input, mut now, mut sent, mut waits) = (Input::Tick, 1, 0, 0);
        while sent < 100 {
            input = match machine.poll(input, at(now)) {
                Action::Send(Request::Manifest(_)) => manifested(&[0, 1, 2]),
                Action::Send(Request::Part(_)) => {
                    sent += 1;
                    stored(Ok(()))
                }
                Action::WaitUntil(_) => {
                    (now, waits) = (now + 100, waits + 1);
                    Input::Tick
                }
                Action::Persist(_) => Input::Persisted(Ok(())),
                Action::Send(Request::Abandon(_)) => break,
                _ => panic!("it neither sends nor gives up"),
            };
        }
        assert_eq!((sent, waits), (9, 2));
        let failed = |event: &Event| matches!(event, Event::TrainingFailed { error, .. } if error.contains("3 times"));
        assert!(machine.take_events().iter().any(failed));
    }
}
