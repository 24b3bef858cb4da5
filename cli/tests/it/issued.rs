//! Devices that have their certificates from their company already: the coordinator is not an authority, and does not
//! sign certificates.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};
use wire::problem::{Problem, ProblemType};
use wire::route;

use crate::company::{Company, Issued, Says, client, device_id, participant};
use crate::support::{Background, Served, run, tributary};

/// A coordinator whose members have certificates of this company, and whose data lie in `data`.
fn serve(company: &Company, folder: &Path) -> Served {
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    company.serve(&data, &format!("members_ca_certificate_file = {:?}", data.join("company.pem")))
}

/// Every file under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// One of three members of a demo.
fn member(served: &Served, folder: &Path, index: usize, issued: &Issued, token: Option<&str>) -> Background {
    let mut command = tributary();
    command
        .args(["participant", "run", "--server", &served.url, "--ca", &served.ca, "--members-ca", &served.ca])
        .args(["--task", "demo", "--participants", "3", "--seed", "5", "--index", &index.to_string()])
        .args(["--min-cohort", "3", "--min-tolerated-colluders", "0"])
        .args(issued.flags())
        .arg("--journal")
        .arg(folder.join(format!("journal-{index}")))
        .stdout(Stdio::null());
    if let Some(token) = token {
        command.args(["--token", token]);
    }
    Background(command.spawn().unwrap())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_federation_runs_whose_coordinator_is_no_authority() {
    let folder = tempfile::tempdir().unwrap();
    let company = Company::new();
    let served = serve(&company, folder.path());
    let task = folder.path().join("task.toml");
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    assert_eq!(run(&demo).code, 0);
    let created = served.operate(&["task", "create", task.to_str().unwrap()]).data();
    assert_eq!(created["protection"]["certified_by"], "external_authority");

    let issued: Vec<_> =
        (0..3).map(|n| company.issue(folder.path(), &format!("device-{n}"), &Says::device(n))).collect();
    let members: Vec<_> =
        (0..3).map(|n| member(&served, folder.path(), n, &issued[n], Some(&served.enrollment_token()))).collect();
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for mut process in members {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    let listed = served.operate(&["participant", "list"]).data();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    assert!((0..3).all(|n| ids.contains(&device_id(n).to_string())), "the company names them: {listed}");

    // The folder is free of keys that sign certificates, and the coordinator did not make one.
    let secret = company.issuer.key().serialize_der();
    let texts = company.issuer.key().serialize_pem();
    let body: String = texts.lines().filter(|line| !line.starts_with('-')).collect();
    for file in files(&folder.path().join("data")) {
        let bytes = std::fs::read(&file).unwrap();
        let is_servers = file.file_name().unwrap() == "server-key.pem";
        assert!(!contains(&bytes, b"PRIVATE KEY") || is_servers, "{}", file.display());
        assert!(!contains(&bytes, &secret[16..48]) && !contains(&bytes, body.as_bytes()), "{}", file.display());
    }
    assert!(!folder.path().join("data/ca-key.pem").exists() && !folder.path().join("data/ca.pem").exists());

    // A newer certificate of the same device takes the place of its own, at the word of the one before.
    let until = |served: &Served| {
        let shown = served.operate(&["participant", "show", &device_id(0).to_string()]).data();
        shown["certificate_expires_at"].as_i64().unwrap()
    };
    let before = until(&served);
    let longer = Says { time: (-30, 2 * 86_400), ..Says::device(0) };
    let renewed = company.issue(folder.path(), "device-0-next", &longer);
    let mut again = member(&served, folder.path(), 0, &renewed, None);
    assert_eq!(again.0.wait().unwrap().code(), Some(0), "the task is over");
    assert!(until(&served) > before + 80_000_000, "{} {before}", until(&served));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kind = runtime.block_on(async { check_in(&served, &issued[0]).await.1 });
    assert_eq!(kind, Some(ProblemType::Unauthenticated), "the old one has ended");

    // An operator decides on membership.
    served.operate(&["participant", "revoke", &device_id(0).to_string()]).data();
    let mut revoked = member(&served, folder.path(), 0, &renewed, None);
    assert_eq!(revoked.0.wait().unwrap().code(), Some(6));
    let token = served.enrollment_token();
    let other = company.issue(folder.path(), "device-0-last", &longer);
    std::fs::create_dir(folder.path().join("anew")).unwrap();
    let mut anew = member(&served, &folder.path().join("anew"), 0, &other, Some(&token));
    assert_eq!(anew.0.wait().unwrap().code(), Some(6), "a certificate of the company is not enough");
}

/// A name that makes a certificate longer than any session of secure aggregation carries.
fn long_uri() -> Vec<String> {
    vec![format!("urn:other:{}", "x".repeat(2048))]
}

#[test]
fn a_device_says_what_is_wrong_with_its_certificate_before_it_sends_anything() {
    let folder = tempfile::tempdir().unwrap();
    let company = Company::new();
    let served = serve(&company, folder.path());
    let token = served.enrollment_token();
    let says = Says::device(7);
    let issue = |name: &str, says: &Says| company.issue(folder.path(), name, says);
    let good = issue("good", &says);
    let with_key = |key: &Issued| Issued { key: key.key.clone(), ..good.clone() };
    let p256 = Says { algorithm: &PKCS_ECDSA_P256_SHA256, ..says.clone() };
    let other = issue("other", &says);
    let cases = [
        (Company::new().issue(folder.path(), "foreign", &says), "not signed by an authority that may certify members"),
        (with_key(&other), "for another key"),
        (with_key(&issue("p256-key", &p256)), "private key is not Ed25519"),
        (Issued { key: other.key.clone(), ..issue("p256", &p256) }, "its key must be Ed25519"),
        (issue("nobody", &Says { uris: vec!["urn:other:7".to_owned()], ..says.clone() }), "and has 0"),
        (issue("two", &Says { uris: [says.uris.clone(), Says::device(8).uris].concat(), ..says.clone() }), "and has 2"),
        (issue("server", &Says { usages: vec![ExtendedKeyUsagePurpose::ServerAuth], ..says.clone() }), "clientAuth"),
        (issue("ca", &Says { is_ca: IsCa::Ca(BasicConstraints::Constrained(0)), ..says.clone() }), "basic constraints"),
        (issue("long", &Says { uris: [says.uris.clone(), long_uri()].concat(), ..says.clone() }), "at most 2048 bytes"),
        (issue("ended", &Says { time: (-90, -30), ..says.clone() }), "it ended at"),
        (Issued { certificate: folder.path().join("none.pem"), ..good.clone() }, "none.pem: No such file"),
    ];
    for (issued, expected) in cases {
        let flags = [&issued.flags()[..], &["--token", &token]].concat();
        let started = participant(&served, &folder.path().join("journal"), &flags);
        let first = started.first.clone().unwrap();
        let detail = first["detail"].as_str().unwrap_or_default();
        assert!(first["event"] == "failed" && detail.contains(expected), "{expected}: {first}");
        assert_eq!(started.end().1, 3, "{first}");
    }
    let listed = served.operate(&["participant", "list"]).data();
    assert_eq!(listed, json!([]));
    // The same token still admits one that is right.
    let flags = [&good.flags()[..], &["--token", &token]].concat();
    let started = participant(&served, &folder.path().join("journal"), &flags);
    assert_eq!(started.first.as_ref().unwrap()["participant"], json!(device_id(7)));
}

#[test]
fn a_device_whose_certificate_ended_comes_back_with_the_next_a_token_made_for_it_and_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let company = Company::new();
    let served = serve(&company, folder.path());
    let journal = folder.path().join("journal");
    let run = |issued: &Issued, token: &str| {
        participant(&served, &journal, &[&issued.flags()[..], &["--token", token]].concat())
    };
    let short = company.issue(folder.path(), "short", &Says { time: (-60, 3), ..Says::device(7) });
    let (_, code, complaint) = run(&short, &served.enrollment_token()).end();
    assert_eq!(code, 6, "{complaint}");
    assert!(complaint.contains("has expired") && complaint.contains("it needs a new one, too"), "{complaint}");
    let id = device_id(7).to_string();
    let made = served.operate(&["token", "create", "--enrollment", "--participant", &id]).data();
    let next = company.issue(folder.path(), "next", &Says::device(7));
    let again = run(&next, made["token"].as_str().unwrap());
    assert_eq!(again.first.as_ref().unwrap()["participant"], json!(device_id(7)));
}

#[test]
fn a_coordinator_does_not_start_with_a_certificate_that_signs_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    drop(serve(&Company::new(), folder.path()));
    let file = folder.path().join("data/coordinator.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let at = config.find("members_ca_certificate_file").unwrap();
    let start = |members: &str| {
        std::fs::write(&file, format!("{}{members}", &config[..at])).unwrap();
        run(&["serve", "--config", file.to_str().unwrap()])
    };
    let server = folder.path().join("data/server.pem");
    let ran = start(&format!("members_ca_certificate_file = {server:?}\n"));
    assert!(ran.code == 3 && ran.stderr.contains("is no certificate of an authority"), "{ran}");
    // Which of two would it be?
    let two = folder.path().join("two.pem");
    std::fs::write(&two, Company::new().pem + &Company::new().pem).unwrap();
    let ran = start(&format!("members_ca_certificate_file = {two:?}\n"));
    assert!(
        ran.code == 3 && ran.stderr.contains("holds 2 certificates") && ran.stderr.contains("exactly one"),
        "{ran}"
    );
    let ran = start("members_ca_certificate_file = \"/none.pem\"\n");
    assert!(ran.code == 3 && ran.stderr.contains("/none.pem"), "{ran}");
}

#[test]
fn a_device_without_a_certificate_is_told_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(&Company::new(), folder.path());
    let started = participant(&served, &folder.path().join("journal"), &["--token", &served.enrollment_token()]);
    let first = started.first.clone().unwrap();
    assert!(first["detail"].as_str().unwrap().contains("signs no certificates"), "{first}");
    assert_eq!(started.end().1, 6, "{first}");
}

