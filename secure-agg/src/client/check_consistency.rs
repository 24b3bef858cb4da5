//! R3: signs one set of survivors, once, and erases every share unneeded for this set.
//!
//! Afterwards a participant holds exactly one share per dealer, so later messages cannot make it reveal both kinds.

use zeroize::Zeroizing;

use super::session::{ClientSession, at_least};
use super::share_pair::SharePair;
use super::snapshot::{BadSnapshot, CHECK_CONSISTENCY, Reader, Writer};
use super::transition::Transition;
use super::unmask::Unmask;
use crate::crypto::aead::PLAIN_BYTES;
use crate::crypto::signature::Signer;
use crate::messages::{Consistency, MaskedInput, Sid, SurvivorInput, Survivors, consistency_text};
use crate::participants::IndexSet;
use crate::rejection::Refusal;
use crate::secret::Secret;

/// The participant has sent its masked input and waits for the survivors.
pub struct CheckConsistency {
    pub(super) session: ClientSession,
    pub(super) dealers: IndexSet,
    pub(super) out: IndexSet,
    pub(super) held: Vec<SharePair>,
    pub(super) sent: MaskedInput,
}

impl CheckConsistency {
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        self.session.sid()
    }

    /// Signs the survivors.
    ///
    /// # Errors
    /// [`Refusal`] if this participant is not a survivor, a batch is only partly among the survivors, there are too few survivors, too few
    /// of its drawn neighbours or of another survivor's are survivors, or a survivor did not deal shares.
    pub fn check(self, survivors: &Survivors, signer: &dyn Signer) -> Result<Transition<Unmask, Consistency>, Refusal> {
        let (me, params) = (self.session.me(), &self.session.params);
        let Survivors { sid, survivors, inputs } = survivors;
        if sid != self.session.sid() {
            return Err(Refusal::WrongSession);
        }
        if !survivors.is_subset(&self.dealers) {
            return Err(Refusal::Inconsistent { what: "the set of survivors" });
        }
        if !survivors.contains(me) {
            return Err(Refusal::LeftOut);
        }
        // This includes survivors without a request to sign: t signatures unmask the inputs of all survivors.
        if let Some(torn) = self.session.batches.torn(survivors) {
            return Err(Refusal::BatchNotWhole { entry: torn.iter().next().unwrap_or(0) });
        }
        at_least("survivors", params.min_survivors(), survivors.len())?;
        at_least("drawn neighbours among the survivors", params.min_out(), self.out.intersection(survivors).len())?;
        self.check_others(survivors, inputs.as_slice())?;

        let text = consistency_text(self.session.sid(), &self.dealers, survivors);
        let sent = Consistency { sid: *self.session.sid(), sender: me, signature: signer.sign(&text)? };
        // Allocated once: a growing vector leaves shares behind in the memory that it frees.
        let mut answers = Vec::with_capacity(self.held.len());
        for (dealer, held) in self.dealers.iter().zip(&self.held) {
            answers.push(if survivors.contains(dealer) { held.b.to_bytes() } else { held.s.to_bytes() });
        }
        let Self { session, dealers, .. } = self;
        let next = Unmask { session, dealers, survivors: survivors.clone(), answers, sent: sent.clone() };
        Ok(Transition { persist: next.write().finish(), next, send: sent })
    }

    /// Checks that every other survivor masked for the same dealers and keeps as many of its own neighbours as this participant requires
    /// for itself.
    ///
    /// t signatures open the self mask of *all* survivors, including one without a request to sign and one that received another U2.
    /// Without this check, the coordinator could report all neighbours of that survivor as dropouts, have their masks removed as well, and
    /// read its input. With a complete mask graph the threshold alone prevents this (README, "What is promised").
    fn check_others(&self, survivors: &IndexSet, inputs: &[SurvivorInput]) -> Result<(), Refusal> {
        let (me, params) = (self.session.me(), &self.session.params);
        let expected = if params.masks_are_complete() { 0 } else { survivors.len() };
        if inputs.len() != usize::from(expected) {
            return Err(Refusal::Inconsistent { what: "the list of the survivors' inputs" });
        }
        for (survivor, input) in survivors.iter().zip(inputs) {
            let left = input.out.intersection(survivors).len();
            at_least("drawn neighbours of another survivor", params.min_out(), left)?;
            let drawn = (input.out.universe(), input.out.len());
            if drawn != (params.participants(), params.out_degree()) || input.out.contains(survivor) {
                return Err(Refusal::Inconsistent { what: "another survivor's drawn neighbours" });
            }
        }
        for (survivor, input) in survivors.iter().zip(inputs).filter(|(survivor, _)| *survivor != me) {
            let signed = input.masked_input(survivor, &self.sent.body);
            if !self.session.identity(survivor).is_some_and(|identity| signed.is_signed_by(&identity)) {
                return Err(Refusal::Signature { signer: survivor });
            }
        }
        Ok(())
    }

    pub(super) fn write(&self) -> Writer {
        let mut held = Zeroizing::new(Vec::with_capacity(PLAIN_BYTES * self.held.len()));
        for SharePair { s, b } in &self.held {
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
        let session = ClientSession::read(reader)?;
        let (dealers, out): (IndexSet, IndexSet) = (reader.public()?, reader.public()?);
        let (pairs, rest) = reader.part()?.as_chunks::<PLAIN_BYTES>();
        if !rest.is_empty() || pairs.len() != usize::from(dealers.len()) {
            return Err(BadSnapshot);
        }
        // Allocated once: a growing vector leaves shares behind in the memory that it frees.
        let mut held = Vec::with_capacity(pairs.len());
        for pair in pairs {
            held.push(SharePair::parse(&Secret::new(*pair)).ok_or(BadSnapshot)?);
        }
        let sent: MaskedInput = reader.message()?;
        session.among(&dealers)?;
        session.drawn(&out)?;
        session.sent(&sent.body.sid, sent.body.sender)?;
        Ok(Self { session, dealers, out, held, sent })
    }
}
