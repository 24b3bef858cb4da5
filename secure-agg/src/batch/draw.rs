//! Divides a pool of participants into fixed batches, with randomness that every participant contributes to.
//!
//! | # | direction | message |
//! |---|---|---|
//! | B0 | to the coordinator | [`Offer`]: a signed commitment to a random nonce |
//! | B1 | to the pool | [`Pool`]: all offers, one message for the whole pool |
//! | B2 | to the coordinator | [`Reveal`]: the nonce |
//! | B3 | to the pool | [`Drawn`]: every nonce |
//!
//! All commitments are fixed before a participant reveals its nonce. So the division is uniform for each participant
//! that follows the protocol, regardless of the other participants and the coordinator.
//!
//! The coordinator can discard a result and begin another draw. A participant therefore counts the draws in which it
//! revealed a nonce without a result, and stops after [`MAX_UNFINISHED_DRAWS`]. Each such draw is one more attempt for
//! the coordinator: a bound on the colluders in one uniform batch is multiplied by that number plus one.

use tls_codec::{
    DeserializeBytes as _, Serialize as _, TlsByteVecU8, TlsByteVecU16, TlsDeserializeBytes, TlsSerialize, TlsSize,
    TlsVecU32,
};

use super::{MIN_BATCH, batch_id};
use crate::CryptoRng;
use crate::client::{BadSnapshot, Reader, Snapshot};
use crate::codec::{DecodeError, Message, bound};
use crate::crypto::signature::{IdentityVerifier, Signature, Signer};
use crate::crypto::transcript::{Digest, Transcript};
use crate::messages::{Body, MAX_CERTIFICATE_BYTES, MAX_CLIENT_ID_BYTES, Signed};
use crate::participants::MAX_COHORT;
use crate::rejection::{MessageRejection, Refusal};
use crate::secret::Secret;

/// Number of draws without a result after which a participant stops contributing to draws.
pub const MAX_UNFINISHED_DRAWS: u32 = 16;

const POOL: usize = MAX_COHORT as usize;

/// Identifies a draw: chosen by the coordinator, used once.
pub type DrawId = [u8; 16];

/// B0: a participant's commitment to its nonce for one draw.
pub type Offer = Signed<OfferBody>;

/// The signed part of an [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct OfferBody {
    pub draw: DrawId,
    /// T: the number of members of each batch.
    pub size: u16,
    pub client_id: TlsByteVecU8,
    pub certificate: TlsByteVecU16,
    /// `SHA-256(enc(P) || enc("batch-nonce") || draw || enc(client_id) || nonce)`.
    pub commitment: Digest,
}

impl Body for OfferBody {
    const PHASE: &'static str = "batch-offer";
    const KIND: u8 = 13;
    const MAX_BYTES: usize = 2 + 16 + 2 + (1 + MAX_CLIENT_ID_BYTES) + (2 + MAX_CERTIFICATE_BYTES) + 32 + 64;

    fn check(&self) -> Result<(), DecodeError> {
        check_identity(&self.client_id, &self.certificate)?;
        bound((MIN_BATCH..=MAX_COHORT).contains(&self.size), "size")
    }

    fn binding(&self) -> Vec<u8> {
        self.draw.to_vec()
    }
}

fn check_identity(client_id: &TlsByteVecU8, certificate: &TlsByteVecU16) -> Result<(), DecodeError> {
    bound((1..=MAX_CLIENT_ID_BYTES).contains(&client_id.len()), "client_id")?;
    bound(certificate.len() <= MAX_CERTIFICATE_BYTES, "certificate")
}

/// B1: the participants of a draw, with their commitments.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Pool {
    pub draw: DrawId,
    pub size: u16,
    /// Strictly ascending by client id; a multiple of the size.
    pub offers: TlsVecU32<PoolEntry>,
}

/// One participant's [`Offer`] without the fields of the pool.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct PoolEntry {
    pub client_id: TlsByteVecU8,
    pub certificate: TlsByteVecU16,
    pub commitment: Digest,
    pub signature: Signature,
}

impl Message for Pool {
    const KIND: u8 = 14;
    const MAX_BYTES: usize = 2 + 16 + 2 + 4 + POOL * OfferBody::MAX_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        bound((MIN_BATCH..=MAX_COHORT).contains(&self.size), "size")?;
        bound(self.offers.len() <= POOL, "offers")?;
        self.offers.iter().try_for_each(|entry| check_identity(&entry.client_id, &entry.certificate))
    }
}

/// B2: the committed nonce.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Reveal {
    pub draw: DrawId,
    pub nonce: [u8; 32],
}

impl Message for Reveal {
    const KIND: u8 = 15;
    const MAX_BYTES: usize = 2 + 16 + 32;

    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// B3: the nonce of every participant, in the pool's order.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Drawn {
    pub draw: DrawId,
    pub nonces: TlsVecU32<[u8; 32]>,
}

