//! Tokens of an identity provider authenticate until they expire; all others are rejected with a reason.

use std::time::Duration;

use axum::body::Body;
use coordinator::config::{Config, OidcConfig};
use coordinator::http::Connection;
use http::Request;
use http_body_util::BodyExt as _;
use ring::hmac;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use wire::problem::ProblemType;
use wire::route;

use crate::support::provider::{Answer, Key, Provider, over_https};
use crate::support::{TestCoordinator, Who, config, small_task};

const AUDIENCE: &str = "tributary";

fn oidc(provider: &Provider, more: &str) -> OidcConfig {
    let issuer = &provider.issuer;
    toml::from_str(&format!(
        "issuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\njwks_url = \"{issuer}/keys\"\n{more}\n[roles]\n\
         looks = {{ role = \"viewer\" }}\nruns = {{ role = \"operator\" }}\nrules = {{ role = \"admin\" }}\n\
         \"looks at small\" = {{ role = \"viewer\", tasks = [\"small\"] }}\n\
         \"looks at other\" = {{ role = \"viewer\", tasks = [\"other\", \"none\"] }}\n"
    ))
    .unwrap()
}

async fn trusting(provider: &Provider, more: &str) -> TestCoordinator {
    TestCoordinator::with(&Config { oidc: Some(oidc(provider, more)), ..config() }).await
}

/// Claims of a token valid for five minutes.
fn claims(t: &TestCoordinator, provider: &Provider, value: &str) -> Value {
    let now = t.now().0 / 1000;
    json!({ "iss": provider.issuer, "aud": AUDIENCE, "sub": "ann@example", "roles": [value], "iat": now, "exp": now + 300 })
}

fn header(algorithm: &str, kid: &str) -> Value {
    json!({ "alg": algorithm, "kid": kid, "typ": "JWT" })
}

/// Claims of a valid token, signed with the Ed25519 key `ed`.
fn who(t: &TestCoordinator, provider: &Provider, key: &Key, value: &str) -> Who {
    Who::Token(key.sign(&header("EdDSA", "ed"), &claims(t, provider, value)))
}

#[tokio::test]
async fn a_token_counts_however_its_provider_signs() {
    let keys = [("rsa", Key::rsa()), ("ec", Key::p256()), ("ed", Key::ed25519(1))];
    let published = keys.iter().map(|(kid, key)| key.public(kid)).collect();
    let provider = Provider::publishing(published).await;
    let t = trusting(&provider, "").await;
    for (algorithm, at) in [("RS256", 0), ("PS256", 0), ("ES256", 1), ("EdDSA", 2)] {
        let (kid, key) = &keys[at];
        let token = key.sign(&header(algorithm, kid), &claims(&t, &provider, "looks"));
        assert_eq!(t.get(&Who::Token(token), route::TASKS).await.status, 200, "{algorithm}");
    }
    assert_eq!(provider.asked(), 1, "once for all");
}

#[tokio::test]
async fn the_role_is_what_the_token_says_and_nothing_of_it_is_kept() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let t = trusting(&provider, "").await;
    t.create_task(&small_task()).await;
    let pause = async |who: &Who| t.post(who, "/v1/tasks/small/pause", &json!({})).await;
    let viewer = who(&t, &provider, &key, "looks");
    assert_eq!(t.get(&viewer, "/v1/tasks/small").await.status, 200);
    pause(&viewer).await.problem(ProblemType::Forbidden);
    let operator = who(&t, &provider, &key, "runs");
    assert_eq!(pause(&operator).await.status, 200);
    t.get(&operator, route::OPERATOR_TOKENS).await.problem(ProblemType::Forbidden);
    let admin = who(&t, &provider, &key, "rules");
    let tokens = t.get(&admin, route::OPERATOR_TOKENS).await.json();
    assert_eq!(tokens["items"].as_array().unwrap().len(), 3, "none was made");
    // The highest of several roles applies; without a known value there is none.
    let mut many = claims(&t, &provider, "looks");
    many["roles"] = json!(["unknown", "looks at small", "runs", "looks"]);
    assert_eq!(pause(&Who::Token(key.sign(&header("EdDSA", "ed"), &many))).await.status, 200);
    let detail = t.get(&who(&t, &provider, &key, "unknown"), route::TASKS).await.problem(ProblemType::Forbidden);
    assert!(detail.contains("\"roles\"") && !detail.contains("unknown"), "{detail}");

    t.inner.engine.number_events().await.unwrap();
    let paused = t.get(&t.viewer, "/v1/audit?kind=task_paused").await.json()["items"][0].clone();
    // printf 'ISSUER\nann@example' | sha256sum
    let subject = crate::support::sha256(format!("{}\nann@example", provider.issuer).as_bytes()).to_string();
    let actor = json!({ "by": "identity", "issuer": provider.issuer, "subject_sha256": subject });
    assert_eq!(paused["actor"], actor);
    assert!(!paused.to_string().contains("ann@example"));
    assert!(paused["body"]["detail"].as_str().unwrap().ends_with(&format!("oidc-{}", &subject[..12])));
}

