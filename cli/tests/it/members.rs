//! Who certifies members: an app that pins its company's authority takes part with members of that authority alone.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519};
use serde_json::Value;

use crate::support::{Background, Served, tributary};

/// A company's authority, whose key no coordinator has.
struct Company {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Company {
    fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Company CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for `localhost` and its key, in two files.
    fn server(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = (folder.join("server.pem"), folder.join("server-key.pem"));
        std::fs::write(&files.0, certificate.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    /// A coordinator that shows a certificate of the company, with `identity` in its configuration.
    fn serve(&self, folder: &Path, identity: &str) -> Served {
        let (certificate, key) = self.server(folder);
        let ca = folder.join("company.pem");
        std::fs::write(&ca, &self.pem).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\ncertificate_file = {certificate:?}\nkey_file = {key:?}\n\
             [database]\nurl = \"sqlite:{}\"\n[blobs]\nurl = \"file:{}\"\n\
             [identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n{identity}\n",
            at("rows.db"),
            at("blobs"),
            at("ca.pem"),
            at("ca-key.pem"),
        );
        let file = folder.join("coordinator.toml");
        std::fs::write(&file, config).unwrap();
        Served { ca: ca.display().to_string(), ..Served::configured(&file) }
    }
}

/// The first event of a participant, and the process.
struct Started {
    process: Background,
    first: Option<Value>,
    lines: Box<dyn Iterator<Item = Value>>,
}

fn participant(served: &Served, folder: &Path, more: &[&str]) -> Started {
    let mut child = tributary()
        .args(["--format", "json", "participant", "run", "--server", &served.url, "--ca", &served.ca])
        .args(["--task", "demo", "--journal"])
        .arg(folder)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    Started { process: Background(child), first: lines.next(), lines: Box::new(lines) }
}

impl Started {
    /// Waits for its end: everything it said after its first event, its exit code, and its complaint.
    fn end(mut self) -> (Vec<Value>, i32, String) {
        let rest = self.lines.collect();
        let code = self.process.0.wait().unwrap().code().unwrap();
        let mut complaint = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        (rest, code, complaint)
    }
}

fn enrollment_token(served: &Served) -> String {
    served.operate(&["token", "create", "--enrollment"]).data()["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_coordinator_that_certifies_members_itself_is_refused_by_who_pins_a_company() {
    let folder = tempfile::tempdir().unwrap();
    let served = Company::new().serve(folder.path(), "");
    let token = enrollment_token(&served);
    let started = participant(&served, &folder.path().join("journal"), &["--token", &token]);
    let first = started.first.clone().unwrap();
    assert_ne!(first["event"], "enrolled", "the coordinator's own authority was taken: {first}");
    let (_, code, complaint) = started.end();
    assert_eq!(code, 5, "{first} {complaint}");
    assert!(format!("{first}{complaint}").contains("members"), "{first} {complaint}");
}
