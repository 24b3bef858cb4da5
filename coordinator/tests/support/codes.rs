//! The authorization code flow of a test's identity provider: authorization requests, and tokens for issued codes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, StatusCode};
use reqwest::Url;
use serde_json::json;

use super::sha256;

/// Parameters of an authorization request with an issued code.
struct Grant {
    client_id: String,
    redirect_uri: String,
    challenge: String,
    nonce: String,
}

/// The token endpoint's response instead of a token.
#[derive(Clone)]
pub(crate) enum Instead {
    Text(u16, String),
    /// This number of bytes.
    Bytes(usize),
    /// Never responds.
    Silence,
}

type MakeToken = Box<dyn Fn(&str) -> String + Send>;

/// Issued codes and their exchange.
#[derive(Default)]
pub(crate) struct Codes {
    granted: Mutex<BTreeMap<String, Grant>>,
    /// Makes a token for the client with this nonce.
    token: Mutex<Option<MakeToken>>,
    instead: Mutex<Option<Instead>>,
    /// The expected credentials of a confidential client.
    credentials: Mutex<Option<(String, String)>>,
    asked: AtomicUsize,
}

/// The provider's redirect of a browser.
pub(crate) struct Redirect {
    pub(crate) uri: String,
    pub(crate) code: String,
    pub(crate) state: String,
}

pub(crate) fn query(text: &str) -> BTreeMap<String, String> {
    let url = Url::parse(&format!("http://x/?{text}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

impl Codes {
    pub(crate) fn make_tokens(&self, make: impl Fn(&str) -> String + Send + 'static) {
        *self.token.lock().unwrap() = Some(Box::new(make));
    }

    pub(crate) fn answer_instead(&self, instead: Option<Instead>) {
        *self.instead.lock().unwrap() = instead;
    }

    pub(crate) fn ask_for_credentials(&self, client_id: &str, secret: &str) {
        *self.credentials.lock().unwrap() = Some((client_id.to_owned(), secret.to_owned()));
    }

    /// Number of requests to the token endpoint.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Signs in at the provider's page.
    pub(crate) fn authorize(&self, url: &str) -> Redirect {
        let fields = query(Url::parse(url).unwrap().query().unwrap());
        let field = |name: &str| fields.get(name).unwrap_or_else(|| panic!("no {name} in {url}")).clone();
        assert_eq!((field("response_type").as_str(), field("code_challenge_method").as_str()), ("code", "S256"));
        assert!(field("scope").split(' ').any(|scope| scope == "openid"), "{url}");
        let mut granted = self.granted.lock().unwrap();
        let code = format!("code&{}", granted.len());
        let (client_id, redirect_uri) = (field("client_id"), field("redirect_uri"));
        let grant = Grant {
            client_id,
            redirect_uri: redirect_uri.clone(),
            challenge: field("code_challenge"),
            nonce: field("nonce"),
        };
        granted.insert(code.clone(), grant);
        Redirect { uri: redirect_uri, code, state: field("state") }
    }

    /// The token endpoint, RFC 6749 §3.2.
    pub(crate) async fn exchange(&self, headers: &HeaderMap, body: &str) -> Response {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let instead = self.instead.lock().unwrap().clone();
        match instead {
            None => {}
            Some(Instead::Text(status, text)) => return answer(status, text),
            Some(Instead::Bytes(bytes)) => return answer(200, " ".repeat(bytes)),
            Some(Instead::Silence) => std::future::pending().await,
        }
        let form = query(body);
        let error = |status: u16, error: &str| answer(status, json!({ "error": error }).to_string());
        let client = match &*self.credentials.lock().unwrap() {
            None => form.get("client_id").cloned(),
            Some((id, secret)) => {
                let encoded = |text: &str| {
                    let mut url = Url::parse("http://x/").unwrap();
                    url.query_pairs_mut().append_key_only(text);
                    url.query().unwrap().to_owned()
                };
                let expected = format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret))));
                let is_it = headers.get("authorization").is_some_and(|value| value == expected.as_str());
                is_it.then(|| id.clone())
            }
        };
        let Some(client) = client else { return error(401, "invalid_client") };
        let grant = form.get("code").and_then(|code| self.granted.lock().unwrap().remove(code));
        let Some(grant) = grant else { return error(400, "invalid_grant") };
        let verifier = form.get("code_verifier").cloned().unwrap_or_default();
        let fits = form.get("grant_type").is_some_and(|kind| kind == "authorization_code")
            && form.get("redirect_uri") == Some(&grant.redirect_uri)
            && client == grant.client_id
            && URL_SAFE_NO_PAD.encode(sha256(verifier.as_bytes()).0) == grant.challenge;
        if !fits {
            return error(400, "invalid_grant");
        }
        let token = self.token.lock().unwrap().as_ref().expect("who signs")(&grant.nonce);
        answer(
            200,
            json!({ "access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": token }).to_string(),
        )
    }
}

fn answer(status: u16, text: String) -> Response {
    let response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    response.header("content-type", "application/json").body(Body::from(text)).unwrap()
}
