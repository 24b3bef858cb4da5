//! Waits for the shares dealt by the others and opens them. A ciphertext that does not open is blamed on its dealer
//! only if the dealer signed it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secure_agg::client::{Challenge, Received};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Delivery, ShareKeys};
use secure_agg::rejection::Refusal;
use wire::participant::{Announcement, Answer};

use super::exchange::{Reply, failed};
use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::session::{Session, SessionError};
use crate::participant::model::base::RoundBase;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::{
    AnnouncementPoll, AwaitDelivery, Complain, DeliveryStep, EvidenceRequest, LoadLocal, MessageUpload, State,
};
use crate::participant::task::plan::Plan;
use crate::transport::{Request, TransportError};

impl AwaitDelivery {
    pub(in crate::participant) fn new(
        plan: Arc<Plan>,
        deadline: Duration,
        received: RoundBase,
        session: Session,
    ) -> Self {
        Self {
            plan,
            deadline,
            received,
            session,
            step: DeliveryStep::Delivery(AnnouncementPoll::new(Announcement::Delivery)),
        }
    }

    pub(in crate::participant) fn action(&mut self, core: &Core, now: Now) -> Action {
        let place = self.plan.place;
        match &mut self.step {
            DeliveryStep::Delivery(poll) => poll.action(core, place, now),
            DeliveryStep::Evidence(request) => request.attempts.wait(now).unwrap_or_else(|| {
                let dealer = request.dealer;
                core.send(|_| Request::Evidence { place, dealer })
            }),
        }
    }

    pub(in crate::participant) fn announced(
        self,
        core: &mut Core,
        result: Result<Option<Bytes>, TransportError>,
        now: Now,
    ) -> State {
        let DeliveryStep::Delivery(poll) = self.step else { return State::AwaitDelivery(self) };
        let place = self.plan.place;
        let delivery = match poll.receive(core, result, now) {
            Reply::Answered(delivery) => delivery,
            Reply::Again(poll) => return State::AwaitDelivery(Self { step: DeliveryStep::Delivery(poll), ..self }),
            Reply::Failed(error) => return core.exchange_failed(place, error, None),
        };
        let Self { plan, deadline, received, session, .. } = self;
        match receive(&session, &delivery) {
            Ok(Received::Ready(masking)) => {
                core.events.push(Event::Delivered { place, dealers: masking.dealers().len() });
                // Collection began when the last shares came, at the latest now.
                let collect = plan.assignment.collect_ms.map(|ms| core.deadline(Duration::from_millis(ms), now));
                let deadline = collect.map_or(deadline, |collect| deadline.min(collect));
                LoadLocal::enter(core, plan, deadline, (received, Some((session, masking))), now)
            }
            Ok(Received::Challenge(challenge)) => {
                Self::new(plan, deadline, received, session).challenge(core, challenge)
            }
            Err(error) => core.refuse(place, &error, None),
        }
    }

    fn challenge(self, core: &mut Core, challenge: Box<Challenge>) -> State {
        let position = usize::from(challenge.dealer()).checked_sub(1);
        match position.and_then(|position| self.session.members.get(position)) {
            Some(&dealer) => {
                let request = EvidenceRequest { challenge, dealer, attempts: Attempts::default() };
                State::AwaitDelivery(Self { step: DeliveryStep::Evidence(request), ..self })
            }
            None => core.refuse(self.plan.place, &Refusal::OutOfOrder.into(), None),
        }
    }

    pub(in crate::participant) fn evidenced(
        self,
        core: &mut Core,
        result: Result<Bytes, TransportError>,
        now: Now,
    ) -> State {
        let DeliveryStep::Evidence(request) = self.step else { return State::AwaitDelivery(self) };
        let evidence = match result {
            Ok(evidence) => evidence,
            Err(error) => {
                let again = |attempts| EvidenceRequest { attempts, ..request };
                return match failed(core, &error, request.attempts, "get the dealer's shares", now, again) {
                    Ok(request) => State::AwaitDelivery(Self { step: DeliveryStep::Evidence(request), ..self }),
                    Err(error) => core.exchange_failed(self.plan.place, error, None),
                };
            }
        };
        let place = self.plan.place;
        match complain(core, *request.challenge, self.session, &evidence) {
            Ok((session, complaint)) => {
                core.events.push(Event::Complained { place, dealer: request.dealer });
                let records = core.session_record(&session, None);
                persist(
                    records,
                    State::Complain(Complain::new(place, MessageUpload::new(Answer::Complaint, complaint))),
                )
            }
            Err(error) => core.refuse(place, &error, None),
        }
    }
}

fn receive(session: &Session, delivery: &[u8]) -> Result<Received, SessionError> {
    Ok(session.client()?.waiting_for_delivery()?.receive(&Delivery::decode(delivery)?)?)
}

/// Reveals the key of one ciphertext. The participant sends no input in this session.
fn complain(
    core: &Core,
    challenge: Challenge,
    session: Session,
    evidence: &[u8],
) -> Result<(Session, Bytes), SessionError> {
    let step = challenge.complain(&ShareKeys::decode(evidence)?, &core.key.signer()?)?;
    Ok((session.advance(&step.persist), step.send.encode().into()))
}
