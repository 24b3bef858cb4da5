//! R2: opens the shares of the others, then masks the input with pairwise masks and the self mask.
//!
//! [`Masking`], the state with open shares, has no snapshot: after a crash a participant restores [`MaskInput`] and receives the delivery
//! again, since it has sent nothing. Masking consumes the state, so one set of masks never covers two inputs.

use zeroize::Zeroizing;

use super::check_consistency::CheckConsistency;
use super::complain::Challenge;
use super::session::{ClientSession, at_least};
use super::share_pair::{SharePair, open};
use super::snapshot::{BadSnapshot, Reader};
use super::transition::Transition;
use crate::crypto::agreement::AgreementKey;
use crate::crypto::kdf;
use crate::crypto::shamir::Seed;
use crate::crypto::signature::Signer;
use crate::graph;
use crate::mask::{self, MaskPlan, MaskSeed, Plane, Sign};
use crate::messages::{self, Delivery, MaskedInput, MaskedInputBody, Signed};
use crate::packing;
use crate::params::VectorShape;
use crate::participants::IndexSet;
use crate::rejection::Refusal;
use crate::secret::Secret;
use crate::upload::{PartTree, body_bytes};

/// The participant has dealt its shares and waits for those of the others.
pub struct MaskInput {
    pub(super) session: ClientSession,
    pub(super) seed_s: Seed,
    pub(super) seed_b: Seed,
    /// E_v→me of every other participant v, ascending.
    pub(super) inbound: Vec<Secret<[u8; 32]>>,
    pub(super) own: SharePair,
    pub(super) out: IndexSet,
    pub(super) sent: messages::ShareKeys,
}

/// The result of a delivery.
pub enum Received {
    /// Every share opened; the input may be masked.
    Ready(Box<Masking>),
    /// A ciphertext does not open; either its dealer or the coordinator is at fault. Nothing was sent.
    Challenge(Box<Challenge>),
}

/// Holds the shares of all dealers and masks one input, which consumes it.
pub struct Masking {
    session: ClientSession,
    seed_s: Seed,
    seed_b: Seed,
    dealers: IndexSet,
    incoming: IndexSet,
    out: IndexSet,
    /// The shares of every dealer, ascending.
    held: Vec<SharePair>,
}

/// A masked input: the signed digest and the packed vectors. The body is masked, so it needs no protection. Keep it until the coordinator
/// has received all of it, since it cannot be replaced.
pub struct MaskedUpload {
    /// The message for the session's state machines.
    pub message: MaskedInput,
    /// The upload: packed model, then packed scalars.
    pub body: Vec<u8>,
    /// The body's parts; the message signs its root.
    pub tree: PartTree,
}

impl MaskInput {
    /// The session's id, named in the coordinator's messages.
    #[must_use]
    pub const fn sid(&self) -> &messages::Sid {
        self.session.sid()
    }

    /// Opens the delivered shares. The first that does not open ends this state with a [`Challenge`]; to receive the delivery again
    /// instead, restore the last snapshot.
    ///
    /// # Errors
    /// [`Refusal`] if too few participants dealt, too few of the drawn neighbours remain, or the sets contradict each other.
    pub fn receive(self, delivery: &Delivery) -> Result<Received, Refusal> {
        self.check(delivery)?;
        let me = self.session.me();
        let mut held = Vec::with_capacity(usize::from(delivery.dealers.len()));
        let mut own = Some(self.own);
        let mut sealed = delivery.sealed.iter();
        for dealer in delivery.dealers.iter() {
            if dealer == me {
                held.extend(own.take());
                continue;
            }
            let key = self.inbound.get(usize::from(dealer - 1 - u16::from(dealer > me)));
            let (Some(key), Some(sealed)) = (key, sealed.next()) else {
                return Err(Refusal::Inconsistent { what: "the number of sealed shares" });
            };
            match open(self.session.sid(), key, dealer, me, sealed) {
                Some(opened) => held.push(opened),
                None => {
                    let key = key.duplicate();
                    return Ok(Received::Challenge(Box::new(Challenge { session: self.session, dealer, key })));
                }
            }
        }
        let Self { session, seed_s, seed_b, out, .. } = self;
        let Delivery { dealers, incoming, .. } = delivery.clone();
        Ok(Received::Ready(Box::new(Masking { session, seed_s, seed_b, dealers, incoming, out, held })))
    }

    fn check(&self, delivery: &Delivery) -> Result<(), Refusal> {
        let (me, params) = (self.session.me(), &self.session.params);
        let Delivery { sid, recipient, dealers, incoming, sealed } = delivery;
        if sid != self.session.sid() {
            return Err(Refusal::WrongSession);
        }
        if *recipient != me || !dealers.contains(me) {
            return Err(Refusal::LeftOut);
        }
        if dealers.universe() != params.participants() || !incoming.is_subset(dealers) || incoming.contains(me) {
            return Err(Refusal::Inconsistent { what: "the set of dealers or of incoming neighbours" });
        }
        if sealed.len() != usize::from(dealers.len() - 1) {
            return Err(Refusal::Inconsistent { what: "the number of sealed shares" });
        }
        at_least("dealers", params.threshold(), dealers.len())?;
        at_least("drawn neighbours among the dealers", params.min_out(), self.out.intersection(dealers).len())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        let session = ClientSession::read(reader)?;
        let (seed_s, seed_b) = (reader.secret()?, reader.secret()?);
        let (keys, rest) = reader.part()?.as_chunks::<32>();
        if !rest.is_empty() || keys.len() != usize::from(session.participants() - 1) {
            return Err(BadSnapshot);
        }
        let inbound = keys.iter().map(|key| Secret::new(*key)).collect();
        let own = SharePair::parse(&reader.secret()?).ok_or(BadSnapshot)?;
        let (out, sent): (IndexSet, messages::ShareKeys) = (reader.public()?, reader.message()?);
        session.drawn(&out)?;
        session.sent(&sent.body.sid, sent.body.sender)?;
        Ok(Self { session, seed_s, seed_b, inbound, own, out, sent })
    }
}

