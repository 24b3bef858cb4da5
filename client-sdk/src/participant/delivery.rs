//! Waits for what the others dealt, and opens it. What does not open is held against its dealer only if the dealer signed it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::client::{Doubt, Received};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Delivery, ShareKeys};
use secure_agg::rejection::Refusal;
use wire::participant::{Announcement, Answer};

use super::action::Action;
use super::attempts::Attempts;
use super::base::Base;
use super::core::{Core, persist};
use super::event::Event;
use super::exchange::{Heard, failed};
use super::plan::Plan;
use super::session::{Session, SessionError};
use super::state::{Ask, AwaitDelivery, Complain, DeliveryStep, Recall, Say, State, Suspicion};
use crate::clock::Now;
use crate::transport::{Request, TransportError};

impl AwaitDelivery {
    pub(super) fn new(plan: Arc<Plan>, deadline: Duration, received: Base, session: Session) -> Self {
        Self { plan, deadline, received, session, step: DeliveryStep::Delivery(Ask::new(Announcement::Delivery)) }
    }

    pub(super) fn action(&mut self, core: &Core, now: Now) -> Action {
        let place = self.plan.place;
        match &mut self.step {
            DeliveryStep::Delivery(ask) => ask.action(core, place, now),
            DeliveryStep::Evidence(suspicion) => suspicion.attempts.wait(now).unwrap_or_else(|| {
                let dealer = suspicion.dealer;
                core.send(|_| Request::Evidence { place, dealer })
            }),
        }
    }

    pub(super) fn announced(self, core: &mut Core, result: Result<Option<Bytes>, TransportError>, now: Now) -> State {
        let Self { plan, deadline, received, session, step } = self;
        let DeliveryStep::Delivery(ask) = step else {
            return State::AwaitDelivery(Self { plan, deadline, received, session, step });
        };
        let place = plan.place;
        let delivery = match ask.heard(core, result, now) {
            Heard::Well(delivery) => delivery,
            Heard::Again(ask) => {
                return State::AwaitDelivery(Self {
                    plan,
                    deadline,
                    received,
                    session,
                    step: DeliveryStep::Delivery(ask),
                });
            }
            Heard::Left(left) => return core.left(place, left, None),
        };
        match receive(&session, &delivery) {
            Ok(Received::Ready(masking)) => {
                core.events.push(Event::Delivered { place, dealers: masking.dealers().len() });
                Recall::enter(core, plan, deadline, received, Some((session, masking)))
            }
            Ok(Received::Doubt(doubt)) => Self::new(plan, deadline, received, session).doubt(core, doubt),
            Err(error) => core.refuse(place, &error, None),
        }
    }

    fn doubt(self, core: &mut Core, doubt: Box<Doubt>) -> State {
        let position = usize::from(doubt.dealer()).checked_sub(1);
        match position.and_then(|position| self.session.members.get(position)) {
            Some(&dealer) => {
                let suspicion = Suspicion { doubt, dealer, attempts: Attempts::default() };
                State::AwaitDelivery(Self { step: DeliveryStep::Evidence(suspicion), ..self })
            }
            None => core.refuse(self.plan.place, &Refusal::OutOfOrder.into(), None),
        }
    }

    pub(super) fn evidenced(self, core: &mut Core, result: Result<Bytes, TransportError>, now: Now) -> State {
        let DeliveryStep::Evidence(suspicion) = self.step else { return State::AwaitDelivery(self) };
        let evidence = match result {
            Ok(evidence) => evidence,
            Err(error) => {
                let again = |attempts| Suspicion { attempts, ..suspicion };
                return match failed(core, &error, suspicion.attempts, "get the dealer's shares", now, again) {
                    Ok(suspicion) => State::AwaitDelivery(Self { step: DeliveryStep::Evidence(suspicion), ..self }),
                    Err(left) => core.left(self.plan.place, left, None),
                };
            }
        };
        let place = self.plan.place;
        match complain(core, *suspicion.doubt, self.session, &evidence) {
            Ok((session, complaint)) => {
                core.events.push(Event::Complained { place, dealer: suspicion.dealer });
                let records = core.session_record(&session, None);
                persist(records, State::Complain(Complain::new(place, Say::new(Answer::Complaint, complaint))))
            }
            Err(error) => core.refuse(place, &error, None),
        }
    }
}

fn receive(session: &Session, delivery: &[u8]) -> Result<Received, SessionError> {
    Ok(session.client()?.waiting_for_delivery()?.receive(&Delivery::decode(delivery)?)?)
}

/// The key of one ciphertext is told, and no input is sent in this session.
fn complain(core: &Core, doubt: Doubt, session: Session, evidence: &[u8]) -> Result<(Session, Bytes), SessionError> {
    let step = doubt.complain(&ShareKeys::decode(evidence)?, &core.key.signer()?)?;
    Ok((session.advance(&step.persist), step.send.encode().into()))
}
