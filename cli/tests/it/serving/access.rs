//! Access to predictions and rollbacks: only with tokens for the model or with client certificates.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use wire::admin::OperatorTokenReply;

use super::Models;
use crate::company::{Issued, client};
use crate::support::{Ran, Served, run};

/// Files of an authority, and of certificates from it: for a server, a client, and an operator.
struct Files {
    ca: PathBuf,
    server: Issued,
    ward: Issued,
    operator: Issued,
}

fn files(folder: &Path) -> Files {
    let authority_key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let made = |name: &str| {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        Issued {
            certificate: write(&format!("{name}.pem"), &certificate.pem()),
            key: write(&format!("{name}-key.pem"), &key.serialize_pem()),
        }
    };
    let ca = write("models-ca.pem", &ca.pem());
    Files { ca, server: made("127.0.0.1"), ward: made("ward-7"), operator: made("operator") }
}

impl Files {
    fn ca(&self) -> &str {
        self.ca.to_str().unwrap()
    }

    /// Flags of a server that takes certificates of the authority, and lets one of them roll back.
    fn flags(&self) -> [&str; 8] {
        let [certificate, server, key, server_key] = self.server.flags();
        let operators = self.operator.certificate.to_str().unwrap();
        [certificate, server, key, server_key, "--client-ca", self.ca(), "--operators", operators]
    }

    /// A client that shows this certificate.
    fn client_of(&self, shown: &Issued) -> reqwest::Client {
        let pem = std::fs::read_to_string(&shown.key).unwrap() + &shown.pem();
        client(self.ca()).identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap()).build().unwrap()
    }

    /// One command back, with more flags.
    fn roll_back(&self, model: &str, url: &str, more: &[&str]) -> Ran {
        let command = ["--format", "json", "infer", "rollback", model, "--at", url, "--ca", self.ca()];
        run(&[&command[..], more].concat())
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
    let files = files(folder.path());
    let place = folder.path().join("models");
    let flags = ["--from", &served.url, "--ca", &served.ca, "--token", &served.token, "--task", "demo"];
    let models = Models::serve(&place, &[&flags[..], &files.flags()].concat());
    models.until_answers(1).await;
    let url = models.url.clone();
    let stranger = client(files.ca()).build().unwrap();

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
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let other = made(&["--role", "predictor", "--task", "digits"]);
    let (status, answer) = asked(&url, &stranger, Some(&other)).await;
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("no model is called"), "{answer}");
    let short = json!({ "name": "short", "role": "predictor", "valid_for_ms": 1 });
    let tokens = format!("{}/v1/operator-tokens", served.url);
    let answer = client(&served.ca).build().unwrap().post(tokens).bearer_auth(&served.token).json(&short).send().await;
    let expired: OperatorTokenReply = answer.unwrap().json().await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(asked(&url, &stranger, Some(&expired.token)).await.0, 401);

    let certified = files.client_of(&files.ward);
    assert_eq!(asked(&url, &certified, None).await.0, 200, "a certificate of the authority for clients lets in, too");
    let back = |more: &[&str]| files.roll_back("demo", &url, more);
    assert_eq!(back(&["--token", &predictor]).code, 6, "a predictor rolls nothing back");
    assert_eq!(back(&["--token", &served.token]).code, 8, "there is no version before");
    let ward = files.ward.flags();
    assert_eq!(back(&ward).code, 6, "nor does a certificate that is not among the operators'");
    let both = [&ward[..], &["--token", &served.token]].concat();
    assert_eq!(back(&both).code, 8, "a token allows what the certificate does not");

    drop(served);
    assert_eq!(back(&files.operator.flags()).code, 8, "an operator's certificate needs no coordinator");
    assert_eq!(asked(&url, &stranger, Some(&predictor)).await.0, 200, "who was known goes on");
    assert_eq!(asked(&url, &stranger, Some("another")).await.0, 503, "and nobody else is let in");
}