impl Message for Drawn {
    const KIND: u8 = 16;
    const MAX_BYTES: usize = 2 + 16 + 4 + POOL * 32;

    fn check(&self) -> Result<(), DecodeError> {
        bound(self.nonces.len() <= POOL, "nonces")
    }
}

fn commitment(draw: &DrawId, client_id: &[u8], nonce: &[u8; 32]) -> Digest {
    Transcript::labelled("batch-nonce").raw(draw).enc(client_id).raw(nonce).finish()
}

impl Pool {
    /// Builds the pool from offers accepted by [`admit_offer`]. Drops surplus offers at the end, which do not fill a batch, and sorts the
    /// others by client id.
    #[must_use]
    pub fn fix(draw: DrawId, size: u16, mut offers: Vec<Offer>) -> Self {
        offers.truncate(offers.len() / usize::from(size.max(1)) * usize::from(size));
        offers.sort_by(|one, other| one.body.client_id.as_slice().cmp(other.body.client_id.as_slice()));
        let entry = |Signed { body, signature }: Offer| PoolEntry {
            client_id: body.client_id,
            certificate: body.certificate,
            commitment: body.commitment,
            signature,
        };
        Self { draw, size, offers: offers.into_iter().map(entry).collect::<Vec<_>>().into() }
    }

    /// The client ids of all participants, ascending.
    pub fn ids(&self) -> impl Iterator<Item = &[u8]> {
        self.offers.iter().map(|entry| entry.client_id.as_slice())
    }

    fn digest(&self) -> Digest {
        Transcript::labelled("batch-pool").enc(&self.encode()).finish()
    }

    fn offer(&self, entry: &PoolEntry) -> Offer {
        let PoolEntry { client_id, certificate, commitment, signature } = entry.clone();
        Signed { body: OfferBody { draw: self.draw, size: self.size, client_id, certificate, commitment }, signature }
    }
}

/// Checks an offer for a draw.
///
/// # Errors
/// [`MessageRejection`] for another draw or size, or an invalid certificate or signature.
pub fn admit_offer(
    draw: &DrawId,
    size: u16,
    offer: &Offer,
    verifier: &dyn IdentityVerifier,
) -> Result<(), MessageRejection> {
    offer.check()?;
    if (offer.body.draw, offer.body.size) != (*draw, size) {
        return Err(MessageRejection::WrongRound);
    }
    let identity = verifier.verify(offer.body.client_id.as_slice(), offer.body.certificate.as_slice());
    let identity = identity.map_err(|_| MessageRejection::Certificate)?;
    if offer.is_signed_by(&identity) { Ok(()) } else { Err(MessageRejection::Signature) }
}

/// Checks that a participant of the pool reveals its committed nonce.
///
/// # Errors
/// [`MessageRejection::WrongRound`] for another draw or a participant outside the pool; [`MessageRejection::Commitment`] for a nonce that
/// does not match the commitment.
pub fn admit_reveal(pool: &Pool, client_id: &[u8], reveal: &Reveal) -> Result<(), MessageRejection> {
    let entry = pool.offers.iter().find(|entry| entry.client_id.as_slice() == client_id);
    match entry {
        Some(entry) if reveal.draw == pool.draw => {
            let opens = commitment(&pool.draw, client_id, &reveal.nonce) == entry.commitment;
            if opens { Ok(()) } else { Err(MessageRejection::Commitment) }
        }
        _ => Err(MessageRejection::WrongRound),
    }
}

/// A fixed batch, from the point of view of a member.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Batch {
    /// [`batch_id`] of the members.
    pub id: Digest,
    /// Ids of all members, this one included, ascending.
    pub members: TlsVecU32<TlsByteVecU8>,
}

impl Batch {
    /// The batch as bytes, for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.tls_serialize_detached().expect("a batch has at most 1024 members")
    }

    /// Restores a batch from the bytes of [`Batch::to_bytes`].
    ///
    /// # Errors
    /// [`BadSnapshot`] if the bytes do not encode a batch, or its id does not match its members.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let batch = Self::tls_deserialize_exact_bytes(bytes).map_err(|_| BadSnapshot)?;
        let id = batch_id(batch.members.iter().map(TlsByteVecU8::as_slice));
        // A list whose last member goes beyond the list's length is read, too; it has another encoding.
        if id == batch.id && batch.to_bytes() == bytes { Ok(batch) } else { Err(BadSnapshot) }
    }

    /// Number of members (T).
    #[must_use]
    pub fn size(&self) -> u16 {
        u16::try_from(self.members.len()).unwrap_or(u16::MAX)
    }
}

/// The participant has offered a nonce and waits for the pool.
pub struct Offered {
    nonce: Secret<[u8; 32]>,
    sent: Offer,
}

