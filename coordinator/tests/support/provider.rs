//! An identity provider: publishes keys over HTTP on this machine, and signs tokens. Browsers sign in there by `codes`.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::codes::Codes;

/// A key of the provider.
pub(crate) enum Key {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    pub(crate) fn rsa() -> Self {
        let pem = include_bytes!("provider-rsa.pem");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
        Self::Rsa(Box::new(RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap()))
    }

    pub(crate) fn p256() -> Self {
        let der = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        Self::P256(Box::new(key.unwrap()))
    }

    pub(crate) fn ed25519(seed: u8) -> Self {
        Self::Ed25519(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(crate) fn public(&self, kid: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(key) => {
                let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": text(&n), "e": text(&e) })
            }
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": text(x), "y": text(y) })
            }
            Self::Ed25519(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(key.public_key().as_ref()) })
            }
        }
    }

    /// A token with these claims and this header, whose `alg` determines the signature.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// A token of these texts, also of invalid JSON.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(header), part(claims));
        let (bytes, random) = (signed.as_bytes(), SystemRandom::new());
        let signature = match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let padding: &dyn ring::signature::RsaEncoding =
                    if header.contains("PS256") { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                key.sign(padding, &random, bytes, &mut signature).unwrap();
                signature
            }
            Self::P256(key) => key.sign(&random, bytes).unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(bytes).as_ref().to_vec(),
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The provider's response to key requests.
#[derive(Clone)]
pub(crate) enum Answer {
    Keys(Vec<Value>),
    Text(String),
    Status(u16),
    /// These keys, once [`Provider::let_go`] was called.
    Late(Vec<Value>),
    /// This number of bytes.
    Bytes(usize),
}

struct Shared {
    answer: Mutex<Answer>,
    discovery: Mutex<Value>,
    codes: Codes,
    asked: AtomicUsize,
    /// One permit for each requested late response.
    waiting: Semaphore,
    /// One permit for each late response to send.
    released: Semaphore,
}

/// A provider that serves until it is dropped.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    shared: Arc<Shared>,
    served: JoinHandle<()>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Provider {
    pub(crate) async fn publishing(keys: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            answer: Mutex::new(Answer::Keys(keys)),
            discovery: Mutex::new(json!({
                "issuer": issuer, "jwks_uri": format!("{issuer}/keys"),
                "authorization_endpoint": format!("{issuer}/authorize?of=one"), "token_endpoint": format!("{issuer}/token"),
            })),
            codes: Codes::default(),
            asked: AtomicUsize::new(0),
            waiting: Semaphore::new(0),
            released: Semaphore::new(0),
        });
        let router = Router::new()
            .route("/keys", get(keys_of))
            .route("/token", post(token_of))
            .route("/.well-known/openid-configuration", get(discovery_of))
            .with_state(Arc::clone(&shared));
        let served = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { issuer, shared, served }
    }

    pub(crate) fn answer(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = answer;
    }

    pub(crate) fn discovery(&self, document: Value) {
        *self.shared.discovery.lock().unwrap() = document;
    }

    pub(crate) fn discovered(&self) -> Value {
        self.shared.discovery.lock().unwrap().clone()
    }

    /// The codes issued to browsers.
    pub(crate) fn codes(&self) -> &Codes {
        &self.shared.codes
    }

    /// Number of key requests.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Waits until a request waits for a late response.
    pub(crate) async fn is_waited_for(&self) {
        self.shared.waiting.acquire().await.unwrap().forget();
    }

    /// Sends one late response.
    pub(crate) fn let_go(&self) {
        self.shared.released.add_permits(1);
    }
}

/// Publishes keys over HTTPS; returns the URL and the CA certificate in PEM.
pub(crate) async fn over_https(keys: &[Value]) -> (String, String, JoinHandle<()>) {
    let new_key = || rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_key = new_key();
    let ca = params.self_signed(&ca_key).unwrap().pem();
    let (key, issuer) = (new_key(), rcgen::Issuer::new(params, ca_key));
    let of_server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = of_server.signed_by(&key, &issuer).unwrap().der().clone();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/keys", listener.local_addr().unwrap());
    let body = json!({ "keys": keys }).to_string();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let served = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client without trust in this server ends the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") && stream.read_buf(&mut request).await.is_ok_and(|bytes| bytes > 0) {}
            if stream.write_all(answer.as_bytes()).await.is_ok() {
                // The peer may have disconnected.
                drop(stream.shutdown().await);
            }
        }
    });
    (url, ca, served)
}

async fn discovery_of(State(shared): State<Arc<Shared>>) -> Response {
    let document = shared.discovery.lock().unwrap().to_string();
    Response::new(Body::from(document))
}

async fn token_of(State(shared): State<Arc<Shared>>, headers: http::HeaderMap, body: String) -> Response {
    shared.codes.exchange(&headers, &body).await
}

async fn keys_of(State(shared): State<Arc<Shared>>) -> Response {
    shared.asked.fetch_add(1, Ordering::SeqCst);
    let set = |keys: &[Value]| Body::from(json!({ "keys": keys }).to_string());
    let answer = shared.answer.lock().unwrap().clone();
    match answer {
        Answer::Keys(keys) => Response::new(set(&keys)),
        Answer::Text(text) => Response::new(Body::from(text)),
        Answer::Status(status) => Response::builder().status(status).body(Body::empty()).unwrap(),
        Answer::Late(keys) => {
            shared.waiting.add_permits(1);
            shared.released.acquire().await.unwrap().forget();
            Response::new(set(&keys))
        }
        Answer::Bytes(bytes) => Response::new(Body::from(vec![b' '; bytes])),
    }
}
