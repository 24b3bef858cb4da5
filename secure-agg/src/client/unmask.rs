//! R4: reveals one share per dealer, once, after enough others have signed the same survivors.

use zeroize::Zeroizing;

use super::session::{ClientSession, at_least, expect};
use super::snapshot::{ANSWERED, BadSnapshot, Reader, UNMASK, Writer};
use super::transition::Transition;
use crate::crypto::shamir::SHARE_BYTES;
use crate::crypto::signature::Signer;
use crate::messages::{Agreement, Consistency, RoundId, Sid, Signed, Unmasking, UnmaskingBody, consistency_text};
use crate::participants::IndexSet;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// The participant has signed the survivors and waits for the others' signatures.
pub struct Unmask {
    pub(super) session: ClientSession,
    pub(super) dealers: IndexSet,
    pub(super) survivors: IndexSet,
    /// The one share per dealer that these survivors need, ascending.
    pub(super) answers: Vec<Secret<[u8; SHARE_BYTES]>>,
    pub(super) sent: Consistency,
}

/// The participant has revealed its shares. It answers a repeated request with the same bytes.
pub struct Answered {
    pub(super) round: RoundId,
    pub(super) sent: Unmasking,
}

impl Unmask {
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        self.session.sid()
    }

    /// Reveals the shares.
    ///
    /// # Errors
    /// [`Refusal`] unless the agreement holds valid signatures of at least t distinct survivors on the text that this
    /// participant signed itself.
    pub fn unmask(
        self,
        agreement: &Agreement,
        signer: &dyn Signer,
    ) -> Result<Transition<Answered, Unmasking>, Refusal> {
        self.check(agreement)?;
        let shares: Vec<[u8; SHARE_BYTES]> = self.answers.iter().map(|share| *share.expose()).collect();
        let body = UnmaskingBody { sid: *self.session.sid(), sender: self.session.me(), shares: shares.into() };
        let sent = Signed::sign(body, signer)?;
        let next = Answered { round: self.session.facts.round, sent: sent.clone() };
        Ok(Transition { persist: next.write().finish(), next, send: sent })
    }

    fn check(&self, agreement: &Agreement) -> Result<(), Refusal> {
        if agreement.sid != *self.session.sid() {
            return Err(Refusal::WrongSession);
        }
        let mut signers = IndexSet::empty(self.session.participants());
        for entry in agreement.signatures.iter() {
            if !self.survivors.contains(entry.signer) || !signers.insert(entry.signer) {
                return Err(Refusal::Inconsistent { what: "the list of signers" });
            }
        }
        let threshold = self.session.params.threshold();
        at_least("signatures", threshold, signers.len())?;
        // The first t suffice: more cannot make the answer safer.
        let text = consistency_text(self.session.sid(), &self.dealers, &self.survivors);
        for entry in agreement.signatures.iter().take(threshold.into()) {
            let identity = self.session.identity(entry.signer);
            if !identity.is_some_and(|identity| identity.verifies(&text, &entry.signature)) {
                return Err(Refusal::Signature { signer: entry.signer });
            }
        }
        Ok(())
    }

    pub(super) fn write(&self) -> Writer {
        let mut answers = Zeroizing::new(Vec::with_capacity(SHARE_BYTES * self.answers.len()));
        for answer in &self.answers {
            answers.extend(answer.expose());
        }
        self.session
            .write(Writer::new(UNMASK))
            .public(&self.dealers)
            .public(&self.survivors)
            .part(&answers)
            .message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        let session = ClientSession::read(reader)?;
        let (dealers, survivors): (IndexSet, IndexSet) = (reader.public()?, reader.public()?);
        let (answers, rest) = reader.part()?.as_chunks::<SHARE_BYTES>();
        if !rest.is_empty() || answers.len() != usize::from(dealers.len()) {
            return Err(BadSnapshot);
        }
        let answers = answers.iter().map(|answer| Secret::new(*answer)).collect();
        let sent: Consistency = reader.message()?;
        session.among(&dealers)?;
        session.among(&survivors)?;
        expect(survivors.is_subset(&dealers))?;
        session.sent(&sent.sid, sent.sender)?;
        Ok(Self { session, dealers, survivors, answers, sent })
    }
}

impl Answered {
    fn write(&self) -> Writer {
        Writer::new(ANSWERED).public(&self.round).message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        Ok(Self { round: reader.public()?, sent: reader.message()? })
    }
}
