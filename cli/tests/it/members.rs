//! Who certifies members: an app that pins its company's authority takes part with members of that authority alone.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519,
    SanType,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::support::{Background, Served, run, tributary};

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

/// What the company's signer does.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Signs,
    Refuses,
    IsBroken,
}

/// The company's signer, over TLS, until the test ends.
struct Hook {
    url: String,
    mood: Arc<Mutex<Mood>>,
    /// Every request's token.
    tokens: Arc<Mutex<Vec<String>>>,
}

impl Company {
    /// Signs the key of a request, as the hook is asked to.
    fn sign(&self, asked: &Value) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(asked["csr_pem"].as_str().unwrap()).unwrap();
        let urn = format!("urn:tributary:participant:{}", asked["participant"].as_str().unwrap());
        request.params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        let end = time::OffsetDateTime::from_unix_timestamp(now_s() + asked["lifetime_s"].as_i64().unwrap()).unwrap();
        request.params.not_after = end;
        request.signed_by(&self.issuer).unwrap().pem()
    }

    fn hook(self: &Arc<Self>, folder: &Path) -> Hook {
        let (certificate, key) = self.server(folder);
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap());
        let tls = Arc::new(tls.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}/sign", listener.local_addr().unwrap().port());
        let (mood, tokens) = (Arc::new(Mutex::new(Mood::Signs)), Arc::new(Mutex::new(Vec::new())));
        let hook = Hook { url, mood: Arc::clone(&mood), tokens: Arc::clone(&tokens) };
        let company = Arc::clone(self);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut connection = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut socket);
                let Some((head, body)) = read_request(&mut stream) else { continue };
                let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
                tokens.lock().unwrap().push(token.unwrap_or_default().to_owned());
                let (status, body) = match *mood.lock().unwrap() {
                    Mood::Signs => ("200 OK", json!({ "certificate_pem": company.sign(&body) }).to_string()),
                    Mood::Refuses => ("403 Forbidden", String::new()),
                    // Another authority of the same name.
                    Mood::IsBroken => ("200 OK", json!({ "certificate_pem": Company::new().sign(&body) }).to_string()),
                };
                let length = body.len();
                let _ =
                    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                let _ = stream.flush();
                connection.send_close_notify();
                let _ = connection.write_tls(&mut socket);
            }
        });
        hook
    }
}

#[expect(clippy::cast_possible_wrap, reason = "seconds since 1970")]
fn now_s() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The head of a request and its JSON; none if whoever began it went away.
fn read_request(stream: &mut impl Read) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())?;
        if body.len() >= length {
            return Some((head.to_owned(), serde_json::from_str(body).unwrap()));
        }
    }
}

#[test]
fn a_federation_runs_whose_coordinator_never_has_the_members_key() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let company = Arc::new(Company::new());
    std::fs::create_dir(at("signer")).unwrap();
    let hook = company.hook(&at("signer"));
    std::fs::write(at("token"), "secret of the hook\n").unwrap();
    let ca = at("company.pem");
    let identity = format!(
        "members_ca_certificate_file = {ca:?}\n[identity.signer]\nurl = {:?}\nca_certificate_file = {ca:?}\n\
         token_file = {:?}\ntimeout_ms = 5000",
        hook.url,
        at("token"),
    );
    let served = company.serve(folder.path(), &identity);

    // Whom the company does not know, the coordinator cannot certify.
    *hook.mood.lock().unwrap() = Mood::Refuses;
    let refused = participant(&served, &at("journal-0"), &["--token", &enrollment_token(&served)]);
    let first = refused.first.clone().unwrap();
    let (_, code, complaint) = refused.end();
    assert_eq!(code, 6, "{first} {complaint}");
    assert!(complaint.contains("refused to certify"), "{complaint}");

    // What comes back is judged; a participant asks again and is told no more than that.
    *hook.mood.lock().unwrap() = Mood::IsBroken;
    let token = enrollment_token(&served);
    let arguments = |index: usize| {
        [
            "--min-cohort".to_owned(),
            "3".to_owned(),
            "--min-tolerated-colluders".to_owned(),
            "0".to_owned(),
            "--participants".to_owned(),
            "3".to_owned(),
            "--seed".to_owned(),
            "5".to_owned(),
            "--index".to_owned(),
            index.to_string(),
        ]
    };
    let start = |index: usize, token: &str| {
        let mut command = tributary();
        command
            .args([
                "participant",
                "run",
                "--server",
                &served.url,
                "--ca",
                &served.ca,
                "--task",
                "demo",
                "--token",
                token,
            ])
            .args(arguments(index))
            .arg("--journal")
            .arg(at(&format!("journal-{}", index + 1)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Background(command.spawn().unwrap())
    };
    let mut waiting = start(0, &token);
    let mut notes = BufReader::new(waiting.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let note = notes.find(|line| line.contains("not to be had now"));
    assert!(note.is_some_and(|note| !note.contains("signed")), "the peer is not told why");

    // As soon as the company signs, three participants run a round of secure aggregation.
    *hook.mood.lock().unwrap() = Mood::Signs;
    let task = at("task.toml");
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    assert_eq!(run(&demo).code, 0);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let others: Vec<_> = (1..3).map(|index| start(index, &enrollment_token(&served))).collect();
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for mut process in others.into_iter().chain([waiting]) {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    assert!(hook.tokens.lock().unwrap().iter().all(|token| token == "secret of the hook"));
}