#[tokio::test]
async fn without_tokens_an_operators_certificate_rolls_back_and_another_only_asks() {
    let (folder, identities) = (super::folder(), tempfile::tempdir().unwrap());
    let files = files(identities.path());
    let models = Models::serve(folder.path(), &files.flags());
    super::publish(folder.path(), 2, &super::parameters(1));
    models.until_answers(2).await;
    let url = models.url.clone();

    let ward = files.client_of(&files.ward);
    let asks = ward.post(format!("{url}/v2/models/digits/infer")).body(super::asked(&super::row(1)).to_string());
    assert_eq!(super::answer(asks).await.0, 200);
    let path = format!("{url}/tributary/models/digits/rollback");
    let (status, problem) = super::answer(ward.post(&path)).await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 403 && detail.contains("does not hold the one with the SHA-256"), "{problem}");
    let (status, problem) = super::answer(client(files.ca()).build().unwrap().post(&path)).await;
    assert!(status == 401 && problem["detail"].as_str().unwrap().contains("a client certificate"), "{problem}");

    let back = |more: &[&str]| files.roll_back("digits", &url, more);
    for refused in [back(&files.ward.flags()), back(&[]), back(&["--token", "whose"])] {
        assert_eq!(refused.code, 6, "{refused}");
    }
    assert_eq!(models.metric("tributary_infer_version{", "side=\"stable\"").await, 2.0);
    assert_eq!(back(&files.operator.flags()).data(), json!({ "name": "digits", "version": "1" }));
    models.until_answers(1).await;
}

#[test]
fn a_rollback_says_what_is_wrong_with_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let [certificate, shown, key, _] = files.ward.flags();
    let refused = |url: &str, more: &[&str], code: i32, words: &str| {
        let ran = files.roll_back("digits", url, more);
        assert!(ran.code == code && ran.stderr.contains(words), "{words}: {ran}");
    };
    // The address is closed: the command fails before it sends a request.
    let nobody = "https://127.0.0.1:1";
    refused("http://127.0.0.1:1", &files.ward.flags(), 2, "--certificate requires TLS");
    refused(nobody, &[certificate, shown], 2, "--key");
    refused(nobody, &[certificate, shown, key, shown], 3, "hold no certificate and key in PEM");
    refused(nobody, &[certificate, shown, key, files.operator.key.to_str().unwrap()], 3, "cannot set up TLS");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let ran = run(&["infer", "rollback", "digits", "--at", nobody, "--ca", empty.to_str().unwrap()]);
    assert!(ran.code == 3 && ran.stderr.contains("empty.pem holds no certificate in PEM"), "{ran}");
}

#[test]
fn nobody_is_let_in_by_nothing_where_others_can_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    super::publish(folder.path(), 1, &super::parameters(1));
    let models = folder.path().to_str().unwrap();
    let ran = run(&["infer", "serve", "--models", models, "--listen", "0.0.0.0:0"]);
    assert!(ran.code == 2 && ran.stderr.contains("without --certificate and --key"), "{ran}");
    let identities = tempfile::tempdir().unwrap();
    let files = files(identities.path());
    let serve = |more: &[&str]| {
        let command = ["infer", "serve", "--models", models, "--listen", "0.0.0.0:0"];
        run(&[&command[..], &files.server.flags(), more].concat())
    };
    let ran = serve(&[]);
    assert!(ran.code == 2 && ran.stderr.contains("say who may ask"), "{ran}");
    let ran = serve(&["--operators", files.ca()]);
    assert!(ran.code == 2 && ran.stderr.contains("--client-ca"), "{ran}");
    let key = files.operator.key.to_str().unwrap();
    let ran = serve(&["--client-ca", files.ca(), "--operators", key]);
    assert!(ran.code == 3 && ran.stderr.contains("operator-key.pem holds no certificate in PEM"), "{ran}");
}
