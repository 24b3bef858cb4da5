//! The participant's response to a ciphertext that does not open. It requests the dealer's signed message. If that does not open either, it
//! reveals the ciphertext's single-use key and sends no input in this session.
//!
//! The dealer's signature is what makes this safe. A key revealed for a ciphertext altered by the *coordinator* would open the original
//! one: a coordinator could alter the ciphertexts of one victim for every holder, collect a key from each, and obtain both seeds of the
//! victim, which has sent its input in the meantime. Signed ciphertexts of an honest dealer always open, so keys are revealed only for
//! shares of a dishonest dealer.

use super::session::ClientSession;
use super::share_pair::opens;
use super::snapshot::{BadSnapshot, COMPLAINED, Reader, Writer};
use super::transition::Transition;
use crate::crypto::signature::Signer;
use crate::messages::{Complaint, ComplaintBody, RoundId, ShareKeys, Signed};
use crate::participants::Index;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// Holds a ciphertext that does not open. All other secrets of the session are erased; without evidence the session
/// ends here.
pub struct Challenge {
    pub(super) session: ClientSession,
    pub(super) dealer: Index,
    pub(super) key: Secret<[u8; 32]>,
}

impl Challenge {
    /// The dealer of the ciphertext; the participant requests this dealer's signed [`ShareKeys`] from the coordinator.
    #[must_use]
    pub const fn dealer(&self) -> Index {
        self.dealer
    }

    /// Complains about the dealer, if the dealer signed a ciphertext that does not open.
    ///
    /// # Errors
    /// [`Refusal::Signature`], [`Refusal::WrongSession`] or [`Refusal::Inconsistent`] if the evidence is not the dealer's, or if its
    /// ciphertext opens, so the delivered one was not the dealer's. The key then stays secret.
    pub fn complain(
        self,
        evidence: &ShareKeys,
        signer: &dyn Signer,
    ) -> Result<Transition<Complained, Complaint>, Refusal> {
        let (dealer, me, sid) = (self.dealer, self.session.me(), self.session.sid());
        if evidence.body.sid != *sid {
            return Err(Refusal::WrongSession);
        }
        if evidence.body.sender != dealer {
            return Err(Refusal::Inconsistent { what: "the sender of the evidence" });
        }
        if !self.session.identity(dealer).is_some_and(|identity| evidence.is_signed_by(&identity)) {
            return Err(Refusal::Signature { signer: dealer });
        }
        if evidence.body.sealed_for(me).is_some_and(|sealed| opens(sid, &self.key, dealer, me, sealed)) {
            return Err(Refusal::Inconsistent { what: "the delivered share" });
        }
        let body = ComplaintBody { sid: *sid, sender: me, accused: dealer, key: *self.key.expose() };
        let sent = Signed::sign(body, signer)?;
        let next = Complained { round: self.session.facts.round, sent: sent.clone() };
        Ok(Transition { persist: next.write().finish(), next, send: sent })
    }
}

/// The participant has complained. All other secrets of the session are erased.
pub struct Complained {
    pub(super) round: RoundId,
    pub(super) sent: Complaint,
}

impl Complained {
    fn write(&self) -> Writer {
        Writer::new(COMPLAINED).public(&self.round).message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        Ok(Self { round: reader.public()?, sent: reader.message()? })
    }
}
