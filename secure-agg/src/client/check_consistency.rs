//! R3: sign one set of survivors, once, and forget every share that this set does not need.
//!
//! After this step a participant holds exactly one share of each dealer. Whatever it is shown later, it has nothing left to
//! give away both kinds with.

use zeroize::Zeroizing;

use super::mask_input::{Held, at_least};
use super::session::Session;
use super::snapshot::{BadSnapshot, Reader, Writer};
use super::{CHECK_CONSISTENCY, Step, Unmask};
use crate::crypto::aead::PLAIN_BYTES;
use crate::crypto::signature::Signer;
use crate::messages::{Consistency, MaskedInput, Sid, Survivors, consistency_text};
use crate::participants::IndexSet;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// Has sent its masked input and waits for the survivors.
pub struct CheckConsistency {
    pub(super) session: Session,
    pub(super) dealers: IndexSet,
    pub(super) out: IndexSet,
    pub(super) held: Vec<Held>,
    pub(super) sent: MaskedInput,
}

impl CheckConsistency {
    /// The session's id.
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        self.session.sid()
    }

    /// Signs the survivors.
    ///
    /// # Errors
    /// [`Refusal`] when this participant is not among them, they are too few, too few of its drawn neighbours are, or they
    /// are not all dealers.
    pub fn check(self, survivors: &Survivors, signer: &dyn Signer) -> Result<Step<Unmask, Consistency>, Refusal> {
        let (me, params) = (self.session.me(), &self.session.params);
        if survivors.sid != *self.session.sid() {
            return Err(Refusal::WrongSession);
        }
        let survivors = &survivors.survivors;
        if !survivors.is_subset(&self.dealers) {
            return Err(Refusal::Inconsistent { what: "the set of survivors" });
        }
        if !survivors.contains(me) {
            return Err(Refusal::LeftOut);
        }
        at_least("survivors", params.min_survivors(), survivors.len())?;
        at_least("drawn neighbours among the survivors", params.min_out(), self.out.intersection(survivors).len())?;

        let text = consistency_text(self.session.sid(), &self.dealers, survivors);
        let sent = Consistency { sid: *self.session.sid(), sender: me, signature: signer.sign(&text)? };
        let answers = self
            .dealers
            .iter()
            .zip(&self.held)
            .map(|(dealer, held)| if survivors.contains(dealer) { held.b.to_bytes() } else { held.s.to_bytes() })
            .collect();
        let Self { session, dealers, .. } = self;
        let next = Unmask { session, dealers, survivors: survivors.clone(), answers, sent: sent.clone() };
        Ok(Step { persist: next.write().finish(), next, send: sent })
    }

    pub(super) fn write(&self) -> Writer {
        let mut held = Zeroizing::new(Vec::with_capacity(PLAIN_BYTES * self.held.len()));
        for Held { s, b } in &self.held {
            held.extend(s.to_bytes().expose());
            held.extend(b.to_bytes().expose());
        }
        self.session
            .write(Writer::new(CHECK_CONSISTENCY))
            .public(&self.dealers)
            .public(&self.out)
            .part(&held)
            .message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        let session = Session::read(reader)?;
        let (dealers, out): (IndexSet, IndexSet) = (reader.public()?, reader.public()?);
        let (pairs, rest) = reader.part()?.as_chunks::<PLAIN_BYTES>();
        if !rest.is_empty() || pairs.len() != usize::from(dealers.len()) {
            return Err(BadSnapshot);
        }
        let held: Option<Vec<Held>> = pairs.iter().map(|pair| Held::parse(&Secret::new(*pair))).collect();
        Ok(Self { session, dealers, out, held: held.ok_or(BadSnapshot)?, sent: reader.message()? })
    }
}
