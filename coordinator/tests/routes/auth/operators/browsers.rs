//! Sign-in at the identity provider: signs in only the browser that started the flow, once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use coordinator::SystemClock;
use coordinator::config::{Config, OidcConfig};
use federation::time::Clock as _;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use test_servers::postgres::Cluster;
use tower::ServiceExt as _;
use wire::problem::ProblemType;
use wire::route;

use crate::support::codes::{Instead, Redirect, query};
use crate::support::provider::{Key, Provider};
use crate::support::{Reply, START, TestCoordinator, Who, config, sha256, small_task};

const CALLBACK: &str = "/sign-in/callback";
const CLIENT: &str = "tributary dashboard";
const OURS: &[(&str, &str)] = &[("tributary-request", "dashboard"), ("sec-fetch-site", "same-origin")];

fn oidc(provider: &Provider, of_client: &str) -> OidcConfig {
    toml::from_str(&format!(
        "issuer = \"{}\"\naudience = \"tributary\"\nleeway_ms = 0\ntimeout_ms = 20000\n\
         client = {{ client_id = \"{CLIENT}\", public_url = \"https://fl.example\" {of_client} }}\n[roles]\n\
         looks = {{ role = \"viewer\" }}\nruns = {{ role = \"operator\" }}\n\
         \"looks at small\" = {{ role = \"viewer\", tasks = [\"small\"] }}\n",
        provider.issuer
    ))
    .unwrap()
}

fn trusting(provider: &Provider) -> Config {
    Config { oidc: Some(oidc(provider, "")), ..config() }
}

async fn provider() -> Provider {
    Provider::publishing(vec![Key::ed25519(1).public("ed")]).await
}

/// A valid code yields these claims for five minutes; `change` makes the token invalid.
fn knows(provider: &Provider, t: &TestCoordinator, values: &[&str], change: impl Fn(&mut Value) + Send + 'static) {
    let (issuer, now, values) = (provider.issuer.clone(), t.now().0 / 1000, json!(values));
    let key = Key::ed25519(1);
    provider.codes().make_tokens(move |nonce| {
        let mut claims = json!({
            "iss": issuer, "aud": CLIENT, "sub": "ann@example", "nonce": nonce, "roles": values, "iat": now, "exp": now + 300,
        });
        change(&mut claims);
        key.sign(&json!({ "alg": "EdDSA", "kid": "ed" }), &claims)
    });
}

/// A browser with its cookies.
struct Browser<'t> {
    t: &'t TestCoordinator,
    cookies: BTreeMap<String, String>,
}

impl<'t> Browser<'t> {
    fn of(t: &'t TestCoordinator) -> Self {
        Self { t, cookies: BTreeMap::new() }
    }

