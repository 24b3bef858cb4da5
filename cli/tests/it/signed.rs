//! TLS that ends at a balancer: participants sign their requests, and get the models of those with end-to-end TLS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use client_sdk::clock::{Clock, Now, SystemClock};
use client_sdk::identity::{Identity, SigningKey};
use client_sdk::transport::{HttpsTransport, Request, Response, ServerRoots, Transport as _, TransportError, Upload};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use wire::Timestamp;
use wire::participant::CheckInReply;
use wire::problem::ProblemType;

use crate::killed::{logs, participant_with, wait};
use crate::support::{Background, Served, run};

const ROUNDS: &str = "3";

/// A balancer that ends TLS under a certificate of its own, and forwards the content.
struct EndsTls {
    port: u16,
    /// The authority of its certificate.
    ca: PathBuf,
    onward: Arc<OnceLock<String>>,
    /// All that participants sent, as the balancer can read it.
    read: Arc<Mutex<Vec<u8>>>,
}

impl EndsTls {
    fn start(folder: &Path) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let ca = folder.join("balancer.pem");
        std::fs::write(&ca, certificate.pem()).unwrap();
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (onward, read): (Arc<OnceLock<String>>, Arc<Mutex<Vec<u8>>>) = Default::default();
        let (to, reads) = (Arc::clone(&onward), Arc::clone(&read));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, TlsAcceptor::from(Arc::new(tls)), to, reads));
        });
        Self { port, ca, onward, read }
    }

    /// A coordinator that takes requests signed for the balancer, and the balancer.
    fn serve(&self, folder: &Path) -> (Served, Served) {
        let name = format!("[\"localhost:{}\"]", self.port);
        let envs = [("TRIBUTARY_HTTP_SIGNED_LISTEN", "127.0.0.1:0"), ("TRIBUTARY_HTTP_SIGNED_NAMES", name.as_str())];
        let served = Served::dev_with(&folder.join("data"), &envs);
        let front = self.front(&served);
        (served, front)
    }

    /// The view of participants: the balancer, with the coordinator's authority and token.
    fn front(&self, behind: &Served) -> Served {
        self.onward.set(behind.signed.clone()).unwrap();
        Served {
            process: Background(std::process::Command::new("true").spawn().unwrap()),
            url: format!("https://localhost:{}", self.port),
            ca: behind.ca.clone(),
            token: behind.token.clone(),
            signed: String::new(),
            health: String::new(),
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    acceptor: TlsAcceptor,
    onward: Arc<OnceLock<String>>,
    read: Arc<Mutex<Vec<u8>>>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (arrived, _) = listener.accept().await.unwrap();
        let (acceptor, onward, read) = (acceptor.clone(), Arc::clone(&onward), Arc::clone(&read));
        tokio::spawn(async move {
            let Ok(arrived) = acceptor.accept(arrived).await else { return };
            let Ok(behind) = TcpStream::connect(onward.get().unwrap()).await else { return };
            let ((mut from, mut to), (mut back, mut onward)) = (tokio::io::split(arrived), behind.into_split());
            let requests = async {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
                    read.lock().unwrap().extend_from_slice(&buffer[..bytes]);
                    if onward.write_all(&buffer[..bytes]).await.is_err() {
                        break;
                    }
                }
                let _ = onward.shutdown().await;
            };
            let answers = async {
                let _ = tokio::io::copy(&mut back, &mut to).await;
                let _ = to.shutdown().await;
            };
            tokio::join!(requests, answers);
        });
    }
}

/// The digests of the models of three participants, with `front` as the coordinator's address and with these flags.
fn published(served: &Served, front: &Served, folder: &Path, task: &Path, flags: &[&str]) -> Vec<serde_json::Value> {
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let mut participants: Vec<_> =
        (0..3).map(|index| participant_with(front, folder, index, Some(&served.enrollment_token()), flags)).collect();
    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "{}", logs(folder));
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    models.as_array().unwrap().iter().rev().map(|model| model["sha256"].clone()).collect()
}

