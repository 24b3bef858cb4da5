//! This participant's fixed batch, and its batch reports in check-ins (`secure_agg::batch`).
//!
//! A participant keeps its batch across rounds and tasks: its update stays hidden among T updates only if the same T
//! members are always unmasked together. It joins another batch only after the app has consented to leave this one.

use secure_agg::batch::draw::{Batch, Drawing, Offered};
use secure_agg::codec::Message as _;
use uuid::Uuid;
use wire::Digest;
use wire::base64::Base64;
use wire::participant::BatchReport;

/// Batch membership and the state of the current draw; stored in the journal.
#[derive(Default)]
pub(in crate::participant) struct BatchState {
    pub(in crate::participant) status: BatchStatus,
    /// Draws in a row in which this participant revealed its nonce without a result.
    pub(in crate::participant) unfinished: u32,
}

/// Whether the participant has a batch.
#[derive(Default)]
pub(in crate::participant) enum BatchStatus {
    #[default]
    Without,
    /// It is in a draw. Secret: the state contains the nonce of an offer.
    Drawing(Drawing),
    Member(Batch),
}

impl BatchState {
    pub(in crate::participant) const fn member(&self) -> Option<&Batch> {
        match &self.status {
            BatchStatus::Member(batch) => Some(batch),
            BatchStatus::Without | BatchStatus::Drawing(_) => None,
        }
    }

    pub(in crate::participant) const fn drawing(&self) -> Option<&Drawing> {
        match &self.status {
            BatchStatus::Drawing(drawing) => Some(drawing),
            BatchStatus::Without | BatchStatus::Member(_) => None,
        }
    }

    /// Whether its current draw is this one.
    pub(in crate::participant) fn is_in(&self, draw: Uuid) -> bool {
        self.drawing().is_some_and(|drawing| *drawing.draw() == *draw.as_bytes())
    }

    /// Takes the offer for this draw out of the state; `None`, without a change, if the participant made none.
    pub(in crate::participant) fn take_offer(&mut self, draw: Uuid) -> Option<Offered> {
        if !self.is_in(draw) {
            return None;
        }
        match std::mem::take(&mut self.status) {
            BatchStatus::Drawing(Drawing::Offered(state)) => Some(state),
            other @ (BatchStatus::Without | BatchStatus::Drawing(Drawing::Revealed(_)) | BatchStatus::Member(_)) => {
                self.status = other;
                None
            }
        }
    }

    /// Drops the batch if `consent` is its id. Returns whether it did.
    pub(in crate::participant) fn leave(&mut self, consent: Option<Digest>) -> bool {
        let leaves = self.member().is_some_and(|batch| Some(Digest(batch.id)) == consent);
        if leaves {
            self.status = BatchStatus::Without;
        }
        leaves
    }

    /// Whether it waits for the pool of a draw.
    pub(in crate::participant) fn is_offering(&self) -> bool {
        matches!(self.status, BatchStatus::Drawing(Drawing::Offered(_)))
    }

    /// The number of members; 0 without a batch.
    pub(in crate::participant) fn size(&self) -> u16 {
        self.member().map_or(0, Batch::size)
    }

    /// The batch report of the next check-in; `None` without a batch and a draw.
    pub(in crate::participant) fn report(&self) -> Option<BatchReport> {
        let draw = |drawing: &Drawing| Uuid::from_bytes(*drawing.draw());
        Some(match &self.status {
            BatchStatus::Drawing(drawing @ Drawing::Offered(state)) => {
                BatchReport::Offer { draw: draw(drawing), offer: Base64(state.message().encode()) }
            }
            BatchStatus::Drawing(drawing @ Drawing::Revealed(state)) => {
                BatchReport::Reveal { draw: draw(drawing), reveal: Base64(state.message().encode()) }
            }
            BatchStatus::Member(batch) => BatchReport::Member { size: batch.size(), batch: Digest(batch.id) },
            BatchStatus::Without => return None,
        })
    }
}
