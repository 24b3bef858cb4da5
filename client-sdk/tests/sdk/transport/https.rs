//! The HTTPS transport against a server of a few lines: certificates both ways, problems, ranges, bounds.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client_sdk::identity::{Certified, Identity, SigningKey};
use client_sdk::transport::retry::{Verdict, judge};
use client_sdk::transport::{
    Abandonment, Download, HttpsTransport, Request, Response, Transport, TransportError, Upload,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use wire::participant::{
    AbandonReason, Announcement, Answer, CheckInReply, CheckInRequest, EnrollRequest, ModelRef, Receipt, RefusalCode,
    RenewRequest,
};
use wire::problem::{Problem, ProblemType};
use wire::{Attempt, Timestamp};

use crate::support::{Ca, Coordinator, participant, sha256, task};

/// A client with a certificate of this CA.
fn identity(authority: &Ca) -> Identity {
    let key = SigningKey::generate().unwrap();
    let certified = Certified {
        participant: participant(),
        name: "device-1".into(),
        certificate_pem: authority.certify(&key.signing_request().unwrap(), participant()),
        expires_at: Timestamp(i64::MAX),
        renew_at: Timestamp(i64::MAX),
    };
    Identity { key: Arc::new(key), certified }
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    has_certificate: bool,
}

impl std::fmt::Display for Seen {
    /// As it came, except for the server's address and the SDK's version.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.line)?;
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != "host") {
            writeln!(f, "{name}: {}", value.replace(env!("CARGO_PKG_VERSION"), "VERSION"))?;
        }
        writeln!(f, "|{}", String::from_utf8_lossy(&self.body))
    }
}

/// Status and headers, then the body; `cut` sends only so much of it.
struct Reply {
    head: String,
    body: Vec<u8>,
    cut: Option<usize>,
}

fn answer(status: &str, headers: &str, body: impl Into<Vec<u8>>) -> Reply {
    let body = body.into();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}connection: close\r\n\r\n", body.len());
    Reply { head, body, cut: None }
}

fn json(body: &impl serde::Serialize) -> Reply {
    answer("200 OK", "content-type: application/json\r\n", serde_json::to_vec(body).unwrap())
}

/// Sends a request and takes the answer of its kind.
macro_rules! send {
    ($server:expr, $kind:ident, $request:expr) => {
        match $server.transport.send(&$request).await {
            Response::$kind(answer) => answer,
            _ => unreachable!("the answer to something else"),
        }
    };
}

/// For a server called localhost, with a certificate of this authority, which takes those of its clients.
pub(in crate::transport) fn tls(authority: &Ca) -> rustls::ServerConfig {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let mut clients = RootCertStore::empty();
    clients.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider));
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap()
}

struct Server {
    transport: HttpsTransport,
    authority: Ca,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Serves until the test ends; request number `n` is answered by `serve(n, …)`.
    async fn start(serve: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Ca::new("CA");
        let tls = tls(&authority);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(tls));
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(socket).await else { continue };
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                let Ok(request) = read(&mut stream, has_certificate).await else { continue };
                let number = log.lock().unwrap().len();
                log.lock().unwrap().push(request.clone());
                let Reply { head, body, cut } = serve(number, &request);
                let body = &body[..cut.unwrap_or(body.len())];
                let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
                let _ = stream.shutdown().await;
            }
        });
        let transport = HttpsTransport::new(&address, &authority.pem).unwrap();
        Self { transport, authority, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin), has_certificate: bool) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().to_owned();
    let headers: BTreeMap<String, String> =
        lines.filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Seen { line, headers, body, has_certificate })
}

fn enroll() -> EnrollRequest {
    EnrollRequest {
        token: "t".into(),
        csr_pem: Some("c".into()),
        certificate_pem: None,
        evidence: None,
        name: None,
        labels: BTreeMap::new(),
    }
}

pub(in crate::transport) fn check_in() -> CheckInRequest {
    let (findings, training) = (Vec::new(), None);
    CheckInRequest {
        task: None,
        examples: 1,
        wait_ms: 0,
        keys: None,
        loss: None,
        findings,
        training,
        declined: None,
        batch: None,
        round_trip_ms: None,
        refusals: Vec::new(),
    }
}

