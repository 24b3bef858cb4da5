//! Authorities that certify participants.

use std::sync::LazyLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair, SanType,
};
use wire::ParticipantId;
use wire::certificate::PARTICIPANT_URN;

/// An authority that certifies participants.
pub(crate) struct Ca {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate that a device has from elsewhere, for these years, and its key, both in PEM.
    pub(crate) fn issue(&self, participant: ParticipantId, years: std::ops::Range<i32>) -> (String, String) {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        (self.issue_for(&key, participant, years), key.serialize_pem())
    }

    /// The same for a key that is there.
    pub(crate) fn issue_for(&self, key: &KeyPair, participant: ParticipantId, years: std::ops::Range<i32>) -> String {
        let mut params = CertificateParams::new(vec![]).unwrap();
        let urn = format!("{PARTICIPANT_URN}{participant}");
        params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// A certificate for the key of this request, then its own.
    pub(crate) fn certify(&self, csr_pem: &str, participant: ParticipantId) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        let urn = format!("{PARTICIPANT_URN}{participant}");
        request.params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        request.signed_by(&self.issuer).unwrap().pem() + &self.pem
    }
}

/// The authority that these participants' apps name.
pub(crate) static CA: LazyLock<Ca> = LazyLock::new(|| Ca::new("CA"));

/// The same, in PEM.
pub(crate) fn ca_pem() -> &'static str {
    &CA.pem
}