#[tokio::test]
async fn a_value_may_be_for_some_tasks() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let t = trusting(&provider, "").await;
    t.create_task(&small_task()).await;
    let mut spec = small_task();
    spec["name"] = json!("other");
    t.create_task(&spec).await;
    let named = async |who: &Who| -> Vec<Value> {
        let page = t.get(who, route::TASKS).await.json();
        let mut names: Vec<_> = page["items"].as_array().unwrap().iter().map(|task| task["name"].clone()).collect();
        names.sort_by_key(Value::to_string);
        names
    };
    let small = who(&t, &provider, &key, "looks at small");
    assert_eq!(named(&small).await, ["small"]);
    t.get(&small, "/v1/tasks/other").await.problem(ProblemType::NotFound);
    t.get(&small, route::PARTICIPANTS).await.problem(ProblemType::Forbidden);
    let mut both = claims(&t, &provider, "looks at small");
    both["roles"] = json!(["looks at small", "looks at other"]);
    assert_eq!(named(&Who::Token(key.sign(&header("EdDSA", "ed"), &both))).await, ["other", "small"]);
    both["roles"] = json!(["looks at small", "looks"]);
    assert_eq!(named(&Who::Token(key.sign(&header("EdDSA", "ed"), &both))).await.len(), 2, "one value is for all");
}