    async fn call(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        request = request.header("cookie", cookies.join("; "));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = self.t.send(&Who::Nobody, request.body(Body::from("{}")).unwrap()).await;
        for set in reply.headers.get_all("set-cookie") {
            let set = set.to_str().unwrap();
            for guard in ["__Host-tributary", "; Path=/;", "; Secure", "; HttpOnly", "; SameSite="] {
                assert!(set.contains(guard), "{set}");
            }
            let (name, value) = set.split(';').next().unwrap().split_once('=').unwrap();
            if set.contains("Max-Age=0;") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        reply
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.call(Method::GET, path, &[]).await
    }

    /// Requests the sign-in URL.
    async fn begin(&mut self) -> String {
        let reply = self.call(Method::POST, route::SIGN_IN_AUTHORIZATION, OURS).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let away = reply.headers["set-cookie"].to_str().unwrap();
        assert!(away.contains("SameSite=Lax") && away.contains("; Max-Age=600;"), "{away}");
        reply.json()["url"].as_str().unwrap().to_owned()
    }

    /// Returns from the provider.
    async fn back(&mut self, fields: &[(&str, &str)]) -> Reply {
        let mut url = reqwest::Url::parse("http://x/").unwrap();
        url.query_pairs_mut().extend_pairs(fields);
        self.get(&format!("{}?{}", CALLBACK, url.query().unwrap())).await
    }

    async fn bring(&mut self, redirect: &Redirect) -> Reply {
        self.back(&[("code", &redirect.code), ("state", &redirect.state)]).await
    }

    async fn sign_in(&mut self, provider: &Provider) -> Reply {
        let url = self.begin().await;
        self.bring(&provider.codes().authorize(&url)).await
    }

    fn is_signed_in(&self) -> bool {
        self.cookies.contains_key("__Host-tributary")
    }
}

/// Checks that the sign-in failed with a page that explains why; returns the page.
#[track_caller]
fn page(browser: &Browser<'_>, reply: &Reply, status: u16, words: &str) -> String {
    let text = String::from_utf8(reply.body.clone()).unwrap();
    assert_eq!(reply.status, status, "{text}");
    assert!(text.contains(words), "{words:?} is missing in {text}");
    // Pages show a request id only if the log contains it: for status 500.
    assert!(!text.contains(reply.headers["x-request-id"].to_str().unwrap()));
    assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8");
    let policy = reply.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'") && !policy.contains("script"), "{policy}");
    assert_eq!(
        (&reply.headers["referrer-policy"], &reply.headers["cache-control"]),
        (&"no-referrer".parse().unwrap(), &"no-store".parse().unwrap())
    );
    assert!(!browser.is_signed_in());
    text
}

#[tokio::test]
async fn a_browser_signs_in_at_the_provider() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    t.create_task(&small_task()).await;
    knows(&provider, &t, &["unknown", "runs", "looks"], |_| {});
    let mut browser = Browser::of(&t);
    assert_eq!(browser.get(route::SIGN_INS).await.json(), json!({ "provider": "127.0.0.1" }));
    let url = browser.begin().await;
    assert!(url.starts_with(&format!("{}/authorize?of=one&", provider.issuer)), "{url}");
    let redirect = provider.codes().authorize(&url);
    assert_eq!(redirect.uri, "https://fl.example/sign-in/callback");
    let away = browser.cookies["__Host-tributary-away"].clone();
    assert!(!url.contains(away.split('.').next().unwrap()), "the cookie's secret stays here");
    let reply = browser.bring(&redirect).await;
    assert_eq!((reply.status.as_u16(), &reply.headers["location"]), (303, &"/".parse().unwrap()), "{reply:?}");
    assert_eq!(reply.headers["cache-control"], "no-store");
    assert!(!browser.cookies.contains_key("__Host-tributary-away"), "its way is over");
    let set: Vec<_> = reply.headers.get_all("set-cookie").iter().map(|set| set.to_str().unwrap()).collect();
    assert!(set.iter().any(|set| set.contains("SameSite=Strict") && set.contains("Max-Age=300;")), "{set:?}");

    let subject = sha256(format!("{}\nann@example", provider.issuer).as_bytes()).to_string();
    let me = browser.get(route::SIGN_IN).await.json();
    let expected = json!({
        "name": format!("oidc-{}", &subject[..12]), "role": "operator", "expires_at": (t.now().0 / 1000 + 300) * 1000,
    });
    assert_eq!(me, expected);
    browser.call(Method::POST, "/v1/tasks/small/pause", &[]).await.problem(ProblemType::Forbidden);
    assert_eq!(browser.call(Method::POST, "/v1/tasks/small/pause", OURS).await.json()["status"], "PAUSED");
    browser.get(route::OPERATOR_TOKENS).await.problem(ProblemType::Forbidden);
    assert_eq!(browser.call(Method::DELETE, route::SIGN_IN, OURS).await.status, 204);
    assert!(!browser.is_signed_in());

    t.inner.engine.number_events().await.unwrap();
    let log = t.get(&t.viewer, "/v1/audit?kind=signed_in,signed_out,task_paused").await.json();
    let log = log["items"].as_array().unwrap();
    let kinds: Vec<_> = log.iter().rev().map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["signed_in", "task_paused", "signed_out"]);
    for entry in log {
        assert_eq!(entry["actor"], json!({ "by": "identity", "issuer": provider.issuer, "subject_sha256": subject }));
    }
}

