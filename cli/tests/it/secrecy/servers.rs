//! A coordinator has credentials of its database, its blob store and its identity provider, and the key of its
//! certificate. All of its output is free of them.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use test_servers::postgres::{Cluster, Options, USER};
use test_servers::s3::{S3Server, SECRET_KEY};
use wire::headers::{REQUEST, REQUEST_OF_DASHBOARD};
use wire::route;

use super::outside::Outside;
use super::participants::Secrets;
use super::provider::{ACCESS, CLIENT_SECRET, CODE, Provider};
use super::search::Search;
use crate::company::{Company, client};
use crate::replicas::Site;
use crate::support::Served;

const PASSWORD: &str = "Tb6kJ4-of-the-database-only-3Gp9";
/// Path to which the provider sends browsers back.
const CALLBACK: &str = "/sign-in/callback";

/// Starts a coordinator with a certificate of the company, and its whole log in a file.
fn serve(folder: &Path, site: &Site, company: &Company, log: &Path) -> Served {
    let mut command = site.command("serve", 0);
    command.env("TRIBUTARY_HTTP_LISTEN", "127.0.0.1:0").env("TRIBUTARY_TELEMETRY_LEVEL", "trace");
    command.stderr(fs::File::create(log).unwrap());
    let ca = folder.join("company.pem");
    fs::write(&ca, &company.pem).unwrap();
    Served { ca: ca.display().to_string(), ..Served::until_in_words(command, "serving") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_tells_a_secret_of_the_servers_that_a_coordinator_asks() {
    let access = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let files = vec![("pg_hba.conf".to_owned(), access.to_owned())];
    let Some(cluster) = Cluster::start(Options { tcp: true, files, ..Options::default() }) else { return };
    let database = cluster.create_database();
    cluster.sql("postgres", &format!("ALTER USER {USER} PASSWORD '{PASSWORD}'"));
    let (mut blobs, provider, company) = (S3Server::start(), Provider::start().await, Company::new());
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let at = |name: &str| folder.join(name).display().to_string();
    fs::write(at("password"), PASSWORD).unwrap();
    fs::write(at("client-secret"), CLIENT_SECRET).unwrap();
    let (certificate, key) = company.server(folder);
    let url = format!("postgres://{USER}@127.0.0.1:{}/{database}", cluster.port());
    let site = Site::new(folder, &url, &blobs)
        .with("TRIBUTARY_DATABASE_PASSWORD_FILE", &at("password"))
        .with("TRIBUTARY_HTTP_CERTIFICATE_FILE", certificate.to_str().unwrap())
        .with("TRIBUTARY_HTTP_KEY_FILE", key.to_str().unwrap());
    // The site's sealing key is the public half of its authority's key, which certificates show.
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    fs::write(at("keys/seal.key"), other.public_key_raw()).unwrap();
    let config = fs::read_to_string(at("coordinator.toml")).unwrap();
    fs::write(at("coordinator.toml"), config + &provider.configuration(&at("client-secret"))).unwrap();
    let log = folder.join("log");
    let served = serve(folder, &site, &company, &log);

    let mut secrets = Secrets::of_coordinator(&folder.join("keys"), &served.token);
    secrets.add_key("the server's TLS key", &key);
    secrets.add("the database's password", PASSWORD.as_bytes());
    // Its beginning is the name of the access key, too.
    secrets.add("the key of the store of blobs", &SECRET_KEY.as_bytes()[SECRET_KEY.len() - 15..]);
    secrets.add("the secret of the client", CLIENT_SECRET.as_bytes());
    secrets.add("an authorization code", CODE.as_bytes());
    secrets.add("an access token", ACCESS.as_bytes());
    let browser = client(&served.ca).redirect(reqwest::redirect::Policy::none()).build().unwrap();
    sign_in(&browser, &served, &provider, &mut secrets).await;
    let mut places = with_tokens(&browser, &served, &provider, &mut secrets).await;

    let outside = Outside::new(&served);
    outside.create(&super::task("plain")).await;
    blobs.kill();
    places.push(("/readyz without blobs".to_owned(), readiness(&browser, &served, 503).await));
    blobs.restart();
    readiness(&browser, &served, 200).await;
    places.extend(outside.collect(&["plain"], &log, &folder.join("exports")).await);
    let search = Search::of(secrets.all());
    for (place, bytes) in &places {
        assert_eq!(search.find(bytes), None, "{place}");
    }
    super::assert_planted_is_found(&search, &secrets, &places);
}

/// A browser signs in at the provider, and looks at the tasks.
async fn sign_in(browser: &Client, served: &Served, provider: &Provider, secrets: &mut Secrets) {
    let at = |path: &str| format!("{}{path}", served.url);
    let ours =
        |request: RequestBuilder| request.header(REQUEST, REQUEST_OF_DASHBOARD).header("sec-fetch-site", "same-origin");
    let begun = ours(browser.post(at(route::SIGN_IN_AUTHORIZATION))).json(&json!({})).send().await.unwrap();
    let begun = begun.error_for_status().unwrap();
    let away = cookie(&begun, "__Host-tributary-away");
    secrets.add("the secret of a way to the provider", away.as_bytes());
    let begun: Value = begun.json().await.unwrap();
    let page = url::Url::parse(begun["url"].as_str().unwrap()).unwrap();
    let field = |name: &str| page.query_pairs().find(|(known, _)| known == name).unwrap().1.into_owned();
    provider.expect(&field("nonce"));

    let mut back = url::Url::parse(&at(CALLBACK)).unwrap();
    back.query_pairs_mut().append_pair("code", CODE).append_pair("state", &field("state"));
    let back = browser.get(back).header("cookie", format!("__Host-tributary-away={away}")).send().await.unwrap();
    assert_eq!(back.status(), 303, "{:?}", provider.seen());
    let signed_in = cookie(&back, "__Host-tributary");
    secrets.add("the secret of a sign-in", signed_in.as_bytes());
    let cookie = format!("__Host-tributary={signed_in}");
    let looked = browser.get(at(route::TASKS)).header("cookie", cookie).send().await.unwrap();
    assert_eq!(looked.status(), 200);
    for (what, secret) in provider.seen() {
        // All tokens begin alike.
        secret
            .split('.')
            .filter(|part| !part.starts_with("eyJhbGci"))
            .for_each(|part| secrets.add(what, part.as_bytes()));
    }
}

/// The answers to a token of the provider, and to one for another audience.
async fn with_tokens(
    browser: &Client,
    served: &Served,
    provider: &Provider,
    secrets: &mut Secrets,
) -> Vec<(String, Vec<u8>)> {
    let mut places = Vec::new();
    for (audience, status) in [("tributary", 200_u16), ("others", 401)] {
        let token = provider.token(audience);
        token.split('.').skip(1).for_each(|part| secrets.add("a token of the provider", part.as_bytes()));
        let url = format!("{}{}", served.url, route::TASKS);
        let answer = browser.get(url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status(), status, "for {audience}");
        places.push((format!("tasks, with a token for {audience}"), answer.bytes().await.unwrap().to_vec()));
    }
    places
}

/// Waits until `/readyz` answers with this status; its body.
async fn readiness(browser: &Client, served: &Served, status: u16) -> Vec<u8> {
    for _ in 0..600 {
        let answer = browser.get(format!("{}{}", served.url, route::READYZ)).send().await.unwrap();
        if answer.status() == status {
            return answer.bytes().await.unwrap().to_vec();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it never answers with {status}");
}

/// The value of the cookie that an answer sets.
fn cookie(answer: &Response, name: &str) -> String {
    let set = answer.headers().get_all("set-cookie").iter().map(|set| set.to_str().unwrap());
    let named = set.filter_map(|set| set.split(';').next()?.split_once('=')).find(|(known, _)| *known == name);
    named.unwrap().1.to_owned()
}
