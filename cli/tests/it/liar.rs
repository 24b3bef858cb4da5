//! A coordinator that lies, as a proxy in front of an honest one: it shows a certificate of the coordinator's authority, believes any
//! member's, and rewrites forwarded messages for a test.
//!
//! A real liar need not authenticate itself to itself. This one has, for each member, a second key that the honest
//! coordinator takes for the member's: it enrols that key, and hands the member a certificate for the member's own.
//! Members' signed messages are forwarded as they are.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::certificate::{chain_der, holder};
use wire::participant::{EnrollReply, EnrollRequest, RenewRequest};
use wire::{ParticipantId, Timestamp, route};

use crate::company::{Company, client};
use crate::support::{Background, Served, tributary};

/// A request, as far as lies depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) member: Option<ParticipantId>,
    pub(crate) method: Method,
    pub(crate) path: String,
}

/// The participants that request certificates from the liar.
pub(crate) struct Wanted {
    pub(crate) csr_pem: String,
    pub(crate) participant: ParticipantId,
    pub(crate) is_renewal: bool,
}

type Certify = dyn Fn(&Wanted) -> String + Send + Sync;
type Lie = dyn Fn(&Asked, Vec<u8>) -> Vec<u8> + Send + Sync;

/// The forged messages, and the certifying authority.
pub(crate) struct Lies {
    /// Makes the certificate chain that a member gets.
    pub(crate) certify: Box<Certify>,
    /// The forged renewal time of members.
    pub(crate) renew_at: Option<Timestamp>,
    /// Rewrites a good answer's body.
    pub(crate) tell: Box<Lie>,
    /// Which requests are answered with 204, and not passed on.
    pub(crate) swallow: Box<dyn Fn(&Asked) -> bool + Send + Sync>,
}

impl Lies {
    /// Without lies, with this authority for members.
    pub(crate) fn none(members: &Arc<Company>) -> Self {
        let members = Arc::clone(members);
        Self {
            certify: Box::new(move |wanted| certify(&members, wanted)),
            renew_at: None,
            tell: Box::new(|_, body| body),
            swallow: Box::new(|_| false),
        }
    }
}

/// A chain that this authority signs.
pub(crate) fn certify(authority: &Company, wanted: &Wanted) -> String {
    let asked = json!({ "csr_pem": wanted.csr_pem, "participant": wanted.participant, "lifetime_s": 3600 });
    authority.sign(&asked) + &authority.pem
}

/// The liar, until the test ends.
pub(crate) struct Liar {
    world: Arc<World>,
    runtime: Option<tokio::runtime::Runtime>,
    /// The address that members use as the coordinator's.
    pub(crate) url: String,
}

struct World {
    upstream: String,
    ca: String,
    anonymous: reqwest::Client,
    /// How the honest coordinator knows each member.
    known_as: Mutex<HashMap<ParticipantId, reqwest::Client>>,
    seen: Mutex<Vec<Asked>>,
    lies: Lies,
}