#[tokio::test]
async fn a_sign_in_ends_with_its_token_and_is_for_its_tasks() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    let mut other = small_task();
    other["name"] = json!("other");
    for spec in [small_task(), other] {
        t.create_task(&spec).await;
    }
    knows(&provider, &t, &["looks at small"], |_| {});
    let mut browser = Browser::of(&t);
    assert_eq!(browser.sign_in(&provider).await.status, 303);
    assert_eq!(browser.get(route::TASKS).await.json()["items"].as_array().unwrap().len(), 1);
    browser.get("/v1/tasks/other").await.problem(ProblemType::NotFound);
    t.advance(Duration::from_millis(299_999));
    assert_eq!(browser.get("/v1/tasks/small").await.status, 200);
    t.advance(Duration::from_millis(1));
    browser.get("/v1/tasks/small").await.problem(ProblemType::Unauthenticated);

    // A token for a week gives a sign-in for a working day.
    knows(&provider, &t, &["looks"], |claims| claims["exp"] = json!(claims["iat"].as_i64().unwrap() + 604_800));
    assert_eq!(browser.sign_in(&provider).await.status, 303);
    let me = browser.get(route::SIGN_IN).await.json();
    assert_eq!(me["expires_at"].as_i64().unwrap() - t.now().0, 12 * 3600 * 1000);
}

#[tokio::test]
async fn what_comes_back_counts_once_and_in_its_own_browser_alone() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    knows(&provider, &t, &["looks"], |_| {});
    let (mut ann, mut eve) = (Browser::of(&t), Browser::of(&t));
    let (of_ann, of_eve) = (ann.begin().await, eve.begin().await);
    let (of_ann, of_eve) = (provider.codes().authorize(&of_ann), provider.codes().authorize(&of_eve));
    const STRANGE: &str = "was not begun in this browser";
    // Eve makes Ann's browser return with Eve's code, or without a code of Ann's.
    let reply = ann.bring(&of_eve).await;
    page(&ann, &reply, 401, STRANGE);
    let mut nobody = Browser::of(&t);
    let reply = nobody.bring(&of_ann).await;
    page(&nobody, &reply, 401, STRANGE);
    for fields in [&[][..], &[("code", of_ann.code.as_str())], &[("state", "")], &[("error", "access_denied")]] {
        let reply = ann.back(fields).await;
        page(&ann, &reply, 401, STRANGE);
    }
    let reply = ann.get(&format!("{}?state=a&state=b", CALLBACK)).await;
    page(&ann, &reply, 400, "query");
    assert_eq!(provider.codes().asked(), 0, "the provider is asked for none of them");
    // Ann's state with Eve's code.
    let (cookies, mixed) = (ann.cookies.clone(), Redirect { code: of_eve.code.clone(), ..clone(&of_ann) });
    let reply = ann.bring(&mixed).await;
    page(&ann, &reply, 401, "does not take what this browser brought");
    // That used up the state, regardless of the result.
    let reply = ann.bring(&of_ann).await;
    page(&ann, &reply, 401, "used already");
    assert_eq!(provider.codes().asked(), 1);

    let url = ann.begin().await;
    let redirect = provider.codes().authorize(&url);
    let before = ann.cookies.clone();
    assert_eq!(ann.bring(&redirect).await.status, 303);
    for cookies in [before, cookies] {
        let mut replaying = Browser { t: &t, cookies };
        let reply = replaying.bring(&redirect).await;
        page(&replaying, &reply, 401, "begin again");
    }
    let url = eve.begin().await;
    t.advance(Duration::from_secs(600));
    let reply = eve.bring(&provider.codes().authorize(&url)).await;
    page(&eve, &reply, 401, "too long ago");
    assert_eq!(provider.codes().asked(), 2);
}

fn clone(redirect: &Redirect) -> Redirect {
    Redirect { uri: redirect.uri.clone(), code: redirect.code.clone(), state: redirect.state.clone() }
}

#[tokio::test]
async fn another_site_begins_nothing_and_without_a_client_nobody_does() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    let mut browser = Browser::of(&t);
    for headers in [&[][..], &[("tributary-request", "dashboard"), ("sec-fetch-site", "cross-site")], &OURS[1..]] {
        let reply = browser.call(Method::POST, route::SIGN_IN_AUTHORIZATION, headers).await;
        reply.problem(ProblemType::Forbidden);
    }
    browser.get(route::SIGN_IN_AUTHORIZATION).await.problem(ProblemType::MethodNotAllowed);
    assert!(browser.cookies.is_empty());
    for oidc in [None, Some(OidcConfig { client: None, ..oidc(&provider, "") })] {
        let t = TestCoordinator::with(&Config { oidc, ..config() }).await;
        let mut browser = Browser::of(&t);
        assert_eq!(browser.get(route::SIGN_INS).await.json(), json!({}));
        browser.call(Method::POST, route::SIGN_IN_AUTHORIZATION, OURS).await.problem(ProblemType::NotFound);
        let reply = browser.back(&[("code", "a"), ("state", "b")]).await;
        page(&browser, &reply, 401, "begin again");
    }
}

