//! An input was given from the model of a round to come: asks whether its sum was never opened. Members of that session who left it
//! without an answer say so, and enough of them prove it (`secure_agg::unopened`); then another input may be given.

use bytes::Bytes;
use secure_agg::codec::Message as _;
use secure_agg::unopened::Unopened;
use wire::Attempt;
use wire::certificate::Recorded;

use super::action::Action;
use super::core::{Core, persist};
use super::event::Event;
use super::given::Input;
use super::record::Record;
use super::session::SessionError;
use super::snapshot;
use super::state::{CheckIn, Settle, State};
use crate::clock::Now;
use crate::transport::retry::judge;
use crate::transport::{Request, TransportError};

impl Settle {
    pub(super) fn new(invited: Attempt, given: Input, then: CheckIn) -> Self {
        Self { invited, given, then }
    }

    pub(super) fn action(&self, core: &Core) -> Action {
        core.send(|_| Request::AbortStatements { place: self.given.place })
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { invited, given, then } = self;
        let refusal = match result.map(|proof| proof.map(|proof| proves(&given, &proof))) {
            Ok(Some(Ok(()))) => {
                core.events.push(Event::Unopened { place: given.place });
                core.given.free(given.base);
                let record = core.given.encode();
                let records = record.map(|bytes| vec![Record::new(snapshot::GIVEN.to_owned(), bytes)]);
                return persist(records, State::CheckIn(then));
            }
            Ok(Some(Err(error))) => error,
            Ok(None) => SessionError::Given,
            Err(error) => match core.fatal(&error, judge(&error)) {
                Some(end) => return State::Finished(Err(end)),
                None => SessionError::Given,
            },
        };
        then.declined(core, invited, &refusal, now)
    }
}

fn proves(given: &Input, proof: &[u8]) -> Result<(), SessionError> {
    Ok(Unopened::decode(proof)?.prove(&given.session.0, &Recorded)?)
}