#[tokio::test]
async fn the_certificate_is_shown_once_there_is_one() {
    let server = Server::start(|number, _| match number {
        0 => json(&serde_json::json!({
            "participant": participant(), "name": "n", "certificate_pem": "p", "expires_at": 1, "renew_at": 1,
        })),
        _ => json(&CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] }),
    })
    .await;
    assert_eq!(send!(server, Enrolled, Request::Enroll(enroll())).unwrap().participant, participant());
    server.transport.identify(&identity(&server.authority)).unwrap();
    let reply = send!(server, CheckedIn, Request::CheckIn(check_in())).unwrap();
    assert_eq!(reply, CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] });
    let seen = server.seen();
    assert_eq!(seen.iter().map(|seen| seen.has_certificate).collect::<Vec<_>>(), [false, true]);
    assert_eq!(seen[0].line, "POST /v1/enroll HTTP/1.1");
    assert_eq!(seen[1].headers["tributary-protocol"], "1");
    assert_eq!(serde_json::from_slice::<CheckInRequest>(&seen[1].body).unwrap(), check_in());
}

#[tokio::test]
async fn every_request_is_what_the_contract_says() {
    let server = Server::start(|_, _| answer("204 No Content", "", "")).await;
    let transport = &server.transport;
    let (me, place, wait) =
        (participant(), Attempt { task: task(), round: 4, attempt: 2 }, Duration::from_millis(1500));
    let (sha256, body) = (sha256(b"packed words"), Bytes::from_static(b"packed words"));
    let renewal = RenewRequest { csr_pem: None, certificate_pem: Some("c".into()), evidence: Some("e".into()) };
    let before = [
        Request::Enroll(enroll()),
        Request::Renew(renewal),
        Request::Withdraw,
        Request::CheckIn(CheckInRequest { wait_ms: 20_000, ..check_in() }),
    ];
    let uploads = [None, Some(Bytes::from_static(b"signature"))].map(|signed| {
        Request::Upload(Upload { place, participant: me, sha256, body: body.clone(), signed, below: None })
    });
    let announcements = Announcement::ALL.map(|what| Request::Announcement { what, place, participant: me, wait });
    let evidence = [Request::Evidence { place, dealer: me }];
    let answers = Answer::ALL.map(|what| Request::Answer { what, place, participant: me, body: body.clone() });
    let abandonments = [(AbandonReason::Conditions, None), (AbandonReason::Refused, Some(RefusalCode::Privacy))]
        .map(|(reason, refusal)| Request::Abandon(Abandonment { place, participant: me, reason, refusal }));
    // The answer does not fit most of these requests.
    for request in before {
        transport.send(&request).await;
    }
    for have in [vec![], vec![0; 7]] {
        let model = ModelRef { version: 3, sha256, bytes: 12 };
        let _ = transport.fetch_model(task(), &model, &mut Download::in_memory(have)).await;
    }
    for request in uploads.into_iter().chain(announcements).chain(evidence).chain(answers).chain(abandonments) {
        transport.send(&request).await;
    }
    let seen = server.seen().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert_eq!(seen, include_str!("contract.txt"), "{seen}");
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_on_either_side() {
    let server = Server::start(|_, _| json(&CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] })).await;
    // Ours is foreign to the server.
    server.transport.identify(&identity(&Ca::new("CA"))).unwrap();
    let error = send!(server, CheckedIn, Request::CheckIn(check_in())).unwrap_err();
    assert!(matches!(error, TransportError::Unreachable(_)), "{error}");
    assert!(server.seen().is_empty(), "no request got through");
    // The server's is foreign to us.
    let foreign = Server::start(|_, _| json(&CheckInReply::ComeBack { after_ms: 5, waiting_for: vec![] })).await;
    let transport =
        HttpsTransport::new(&format!("https://{}", foreign.transport.server()), &server.authority.pem).unwrap();
    let foreign = Server { transport, ..foreign };
    let error = send!(foreign, CheckedIn, Request::CheckIn(check_in())).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    assert!(foreign.seen().is_empty());
}