#[tokio::test]
async fn what_is_wrong_with_a_token_is_told_and_it_is_not_repeated() {
    let (rsa, key, stranger) = (Key::rsa(), Key::ed25519(1), Key::ed25519(2));
    let published = rsa.public("rsa");
    let provider = Provider::publishing(vec![published.clone(), key.public("ed")]).await;
    let t = trusting(&provider, "algorithms = [\"RS256\", \"EdDSA\"]\ntoken_max_age_ms = 3600000\n").await;
    t.create_task(&small_task()).await;
    let (good, now) = (claims(&t, &provider, "rules"), t.now().0 / 1000);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        key.sign(&header("EdDSA", "ed"), &claims)
    };
    let ed = header("EdDSA", "ed");
    let signed = key.sign(&ed, &good);
    let unsigned = |header: &Value| {
        let token = key.sign(header, &good);
        token.rsplit_once('.').unwrap().0.to_owned()
    };
    // The end of the claims, containing a time.
    let changed = key.sign(&ed, &{
        let mut later = good.clone();
        later["exp"] = json!(now + 301);
        later
    });
    let changed = format!("{}.{}", changed.rsplit_once('.').unwrap().0, signed.rsplit_once('.').unwrap().1);
    // The public key as a shared secret: a known attack on libraries.
    let confused = {
        let token = unsigned(&header("HS256", "rsa"));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, published["n"].as_str().unwrap().as_bytes());
        let tag = hmac::sign(&secret, token.as_bytes());
        format!("{token}.{}", base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, tag))
    };
    let mut crit = ed.clone();
    crit["crit"] = json!(["b64"]);
    // Another reader might use the other duplicate.
    let twice = |text: &str, more: &str| format!("{},{more}}}", text.strip_suffix('}').unwrap());
    let claims_twice = |more: &str| key.sign_text(&ed.to_string(), &twice(&good.to_string(), more));
    let cases = [
        (claims_twice(r#""aud":"other""#), "twice"),
        (claims_twice(r#""\u0061ud":"tributary""#), "twice"),
        (claims_twice(r#""realm":{"roles":["rules"],"roles":[]}"#), "twice"),
        (key.sign_text(&twice(&ed.to_string(), r#""kid":"ed""#), &good.to_string()), "header"),
        (key.sign_text(&twice(&ed.to_string(), r#""typ":"JWT","typ":"x""#), &good.to_string()), "header"),
        (with("iss", json!("https://evil.example")), "another issuer"),
        (with("aud", json!(["other"])), "another audience"),
        (with("sub", json!(null)), "claim sub"),
        (with("exp", json!(now - 60)), "expired at"),
        (with("exp", json!("never")), "claim exp"),
        (with("nbf", json!(now + 61)), "counts from"),
        (with("iat", json!(now - 3660)), "too long ago"),
        (with("iat", json!(null)), "claim iat"),
        (stranger.sign(&ed, &good), "signature is wrong"),
        (changed, "signature is wrong"),
        (signed[..signed.len() - 2].to_owned(), "signature is wrong"),
        (format!("{}.", unsigned(&ed)), "signature is wrong"),
        (format!("{}.", unsigned(&header("none", "ed"))), "only RS256, EdDSA"),
        (format!("{}.", unsigned(&header("None", "ed"))), "only RS256, EdDSA"),
        (confused, "only RS256, EdDSA"),
        (rsa.sign(&header("PS256", "rsa"), &good), "only RS256, EdDSA"),
        (key.sign(&header("EdDSA", "rsa"), &good), "publishes no such key"),
        (key.sign(&header("RS256", "ed"), &good), "publishes no such key"),
        (key.sign(&json!({ "alg": "EdDSA" }), &good), "does not name the key"),
        (key.sign(&json!({ "alg": "EdDSA", "kid": 7 }), &good), "does not name the key"),
        (key.sign(&header("EdDSA", "../../etc\u{0}\u{1f980}"), &good), "publishes no such key"),
        (key.sign(&json!({ "kid": "ed" }), &good), "header"),
        (key.sign(&crit, &good), "crit"),
        ("..".to_owned(), "header"),
        (format!("{}.x!.y", unsigned(&ed).split_once('.').unwrap().0), "base64url"),
        (key.sign(&ed, &json!([good])), "no object"),
        (format!("{}.{}", unsigned(&ed), "A".repeat(20_000)), "too long"),
    ];
    for (token, words) in cases {
        let reply = t.post(&Who::Token(token.clone()), "/v1/tasks/small/cancel", &json!({})).await;
        let detail = reply.problem(ProblemType::Unauthenticated);
        assert!(detail.contains(words), "{words} missing in {detail}");
        let told = String::from_utf8(reply.body).unwrap();
        assert!(token.split('.').all(|part| part.len() < 8 || !told.contains(part)), "{told}");
        assert!(!told.contains("evil") && !told.contains("etc"), "{told}");
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
    }
    assert_eq!(t.get(&t.viewer, "/v1/tasks/small").await.json()["status"], "ACTIVE", "nothing was done");
    // Clocks may differ by a minute.
    for within in [with("exp", json!(now - 59)), with("nbf", json!(now + 60)), with("iat", json!(now - 3659))] {
        assert_eq!(t.get(&Who::Token(within), route::TASKS).await.status, 200);
    }
    let request = Request::post(route::SIGN_INS)
        .header("content-type", "application/json")
        .header("tributary-request", "dashboard");
    let body = Body::from(json!({ "token": signed }).to_string());
    t.send(&Who::Nobody, request.body(body).unwrap()).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn without_a_provider_its_tokens_are_worth_nothing() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let t = TestCoordinator::start().await;
    t.get(&who(&t, &provider, &key, "rules"), route::TASKS).await.problem(ProblemType::Unauthenticated);
    assert_eq!(provider.asked(), 0);
}

/// Unknown key names cause at most one request to the provider in ten seconds.
#[tokio::test]
async fn a_key_that_is_not_there_is_asked_for_once_in_a_while() {
    let (old, new) = (Key::ed25519(1), Key::ed25519(2));
    let provider = Provider::publishing(vec![old.public("ed")]).await;
    let t = trusting(&provider, "").await;
    assert_eq!(t.get(&who(&t, &provider, &old, "looks"), route::TASKS).await.status, 200);
    provider.answer(Answer::Keys(vec![old.public("ed"), new.public("new")]));
    let of_new = |t: &TestCoordinator| Who::Token(new.sign(&header("EdDSA", "new"), &claims(t, &provider, "looks")));
    for n in 0..20 {
        let token = new.sign(&header("EdDSA", &format!("guess-{n}")), &claims(&t, &provider, "looks"));
        t.get(&Who::Token(token), route::TASKS).await.problem(ProblemType::Unauthenticated);
    }
    t.get(&of_new(&t), route::TASKS).await.problem(ProblemType::Unauthenticated);
    assert_eq!(provider.asked(), 1);
    t.advance(Duration::from_secs(10));
    assert_eq!(t.get(&of_new(&t), route::TASKS).await.status, 200);
    assert_eq!(t.get(&who(&t, &provider, &old, "looks"), route::TASKS).await.status, 200);
    assert_eq!(provider.asked(), 2);
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_told_so_and_asked_for_again() {
    let key = Key::ed25519(1);
    let keys = vec![key.public("ed")];
    let provider = Provider::publishing(Vec::new()).await;
    let t = trusting(&provider, "").await;
    let wrong = [
        Answer::Status(500),
        Answer::Status(302),
        Answer::Text("<html>".to_owned()),
        Answer::Keys(Vec::new()),
        Answer::Keys(vec![json!({}); 10_000]),
        Answer::Keys(vec![key.public("ed"); 101]),
        Answer::Bytes(10 << 20),
    ];
    for (n, answer) in wrong.into_iter().enumerate() {
        provider.answer(answer);
        for _ in 0..2 {
            let reply = t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await;
            let detail = reply.problem(ProblemType::Unavailable);
            assert!(detail.contains("cannot be fetched") && !detail.contains("127.0.0.1"), "{detail}");
            assert_eq!(reply.headers["retry-after"], "5");
        }
        assert_eq!(provider.asked(), n + 1);
        assert_eq!(t.get(&t.viewer, route::TASKS).await.status, 200, "operator tokens need no provider");
        t.advance(Duration::from_secs(10));
    }
    provider.answer(Answer::Keys(keys));
    assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, 200);
}

#[tokio::test]
async fn old_keys_count_while_the_provider_is_away_but_not_for_ever() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let t = trusting(&provider, "jwks_max_age_ms = 3600000\n").await;
    assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, 200);
    provider.answer(Answer::Status(503));
    t.advance(Duration::from_millis(3_599_999));
    assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, 200);
    t.advance(Duration::from_millis(1));
    t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.problem(ProblemType::Unavailable);
    provider.answer(Answer::Keys(vec![key.public("ed")]));
    t.advance(Duration::from_secs(10));
    assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, 200);
}

/// A withdrawn key is valid until the keys are fetched again, in the background.
#[tokio::test]
async fn a_key_that_is_withdrawn_counts_no_longer_than_minutes() {
    let (old, new) = (Key::ed25519(1), Key::ed25519(2));
    let provider = Provider::publishing(vec![old.public("ed")]).await;
    let t = trusting(&provider, "").await;
    assert_eq!(t.get(&who(&t, &provider, &old, "looks"), route::TASKS).await.status, 200);
    provider.answer(Answer::Keys(vec![new.public("new")]));
    t.advance(Duration::from_secs(299));
    assert_eq!(t.get(&who(&t, &provider, &old, "looks"), route::TASKS).await.status, 200);
    assert_eq!(provider.asked(), 1, "they are fresh");
    t.advance(Duration::from_secs(1));
    let token = who(&t, &provider, &old, "looks");
    let refused = async {
        loop {
            let reply = t.get(&token, route::TASKS).await;
            if reply.status != 200 {
                return reply;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(120), refused).await.expect("it is fetched again");
    refused.problem(ProblemType::Unauthenticated);
    assert_eq!(provider.asked(), 2);
}

#[tokio::test]
async fn whoever_needs_no_fetch_does_not_wait_for_one() {
    let (old, new) = (Key::ed25519(1), Key::ed25519(2));
    let provider = Provider::publishing(vec![old.public("ed")]).await;
    let t = trusting(&provider, "timeout_ms = 20000\n").await;
    let of_old = who(&t, &provider, &old, "looks");
    assert_eq!(t.get(&of_old, route::TASKS).await.status, 200);
    provider.answer(Answer::Late(vec![old.public("ed"), new.public("new")]));
    t.advance(Duration::from_secs(10));
    let of_new = Who::Token(new.sign(&header("EdDSA", "new"), &claims(&t, &provider, "looks")));
    let waiting = t.get(&of_new, route::TASKS);
    let meanwhile = async {
        provider.is_waited_for().await;
        assert_eq!(t.get(&of_old, route::TASKS).await.status, 200);
        assert_eq!(t.get(&t.viewer, route::TASKS).await.status, 200);
        provider.let_go();
    };
    let (reply, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(reply.status, 200);
    assert_eq!(provider.asked(), 2);
}

/// A provider that does not answer in time is treated as unavailable, and a disconnecting caller does not cancel the request.
#[tokio::test]
async fn a_provider_that_does_not_answer_is_not_waited_for_long() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(Vec::new()).await;
    let t = trusting(&provider, "timeout_ms = 100\n").await;
    provider.answer(Answer::Late(vec![key.public("ed")]));
    t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.problem(ProblemType::Unavailable);

    let t = trusting(&provider, "timeout_ms = 20000\n").await;
    let token = who(&t, &provider, &key, "looks");
    provider.is_waited_for().await;
    tokio::select! {
        reply = t.get(&token, route::TASKS) => panic!("{reply:?} before the keys"),
        () = provider.is_waited_for() => {}
    }
    // The first coordinator's request is gone; this one waits for the fetch started by the dropped request.
    provider.let_go();
    provider.let_go();
    assert_eq!(t.get(&token, route::TASKS).await.status, 200);
    assert_eq!(provider.asked(), 2);
}

#[tokio::test]
async fn a_provider_may_say_itself_where_its_keys_are() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let discovering = OidcConfig { jwks_url: None, ..oidc(&provider, "") };
    let t = TestCoordinator::with(&Config { oidc: Some(discovering), ..config() }).await;
    let good = json!({ "issuer": provider.issuer, "jwks_uri": format!("{}/keys", provider.issuer) });
    let wrong = [
        json!({ "issuer": "https://evil.example", "jwks_uri": good["jwks_uri"] }),
        json!({ "issuer": provider.issuer, "jwks_uri": "http://evil.example/keys" }),
        json!({ "issuer": provider.issuer }),
        json!("no"),
    ];
    for document in wrong {
        provider.discovery(document);
        t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.problem(ProblemType::Unavailable);
        t.advance(Duration::from_secs(10));
    }
    assert_eq!(provider.asked(), 0);
    provider.discovery(good);
    assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, 200);
}

#[tokio::test]
async fn keys_come_from_a_server_that_is_vouched_for_alone() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(Vec::new()).await;
    let (url, ca, _served) = over_https(&[key.public("ed")]).await;
    let (_, stranger, _other) = over_https(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    for (n, (ca, status)) in [(ca, 200), (stranger, 503)].into_iter().enumerate() {
        let file = folder.path().join(format!("{n}.pem"));
        std::fs::write(&file, ca).unwrap();
        let oidc = OidcConfig { jwks_url: Some(url.clone()), ca_certificate_file: Some(file), ..oidc(&provider, "") };
        let t = TestCoordinator::with(&Config { oidc: Some(oidc), ..config() }).await;
        assert_eq!(t.get(&who(&t, &provider, &key, "looks"), route::TASKS).await.status, status);
    }
    assert_eq!(provider.asked(), 0);
}

#[tokio::test]
async fn a_stream_ends_with_its_identity_token() {
    let key = Key::ed25519(1);
    let provider = Provider::publishing(vec![key.public("ed")]).await;
    let t = trusting(&provider, "leeway_ms = 0\n").await;
    t.create_task(&small_task()).await;
    t.inner.engine.number_events().await.unwrap();
    let Who::Token(token) = who(&t, &provider, &key, "looks") else { panic!("no token") };
    let request =
        Request::get(route::EVENTS).extension(Connection::default()).header("authorization", format!("Bearer {token}"));
    let response = t.inner.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    t.advance(Duration::from_secs(300));
    assert_eq!(t.post(&t.operator, "/v1/tasks/small/pause", &json!({})).await.status, 200);
    t.inner.engine.number_events().await.unwrap();
    let rest = tokio::time::timeout(Duration::from_secs(120), response.into_body().collect()).await;
    let rest = rest.expect("the stream ends").unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&rest).contains("task_paused"), "{rest:?}");
}