/// The participant has revealed its nonce and waits for those of the others.
pub struct Revealed {
    pool: Pool,
    reveal: Reveal,
    me: TlsByteVecU8,
}

/// Makes an offer. Make [`Offered::persist`] durable before it is sent.
///
/// # Errors
/// [`Refusal::Malformed`] for an id, certificate or size out of bounds; a failing signer.
pub fn offer(
    draw: DrawId,
    size: u16,
    client_id: &[u8],
    certificate: &[u8],
    signer: &dyn Signer,
    rng: &mut dyn CryptoRng,
) -> Result<Offered, Refusal> {
    let nonce = Secret::random(rng);
    let commitment = commitment(&draw, client_id, nonce.expose());
    let (client_id, certificate) = (client_id.to_vec().into(), certificate.to_vec().into());
    let body = OfferBody { draw, size, client_id, certificate, commitment };
    body.check()?;
    Ok(Offered { nonce, sent: Signed::sign(body, signer)? })
}

impl Offered {
    /// The message to send; the same after a restart.
    #[must_use]
    pub const fn message(&self) -> &Offer {
        &self.sent
    }

    /// The state as bytes; it contains the nonce.
    #[must_use]
    pub fn persist(&self) -> Snapshot {
        Snapshot::of_parts(OFFERED, &[self.nonce.expose(), &self.sent.encode()])
    }

    /// Accepts a pool of at least `min` participants and two batches that contains this participant's offer unchanged.
    /// Consumes the state: a nonce is revealed for one pool only.
    ///
    /// # Errors
    /// [`Refusal`] if the pool is for another draw, is too small, is not a multiple of the batch size, contains an
    /// invalid offer, or lacks this participant's offer.
    pub fn reveal(self, pool: &Pool, min: u16, verifier: &dyn IdentityVerifier) -> Result<Revealed, Refusal> {
        let OfferBody { draw, size, client_id, .. } = &self.sent.body;
        if (pool.draw, pool.size) != (*draw, *size) {
            return Err(Refusal::Different { what: "draw of batches" });
        }
        let count = u16::try_from(pool.offers.len()).unwrap_or(u16::MAX);
        // With one batch, the draw would have only one outcome.
        let needed = min.max(size.saturating_mul(2));
        if count < needed {
            return Err(Refusal::TooFew { what: "participants among whom batches are drawn", needed, got: count });
        }
        if !count.is_multiple_of(*size) {
            return Err(Refusal::Inconsistent { what: "the number of participants among whom batches are drawn" });
        }
        let mut before: Option<&PoolEntry> = None;
        for (entry, one) in (1..).zip(pool.offers.iter()) {
            if before.is_some_and(|before| before.client_id.as_slice() >= one.client_id.as_slice()) {
                return Err(Refusal::RosterOrder { entry });
            }
            before = Some(one);
            let offer = pool.offer(one);
            if one.client_id == *client_id {
                if offer != self.sent {
                    return Err(Refusal::OwnEntry);
                }
                continue;
            }
            let identity = verifier.verify(one.client_id.as_slice(), one.certificate.as_slice());
            let identity = identity.map_err(|_| Refusal::Certificate { entry })?;
            if !offer.is_signed_by(&identity) {
                return Err(Refusal::Signature { signer: entry });
            }
        }
        if !pool.ids().any(|id| id == client_id.as_slice()) {
            return Err(Refusal::OwnEntry);
        }
        let reveal = Reveal { draw: *draw, nonce: *self.nonce.expose() };
        Ok(Revealed { pool: pool.clone(), reveal, me: client_id.clone() })
    }
}

impl Revealed {
    /// The message to send; the same after a restart.
    #[must_use]
    pub const fn message(&self) -> &Reveal {
        &self.reveal
    }

    /// The state as bytes.
    #[must_use]
    pub fn persist(&self) -> Snapshot {
        Snapshot::of_parts(REVEALED, &[&self.pool.encode(), &self.reveal.encode(), self.me.as_slice()])
    }

    /// Computes this participant's batch from the nonces of the whole pool.
    ///
    /// # Errors
    /// [`Refusal::Different`] for another draw; [`Refusal::Inconsistent`] if a nonce does not match its commitment.
    pub fn finish(&self, drawn: &Drawn) -> Result<Batch, Refusal> {
        if drawn.draw != self.pool.draw {
            return Err(Refusal::Different { what: "draw of batches" });
        }
        let opens = |(entry, nonce): (&PoolEntry, &[u8; 32])| {
            commitment(&drawn.draw, entry.client_id.as_slice(), nonce) == entry.commitment
        };
        let same_count = drawn.nonces.len() == self.pool.offers.len();
        if !same_count || !self.pool.offers.iter().zip(drawn.nonces.iter()).all(opens) {
            return Err(Refusal::Inconsistent { what: "a revealed nonce" });
        }
        let batches = divide(&self.pool, drawn);
        let own = batches.into_iter().find(|batch| batch.contains(&self.me.as_slice()));
        let members = own.ok_or(Refusal::OwnEntry)?;
        let id = batch_id(members.iter().copied());
        let members: Vec<TlsByteVecU8> = members.into_iter().map(|id| id.to_vec().into()).collect();
        Ok(Batch { id, members: members.into() })
    }
}

