//! Who may ask: bearers of the coordinator's tokens for the model, and nobody else.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use wire::admin::OperatorTokenReply;

use super::Models;
use crate::company::client;
use crate::support::{Served, run};

/// Files of an authority, and of a server's and a client's certificates from it.
struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    client: Vec<u8>,
}

fn files(folder: &Path) -> Files {
    let authority_key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let made = |name: &str| {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ((certificate, key), (client, client_key)) = (made("127.0.0.1"), made("ward-7"));
    Files {
        ca: write("models-ca.pem", &ca.pem()),
        certificate: write("models.pem", &certificate),
        key: write("models-key.pem", &key),
        client: (client_key + &client).into_bytes(),
    }
}

async fn asked(url: &str, client: &reqwest::Client, token: Option<&str>) -> (u16, Value) {
    let mut request = client.post(format!("{url}/v2/models/demo/infer")).body(super::asked(&[0.25; 60]).to_string());
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    super::answer(request).await
}

#[tokio::test]
async fn tokens_and_certificates_let_in_whom_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::demo(&folder.path().join("data"), &["--rounds", "1", "--participants", "3"]);
    let Files { ca, certificate, key, client: identity } = files(folder.path());
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let place = folder.path().join("models");
    let flags = ["--from", &served.url, "--ca", &served.ca, "--token", &served.token, "--task", "demo"];
    let tls = ["--certificate", &text(&certificate), "--key", &text(&key), "--client-ca", &text(&ca)];
    let models = Models::serve(&place, &[&flags[..], &tls].concat());
    models.until_answers(1).await;
    let url = models.url.clone();
    let stranger = client(&text(&ca)).build().unwrap();

    let (status, answer) = asked(&url, &stranger, None).await;
    assert!(status == 401 && answer["error"].as_str().unwrap().contains("needs a token"), "{answer}");
    assert_eq!(asked(&url, &stranger, Some("wrong")).await.0, 401);
    let made = |args: &[&str]| -> String {
        let args = [&["token", "create", "--name", "ward"][..], args].concat();
        served.operate(&args).data()["token"].as_str().unwrap().to_owned()
    };
    let predictor = made(&["--role", "predictor", "--task", "demo", "--valid-for", "1h"]);
    let (status, answer) = asked(&url, &stranger, Some(&predictor)).await;
    assert_eq!((status, &answer["model_version"]), (200, &json!("1")), "{answer}");
    assert_eq!(served.operate_as(&predictor, &["model", "list", "demo"]).code, 6, "nothing of the coordinator");

    let task = folder.path().join("other.toml");
    std::fs::write(&task, crate::operator::TASK).unwrap();
    served.operate(&["task", "create", &text(&task)]).data();
    let other = made(&["--role", "predictor", "--task", "digits"]);
    let (status, answer) = asked(&url, &stranger, Some(&other)).await;
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("no model is called"), "{answer}");
    let short = json!({ "name": "short", "role": "predictor", "valid_for_ms": 1 });
    let tokens = format!("{}/v1/operator-tokens", served.url);
    let answer = client(&served.ca).build().unwrap().post(tokens).bearer_auth(&served.token).json(&short).send().await;
    let expired: OperatorTokenReply = answer.unwrap().json().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(asked(&url, &stranger, Some(&expired.token)).await.0, 401);

    let certified = client(&text(&ca)).identity(reqwest::Identity::from_pem(&identity).unwrap()).build().unwrap();
    assert_eq!(asked(&url, &certified, None).await.0, 200, "a certificate of the authority for clients lets in, too");
    let back = |token: &str| {
        run(&["--format", "json", "infer", "rollback", "demo", "--at", &url, "--ca", &text(&ca), "--token", token])
    };
    assert_eq!(back(&predictor).code, 6, "a predictor rolls nothing back");
    assert_eq!(back(&served.token).code, 8, "there is no version before");

    drop(served);
    assert_eq!(asked(&url, &stranger, Some(&predictor)).await.0, 200, "who was known goes on");
    assert_eq!(asked(&url, &stranger, Some("another")).await.0, 503, "and nobody else is let in");
}

#[test]
fn nobody_is_let_in_by_nothing_where_others_can_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    super::publish(folder.path(), 1, &super::parameters(1));
    let models = folder.path().to_str().unwrap();
    let ran = run(&["infer", "serve", "--models", models, "--listen", "0.0.0.0:0"]);
    assert!(ran.code == 2 && ran.stderr.contains("without --certificate and --key"), "{ran}");
    let Files { certificate, key, .. } = files(folder.path());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let ran = run(&[
        "infer",
        "serve",
        "--models",
        models,
        "--listen",
        "0.0.0.0:0",
        "--certificate",
        certificate,
        "--key",
        key,
    ]);
    assert!(ran.code == 2 && ran.stderr.contains("say who may ask"), "{ran}");
}