impl Masking {
    /// U2, as announced to this participant.
    #[must_use]
    pub const fn dealers(&self) -> &IndexSet {
        &self.dealers
    }

    /// Masks an input: one word per word of the session's model vector and of its scalars, each modulo 2^b. The words are masked in place,
    /// so the input is not copied.
    ///
    /// # Errors
    /// [`Refusal::InputShape`], [`Refusal::InputBound`] for an input that does not fit, or a key or signer that fails.
    pub fn mask(
        self,
        model: Vec<u32>,
        scalars: Vec<u32>,
        signer: &dyn Signer,
    ) -> Result<Transition<CheckConsistency, MaskedUpload>, Refusal> {
        let (mut model, mut scalars) = (Zeroizing::new(model), Zeroizing::new(scalars));
        let config = &self.session.facts.config;
        check_input("model words", &config.model, &model)?;
        check_input("scalars", &config.scalars, &scalars)?;
        let masks = self.masks()?;
        let mut body = Vec::with_capacity(usize::try_from(body_bytes(config)?).unwrap_or_default());
        for (plane, shape, words) in
            [(Plane::Model, &config.model, &mut model), (Plane::Scalars, &config.scalars, &mut scalars)]
        {
            let modulus = shape.modulus()?;
            let plan = plan(&masks, plane, shape)?;
            mask::apply(&plan, 0, words).map_err(|_| Refusal::Inconsistent { what: "the input's length" })?;
            packing::pack_onto(&mut body, words, modulus);
        }
        let Self { session, dealers, out, held, .. } = self;
        let tree = PartTree::of(&body);
        let input = MaskedInputBody {
            sid: *session.sid(),
            sender: session.me(),
            bytes: body.len() as u64,
            digest: tree.root(),
            dealers: dealers.digest(),
            out: out.clone(),
        };
        let message = Signed::sign(input, signer)?;
        let next = CheckConsistency { session, dealers, out, held, sent: message.clone() };
        Ok(Transition { persist: next.write().finish(), next, send: MaskedUpload { message, body, tree } })
    }

    /// The self mask, and one mask for every neighbour that dealt: added for neighbours at higher positions, subtracted
    /// for lower ones.
    fn masks(&self) -> Result<Vec<(MaskSeed, Sign)>, Refusal> {
        let (sid, me) = (self.session.sid(), self.session.me());
        let s_key = AgreementKey::from_seed(&self.seed_s);
        let neighbours = graph::neighbours(&self.out, &self.incoming, &self.dealers);
        let mut masks = Vec::with_capacity(usize::from(neighbours.len()) + 1);
        masks.push((kdf::self_mask(sid, &self.seed_b, me), Sign::Add));
        for peer in neighbours.iter() {
            let member = self.session.member(peer).ok_or(Refusal::LeftOut)?;
            let shared = s_key.agree(&member.s_pk).map_err(|reason| Refusal::PublicKey { entry: peer, reason })?;
            let sign = if peer > me { Sign::Add } else { Sign::Subtract };
            masks.push((kdf::pair_mask(sid, &shared, me, peer), sign));
        }
        Ok(masks)
    }
}

fn plan(masks: &[(MaskSeed, Sign)], plane: Plane, shape: &VectorShape) -> Result<MaskPlan, Refusal> {
    let wrong = |_| Refusal::Inconsistent { what: "the input's length" };
    let mut plan = MaskPlan::new(plane, shape.words, shape.modulus()?).map_err(wrong)?;
    for (seed, sign) in masks {
        let mut key = *seed.expose();
        plan.push(MaskSeed::new(&mut key), *sign);
    }
    Ok(plan)
}

/// Checks the length and the magnitude of every word of an input, including this participant's noise, if any.
fn check_input(what: &'static str, shape: &VectorShape, words: &[u32]) -> Result<(), Refusal> {
    if words.len() as u64 != shape.words {
        return Err(Refusal::InputShape { what, expected: shape.words, got: words.len() });
    }
    let (modulus, bound) = (shape.modulus()?, shape.input_bound.saturating_add(shape.noise_margin));
    let outside = |word: u32| (word > modulus.max_word()) | (modulus.centre(word).unsigned_abs() > bound);
    // Takes the same time for all words; only a rejected input reveals a position through timing.
    if !words.iter().fold(false, |any, word| any | outside(*word)) {
        return Ok(());
    }
    let position = words.iter().position(|word| outside(*word)).unwrap_or(0);
    Err(Refusal::InputBound { position, bound })
}
