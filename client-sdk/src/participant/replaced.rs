//! An authority that was replaced: the app names others than the one that certified this participant. With a new token
//! it enrols again and keeps its journal; what the journal holds of a round is left with the old certificate.
//!
//! The app's files and its token alone decide this. Nothing that a coordinator says or refuses leads here, so that
//! nobody who puts himself in the coordinator's place can have a participant leave its round or spend its token.

use wire::ParticipantId;
use wire::certificate::Issuers;
use wire::participant::DiscardReason;

use super::core::Core;
use super::event::Event;
use super::state::{Enroll, State};
use crate::identity::{self, CertificateError, Identity};

/// Whether none of these authorities has signed the certificate of this identity.
pub(super) fn is_of_another_authority(identity: &Identity, members: &Issuers) -> bool {
    matches!(identity::holder(&identity.certified.certificate_pem, members), Err(CertificateError::Issuer))
}

impl Core {
    /// Enrols again before anything else if the authority was replaced; continues with `then` otherwise.
    pub(super) fn under_new_authority(&mut self, then: State) -> State {
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

    /// Drops what the coordinator expected of the participant that this one was before: statements about its sessions,
    /// a training in progress, an update trained ahead. What was sent and spent stays, and still counts.
    pub(super) fn as_another(&mut self, then: State) -> State {
        (self.departure, self.unsaid) = (None, None);
        let then = self.without_checkpoint(None, then);
        let then = self.throw_away(DiscardReason::Unknown, then);
        self.ahead.gone = None;
        then
    }
}
