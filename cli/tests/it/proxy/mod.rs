//! HTTP forward proxies: participants and operators reach a coordinator whose name only the proxy resolves.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod coordinator;

use crate::killed::{logs, participant_of, wait};
use crate::support::{Background, Ran, Served, finish, run, tributary};

/// The coordinator's name, which DNS cannot resolve.
const NAME: &str = "fl.site.test";
const CREDENTIALS: &str = "ward:s3cret";
/// The credentials in Base64.
const AUTHORIZATION: &str = "\r\nproxy-authorization: Basic d2FyZDpzM2NyZXQ=\r\n";

/// A proxy's response to CONNECT.
#[derive(Clone, Copy)]
enum Response {
    /// A tunnel to this port of this machine.
    Tunnel(u16),
    /// This status line, and the end of the connection.
    Status(&'static str),
    /// A status line, then header lines without end.
    Endless,
    /// The greeting of another protocol.
    Garbage,
    Silence,
}

struct Proxy {
    address: String,
    /// Heads of the requests so far.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(response: Response) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, heads) = (stream.unwrap(), Arc::clone(&kept));
                std::thread::spawn(move || respond(stream, response, &heads));
            }
        });
        Self { address, heads }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Address with a name and a password.
    fn url_with_password(&self) -> String {
        format!("http://{CREDENTIALS}@{}", self.address)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn respond(mut stream: TcpStream, response: Response, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    heads.lock().unwrap().push(String::from_utf8(head).unwrap());
    match response {
        Response::Tunnel(port) => tunnel(stream, port),
        Response::Status(line) => {
            let _ = write!(stream, "HTTP/1.1 {line}\r\ncontent-length: 6\r\n\r\nreason");
        }
        Response::Endless => {
            let mut sent = write!(stream, "HTTP/1.1 200 OK\r\n");
            while sent.is_ok() {
                sent = write!(stream, "x-filler: {}\r\n", "y".repeat(1000));
            }
        }
        Response::Garbage => drop(stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")),
        // Until the client ends the connection.
        Response::Silence => drop(stream.read_exact(&mut byte)),
    }
}

fn tunnel(mut client: TcpStream, port: u16) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Write);
}

/// A coordinator with a certificate for [`NAME`], too.
fn serve(folder: &Path) -> Served {
    let names = format!("[\"localhost\", \"{NAME}\", \"127.0.0.1\"]");
    Served::dev_with(&folder.join("data"), &[("TRIBUTARY_HTTP_PUBLIC_NAMES", names.as_str())])
}

fn port(served: &Served) -> u16 {
    served.url.rsplit(':').next().unwrap().parse().unwrap()
}

/// The same coordinator by another name.
fn named(served: &Served, name: &str) -> Served {
    Served {
        process: Background(Command::new("true").spawn().unwrap()),
        url: format!("https://{name}:{}", port(served)),
        ca: served.ca.clone(),
        token: served.token.clone(),
        signed: String::new(),
        health: String::new(),
    }
}

/// `task list` with these variables and flags.
fn list(served: &Served, variables: &[(&str, &str)], flags: &[&str]) -> Ran {
    let mut command = tributary();
    command.env("TRIBUTARY_SERVER", &served.url).env("TRIBUTARY_CA", &served.ca).env("TRIBUTARY_TOKEN", &served.token);
    finish(command.envs(variables.iter().copied()).args(["--format", "json", "task", "list"]).args(flags))
}