/// Divides the pool. Sorts participants by `SHA-256(enc(P) || enc("batch-place") || seed || u32be(position))`, where
/// the seed is a digest of the pool and of all nonces. Each run of T participants is a batch.
fn divide<'p>(pool: &'p Pool, drawn: &Drawn) -> Vec<Vec<&'p [u8]>> {
    let start = Transcript::labelled("batch-draw").enc(&pool.digest());
    let seed = drawn.nonces.iter().fold(start, |seed, nonce| seed.enc(nonce)).finish();
    let place = |position: u32| Transcript::labelled("batch-place").raw(&seed).u32(position).finish();
    let mut places: Vec<(Digest, &[u8])> = (1..).map(place).zip(pool.ids()).collect();
    places.sort_unstable();
    let batch = |places: &[(Digest, &'p [u8])]| {
        let mut batch: Vec<&[u8]> = places.iter().map(|(_, id)| *id).collect();
        batch.sort_unstable();
        batch
    };
    places.chunks_exact(usize::from(pool.size.max(1))).map(batch).collect()
}

// State numbers in snapshots. Session states have smaller numbers.
const OFFERED: u8 = 0x11;
const REVEALED: u8 = 0x12;

/// A participant's state in a draw.
pub enum Drawing {
    Offered(Offered),
    Revealed(Box<Revealed>),
}

impl Drawing {
    /// Restores the state from a snapshot.
    ///
    /// # Errors
    /// [`BadSnapshot`] if the bytes are not a snapshot of this version.
    pub fn restore(snapshot: &[u8]) -> Result<Self, BadSnapshot> {
        let (state, mut reader) = Reader::new(snapshot)?;
        // The format of a session with batches; a draw is written in the other one.
        if reader.has_batches {
            return Err(BadSnapshot);
        }
        let drawing = match state {
            OFFERED => Self::Offered(Offered { nonce: reader.secret()?, sent: reader.message()? }),
            REVEALED => {
                let (pool, reveal) = (reader.message()?, reader.message()?);
                let me = reader.part()?.to_vec().into();
                Self::Revealed(Box::new(Revealed { pool, reveal, me }))
            }
            _ => return Err(BadSnapshot),
        };
        reader.end()?;
        Ok(drawing)
    }

    /// The state as bytes.
    #[must_use]
    pub fn persist(&self) -> Snapshot {
        match self {
            Self::Offered(state) => state.persist(),
            Self::Revealed(state) => state.persist(),
        }
    }

    #[must_use]
    pub const fn draw(&self) -> &DrawId {
        match self {
            Self::Offered(state) => &state.sent.body.draw,
            Self::Revealed(state) => &state.pool.draw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of `tests/vectors/batch.py`.
    #[test]
    fn draw_of_nine_matches_the_oracle() {
        let known: serde_json::Value = serde_json::from_str(include_str!("../../tests/vectors/batch.json")).unwrap();
        let unhex = |value: &serde_json::Value| hex::decode(value.as_str().unwrap()).unwrap();
        let list = |name: &str| known[name].as_array().unwrap().clone();
        let pool = Pool::decode(&unhex(&known["pool"])).unwrap();
        let nonces: Vec<[u8; 32]> = list("nonces").iter().map(|nonce| unhex(nonce).try_into().unwrap()).collect();
        for ((entry, nonce), expected) in pool.offers.iter().zip(&nonces).zip(list("commitments")) {
            assert_eq!(commitment(&pool.draw, entry.client_id.as_slice(), nonce).to_vec(), unhex(&expected));
            assert_eq!(entry.commitment.to_vec(), unhex(&expected));
        }
        let batches = divide(&pool, &Drawn { draw: pool.draw, nonces: nonces.into() });
        let names = |batch: &Vec<&[u8]>| batch.iter().map(|id| std::str::from_utf8(id).unwrap()).collect();
        assert_eq!(batches.iter().map(names).collect::<Vec<serde_json::Value>>(), list("batches"));
        for (batch, expected) in batches.iter().zip(list("ids")) {
            assert_eq!(batch_id(batch.iter().copied()).to_vec(), unhex(&expected));
        }
        assert_eq!(batch_id(pool.ids()).to_vec(), unhex(&known["id_of_all"]));
    }
}