#[tokio::test]
async fn problems_come_through_with_their_retry_after() {
    let server = Server::start(|number, _| {
        let problem = serde_json::to_vec(&Problem::new(ProblemType::RateLimited, "slow down")).unwrap();
        match number {
            0 => {
                answer("429 Too Many Requests", "content-type: application/problem+json\r\nretry-after: 7\r\n", problem)
            }
            1 => answer("502 Bad Gateway", "content-type: text/html\r\n", "<html>proxy</html>"),
            2 => answer("200 OK", "content-type: application/json\r\n", "{\"kind\":\"unheard_of\"}"),
            _ => answer("200 OK", "content-type: application/json\r\n", vec![b' '; 9 << 20]),
        }
    })
    .await;
    let errors: Vec<TransportError> = {
        let mut errors = Vec::new();
        for _ in 0..4 {
            errors.push(send!(server, CheckedIn, Request::CheckIn(check_in())).unwrap_err());
        }
        errors
    };
    assert_eq!(judge(&errors[0]), Verdict::Again(Some(Duration::from_secs(7))));
    assert!(errors[0].to_string().contains("slow down"), "{}", errors[0]);
    assert!(errors[1].to_string().contains("502"), "{}", errors[1]);
    assert_eq!(judge(&errors[1]), Verdict::Again(None));
    assert!(matches!(&errors[2], TransportError::Protocol(_)), "{}", errors[2]);
    assert!(errors[3].to_string().contains("longer than"), "{}", errors[3]);
}

#[tokio::test]
async fn an_interrupted_model_goes_on_from_where_it_ended() {
    let file = Coordinator::published(false, 1);
    let whole = file.clone();
    let server = Server::start(move |number, seen| match number {
        0 => Reply { cut: Some(20), ..answer("200 OK", "", whole.clone()) },
        1 => {
            let begin: usize =
                seen.headers["range"].trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap();
            let range = format!("content-range: bytes {begin}-{}/{}\r\n", whole.len() - 1, whole.len());
            answer("206 Partial Content", &range, &whole[begin..])
        }
        // It does not know ranges.
        2 => answer("200 OK", "", whole.clone()),
        // Another part than requested.
        3 => answer("206 Partial Content", "content-range: bytes 0-9/99\r\n", &whole[..10]),
        _ => answer("200 OK", "", [&whole[..], b"x"].concat()),
    })
    .await;
    let model = ModelRef { version: 3, sha256: sha256(&file), bytes: file.len() as u64 };
    let folder = tempfile::tempdir().unwrap();
    let in_file = || Download::in_file(folder.path(), &model).unwrap();
    let mut sink = in_file();
    let content = |sink: &Download| std::fs::read(sink.path().unwrap()).unwrap();
    let error = server.transport.fetch_model(task(), &model, &mut sink).await.unwrap_err();
    assert!(matches!(error, TransportError::Unreachable(_)), "{error}");
    assert_eq!(content(&sink), file[..20]);
    // Another process goes on.
    sink = in_file();
    server.transport.fetch_model(task(), &model, &mut sink).await.unwrap();
    assert_eq!(content(&sink), file);
    let seen = server.seen();
    assert_eq!(seen[1].line, format!("GET /v1/tasks/{}/models/3/parameters HTTP/1.1", task()));
    assert_eq!(
        (&*seen[1].headers["range"], &seen[1].headers["if-range"]),
        ("bytes=20-", &format!("\"{}\"", model.sha256))
    );

    let begun = || Download::in_memory(file[..20].to_vec());
    let mut sink = begun();
    server.transport.fetch_model(task(), &model, &mut sink).await.unwrap();
    assert_eq!(sink.into_bytes(), file);
    let mut sink = begun();
    let error = server.transport.fetch_model(task(), &model, &mut sink).await.unwrap_err();
    assert!(matches!(error, TransportError::Protocol(_)), "{error}");
    assert_eq!(sink.bytes(), 0);
    let error = server.transport.fetch_model(task(), &model, &mut sink).await.unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[tokio::test]
async fn an_upload_says_what_it_is() {
    let body = Bytes::from_static(b"packed words");
    let receipt = Receipt { sha256: sha256(&body), bytes: 12, accepted_at: Timestamp(1) };
    let reply = receipt.clone();
    let server = Server::start(move |number, _| match number {
        0 => json(&reply),
        _ => answer("204 No Content", "", ""),
    })
    .await;
    let place = Attempt { task: task(), round: 4, attempt: 2 };
    let signed = Some(Bytes::from_static(b"signature"));
    let upload =
        Upload { place, participant: participant(), sha256: sha256(&body), body: body.clone(), signed, below: None };
    assert_eq!(send!(server, Uploaded, Request::Upload(upload)).unwrap(), receipt);
    let reason = AbandonReason::Conditions;
    let abandonment = Abandonment { place, participant: participant(), reason, refusal: None };
    send!(server, Abandoned, Request::Abandon(abandonment)).unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].line, format!("PUT /v1/tasks/{}/rounds/4/masked-inputs/{} HTTP/1.1", task(), participant()));
    assert_eq!(seen[0].body, body);
    assert_eq!(seen[0].headers["content-type"], "application/vnd.tributary.masked-input");
    assert_eq!(seen[0].headers["tributary-attempt"], "2");
    assert_eq!(seen[0].headers["tributary-content-sha256"], sha256(&body).to_string());
    assert_eq!(seen[0].headers["tributary-signed-input"], wire::base64::encode(b"signature"));
    assert!(seen[1].line.ends_with(&format!("/rounds/4/assignments/{}/abandon HTTP/1.1", participant())));
    assert_eq!(seen[1].body, br#"{"attempt":2,"reason":"conditions"}"#);
}