/// Trains a task of one round with three participants whose commands `configure` completes.
fn train(served: &Served, front: &Served, folder: &Path, configure: impl Fn(&mut Command)) {
    let task = folder.join("task.toml");
    let args = ["--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    let demo = run(&[&["--format", "json", "demo"][..], &args].concat());
    assert_eq!(demo.code, 0, "{demo}");
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let start = |index| {
        let token = served.enrollment_token();
        let mut command = participant_of(tributary(), front, folder, index, Some(&token));
        configure(&mut command);
        Background(command.spawn().unwrap())
    };
    for child in &mut (0..3).map(start).collect::<Vec<_>>() {
        assert_eq!(wait(&mut child.0), Some(0), "{}", logs(folder));
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    assert_eq!(models.as_array().unwrap().len(), 2, "{models}");
}

#[test]
fn participants_train_through_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path());
    let front = named(&served, NAME);
    let proxy = Proxy::start(Response::Tunnel(port(&served)));
    let url = proxy.url_with_password();
    train(&served, &front, folder.path(), |command| {
        command.env("HTTPS_PROXY", &url);
    });
    let (heads, line) = (proxy.heads(), format!("CONNECT {NAME}:{} HTTP/1.1\r\n", port(&served)));
    assert!(heads.len() >= 3, "{heads:?}");
    assert!(heads.iter().all(|head| head.starts_with(&line) && head.contains(AUTHORIZATION)), "{heads:?}");
    let logs = logs(folder.path());
    assert!(!logs.contains("s3cret") && !logs.contains("d2FyZDpzM2NyZXQ"), "{logs}");
}

#[test]
fn operators_use_the_proxy_unless_exempt() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path());
    let (front, here) = (named(&served, NAME), named(&served, "127.0.0.1"));
    let proxy = Proxy::start(Response::Tunnel(port(&served)));
    let url = proxy.url();
    let count = || proxy.heads().len();
    list(&front, &[("https_proxy", &url)], &[]).data();
    list(&front, &[("all_proxy", &url)], &[]).data();
    list(&front, &[("HTTPS_PROXY", "http://127.0.0.1:1")], &["--proxy", &url]).data();
    list(&here, &[("HTTPS_PROXY", &url)], &[]).data();
    assert_eq!(count(), 4, "{:?}", proxy.heads());

    let exact = format!("localhost,127.0.0.1:{}", port(&served));
    for exempt in ["127.0.0.1", "127.0.0.0/8", "*", exact.as_str()] {
        list(&here, &[("HTTPS_PROXY", &url), ("NO_PROXY", exempt)], &[]).data();
    }
    list(&here, &[("HTTPS_PROXY", &url)], &["--proxy", "none"]).data();
    assert_eq!(count(), 4, "{:?}", proxy.heads());
}

#[test]
fn operators_learn_why_a_proxy_gives_no_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path());
    let front = named(&served, NAME);
    let fails = |url: &str, code: i32, expected: &str| {
        let ran = list(&front, &[("HTTPS_PROXY", url)], &[]);
        assert_eq!(ran.code, code, "{ran}");
        assert!(ran.stdout.contains(expected), "{expected}: {ran}");
        assert!(!ran.to_string().contains("s3cret"), "{ran}");
    };
    for (line, expected) in [
        ("407 Proxy Authentication Required", "answered 407 Proxy Authentication Required; it requires a name"),
        ("403 Forbidden", "answered 403 Forbidden; its rules have to allow CONNECT to fl.site.test"),
        ("503 Service Unavailable", "answered 503 Service Unavailable; it did not reach fl.site.test"),
    ] {
        let proxy = Proxy::start(Response::Status(line));
        fails(&proxy.url(), 5, &format!("the proxy {} (HTTPS_PROXY) {expected}", proxy.url()));
    }
    let wrong = Proxy::start(Response::Status("407 Proxy Authentication Required"));
    let url = wrong.url_with_password();
    fails(&url, 5, "it does not accept the name and the password");
    fails(&format!("http://{CREDENTIALS}@127.0.0.1:1"), 5, "the proxy http://127.0.0.1:1 (HTTPS_PROXY) could not be");
    fails(&Proxy::start(Response::Endless).url(), 5, "sent no valid HTTP response: message head is too large");
    fails(&Proxy::start(Response::Garbage).url(), 5, "sent no valid HTTP response: ");
    fails(&Proxy::start(Response::Silence).url(), 5, "(HTTPS_PROXY) gave no tunnel in 10 s");
    fails(&format!("socks5://{CREDENTIALS}@127.0.0.1:1"), 3, "HTTPS_PROXY cannot be used: only proxies of HTTP");
    let ran = list(&front, &[], &["--proxy", &format!("ftp://{CREDENTIALS}@127.0.0.1")]);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stdout.contains("--proxy: ") && !ran.to_string().contains("s3cret"), "{ran}");
}

