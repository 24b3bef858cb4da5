//! Takes the steps of a draw that forms fixed batches.

use std::time::Duration;

use secure_agg::batch::draw::{Drawing, Drawn, MAX_UNFINISHED_DRAWS, Pool, offer};
use secure_agg::codec::Message as _;
use uuid::Uuid;
use wire::Digest;
use wire::certificate::Authority;
use wire::participant::BatchStep;

use super::join::own_certificate;
use crate::clock::Now;
use crate::participant::api::event::Event;
use crate::participant::journal::batch::{BatchState, BatchStatus};
use crate::participant::journal::record::Record;
use crate::participant::journal::session::SessionError;
use crate::participant::journal::snapshot;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::{CheckIn, State};
use crate::transport::TransportError;

impl Core {
    /// Writes the state of the batch, then continues with `then`.
    pub(in crate::participant) fn save_batch(&self, then: State) -> State {
        let records = self.batch.encode().map(|bytes| vec![Record::new(snapshot::BATCH.to_owned(), bytes)]);
        persist(records, then)
    }
}

impl CheckIn {
    /// Takes a step of a draw, persists it and checks in again.
    pub(super) fn batch_step(self, core: &mut Core, step: BatchStep, now: Now) -> State {
        let task = match &step {
            BatchStep::Offer { task, .. } | BatchStep::Reveal { task, .. } => Some(*task),
            BatchStep::Drawn { .. } => None,
        };
        match take(core, step, now) {
            Ok(true) => core.save_batch(State::CheckIn(Self::default())),
            Ok(false) => self.try_again(core, &"the coordinator repeats a step of the draw of batches", now),
            Err(error) => {
                let is_new = task.is_some_and(|task| core.report_refusal(task, error.code(), now));
                if !is_new {
                    return self.try_again(core, &error, now);
                }
                // Reported at once: the pause could outlast the refusal, and other tasks may need this participant.
                let (what, after) = ("join a batch", Duration::ZERO);
                core.events.push(Event::Retry { what, error: error.to_string(), after });
                State::CheckIn(Self { attempts: Attempts { ready_at: Duration::ZERO, ..self.attempts } })
            }
        }
    }

    /// Drops an offer that the coordinator rejected, for example since its certificate has expired. Its nonce was not revealed.
    pub(super) fn offer_rejected(self, core: &mut Core, error: &TransportError, now: Now) -> State {
        core.batch.status = BatchStatus::Without;
        let attempts = self.attempts.in_vain(core, now, "join a batch", error);
        core.save_batch(State::CheckIn(Self { attempts }))
    }

    fn try_again(self, core: &mut Core, error: &dyn std::fmt::Display, now: Now) -> State {
        State::CheckIn(Self { attempts: self.attempts.in_vain(core, now, "join a batch", error) })
    }
}

/// Takes a step; false if it was taken before.
fn take(core: &mut Core, step: BatchStep, now: Now) -> Result<bool, SessionError> {
    match step {
        BatchStep::Offer { draw, size, .. } => offered(core, draw, size),
        BatchStep::Reveal { draw, pool, .. } => {
            let Some(state) = core.batch.take_offer(draw) else {
                return if core.batch.is_in(draw) { Ok(false) } else { Err(SessionError::NoDraw) };
            };
            let authority = Authority::any_of(core.settings.members.clone(), now.wall);
            let revealed = state.reveal(&Pool::decode(&pool.0)?, core.settings.security.min_cohort, &authority)?;
            // Counted before the nonce leaves: the coordinator may not like the result.
            core.batch.unfinished += 1;
            core.batch.status = BatchStatus::Drawing(Drawing::Revealed(Box::new(revealed)));
            Ok(true)
        }
        BatchStep::Drawn { draw, drawn } => match core.batch.drawing() {
            Some(Drawing::Revealed(state)) if core.batch.is_in(draw) => {
                let batch = state.finish(&Drawn::decode(&drawn.0)?)?;
                core.events.push(Event::InBatch { batch: Digest(batch.id), size: batch.size() });
                core.batch = BatchState { status: BatchStatus::Member(batch), unfinished: 0 };
                Ok(true)
            }
            Some(_) | None => Err(SessionError::NoDraw),
        },
    }
}

/// Makes an offer for a draw, in place of one for a draw that ended without a result.
fn offered(core: &mut Core, draw: Uuid, size: u16) -> Result<bool, SessionError> {
    if let Some(batch) = core.batch.member() {
        return Err(SessionError::OtherBatch { batch: Digest(batch.id), size: batch.size(), needed: size });
    }
    if core.batch.is_in(draw) {
        return Ok(false);
    }
    if core.batch.unfinished >= MAX_UNFINISHED_DRAWS {
        return Err(SessionError::TooManyDraws);
    }
    let floor = core.settings.security.min_batch;
    if size < floor {
        return Err(SessionError::SmallBatch { size, floor });
    }
    let identity = core.identity.as_deref().ok_or(SessionError::NotEnrolled)?;
    let participant = *identity.certified.participant.0.as_bytes();
    let (certificate, signer) = (own_certificate(core)?, core.key.signer()?);
    let state = offer(*draw.as_bytes(), size, &participant, &certificate, &signer, core.secrets.as_mut())?;
    core.batch.status = BatchStatus::Drawing(Drawing::Offered(state));
    Ok(true)
}
