//! Enrolled participants: real keys, certificates that one authority signed, and their rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use client_sdk::identity::{Certified, Identity, SigningKey};
use coordinator::SystemClock;
use federation::time::{Clock as _, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use store::entity::participant::ParticipantRow;
use store::{Blobs, Database, Store, StoreConfig, StoreError};
use time::OffsetDateTime;
use wire::certificate::PARTICIPANT_URN;
use wire::{Digest, ParticipantId};

use crate::Outcome;

const DAY: time::Duration = time::Duration::DAY;

/// Participants that are valid for this authority and these rows.
pub(crate) struct Crowd {
    ca_pem: String,
    ca_key_pem: String,
    members: Vec<(Arc<SigningKey>, Certified)>,
}

impl Crowd {
    pub(crate) fn new(count: u32) -> Outcome<Self> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = lasting();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let (ca_pem, ca_key_pem) = (params.self_signed(&key)?.pem(), key.serialize_pem());
        let issuer = Issuer::new(params, key);
        let members = (0..count).map(|number| member(number, &issuer)).collect::<Outcome<_>>()?;
        Ok(Self { ca_pem, ca_key_pem, members })
    }

    /// Puts the authority where a coordinator takes it for its own.
    pub(crate) fn write_authority(&self, certificate: &Path, key: &Path) -> Outcome {
        std::fs::write(certificate, &self.ca_pem)?;
        std::fs::write(key, &self.ca_key_pem)?;
        Ok(())
    }

    /// Writes the rows that enrolment would have written.
    pub(crate) async fn write_rows(&self, database: Database) -> Outcome {
        let (blobs, clock) = (Blobs::Memory, Arc::new(SystemClock));
        let now = clock.now();
        let store = Store::open(StoreConfig { database, blobs, connections: 1, clock }).await?;
        let rows: Vec<_> = self.members.iter().map(|(_, certified)| row(certified, now)).collect::<Outcome<_>>()?;
        let rows = &rows;
        let write = store.transact("enrol", |tx| {
            Box::pin(async move {
                for row in rows {
                    tx.insert_participant(row).await?;
                }
                Ok::<_, StoreError>(())
            })
        });
        Ok(write.await?)
    }

    pub(crate) fn identities(&self) -> impl Iterator<Item = Identity> {
        let identity =
            |(key, certified): &(_, Certified)| Identity { key: Arc::clone(key), certified: certified.clone() };
        self.members.iter().map(identity)
    }
}

/// Parameters of a certificate that is valid for days.
fn lasting() -> CertificateParams {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) = (OffsetDateTime::now_utc() - DAY, OffsetDateTime::now_utc() + 7 * DAY);
    params
}

fn member(number: u32, issuer: &Issuer<'_, KeyPair>) -> Outcome<(Arc<SigningKey>, Certified)> {
    let participant: ParticipantId = format!("00000000-0000-4000-8000-{number:012x}").parse()?;
    let key = SigningKey::generate()?;
    let mut request = CertificateSigningRequestParams::from_pem(&key.signing_request()?)?;
    request.params = lasting();
    request.params.subject_alt_names =
        vec![SanType::URI(format!("{PARTICIPANT_URN}{participant}").as_str().try_into()?)];
    request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let expires_at = Timestamp(request.params.not_after.unix_timestamp() * 1000);
    let certificate_pem = request.signed_by(issuer)?.pem();
    let name = format!("device-{number:05}");
    Ok((Arc::new(key), Certified { participant, name, certificate_pem, expires_at, renew_at: expires_at }))
}

fn row(certified: &Certified, now: Timestamp) -> Outcome<ParticipantRow> {
    let der = CertificateDer::from_pem_slice(certified.certificate_pem.as_bytes())?;
    Ok(ParticipantRow {
        id: certified.participant,
        name: certified.name.clone(),
        labels: BTreeMap::new(),
        enrolled_at: now,
        certificate_fingerprint: Digest(ring::digest::digest(&ring::digest::SHA256, &der).as_ref().try_into()?),
        previous_fingerprint: None,
        certificate_expires_at: certified.expires_at,
        revoked_at: None,
        last_seen_at: now,
    })
}