fn message(body: &[u8]) -> Reply {
    answer("200 OK", "content-type: application/vnd.tributary.secure-agg\r\n", body)
}

#[tokio::test]
async fn messages_of_secure_aggregation_go_and_come_as_they_are() {
    let server = Server::start(|number, _| match number {
        0 => answer("204 No Content", "", ""),
        1..=5 => message(b"encoded"),
        6 => answer("200 OK", "content-type: text/html\r\n", "<html>proxy</html>"),
        7 => message(&[0; 200_000]),
        _ => answer("204 No Content", "", ""),
    })
    .await;
    let place = Attempt { task: task(), round: 4, attempt: 2 };
    let wait = Duration::from_millis(1500);
    let me = participant();
    let ask = async |what| send!(server, Announced, Request::Announcement { what, place, participant: me, wait });
    assert_eq!(ask(Announcement::Roster).await.unwrap(), None);
    for what in Announcement::ALL {
        assert_eq!(ask(what).await.unwrap().unwrap(), &b"encoded"[..]);
    }
    assert_eq!(send!(server, Evidenced, Request::Evidence { place, dealer: me }).unwrap(), &b"encoded"[..]);
    let error = ask(Announcement::Delivery).await.unwrap_err().to_string();
    assert!(error.contains("the answer is not"), "{error}");
    let error = ask(Announcement::Delivery).await.unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
    for what in Answer::ALL {
        let body = Bytes::from_static(b"signed");
        send!(server, Answered, Request::Answer { what, place, participant: me, body }).unwrap();
    }
    let seen = server.seen();
    let path = |what: &str| format!("/v1/tasks/{}/rounds/4/{what}", task());
    let query = "?attempt=2&wait_ms=1500";
    let got: Vec<String> = ["roster", "roster", &format!("deliveries/{me}"), "survivors", "agreement"]
        .map(|what| format!("GET {}{query} HTTP/1.1", path(what)))
        .into();
    assert_eq!(seen[..5].iter().map(|seen| seen.line.clone()).collect::<Vec<_>>(), got);
    assert_eq!(seen[5].line, format!("GET {}?attempt=2 HTTP/1.1", path(&format!("key-shares/{me}"))));
    for (seen, what) in seen[8..].iter().zip(["key-shares", "complaints", "consistency", "unmask-shares"]) {
        assert_eq!(seen.line, format!("PUT {} HTTP/1.1", path(&format!("{what}/{me}"))));
        assert_eq!((&*seen.headers["tributary-attempt"], &seen.body[..]), ("2", &b"signed"[..]));
        assert_eq!(seen.headers["content-type"], "application/vnd.tributary.secure-agg");
    }
}