impl Liar {
    /// Listens with a certificate of `server_ca`, and takes clients' certificates of any of `members` (PEM).
    pub(crate) fn before(served: &Served, server_ca: &Company, members: &[&str], folder: &Path, lies: Lies) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let world = Arc::new(World {
            upstream: served.url.clone(),
            ca: served.ca.clone(),
            anonymous: client(&served.ca).build().unwrap(),
            known_as: Mutex::default(),
            seen: Mutex::default(),
            lies,
        });
        let tls = acceptor(server_ca, members, folder);
        let app = Router::new().fallback(pass_on).with_state(Arc::clone(&world));
        let service = app.into_make_service_with_connect_info::<Member>();
        runtime.spawn(async move { axum::serve(TlsListener { listener, tls }, service).await });
        Self { world, runtime: Some(runtime), url }
    }

    /// Has the authority of the coordinator, whose data is in `data` below `folder`; `change` adds the lies.
    pub(crate) fn with_authority(served: &Served, folder: &Path, change: impl FnOnce(&mut Lies)) -> Self {
        let own = Arc::new(Company::of_coordinator(&folder.join("data")));
        let mut lies = Lies::none(&own);
        change(&mut lies);
        Self::before(served, &own, &[&own.pem], folder, lies)
    }

    /// Requests that the liar has received so far.
    pub(crate) fn seen(&self) -> Vec<Asked> {
        self.world.seen.lock().unwrap().clone()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

fn acceptor(server_ca: &Company, members: &[&str], folder: &Path) -> TlsAcceptor {
    let (certificate, key) = server_ca.server(folder);
    let mut roots = RootCertStore::empty();
    for pem in members {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let members = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(members.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_file(certificate).unwrap()],
            PrivateKeyDer::from_pem_file(key).unwrap(),
        );
    TlsAcceptor::from(Arc::new(tls.unwrap()))
}

struct TlsListener {
    listener: TcpListener,
    tls: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((socket, address)) = self.listener.accept().await else { continue };
            let hands = tokio::time::timeout(Duration::from_secs(5), self.tls.accept(socket));
            if let Ok(Ok(stream)) = hands.await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Whose certificate a connection shows.
#[derive(Clone, Copy)]
struct Member(Option<ParticipantId>);

impl axum::extract::connect_info::Connected<IncomingStream<'_, TlsListener>> for Member {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let shown = stream.io().get_ref().1.peer_certificates();
        Self(shown.and_then(|chain| Some(holder(chain.first()?)?.participant)))
    }
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

async fn pass_on(
    State(world): State<Arc<World>>,
    ConnectInfo(Member(member)): ConnectInfo<Member>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    let asked = Asked { member, method: parts.method.clone(), path: parts.uri.to_string() };
    world.seen.lock().unwrap().push(asked.clone());
    let reply = match asked.path.as_str() {
        route::ENROLL => world.enroll(&body).await,
        route::RENEW => world.renew(member.unwrap(), &body),
        _ if (world.lies.swallow)(&asked) => {
            Some(Reply { status: StatusCode::NO_CONTENT, headers: HeaderMap::new(), body: Vec::new() })
        }
        _ => {
            let client = member.map_or_else(|| world.anonymous.clone(), |member| world.known_as(member));
            world.ask(&client, &asked, parts.headers, body).await
        }
    };
    let Some(Reply { status, headers, body }) = reply else {
        return Response::builder().status(502).body(Body::empty()).unwrap();
    };
    let body = if status.is_success() { (world.lies.tell)(&asked, body) } else { body };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

impl World {
    fn known_as(&self, member: ParticipantId) -> reqwest::Client {
        self.known_as.lock().unwrap()[&member].clone()
    }

    /// The honest coordinator's answer; `None` if it is gone.
    async fn ask(&self, client: &reqwest::Client, asked: &Asked, headers: HeaderMap, body: Vec<u8>) -> Option<Reply> {
        let mut request = client.request(asked.method.clone(), format!("{}{}", self.upstream, asked.path)).body(body);
        for (name, value) in &headers {
            if ![header::HOST, header::CONTENT_LENGTH, header::CONNECTION].contains(name) {
                request = request.header(name, value);
            }
        }
        let reply = request.send().await.ok()?;
        let (status, mut headers) = (reply.status(), reply.headers().clone());
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
        let body = reply.bytes().await.ok()?.to_vec();
        Some(Reply { status, headers, body })
    }

    /// Enrols a key of its own at the honest coordinator, and gives the member a certificate for the member's.
    async fn enroll(&self, body: &[u8]) -> Option<Reply> {
        let request: EnrollRequest = serde_json::from_slice(body).unwrap();
        let csr_pem = request.csr_pem.clone().unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let own = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let upstream = serde_json::to_vec(&EnrollRequest { csr_pem: Some(own), ..request }).unwrap();
        let asked = Asked { member: None, method: Method::POST, path: route::ENROLL.to_owned() };
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, "application/json".parse().unwrap())]);
        let mut answer = self.ask(&self.anonymous, &asked, headers, upstream).await?;
        if !answer.status.is_success() {
            return Some(answer);
        }
        let mut reply: EnrollReply = serde_json::from_slice(&answer.body).unwrap();
        let identity = reqwest::Identity::from_pem((key.serialize_pem() + &reply.certificate_pem).as_bytes()).unwrap();
        let client = client(&self.ca).identity(identity).build().unwrap();
        self.known_as.lock().unwrap().insert(reply.participant, client);
        let wanted = Wanted { csr_pem, participant: reply.participant, is_renewal: false };
        reply.certificate_pem = (self.lies.certify)(&wanted);
        reply.renew_at = self.lies.renew_at.unwrap_or(reply.renew_at);
        answer.body = serde_json::to_vec(&reply).unwrap();
        Some(answer)
    }

    /// Gives the member another certificate, which only it and the liar know of.
    fn renew(&self, participant: ParticipantId, body: &[u8]) -> Option<Reply> {
        let request: RenewRequest = serde_json::from_slice(body).unwrap();
        let wanted = Wanted { csr_pem: request.csr_pem?, participant, is_renewal: true };
        let certificate_pem = (self.lies.certify)(&wanted);
        let own = chain_der(&certificate_pem).unwrap().remove(0);
        let expires_at = holder(&own)?.expires_at;
        let name = participant.to_string();
        let reply = EnrollReply { participant, name, certificate_pem, expires_at, renew_at: expires_at };
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, "application/json".parse().unwrap())]);
        Some(Reply { status: StatusCode::OK, headers, body: serde_json::to_vec(&reply).unwrap() })
    }
}

