//! What a participant does about a ciphertext that does not open: it asks for the dealer's own signed message, and only if that one
//! does not open either reveals the single-use key of it, and sends no input in this session.
//!
//! The dealer's signature is what makes this safe. A key that was revealed for a ciphertext that the *coordinator* had bent would
//! open the true one: a coordinator could bend what one victim dealt to everybody, collect a key from each, and hold both seeds of a
//! victim that meanwhile sent its input. An honest dealer's signed ciphertexts always open, so keys are revealed only for shares
//! that a dishonest dealer dealt.

use super::held::opens;
use super::session::Session;
use super::snapshot::{BadSnapshot, COMPLAINED, Reader, Writer};
use super::step::Step;
use crate::crypto::signature::Signer;
use crate::messages::{Complaint, ComplaintBody, Round, ShareKeys, Signed};
use crate::participants::Index;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// Holds a ciphertext that does not open. All other secrets of the session are erased; without evidence this is the end.
pub struct Doubt {
    pub(super) session: Session,
    pub(super) dealer: Index,
    /// E_dealer→me.
    pub(super) key: Secret<[u8; 32]>,
}

impl Doubt {
    /// Whose ciphertext it is; the coordinator is asked for this dealer's [`ShareKeys`] as it was signed.
    #[must_use]
    pub const fn dealer(&self) -> Index {
        self.dealer
    }

    /// Complains about the dealer, if the dealer signed a ciphertext that does not open.
    ///
    /// # Errors
    /// [`Refusal::Signature`], [`Refusal::WrongSession`] or [`Refusal::Inconsistent`] when the evidence is not the dealer's, or its
    /// ciphertext does open, so that what was delivered is not what was dealt. No key is revealed then.
    pub fn complain(self, evidence: &ShareKeys, signer: &dyn Signer) -> Result<Step<Complained, Complaint>, Refusal> {
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
        Ok(Step { persist: next.write().finish(), next, send: sent })
    }
}

/// Has complained. All other secrets of the session are erased.
pub struct Complained {
    pub(super) round: Round,
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