#[test]
fn participants_report_a_proxy_without_a_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path());
    let front = named(&served, NAME);
    let silent = Proxy::start(Response::Silence);
    let proxies =
        [Proxy::start(Response::Status("407 Proxy Authentication Required")), Proxy::start(Response::Endless)];
    let (began, token) = (Instant::now(), served.enrollment_token());
    let _running: Vec<_> = [&proxies[0], &proxies[1], &silent]
        .into_iter()
        .enumerate()
        .map(|(index, proxy)| {
            let mut command = participant_of(tributary(), &front, folder.path(), index, Some(&token));
            Background(command.args(["--proxy", &proxy.url()]).spawn().unwrap())
        })
        .collect();
    let expected = [
        format!("the proxy {} answered 407 Proxy Authentication Required; it requires a name", proxies[0].url()),
        format!("the proxy {} sent no valid HTTP response: message head is too large", proxies[1].url()),
        format!("the proxy {} did not answer for 20 s", silent.url()),
    ];
    while !expected.iter().all(|text| logs(folder.path()).contains(text)) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", logs(folder.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The proxy leads to another coordinator of the same name: TLS notices it, on either side of the API.
#[test]
fn tunnels_to_another_server_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let [served, other] = ["a", "b"].map(|name| serve(&folder.path().join(name)));
    let proxy = Proxy::start(Response::Tunnel(port(&other)));
    let front = named(&served, NAME);
    let expected = "no authority that is trusted here has signed the coordinator's certificate";
    let ran = list(&front, &[("HTTPS_PROXY", &proxy.url())], &[]);
    assert!(ran.code == 5 && ran.stdout.contains(expected), "{ran}");
    let token = served.enrollment_token();
    let mut command = participant_of(tributary(), &front, folder.path(), 0, Some(&token));
    command.args(["--proxy", &proxy.url(), "--once", "--once-within", "5"]);
    let mut participant = Background(command.spawn().unwrap());
    assert_eq!(wait(&mut participant.0), Some(5), "{}", logs(folder.path()));
    assert!(logs(folder.path()).contains(expected), "{}", logs(folder.path()));
    assert!(other.operate(&["participant", "list"]).data().as_array().unwrap().is_empty());
}

/// Debian's tinyproxy, if it is installed.
#[test]
fn participants_train_through_tinyproxy() {
    let is_there =
        Command::new("tinyproxy").arg("-v").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_there {
        test_servers::skipped("no tinyproxy, so no participant trained through it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let served = serve(folder.path());
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let file = folder.path().join("tinyproxy.conf");
    let settings = format!(
        "Listen 127.0.0.1\nPort {}\nConnectPort {}\nBasicAuth ward s3cret\nTimeout 60\n",
        address.port(),
        port(&served)
    );
    std::fs::write(&file, settings).unwrap();
    let _tinyproxy = Background(Command::new("tinyproxy").arg("-d").arg("-c").arg(&file).spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "tinyproxy did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let denied = list(&served, &[], &["--proxy", &format!("http://{address}")]);
    assert!(denied.code == 5 && denied.stdout.contains("answered 407"), "{denied}");
    let url = format!("http://{CREDENTIALS}@{address}");
    list(&served, &[], &["--proxy", &url]).data();
    train(&served, &served, folder.path(), |command| {
        command.args(["--proxy", &url]);
    });
}
