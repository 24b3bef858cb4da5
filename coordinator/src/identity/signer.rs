//! An external authority: the coordinator sends participants' signing requests over HTTPS, and verifies the answers.
//!
//! The coordinator never has that authority's key. [`wire::signer`] defines its requests. The signer decides whether to sign, and should
//! verify more than the coordinator's claim.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use federation::id::ParticipantId;
use federation::time::Timestamp;
use reqwest::{Client, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use wire::certificate::SKEW;
use wire::signer::{SignReply, SignRequest};
use zeroize::Zeroizing;

use super::authority::{AuthorityError, Issued};
use super::issued::{self, MembersCa, PreIssuedError};
use crate::config::SignerConfig;

/// Maximum answer size: a certificate has some hundred bytes; a chain of them in JSON stays far below.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// Reasons why the signer returned no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignerError {
    /// It refused to certify this participant.
    #[error("the authority that certifies participants refused to certify this one")]
    Refused,
    /// It is unreachable, or its answer is invalid.
    #[error("the authority that certifies participants is unavailable: {0}")]
    Unavailable(String),
}

/// An external authority for signing requests.
pub(crate) struct Signer {
    ca: MembersCa,
    client: Client,
    url: String,
    token: Option<Zeroizing<String>>,
}

impl Signer {
    /// Reads the authority's certificate and the settings of its signer, without sending a request.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn open(certificate_file: &Path, config: &SignerConfig) -> Result<Self, AuthorityError> {
        let ca = MembersCa::open(certificate_file)?;
        let mut roots = RootCertStore::empty();
        let (server_ca, _) = issued::certificate(&config.ca_certificate_file)?;
        let setup = |error: &dyn std::fmt::Display| AuthorityError::Signer(error.to_string());
        roots.add(server_ca).map_err(|error| setup(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| setup(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let timeout = Duration::from_millis(config.timeout_ms);
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(timeout)
            .timeout(timeout)
            .user_agent(concat!("tributary-coordinator/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| setup(&error))?;
        let token = config.token_file.as_deref().map(read).transpose()?;
        let token = token.map(|text| Zeroizing::new(text.trim().to_owned()));
        Ok(Self { ca, client, url: config.url.clone(), token })
    }

    /// The authority's certificate in DER.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        self.ca.certificate()
    }

    /// Has a checked request signed, and verifies the answer: signed by the authority, for this `key` and participant, valid now and not
    /// for longer than requested.
    ///
    /// # Errors
    /// [`SignerError`].
    pub(crate) async fn issue(&self, request: &SignRequest, key: &[u8], now: Timestamp) -> Result<Issued, SignerError> {
        let reply = self.ask(request).await?;
        let lifetime = Duration::from_secs(request.lifetime_s);
        self.judge(&reply, request.participant, key, lifetime, now)
            .map_err(|why| SignerError::Unavailable(why.to_owned()))
    }

    async fn ask(&self, request: &SignRequest) -> Result<SignReply, SignerError> {
        let unavailable = |error: reqwest::Error| SignerError::Unavailable(error.without_url().to_string());
        let mut asked = self.client.post(&self.url).json(request);
        if let Some(token) = &self.token {
            asked = asked.bearer_auth(token.as_str());
        }
        let mut response = asked.send().await.map_err(unavailable)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::FORBIDDEN => return Err(SignerError::Refused),
            status => return Err(SignerError::Unavailable(format!("it answered {status}"))),
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
            if body.len() + chunk.len() > ANSWER_MAX_BYTES {
                return Err(SignerError::Unavailable(format!("its answer is longer than {ANSWER_MAX_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).map_err(|error| SignerError::Unavailable(format!("its answer: {error}")))
    }

    fn judge(
        &self,
        reply: &SignReply,
        participant: ParticipantId,
        key: &[u8],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Issued, &'static str> {
        let (holder, own) = self.ca.read(&reply.certificate_pem).map_err(|error| match error {
            PreIssuedError::Chain(_) | PreIssuedError::Time(..) => "what it gave is no certificate in PEM",
            PreIssuedError::Unfit(_) => {
                "its certificate is no participant's, signed by the authority of participants, or has more than 2,048 bytes"
            }
        })?;
        if holder.key.0 != key {
            return Err("its certificate is for another key than was sent");
        }
        if holder.participant != participant {
            return Err("its certificate names another participant than was asked for");
        }
        if holder.expires_at <= now || holder.expires_at > now.plus(lifetime).plus(SKEW) {
            return Err("its certificate has ended, or is good for longer than was asked for");
        }
        Ok(self.ca.issued(&reply.certificate_pem, &own, now, holder.expires_at))
    }
}

fn read(path: &Path) -> Result<String, AuthorityError> {
    std::fs::read_to_string(path).map_err(|source| AuthorityError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use wire::certificate::chain_der;

    use super::super::Authority;
    use super::*;
    use crate::random::Random;

    const NOW: Timestamp = Timestamp(1_750_000_000_000);
    const LIFETIME: Duration = Duration::from_secs(3600);

    fn authority(seed: u64) -> Authority {
        Authority::in_memory(&Random::from_seed(seed), NOW).unwrap()
    }

    fn signer(of: &Authority) -> Signer {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("members.pem");
        std::fs::write(&file, of.certificate_pem()).unwrap();
        let config = SignerConfig {
            url: "https://localhost:1".to_owned(),
            ca_certificate_file: file.clone(),
            token_file: None,
            timeout_ms: 1,
        };
        Signer::open(&file, &config).unwrap()
    }

    #[test]
    fn an_answer_is_taken_only_if_it_is_what_was_asked_for() {
        let (members, other) = (authority(1), authority(2));
        let signer = signer(&members);
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let id = |n| ParticipantId(uuid::Uuid::from_u128(n));
        let made = |by: &Authority, lifetime| {
            let request = Authority::check_request(&csr).unwrap();
            let issued = by.issue(request, id(7), lifetime, &Random::from_seed(3), NOW).unwrap();
            SignReply { certificate_pem: issued.chain_pem }
        };
        let public = rcgen::PublicKeyData::der_bytes(&key).to_vec();
        let judge = |reply: &SignReply, participant, public: &[u8], now| {
            signer.judge(reply, participant, public, LIFETIME, now).map_err(str::to_owned)
        };
        let good = made(&members, LIFETIME);
        let issued = judge(&good, id(7), &public, NOW).unwrap();
        assert_eq!((issued.expires_at, issued.renew_at), (NOW.plus(LIFETIME), NOW.plus(LIFETIME * 2 / 3)));
        assert_eq!(issued.chain_pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert_eq!(crate::digest(&chain_der(&issued.chain_pem).unwrap()[0]), issued.fingerprint);

        for (reply, participant, public, now, words) in [
            (made(&other, LIFETIME), id(7), public.as_slice(), NOW, "authority"),
            (good.clone(), id(8), &public, NOW, "another participant"),
            (good.clone(), id(7), &[0; 32], NOW, "another key"),
            (made(&members, LIFETIME * 9), id(7), &public, NOW, "longer"),
            (good, id(7), &public, NOW.plus(LIFETIME), "ended"),
            (SignReply { certificate_pem: "no".to_owned() }, id(7), &public, NOW, "no certificate"),
        ] {
            let why = judge(&reply, participant, public, now).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
