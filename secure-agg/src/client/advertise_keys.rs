//! R0: advertises fresh, signed keys for one attempt. It commits to nothing else.

use tls_codec::TlsByteVecU16;

use super::share_keys::ShareKeys;
use super::snapshot::{BadSnapshot, Reader, SHARE_KEYS, Writer};
use super::transition::Transition;
use crate::CryptoRng;
use crate::codec::Message as _;
use crate::crypto::agreement::AgreementKey;
use crate::crypto::kdf;
use crate::crypto::signature::Signer;
use crate::crypto::transcript::Digest;
use crate::messages::{Advertise, AdvertiseBody, ClientId, RoundId, Signed};
use crate::params::{Policy, SessionConfig};
use crate::rejection::Refusal;
use crate::secret::Secret;

/// A participant's input to an attempt.
pub struct Setup {
    pub round: RoundId,
    /// This participant's id, 1 to 64 bytes.
    pub client_id: Vec<u8>,
    /// The certificate binding its signing key to the id, up to 2048 bytes.
    pub certificate: Vec<u8>,
    /// The configuration accepted with the task; the roster must contain the same.
    pub config: SessionConfig,
    pub policy: Policy,
    /// The fixed batch of this participant ([`crate::batch`]).
    pub batch: Option<Digest>,
}

/// The data released by another attempt at a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The unchanged update of the abandoned attempt: free while no input of that attempt has been sent.
    SameUpdate,
    /// An update with fresh noise, after the privacy budget was charged a second time.
    FreshNoisePaid,
}

impl Policy {
    /// Checks that a session of this configuration is acceptable.
    ///
    /// # Errors
    /// [`Refusal::Config`], or the first of [`Policy::objections`].
    pub fn accept(&self, config: &SessionConfig) -> Result<(), Refusal> {
        config.validate()?;
        self.objections(config).next().map_or(Ok(()), Err)
    }

    /// Every missed requirement of a session with this configuration, as [`Refusal::BelowPolicy`].
    pub fn objections(&self, config: &SessionConfig) -> impl Iterator<Item = Refusal> + use<> {
        let floors = [
            ("min_cohort", config.min_cohort.into(), self.min_cohort.into()),
            ("max_corrupt", config.max_corrupt, self.min_tolerated_corrupt),
            ("tolerated_colluders", config.tolerated_colluders().into(), self.min_tolerated_colluders.into()),
            ("min_included", config.smallest_sum().into(), self.min_included.into()),
        ];
        let below = floors.into_iter().filter(|(_, offered, floor)| offered < floor);
        below.map(|(limit, offered, floor)| Refusal::BelowPolicy { limit, offered, floor })
    }
}

/// Starts an attempt with fresh keys.
///
/// # Errors
/// As for [`Policy::accept`]; an id or certificate that is out of bounds; a failing signer.
pub fn advertise_keys(
    setup: Setup,
    signer: &dyn Signer,
    rng: &mut dyn CryptoRng,
) -> Result<Transition<ShareKeys, Advertise>, Refusal> {
    let Setup { round, client_id, certificate, config, policy, batch } = setup;
    policy.accept(&config)?;
    let (seed_s, seed_b) = (Secret::random(rng), Secret::random(rng));
    let c_key = AgreementKey::random(rng);
    let body = AdvertiseBody {
        round,
        c_pk: c_key.public(),
        s_pk: AgreementKey::from_seed(&seed_s).public(),
        b_commit: kdf::self_mask_commitment(&client_id, &seed_b),
        client_id: ClientId::new(client_id, batch),
        certificate: TlsByteVecU16::from(certificate),
    };
    let unsigned = Signed { body, signature: [0; 64] };
    unsigned.check()?;
    let sent = Signed::sign(unsigned.body, signer)?;
    let next = ShareKeys { config, seed_s, seed_b, c_key, sent: sent.clone() };
    Ok(Transition { persist: next.write().finish(), next, send: sent })
}

impl ShareKeys {
    fn write(&self) -> Writer {
        Writer::new(SHARE_KEYS)
            .public(&self.config)
            .part(self.seed_s.expose())
            .part(self.seed_b.expose())
            .part(self.c_key.scalar())
            .message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        Ok(Self {
            config: reader.public()?,
            seed_s: reader.secret()?,
            seed_b: reader.secret()?,
            c_key: AgreementKey::new(&reader.secret()?),
            sent: reader.message()?,
        })
    }
}