#[tokio::test]
async fn a_token_that_is_no_answer_to_this_request_is_refused() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    let now = t.now().0 / 1000;
    let wrong: Vec<(&'static str, Value, &str)> = vec![
        ("nonce", json!("another"), "(nonce)"),
        ("nonce", Value::Null, "(nonce)"),
        ("aud", json!("tributary"), "another audience"),
        ("aud", json!([CLIENT, "tributary"]), "another audience"),
        ("azp", json!("another"), "another audience"),
        ("iss", json!("https://evil.example"), "another issuer"),
        ("exp", json!(now), "expired"),
        ("sub", json!(""), "claim sub"),
        ("roles", json!(["unknown"]), "has a role here"),
    ];
    for (name, value, words) in wrong {
        knows(&provider, &t, &["looks"], move |claims| claims[name] = value.clone());
        let mut browser = Browser::of(&t);
        let reply = browser.sign_in(&provider).await;
        page(&browser, &reply, if name == "roles" { 403 } else { 401 }, words);
    }
    for (header, key, words) in [
        (json!({ "alg": "EdDSA", "kid": "ed" }), Key::ed25519(2), "signature is wrong"),
        (json!({ "alg": "none" }), Key::ed25519(1), "not accepted"),
        (json!({ "alg": "EdDSA" }), Key::ed25519(1), "does not name the key"),
    ] {
        provider.codes().make_tokens(move |_| key.sign(&header, &json!({})));
        let mut browser = Browser::of(&t);
        let reply = browser.sign_in(&provider).await;
        page(&browser, &reply, 401, words);
    }
    t.inner.engine.number_events().await.unwrap();
    let log = t.get(&t.viewer, "/v1/audit?kind=signed_in,sign_in_refused").await.json();
    let log = log["items"].as_array().unwrap();
    assert_eq!(log.len(), 1, "of those who are known: {log:?}");
    assert_eq!((&log[0]["body"], &log[0]["actor"]["by"]), (&json!({ "reason": "no_role" }), &json!("identity")));
}

#[tokio::test]
async fn a_provider_that_does_not_do_its_part_is_told_on_a_page() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    knows(&provider, &t, &["looks"], |_| {});
    let mut browser = Browser::of(&t);
    const AWAY: &str = "does not answer as it should";
    let text = |status: u16, text: &str| Instead::Text(status, text.to_owned());
    for (instead, status, words) in [
        (text(500, "geheim"), 503, AWAY),
        (text(302, ""), 503, AWAY),
        (text(200, "<html>geheim"), 503, AWAY),
        (text(200, "{\"access_token\":\"geheim\"}"), 503, AWAY),
        (text(400, "{\"error\":\"invalid_request\"}"), 503, AWAY),
        (text(401, "{\"error\":\"invalid_client\"}"), 503, AWAY),
        (text(400, "{\"error\":\"invalid_grant\"}"), 401, "sign in again"),
        (text(200, "{\"id_token\":\"geheim\"}"), 401, "no signed JSON Web Token"),
        (Instead::Bytes(10 << 20), 503, AWAY),
    ] {
        provider.codes().answer_instead(Some(instead));
        let reply = browser.sign_in(&provider).await;
        assert!(!page(&browser, &reply, status, words).contains("geheim"));
        assert_eq!(reply.headers.contains_key("retry-after"), status == 503);
    }
    provider.codes().answer_instead(None);
    // The provider reports an error; only its name is quoted on the page.
    for (error, words) in
        [("access_denied", "access_denied"), ("<script>alert(1)</script>", "no reason that can be shown")]
    {
        let state = provider.codes().authorize(&browser.begin().await).state;
        let reply = browser.back(&[("error", error), ("error_description", "<b>"), ("state", &state)]).await;
        let text = page(&browser, &reply, 401, words);
        assert!(!text.contains("<script") && !text.contains("<b>&"), "{text}");
    }
    let asked = provider.codes().asked();
    let state = provider.codes().authorize(&browser.begin().await).state;
    for code in [String::new(), "x".repeat(5000)] {
        let state =
            if code.is_empty() { state.clone() } else { provider.codes().authorize(&browser.begin().await).state };
        let reply = browser.back(&[("code", &code), ("state", &state)]).await;
        page(&browser, &reply, 401, "does not take what this browser brought");
    }
    assert_eq!(provider.codes().asked(), asked);
    assert_eq!(browser.sign_in(&provider).await.status, 303);
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_not_waited_for_long() {
    let provider = provider().await;
    let oidc = OidcConfig { timeout_ms: 100, ..oidc(&provider, "") };
    let t = TestCoordinator::with(&Config { oidc: Some(oidc), ..config() }).await;
    provider.codes().answer_instead(Some(Instead::Silence));
    // On a slow machine discovery may also take longer: then it is requested again.
    let mut browser = Browser::of(&t);
    let url = loop {
        let reply = browser.call(Method::POST, route::SIGN_IN_AUTHORIZATION, OURS).await;
        if reply.status == 200 {
            break reply.json()["url"].as_str().unwrap().to_owned();
        }
        reply.problem(ProblemType::Unavailable);
        t.advance(Duration::from_secs(10));
    };
    let reply = browser.bring(&provider.codes().authorize(&url)).await;
    page(&browser, &reply, 503, "does not answer as it should");
}