/// A participant and its output.
pub(crate) struct Device {
    _process: Background,
    pub(crate) id: ParticipantId,
    said: mpsc::Receiver<Value>,
}

/// Starts number `index` of `many`, and waits until it is enrolled.
pub(crate) fn device(
    served: &Served,
    liar: &Liar,
    folder: &Path,
    (index, many): (usize, usize),
    more: &[&str],
) -> Device {
    let token = served.enrollment_token();
    let more = [&["--task", "demo", "--token", &token], more].concat();
    let mut device = start(&liar.url, &served.ca, folder, (index, many), &more);
    let enrolled = device.wait_for(|event| event["event"] == "enrolled");
    device.id = enrolled["participant"].as_str().unwrap().parse().unwrap();
    device
}

pub(crate) fn start(url: &str, ca: &str, folder: &Path, (index, many): (usize, usize), more: &[&str]) -> Device {
    let mut child = tributary()
        .args(["--format", "json", "participant", "run", "--server", url, "--ca", ca])
        .args(["--seed", "5", "--participants", &many.to_string(), "--index", &index.to_string()])
        .args(["--min-cohort", "3", "--min-tolerated-colluders", "0"])
        .args(more)
        .arg("--journal")
        .arg(folder.join(format!("journal-{index}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (say, said) = mpsc::channel();
    let (out, notes) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let note = say.clone();
    std::thread::spawn(move || {
        BufReader::new(out)
            .lines()
            .map_while(Result::ok)
            .all(|line| say.send(serde_json::from_str(&line).unwrap()).is_ok())
    });
    std::thread::spawn(move || {
        let notes = BufReader::new(notes).lines().map_while(Result::ok);
        notes.map(|line| json!({ "event": "note", "text": line })).all(|line| note.send(line).is_ok())
    });
    Device { _process: Background(child), id: wire::ParticipantId(Default::default()), said }
}

impl Device {
    pub(crate) fn wait_for(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(90);
        let mut before = Vec::new();
        loop {
            match self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(event) if is_wanted(&event) => return event,
                Ok(event) => before.push(event),
                Err(error) => panic!("it never came ({error}): {before:?}"),
            }
        }
    }

    /// The reason for its refusal.
    pub(crate) fn refusal(&self) -> String {
        let refused = self.wait_for(|event| event["event"] == "refused" || event["event"] == "training_failed");
        refused["reason"].as_str().or(refused["error"].as_str()).unwrap().to_owned()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
