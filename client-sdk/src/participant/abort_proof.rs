//! An input from an upcoming round's base was sent before: asks for proof that its sum was never opened. Members that
//! left that session without answering state so, and enough statements prove it (`secure_agg::unopened`); then another
//! input may be sent.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::unopened::AbortProof;
use wire::Attempt;
use wire::certificate::Recorded;

use super::action::Action;
use super::core::{Core, persist};
use super::event::Event;
use super::record::Record;
use super::session::SessionError;
use super::snapshot;
use super::state::{AwaitAbortProof, CheckIn, State};
use super::used_bases::PastInput;
use crate::clock::Now;
use crate::transport::retry::judge;
use crate::transport::{Request, TransportError};

impl AwaitAbortProof {
    pub(super) fn new(invited: Attempt, input: PastInput, then: CheckIn) -> Self {
        Self { invited, input, then }
    }

    pub(super) fn action(&self, core: &Core) -> Action {
        core.send(|_| Request::AbortStatements { place: self.input.place })
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { invited, input, then } = self;
        let refusal = match result.map(|proof| proof.map(|proof| proves(&input, &proof))) {
            Ok(Some(Ok(()))) => {
                core.events.push(Event::Unopened { place: input.place });
                core.used_bases.free(input.base);
                let record = core.used_bases.encode();
                let records = record.map(|bytes| vec![Record::new(snapshot::USED_BASES.to_owned(), bytes)]);
                return persist(records, State::CheckIn(then));
            }
            Ok(Some(Err(error))) => error,
            Ok(None) => SessionError::BaseUsed,
            Err(error) => match core.fatal(&error, judge(&error)) {
                Some(end) => return State::Finished(Err(end)),
                None => SessionError::BaseUsed,
            },
        };
        then.declined(core, invited, &refusal, now)
    }
}

fn proves(input: &PastInput, proof: &[u8]) -> Result<(), SessionError> {
    Ok(AbortProof::decode(proof)?.prove(&input.session.0, &Recorded)?)
}
