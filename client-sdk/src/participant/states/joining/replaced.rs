//! Replacement of an authority: the app names other authorities than the issuer of this participant's certificate. With a new token
//! the participant enrols again and keeps its journal. Journal records of a round are left with the old certificate.
//!
//! Only the app's files and its token decide this. Messages of a coordinator cannot cause it, so an attacker in the coordinator's
//! place cannot make a participant leave its round or spend its token.

use wire::ParticipantId;
use wire::certificate::Issuers;
use wire::participant::DiscardReason;

use crate::identity::{self, CertificateError, Identity};
use crate::participant::api::event::Event;
use crate::participant::journal::batch::BatchStatus;
use crate::participant::states::core::Core;
use crate::participant::states::state::{Enroll, State};

/// Whether the certificate of this identity was signed by an authority outside `members`.
pub(super) fn is_of_another_authority(identity: &Identity, members: &Issuers) -> bool {
    matches!(identity::holder(&identity.certified.certificate_pem, members), Err(CertificateError::Issuer))
}

impl Core {
    /// Enrols again before anything else if the authority was replaced; continues with `then` otherwise.
    pub(in crate::participant) fn under_new_authority(&mut self, then: State) -> State {
        if self.replaced.is_none() || matches!(then, State::Finished(_)) {
            return then;
        }
        let enroll = State::Enroll(Enroll::default());
        // A certificate that was issued elsewhere has its own key.
        if self.pre_issued_certificate.is_some() { enroll } else { self.with_next_key(enroll) }
    }

    /// The new authority has certified this participant: reports it, and returns whether it is another participant from
    /// now on, as its token decided.
    pub(super) fn was_replaced(&mut self, participant: ParticipantId) -> bool {
        let Some(old) = self.replaced.take() else { return false };
        let before = old.certified.participant;
        self.events.push(Event::AuthorityReplaced { before, left: self.holds });
        before != participant
    }

    /// Drops the work that the coordinator expected under the former identity: a training in progress, an update
    /// trained ahead and the batch. Sent updates and spending stay, and still count.
    pub(super) fn as_another(&mut self, then: State) -> State {
        let then = self.without_checkpoint(None, then);
        let then = self.throw_away(DiscardReason::Unknown, then);
        self.ahead.gone = None;
        // A batch names its members by their ids.
        self.batch.status = BatchStatus::Without;
        self.save_batch(then)
    }
}