#[tokio::test]
async fn a_provider_whose_endpoints_are_not_known_signs_nobody_in() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    knows(&provider, &t, &["looks"], |_| {});
    let good = provider.discovered();
    let with = |name: &str, value: Value| {
        let mut document = good.clone();
        document[name] = value;
        document
    };
    let wrong = [
        with("authorization_endpoint", Value::Null),
        with("token_endpoint", Value::Null),
        with("token_endpoint", json!("http://evil.example/token")),
        with("authorization_endpoint", json!("javascript:alert(1)")),
        with("code_challenge_methods_supported", json!(["plain"])),
        with("issuer", json!("https://evil.example")),
        json!("no"),
    ];
    let mut browser = Browser::of(&t);
    for document in wrong {
        provider.discovery(document);
        for _ in 0..2 {
            let reply = browser.call(Method::POST, route::SIGN_IN_AUTHORIZATION, OURS).await;
            let detail = reply.problem(ProblemType::Unavailable);
            assert!(detail.contains("does not answer as it should") && !detail.contains("evil"), "{detail}");
        }
        t.advance(Duration::from_secs(10));
    }
    assert!(browser.cookies.is_empty());
    provider.discovery(with("code_challenge_methods_supported", json!(["plain", "S256"])));
    assert_eq!(browser.sign_in(&provider).await.status, 303);
}

#[tokio::test]
async fn the_provider_that_answers_is_the_one_that_was_asked() {
    let provider = provider().await;
    let mut document = provider.discovered();
    document["authorization_response_iss_parameter_supported"] = json!(true);
    provider.discovery(document);
    let t = TestCoordinator::with(&trusting(&provider)).await;
    knows(&provider, &t, &["looks"], |_| {});
    let mut browser = Browser::of(&t);
    for issuer in [None, Some("https://evil.example"), Some("")] {
        let redirect = provider.codes().authorize(&browser.begin().await);
        let mut fields = vec![("code", redirect.code.as_str()), ("state", redirect.state.as_str())];
        fields.extend(issuer.map(|issuer| ("iss", issuer)));
        let reply = browser.back(&fields).await;
        page(&browser, &reply, 401, "not of the identity provider");
    }
    assert_eq!(provider.codes().asked(), 0, "it gets nobody else's code");
    let Redirect { code, state, .. } = provider.codes().authorize(&browser.begin().await);
    assert_eq!(browser.back(&[("code", &code), ("state", &state), ("iss", &provider.issuer)]).await.status, 303);
}

#[tokio::test]
async fn a_client_with_a_secret_says_it_to_the_provider_alone() {
    let provider = provider().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "ge:h&im +%\n").unwrap();
    let of_client = format!(", client_secret_file = {file:?}, name = \"Ward <7>\", scopes = [\"openid\", \"groups\"]");
    let t = TestCoordinator::with(&Config { oidc: Some(oidc(&provider, &of_client)), ..config() }).await;
    knows(&provider, &t, &["looks"], |_| {});
    let mut browser = Browser::of(&t);
    assert_eq!(browser.get(route::SIGN_INS).await.json()["provider"], "Ward <7>");
    provider.codes().ask_for_credentials(CLIENT, "ge:h&im +%");
    let url = browser.begin().await;
    let fields = query(reqwest::Url::parse(&url).unwrap().query().unwrap());
    assert_eq!(fields["scope"], "openid groups");
    assert!(!url.contains("ge%3Ah"));
    assert_eq!(browser.bring(&provider.codes().authorize(&url)).await.status, 303);
    provider.codes().ask_for_credentials(CLIENT, "another");
    let mut browser = Browser::of(&t);
    let reply = browser.sign_in(&provider).await;
    page(&browser, &reply, 503, "does not answer as it should");
}

