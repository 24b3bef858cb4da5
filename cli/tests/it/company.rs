//! A company with an authority of its own, whose key is kept from coordinators: its certificates and its services.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, PKCS_ED25519, SanType, SignatureAlgorithm,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use wire::ParticipantId;

use crate::support::{Background, Served, tributary};

/// A company's authority, whose key is kept from coordinators.
pub(crate) struct Company {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Company {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Company CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority of the coordinator whose data is in this folder.
    pub(crate) fn of_coordinator(data: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
        let (pem, key) = (read("ca.pem"), KeyPair::from_pem(&read("ca-key.pem")).unwrap());
        Self { issuer: Issuer::from_ca_cert_pem(&pem, key).unwrap(), pem }
    }

    /// A certificate for `localhost` and its key, in two files.
    pub(crate) fn server(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = (folder.join("server.pem"), folder.join("server-key.pem"));
        std::fs::write(&files.0, certificate.pem()).unwrap();
        std::fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    /// A coordinator that shows a certificate of the company, with `identity` in its configuration.
    pub(crate) fn serve(&self, folder: &Path, identity: &str) -> Served {
        let (certificate, key) = self.server(folder);
        let ca = folder.join("company.pem");
        std::fs::write(&ca, &self.pem).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\npoll_max_ms = 2000\ncertificate_file = {certificate:?}\nkey_file = {key:?}\n\
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
pub(crate) struct Started {
    pub(crate) process: Background,
    pub(crate) first: Option<Value>,
    pub(crate) lines: Box<dyn Iterator<Item = Value>>,
}

pub(crate) fn participant(served: &Served, folder: &Path, more: &[&str]) -> Started {
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
    pub(crate) fn end(mut self) -> (Vec<Value>, i32, String) {
        let rest = self.lines.collect();
        let code = self.process.0.wait().unwrap().code().unwrap();
        let mut complaint = String::new();
        self.process.0.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        (rest, code, complaint)
    }
}

/// Behaviour of the company's signer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mood {
    Signs,
    Refuses,
    IsBroken,
    IsSilent,
}

/// The company's signer, over TLS, until the test ends.
pub(crate) struct Hook {
    pub(crate) url: String,
    pub(crate) mood: Arc<Mutex<Mood>>,
    /// Every request's token.
    pub(crate) tokens: Arc<Mutex<Vec<String>>>,
}

impl Company {
    /// Signs the key of a request, as the hook must.
    pub(crate) fn sign(&self, asked: &Value) -> String {
        let mut request = CertificateSigningRequestParams::from_pem(asked["csr_pem"].as_str().unwrap()).unwrap();
        let urn = format!("urn:tributary:participant:{}", asked["participant"].as_str().unwrap());
        request.params.subject_alt_names = vec![SanType::URI(urn.as_str().try_into().unwrap())];
        let end = time::OffsetDateTime::from_unix_timestamp(now_s() + asked["lifetime_s"].as_i64().unwrap()).unwrap();
        request.params.not_after = end;
        request.signed_by(&self.issuer).unwrap().pem()
    }

    pub(crate) fn hook(self: &Arc<Self>, folder: &Path) -> Hook {
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
            // Connections that stay silent.
            let mut silent = Vec::new();
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let mut connection = rustls::ServerConnection::new(Arc::clone(&tls)).unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut socket);
                let Some((head, body)) = read_request(&mut stream) else { continue };
                let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
                tokens.lock().unwrap().push(token.unwrap_or_default().to_owned());
                let mood = *mood.lock().unwrap();
                let (status, body) = match mood {
                    Mood::Signs => ("200 OK", json!({ "certificate_pem": company.sign(&body) }).to_string()),
                    Mood::IsSilent => {
                        silent.push(socket);
                        continue;
                    }
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
pub(crate) fn now_s() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

/// The head of a request and its JSON; `None` if the client disconnected.
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

/// The subject in a device's company certificate.
#[derive(Clone)]
pub(crate) struct Says {
    pub(crate) uris: Vec<String>,
    pub(crate) algorithm: &'static SignatureAlgorithm,
    pub(crate) usages: Vec<ExtendedKeyUsagePurpose>,
    pub(crate) is_ca: IsCa,
    /// When it begins and ends, in seconds from now.
    pub(crate) time: (i64, i64),
}

/// The id that a company gives to its device number `device`.
pub(crate) fn device_id(device: u128) -> ParticipantId {
    format!("c0ffee00-0000-4000-8000-{device:012}").parse().unwrap()
}

impl Says {
    /// As it must be, for this device.
    pub(crate) fn device(device: u128) -> Self {
        Self {
            uris: vec![format!("urn:tributary:participant:{}", device_id(device))],
            algorithm: &PKCS_ED25519,
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
            is_ca: IsCa::NoCa,
            time: (-60, 86_400),
        }
    }
}

/// A certificate and its key, in two files.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Company {
    /// Gives a device a certificate and its key.
    pub(crate) fn issue(&self, folder: &Path, name: &str, says: &Says) -> Issued {
        self.issue_for(&KeyPair::generate_for(says.algorithm).unwrap(), folder, name, says)
    }

    /// The same for a key that is there.
    pub(crate) fn issue_for(&self, key: &KeyPair, folder: &Path, name: &str, says: &Says) -> Issued {
        let mut params = CertificateParams::default();
        let uri = |uri: &String| SanType::URI(uri.as_str().try_into().unwrap());
        params.subject_alt_names = says.uris.iter().map(uri).collect();
        params.extended_key_usages.clone_from(&says.usages);
        params.is_ca.clone_from(&says.is_ca);
        let at = |seconds: i64| time::OffsetDateTime::from_unix_timestamp(now_s() + seconds).unwrap();
        (params.not_before, params.not_after) = (at(says.time.0), at(says.time.1));
        let issued =
            Issued { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}-key.pem")) };
        std::fs::write(&issued.certificate, params.signed_by(key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(&issued.key, key.serialize_pem()).unwrap();
        issued
    }
}

impl Issued {
    pub(crate) fn pem(&self) -> String {
        std::fs::read_to_string(&self.certificate).unwrap()
    }

    /// The flags that hand it to a participant.
    pub(crate) fn flags(&self) -> [&str; 4] {
        ["--certificate", self.certificate.to_str().unwrap(), "--key", self.key.to_str().unwrap()]
    }

    /// A client that shows it to this server.
    pub(crate) fn client(&self, served: &Served) -> reqwest::Client {
        let pem = std::fs::read_to_string(&self.key).unwrap() + &self.pem();
        client(&served.ca).identity(reqwest::Identity::from_pem(pem.as_bytes()).unwrap()).build().unwrap()
    }
}

/// A client that believes the authority in this file alone.
pub(crate) fn client(ca: &str) -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = reqwest::Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).https_only(true)
}
