//! How many authenticated polls one core of the coordinator answers, over kept-alive TLS with client certificates.
//!
//! The coordinator is a process of its own, with rows and blobs on disk, so that its processor time can be told from the
//! participants'. Prints one line; asserts nothing, since machines differ.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench that fails should stop, and shows its figure")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coordinator::config::Config;
use coordinator::{Coordinator, Parts};
use serde_json::{Value, json};
use wire::admin::Role;
use wire::participant::EnrollReply;
use wire::route;

const PARTICIPANTS: usize = 32;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);

fn main() {
    if std::env::args().any(|argument| argument == "--serve") {
        serve();
    } else {
        measure();
    }
}

/// The coordinator: tells where it is on standard output, ends when standard input does.
#[tokio::main]
async fn serve() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut config = Config::default();
    config.database.url = format!("sqlite:{}", path("rows.db").display());
    config.blobs.url = format!("file:{}", path("blobs").display());
    config.identity.ca_certificate_file = path("ca.pem");
    config.identity.ca_key_file = path("ca-key.pem");
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.http.participant_rate = 1_000_000;
    let running = Coordinator::start(&config, Parts::system().unwrap()).await.unwrap();
    let token = running.create_operator_token("bench", Role::Admin).await.unwrap().token;
    let hello = json!({ "url": running.url(), "ca": running.ca_pem(), "token": token });
    println!("{hello}");
    std::io::stdout().flush().unwrap();
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    running.shutdown().await;
}

struct Server {
    child: Child,
    /// Its end ends the server.
    _stdin: ChildStdin,
    url: String,
    ca: reqwest::Certificate,
    token: String,
}

impl Server {
    fn start() -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child =
            Command::new(program).arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let hello: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| hello[name].as_str().unwrap().to_owned();
        let ca = reqwest::Certificate::from_pem(text("ca").as_bytes()).unwrap();
        Self { _stdin: child.stdin.take().unwrap(), child, url: text("url"), ca, token: text("token") }
    }

    fn client(&self, identity: Option<&str>) -> reqwest::Client {
        let builder = reqwest::Client::builder().tls_certs_only([self.ca.clone()]);
        let identity = identity.map(|pem| reqwest::Identity::from_pem(pem.as_bytes()).unwrap());
        identity.into_iter().fold(builder, reqwest::ClientBuilder::identity).build().unwrap()
    }

    async fn operate(&self, path: &str, body: &Value) -> Value {
        let request = self.client(None).post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    async fn participant(&self) -> reqwest::Client {
        let token = self.operate(route::ENROLLMENT_TOKENS, &json!({})).await["token"].clone();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let body = json!({ "token": token, "csr_pem": csr });
        let request = self.client(None).post(format!("{}{}", self.url, route::ENROLL)).json(&body);
        let reply: EnrollReply = request.send().await.unwrap().json().await.unwrap();
        self.client(Some(&(key.serialize_pem() + &reply.certificate_pem)))
    }

    /// Processor time of all its threads, in ticks of 10 ms (`/proc`, Linux; `CLK_TCK` is 100 on every architecture).
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
async fn measure() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::start();
    // Never drawn: polls are all there is.
    let spec = json!({
        "name": "bench",
        "model": { "tensors": [{ "name": "w", "shape": [1000] }] },
        "selection": { "cohort": { "count": 1000 } },
    });
    server.operate(route::TASKS, &json!({ "spec": spec })).await;
    let (polls, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut participants = tokio::task::JoinSet::new();
    for _ in 0..PARTICIPANTS {
        let client = server.participant().await;
        let (polls, stop, url) = (Arc::clone(&polls), Arc::clone(&stop), format!("{}{}", server.url, route::CHECK_IN));
        participants.spawn(async move {
            let body = json!({ "task": "bench", "examples": 100 });
            while !stop.load(Ordering::Relaxed) {
                let reply = client.post(&url).json(&body).send().await.unwrap();
                let reply: Value = reply.error_for_status().unwrap().json().await.unwrap();
                assert_eq!(reply["kind"], "come_back");
                polls.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep(WARM_UP).await;
    let (began, cpu, before) = (Instant::now(), server.cpu(), polls.load(Ordering::Relaxed));
    tokio::time::sleep(MEASURED).await;
    let (took, cpu, count) = (began.elapsed(), server.cpu() - cpu, polls.load(Ordering::Relaxed) - before);
    stop.store(true, Ordering::Relaxed);
    participants.join_all().await;
    let count = u32::try_from(count).unwrap();
    println!(
        "polls: {:.0} per second of the coordinator's processor time, {:.0} µs each; {:.0} per second in all, from \
         {PARTICIPANTS} participants",
        f64::from(count) / cpu.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / f64::from(count),
        f64::from(count) / took.as_secs_f64(),
    );
}