/// The flow keeps no state in a single process: another one accepts the callback, and each callback is accepted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_coordinator_takes_who_comes_back_and_only_one_does() {
    let Some(cluster) = Cluster::shared() else { return };
    let provider = provider().await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = trusting(&provider);
    config.database.url = cluster.url(&cluster.create_database());
    config.identity.seal_key_file = Some(folder.path().join("seal.key"));
    let here = TestCoordinator::with(&config).await;
    let there = here.beside(&config, 2).await;
    // Expiry of used callbacks also follows the database's time.
    here.advance(Duration::from_millis(SystemClock.now().0.abs_diff(START.0)));
    knows(&provider, &here, &["looks"], |_| {});
    let mut browser = Browser::of(&here);
    let redirect = provider.codes().authorize(&browser.begin().await);
    let cookies = browser.cookies.clone();
    let mut elsewhere = Browser { t: &there, cookies: cookies.clone() };
    assert_eq!(elsewhere.bring(&redirect).await.status, 303);
    let mut again = Browser { t: &here, cookies };
    let reply = again.bring(&redirect).await;
    page(&again, &reply, 401, "used already");
    let mut moved = Browser { t: &here, cookies: elsewhere.cookies.clone() };
    assert_eq!(moved.get(route::TASKS).await.status, 200);
    assert_eq!(moved.call(Method::DELETE, route::SIGN_IN, OURS).await.status, 204);
    elsewhere.get(route::TASKS).await.problem(ProblemType::Unauthenticated);
    here.inner.stop().await;
    there.inner.stop().await;
}

#[tokio::test]
async fn what_the_configuration_allows_no_more_is_over_for_who_is_signed_in() {
    let provider = provider().await;
    let folder = tempfile::tempdir().unwrap();
    let mut config = trusting(&provider);
    config.database.url = format!("sqlite:{}", folder.path().join("coordinator.db").display());
    config.identity.seal_key_file = Some(folder.path().join("seal.key"));
    let mut t = TestCoordinator::with(&config).await;
    knows(&provider, &t, &["looks"], |_| {});
    let mut browser = Browser::of(&t);
    assert_eq!(browser.sign_in(&provider).await.status, 303);
    let cookies = browser.cookies.clone();
    let mut less = config.clone();
    less.oidc.as_mut().unwrap().roles.remove("looks");
    let mut moved = config.clone();
    moved.oidc.as_mut().unwrap().issuer = "https://another.example".to_owned();
    let none = Config { oidc: None, ..config.clone() };
    for (seed, (config, problem)) in [
        (less, Some(ProblemType::Forbidden)),
        (moved, Some(ProblemType::Unauthenticated)),
        (none, Some(ProblemType::Unauthenticated)),
        (config, None),
    ]
    .into_iter()
    .enumerate()
    {
        t.restart(&config, 2 + seed as u64).await;
        let reply = Browser { t: &t, cookies: cookies.clone() }.get(route::TASKS).await;
        match problem {
            Some(problem) => drop(reply.problem(problem)),
            None => assert_eq!(reply.status, 200),
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_sign_in() {
    let provider = provider().await;
    let t = TestCoordinator::with(&trusting(&provider)).await;
    t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    knows(&provider, &t, &["looks"], |_| {});
    let mut browser = Browser::of(&t);
    assert_eq!(browser.sign_in(&provider).await.status, 303);
    t.inner.engine.number_events().await.unwrap();
    let cookie = format!("__Host-tributary={}", browser.cookies["__Host-tributary"]);
    let request = Request::get(route::EVENTS)
        .extension(coordinator::http::Connection::default())
        .header("cookie", cookie)
        .body(Body::empty());
    let response = t.inner.router.clone().oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(browser.call(Method::DELETE, route::SIGN_IN, OURS).await.status, 204);
    t.inner.engine.number_events().await.unwrap();
    let rest = tokio::time::timeout(Duration::from_secs(120), response.into_body().collect()).await;
    rest.expect("the stream ends").unwrap();
}