async fn post(client: &reqwest::Client, served: &Served, path: &str, body: &Value) -> Option<(String, Value)> {
    let reply = client.post(format!("{}{path}", served.url)).json(body).send().await.ok()?;
    let is_good = reply.status().is_success();
    let body: Value = reply.json().await.unwrap();
    let kind = if is_good { None } else { serde_json::from_value::<Problem>(body.clone()).unwrap().problem_type() };
    Some((kind.map_or("", ProblemType::code).to_owned(), body))
}

async fn check_in(served: &Served, issued: &Issued) -> (Value, Option<ProblemType>) {
    let body = json!({ "examples": 10, "wait_ms": 0 });
    let (code, body) = post(&issued.client(served), served, route::CHECK_IN, &body).await.unwrap();
    (body, ProblemType::ALL.iter().copied().find(|kind| kind.code() == code))
}

/// A request that an honest SDK cannot send.
#[tokio::test]
async fn only_who_shows_a_certificate_of_the_company_is_admitted_for_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let company = Company::new();
    let served = serve(&company, folder.path());
    let issue = |name: &str, device| company.issue(folder.path(), name, &Says::device(device));
    let [mine, others] = [issue("mine", 1), issue("others", 2)];
    let enroll = async |shown: Option<&Issued>, body: Value| {
        let client = shown.map_or_else(|| client(&served.ca).build().unwrap(), |shown| shown.client(&served));
        let told = post(&client, &served, route::ENROLL, &body).await;
        told.map(|(code, body)| (code, body["detail"].as_str().unwrap_or_default().to_owned()))
    };
    let token = served.enrollment_token();
    let with = |issued: &Issued| json!({ "token": token, "certificate_pem": issued.pem() });
    let refused = async |shown: Option<&Issued>, body: Value, code: &str, words: &str| {
        let told = enroll(shown, body).await.unwrap();
        assert!(told.0 == code && told.1.contains(words), "{code} {words}: {told:?}");
    };

    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let request = json!({ "token": token, "csr_pem": csr });
    for shown in [None, Some(&mine)] {
        refused(shown, request.clone(), "certified-elsewhere", "certificate_pem instead of csr_pem").await;
    }
    refused(None, with(&mine), "unauthenticated", "TLS handshake").await;
    refused(Some(&others), with(&mine), "unauthenticated", "TLS handshake").await;
    let ended = company.issue(folder.path(), "ended", &Says { time: (-90, -30), ..Says::device(1) });
    refused(Some(&ended), with(&ended), "invalid-value", "it holds from").await;
    let p256 = Says { algorithm: &PKCS_ECDSA_P256_SHA256, ..Says::device(1) };
    let p256 = company.issue(folder.path(), "p256", &p256);
    refused(Some(&p256), with(&p256), "invalid-value", "must be Ed25519").await;
    let long = Says { uris: [Says::device(1).uris, long_uri()].concat(), ..Says::device(1) };
    let long = company.issue(folder.path(), "long", &long);
    refused(Some(&long), with(&long), "invalid-value", "at most 2048 bytes").await;
    let early = |seconds| Says { time: (seconds, 86_400), ..Says::device(4) };
    let too_early = company.issue(folder.path(), "too-early", &early(3600 + 600));
    refused(Some(&too_early), with(&too_early), "invalid-value", "it holds from").await;
    let foreign = Company::new().issue(folder.path(), "foreign", &Says::device(1));
    refused(Some(&mine), with(&foreign), "invalid-value", "none of the authorities").await;
    assert_eq!(enroll(Some(&foreign), with(&foreign)).await, None, "the handshake ends");
    refused(Some(&mine), json!({ "token": "guess", "certificate_pem": mine.pem() }), "enrollment-refused", "known")
        .await;
    // A certificate does not admit its holder by itself.
    assert_eq!(check_in(&served, &mine).await.1, Some(ProblemType::Unauthenticated));

    for _ in 0..2 {
        assert_eq!(enroll(Some(&mine), with(&mine)).await.unwrap().0, "", "the answer may get lost");
    }
    assert_eq!(check_in(&served, &mine).await.1, None);
    refused(Some(&others), with(&others), "enrollment-refused", "used before").await;
    // An attacker with another certificate of the same device, for example a stolen old one, and any token.
    let stolen = issue("stolen", 1);
    let token = served.enrollment_token();
    let with = |issued: &Issued| json!({ "token": token, "certificate_pem": issued.pem() });
    refused(Some(&stolen), with(&stolen), "enrollment-refused", "is enrolled with another").await;
    assert_eq!(enroll(Some(&others), with(&others)).await.unwrap().0, "", "a refusal costs no token");

    // Our clock may be behind the company's.
    let (token, early) = (served.enrollment_token(), company.issue(folder.path(), "early", &early(1800)));
    let with = |issued: &Issued| json!({ "token": token, "certificate_pem": issued.pem() });
    assert_eq!(enroll(Some(&early), with(&early)).await.unwrap().0, "");
    assert_eq!(check_in(&served, &early).await.1, None);

    let next = issue("next", 1);
    let renew = async |shown: &Issued, body: Value| {
        let (code, body) = post(&shown.client(&served), &served, route::RENEW, &body).await.unwrap();
        (code, body["detail"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(renew(&mine, json!({ "csr_pem": csr })).await.0, "certified-elsewhere");
    let told = renew(&mine, json!({ "certificate_pem": issue("others-next", 2).pem() })).await;
    assert!(told.0 == "invalid-value" && told.1.contains("yours must name"), "{told:?}");
    assert_eq!(renew(&next, json!({ "certificate_pem": next.pem() })).await.0, "unauthenticated", "not by itself");
    // The thief of the key would also get the next certificate.
    let key = rcgen::KeyPair::from_pem(&std::fs::read_to_string(&mine.key).unwrap()).unwrap();
    let same = company.issue_for(&key, folder.path(), "same", &Says::device(1));
    let told = renew(&mine, json!({ "certificate_pem": same.pem() })).await;
    assert!(told.0 == "invalid-value" && told.1.contains("for a new key"), "{told:?}");
    assert_eq!(renew(&mine, json!({ "certificate_pem": next.pem() })).await.0, "");
    // Not heard of yet, or used: then the one before has ended.
    assert_eq!(check_in(&served, &mine).await.1, None);
    assert_eq!(check_in(&served, &next).await.1, None);
    assert_eq!(check_in(&served, &mine).await.1, Some(ProblemType::Unauthenticated));
    assert_eq!(renew(&mine, json!({ "certificate_pem": mine.pem() })).await.0, "unauthenticated");

    // Away for longer than its certificate: a token made only for it.
    let made = served.operate(&["token", "create", "--enrollment", "--participant", &device_id(1).to_string()]).data();
    let token = made["token"].as_str().unwrap().to_owned();
    let [late, anothers] = [issue("late", 1), issue("another", 3)];
    let with = |issued: &Issued| json!({ "token": token, "certificate_pem": issued.pem() });
    refused(Some(&anothers), with(&anothers), "enrollment-refused", "for another participant").await;
    assert_eq!(enroll(Some(&late), with(&late)).await.unwrap().0, "");
    assert_eq!(check_in(&served, &next).await.1, Some(ProblemType::Unauthenticated));
    assert_eq!(check_in(&served, &late).await.1, None);
}
