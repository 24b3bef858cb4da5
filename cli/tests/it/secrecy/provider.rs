//! An identity provider that accepts one code for everyone. Its messages are secrets.

#![cfg(target_os = "linux")]

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::company::now_s;

/// Id of the coordinator's client at the provider.
pub(super) const CLIENT: &str = "dashboard";
pub(super) const CLIENT_SECRET: &str = "Zk3vQ9-of-the-client-only-8Lw2";
/// The authorization code that a browser brings from the provider.
pub(super) const CODE: &str = "Hq7xM2-a-code-for-a-browser-4Rt6";
/// The access token that comes with an ID token.
pub(super) const ACCESS: &str = "Wn5cB8-an-access-token-of-it-9Yd1";

struct Shared {
    issuer: String,
    key: Ed25519KeyPair,
    /// The nonce of the next ID token.
    nonce: Mutex<String>,
    /// ID tokens that were issued, and the PKCE verifiers that were sent for them.
    seen: Mutex<Vec<(&'static str, String)>>,
}

/// A provider that serves until the test ends.
pub(super) struct Provider(Arc<Shared>);

impl Provider {
    /// Serves on a free port of 127.0.0.1, over HTTP without TLS.
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            key: Ed25519KeyPair::from_seed_unchecked(&[16; 32]).unwrap(),
            nonce: Mutex::default(),
            seen: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/token", post(exchange))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self(shared)
    }

    /// The coordinator's configuration for this provider: all its users are viewers.
    pub(super) fn configuration(&self, secret_file: &str) -> String {
        format!(
            "[oidc]\nissuer = \"{}\"\naudience = \"tributary\"\n[oidc.client]\nclient_id = \"{CLIENT}\"\n\
             client_secret_file = {secret_file:?}\npublic_url = \"https://localhost\"\n\
             [oidc.roles]\nlooks = {{ role = \"viewer\" }}\n",
            self.0.issuer
        )
    }

    /// Sets the nonce of the next ID token.
    pub(super) fn expect(&self, nonce: &str) {
        nonce.clone_into(&mut self.0.nonce.lock().unwrap());
    }

    /// A signed ID token for this audience.
    pub(super) fn token(&self, audience: &str) -> String {
        self.0.token(audience, "")
    }

    /// Secrets that the coordinator got from the provider or sent to it, each with its kind.
    pub(super) fn seen(&self) -> Vec<(&'static str, String)> {
        self.0.seen.lock().unwrap().clone()
    }
}

impl Shared {
    fn token(&self, audience: &str, nonce: &str) -> String {
        let claims = json!({
            "iss": self.issuer, "aud": audience, "sub": "ann@example", "roles": ["looks"], "nonce": nonce,
            "iat": now_s(), "exp": now_s() + 300,
        });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "EdDSA", "kid": "one" })), part(claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes())))
    }
}

async fn discovery(State(shared): State<Arc<Shared>>) -> String {
    let at = |path: &str| format!("{}/{path}", shared.issuer);
    json!({
        "issuer": shared.issuer, "jwks_uri": at("keys"), "authorization_endpoint": at("authorize"), "token_endpoint": at("token"),
    })
    .to_string()
}

async fn keys(State(shared): State<Arc<Shared>>) -> String {
    let public = URL_SAFE_NO_PAD.encode(shared.key.public_key().as_ref());
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": public }] }).to_string()
}

async fn exchange(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> String {
    let expected = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{CLIENT_SECRET}")));
    assert_eq!(headers["authorization"], expected.as_str());
    let form: Vec<_> = url::form_urlencoded::parse(&body).into_owned().collect();
    let field = |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()).unwrap();
    assert_eq!(field("code"), CODE);
    let token = shared.token(CLIENT, &shared.nonce.lock().unwrap());
    shared.seen.lock().unwrap().extend([("an ID token", token.clone()), ("a code verifier", field("code_verifier"))]);
    json!({ "access_token": ACCESS, "token_type": "Bearer", "expires_in": 300, "id_token": token }).to_string()
}