#[test]
fn a_secure_task_is_the_same_whether_tls_passes_through_or_ends_at_the_balancer() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [through, ended] = folders.each_ref().map(tempfile::TempDir::path);
    let task = through.join("task.toml");
    let args = ["--participants", "3", "--rounds", ROUNDS, "--seed", "5", "--task-file", task.to_str().unwrap()];
    let demo = run(&[&["--format", "json", "demo"][..], &args].concat());
    assert_eq!(demo.code, 0, "{demo}");
    assert!(!std::fs::read_to_string(&task).unwrap().contains("enabled = false"), "the task is secure");

    let served = Served::dev(&through.join("data"));
    let expected = published(&served, &served, through, &task, &[]);
    assert_eq!(expected.len(), 4, "{expected:?}");

    let balancer = EndsTls::start(ended);
    let (served, front) = balancer.serve(ended);
    let flags = ["--signed", "--balancer-ca", balancer.ca.to_str().unwrap()];
    assert_eq!(published(&served, &front, ended, &task, &flags), expected);
    for round in served.operate(&["round", "list", "demo"]).data().as_array().unwrap() {
        assert_eq!(round["reported"], 3, "{round}");
    }

    // All requests went through it as plain text; each but the enrolments was signed, and operators' tokens were
    // absent.
    let read = balancer.read.lock().unwrap();
    let text = String::from_utf8_lossy(&read);
    let count = |what: &str| text.matches(what).count();
    let requests = count(" HTTP/1.1\r\n");
    assert!(requests > 30, "{requests}");
    assert_eq!(count("POST /v1/enroll HTTP/1.1\r\n"), 3);
    assert_eq!(count("\r\nsignature: tributary=:"), requests - 3);
    assert_eq!(count("authorization"), 0);
}

#[test]
fn who_does_not_sign_is_told_to_and_who_signs_in_vain_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let balancer = EndsTls::start(folder.path());
    let (served, front) = balancer.serve(folder.path());
    // Straight to the coordinator's own TLS.
    let flags = ["--signed", "--balancer-ca", &served.ca];
    let mut vain = participant_with(&served, folder.path(), 0, Some(&served.enrollment_token()), &flags);
    assert_eq!(wait(&mut vain.0), Some(6), "{}", logs(folder.path()));
    assert!(logs(folder.path()).contains("http.signed_listen"), "{}", logs(folder.path()));
    // Without signatures, to the balancer.
    let unsigned = Served { ca: balancer.ca.display().to_string(), ..front };
    let mut unknown =
        participant_with(&unsigned, folder.path(), 1, Some(&served.enrollment_token()), &["--members-ca", &served.ca]);
    assert_eq!(wait(&mut unknown.0), Some(6), "{}", logs(folder.path()));
    assert!(logs(folder.path()).contains("sign requests"), "{}", logs(folder.path()));
}

/// A device's clock that is an hour behind.
struct Behind;

impl Clock for Behind {
    fn now(&self) -> Now {
        let Now { elapsed, wall } = SystemClock::new().now();
        Now { elapsed, wall: Timestamp(wall.0 - 3_600_000) }
    }
}

#[tokio::test]
async fn a_device_with_a_wrong_clock_corrects_itself_once() {
    let folder = tempfile::tempdir().unwrap();
    let balancer = EndsTls::start(folder.path());
    let (served, front) = balancer.serve(folder.path());

    let roots = ServerRoots::Pem(std::fs::read_to_string(&balancer.ca).unwrap());
    let transport = HttpsTransport::signed(&front.url, &roots, Arc::new(Behind)).unwrap();
    let key = SigningKey::generate().unwrap();
    let request = serde_json::json!({ "token": served.enrollment_token(), "csr_pem": key.signing_request().unwrap() });
    let enrolled = transport.send(&Request::Enroll(serde_json::from_value(request).unwrap())).await;
    let Response::Enrolled(Ok(reply)) = enrolled else { panic!("not enrolled") };
    let identity = Identity { key: Arc::new(key), certified: reply.into() };
    transport.identify(&identity).unwrap();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let answer = transport.send(&Request::CheckIn(serde_json::from_str("{}").unwrap())).await;
        let Response::CheckedIn(answer) = answer else { panic!("another answer") };
        assert!(matches!(answer, Ok(CheckInReply::ComeBack { .. })), "{answer:?}");
        let read = balancer.read.lock().unwrap();
        asked.push(String::from_utf8_lossy(&read).matches("POST /v1/check-in HTTP/1.1\r\n").count());
    }
    assert_eq!(asked, [2, 3, 4], "one request more, at first");

    // To avoid sending a large body twice, the time is requested first.
    let another = HttpsTransport::signed(&front.url, &roots, Arc::new(Behind)).unwrap();
    another.identify(&identity).unwrap();
    let (participant, body) = (identity.certified.participant, bytes::Bytes::from(vec![0; 100_000]));
    let task = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    let place = wire::Attempt { task, round: 1, attempt: 1 };
    let upload = Upload { place, participant, sha256: recipe::digest::sha256(&body), body, signed: None, below: None };
    let Response::Uploaded(Err(TransportError::Problem { problem, .. })) = another.send(&Request::Upload(upload)).await
    else {
        panic!("there is no such round")
    };
    assert_eq!(problem.problem_type(), Some(ProblemType::NotFound));
    let read = balancer.read.lock().unwrap();
    let count = |what: &str| String::from_utf8_lossy(&read).matches(what).count();
    assert_eq!((count("GET /healthz HTTP/1.1\r\n"), count("PUT /v1/")), (1, 1));
}
