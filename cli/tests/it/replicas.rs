//! Two coordinators that serve and two that work, on one PostgreSQL database and one S3 store, behind a balancer: each
//! is killed in its turn, and the others continue. They have separate folders.

#![cfg(target_os = "linux")]

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use recipe::repeatable_noise;
use test_servers::postgres::{Cluster, Options};
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};

use crate::killed::{logs, rounds, three, wait, wait_for_round};
use crate::support::{Background, Served, finish, tributary, tributary_for_tests, undisturbed};

const ROUNDS: &str = "14";

/// Passes connections on to the first address that answers, beginning with another each time.
pub(crate) struct Balancer {
    port: u16,
}

impl Balancer {
    /// In front of these, which may come and go.
    pub(crate) fn before(serving: &[&Served]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let known: Vec<_> = serving.iter().map(|served| address(served)).collect();
        std::thread::spawn(move || {
            for (turn, arrived) in listener.incoming().enumerate() {
                let mut addresses = known.clone();
                addresses.rotate_left(turn % known.len());
                let Some(onward) = addresses.iter().find_map(|address| TcpStream::connect(address).ok()) else {
                    continue;
                };
                join(arrived.unwrap(), onward);
            }
        });
        Self { port }
    }

    /// The view of participants and operators: the balancer, with the authority and the token of one coordinator behind
    /// it.
    pub(crate) fn front(&self, one: &Served) -> Served {
        front(self.port, one)
    }
}

/// The view of participants and operators on this port: with the authority and the token of one coordinator behind it.
pub(crate) fn front(port: u16, one: &Served) -> Served {
    Served {
        process: Background(std::process::Command::new("true").spawn().unwrap()),
        url: format!("https://localhost:{port}"),
        ca: one.ca.clone(),
        token: one.token.clone(),
        signed: String::new(),
        health: String::new(),
    }
}

/// Copies both ways until one side ends.
fn join(one: TcpStream, other: TcpStream) {
    for (mut from, mut to) in [(one.try_clone().unwrap(), other.try_clone().unwrap()), (other, one)] {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

/// The files that every process is given.
const KEYS: [&str; 3] = ["ca-key.pem", "ca.pem", "seal.key"];

/// As an operator makes them.
fn make_keys(folder: &Path) {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    std::fs::write(folder.join("ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(folder.join("ca-key.pem"), key.serialize_pem()).unwrap();
    // Random as the other: the key's own public half.
    std::fs::write(folder.join("seal.key"), key.public_key_raw()).unwrap();
}

/// Shared parts of all processes.
pub(crate) struct Site {
    folder: PathBuf,
    config: String,
    /// Environment of every process.
    environment: Vec<(&'static str, String)>,
    /// The executable of every process.
    executable: fn() -> Command,
}

impl Site {
    pub(crate) fn new(folder: &Path, database: &str, blobs: &S3Server) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        let credentials = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(at("s3"), credentials).unwrap();
        let text = format!(
            "[http]\nhealth_listen = \"127.0.0.1:0\"\n[database]\nurl = {database:?}\n[blobs]\nurl = \"s3://{BUCKET}/models\"\n\
             endpoint = {:?}\ncredentials_file = {:?}\n[work]\nlease_ttl_ms = 1000\n",
            blobs.endpoint(),
            at("s3"),
        );
        std::fs::create_dir(at("keys")).unwrap();
        make_keys(Path::new(&at("keys")));
        std::fs::write(at("coordinator.toml"), text).unwrap();
        let site = Self {
            folder: folder.to_owned(),
            config: at("coordinator.toml"),
            environment: Vec::new(),
            executable: tributary,
        };
        site.with("TRIBUTARY_IDENTITY_SEAL_URL", &format!("s3://{BUCKET}/apart"))
    }

    /// Draws noise from a seed, in the build that can.
    pub(crate) fn with_repeatable_noise(self, seed: &str) -> Self {
        Self { executable: tributary_for_tests, ..self }.with(repeatable_noise::VARIABLE, seed)
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    pub(crate) fn command(&self, does: &str, index: usize) -> std::process::Command {
        let mut command = (self.executable)();
        command.args(["--format", "json", does, "--config", &self.config]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("TRIBUTARY_BLOBS_CACHE", self.folder.join(format!("cache-{does}-{index}")));
        let keys = self.keys(&format!("{does}-{index}"));
        for (name, file) in [("SEAL_KEY", "seal.key"), ("CA_CERTIFICATE", "ca.pem"), ("CA_KEY", "ca-key.pem")] {
            command.env(format!("TRIBUTARY_IDENTITY_{name}_FILE"), keys.join(file));
        }
        command
    }

    /// A folder of a process's own with the keys that all have, to be read alone.
    fn keys(&self, process: &str) -> PathBuf {
        let folder = self.folder.join(format!("keys-{process}"));
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            for file in KEYS {
                std::fs::copy(self.folder.join("keys").join(file), folder.join(file)).unwrap();
                std::fs::set_permissions(folder.join(file), Permissions::from_mode(0o400)).unwrap();
            }
            std::fs::set_permissions(&folder, Permissions::from_mode(0o500)).unwrap();
        }
        folder
    }

    /// Asserts that the folder of each process has only its keys.
    fn assert_nothing_is_shared(&self) {
        let mut looked_at = 0;
        for folder in std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().path()) {
            if folder.is_dir() && folder.file_name().unwrap().to_string_lossy().starts_with("keys") {
                let mut files: Vec<_> =
                    std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
                files.sort();
                assert_eq!(files, KEYS, "in {}", folder.display());
                looked_at += 1;
            }
        }
        assert_eq!(looked_at, 5, "two that serve, two that work, and what they have from");
    }

    /// A coordinator that serves, with its background work switched off.
    pub(crate) fn serve(&self, index: usize, listen: &str) -> Served {
        let mut command = self.command("serve", index);
        command.env("TRIBUTARY_HTTP_LISTEN", listen).env("TRIBUTARY_WORK_ENABLED", "false");
        Served::until(command, "serving")
    }

    /// A process with background steps only.
    pub(crate) fn work(&self, index: usize) -> Background {
        let mut command = self.command("work", index);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().is_some_and(|line| line.unwrap().contains("\"working\"")), "it ended before");
        Background(child)
    }
}

pub(crate) fn address(served: &Served) -> String {
    served.url.rsplit('/').next().unwrap().replace("localhost", "127.0.0.1")
}

#[test]
fn rounds_go_on_whichever_coordinator_or_worker_is_lost() {
    // With durable commits: a confirmed write must survive its process.
    let Some(cluster) = Cluster::start(Options { fsync: true, tcp: true, ..Options::default() }) else { return };
    let (database, blobs, folder) = (cluster.create_database(), S3Server::start(), tempfile::tempdir().unwrap());
    let task = folder.path().join("task.toml").display().to_string();
    let args = ["--participants", "3", "--rounds", ROUNDS, "--seed", "5", "--task-file", &task];
    let expected = undisturbed(&args);

    let site = Site::new(folder.path(), &cluster.url(&database), &blobs);
    let mut serving: Vec<_> = (0..2).map(|index| Some(site.serve(index, "127.0.0.1:0"))).collect();
    let mut working: Vec<_> = (0..2).map(|index| Some(site.work(index))).collect();
    let behind: Vec<_> = serving.iter().flatten().collect();
    let everybody = Balancer::before(&behind).front(behind[0]);
    everybody.operate(&["task", "create", &task]).data();
    let mut participants = three(&everybody, folder.path());
    for number in [2, 4, 6, 8] {
        wait_for_round(&everybody, folder.path(), number);
        let index = usize::from(number > 4);
        if number % 4 == 2 {
            let killed = serving[index].take().unwrap();
            let listen = address(&killed);
            drop(killed);
            wait_for_round(&everybody, folder.path(), number + 1);
            serving[index] = Some(site.serve(index, &listen));
        } else {
            drop(working[index].take());
            wait_for_round(&everybody, folder.path(), number + 1);
            working[index] = Some(site.work(index));
        }
    }
    for child in &mut participants {
        assert_eq!(wait(&mut child.0), Some(0), "{:?}\n{}", rounds(&everybody).first(), logs(folder.path()));
    }
    let models = everybody.operate(&["model", "list", "demo"]).data();
    let published = models.as_array().unwrap().iter().rev().skip(1).map(|model| model["sha256"].clone());
    assert_eq!(published.collect::<Vec<_>>(), expected);
    for round in rounds(&everybody).iter().filter(|round| round["state"] == "COMPLETED") {
        assert_eq!(round["reported"], 3, "{round}");
    }
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM session_message WHERE message IS NOT NULL"), "0");
    let end = Instant::now() + Duration::from_secs(10);
    while blobs.keys().iter().any(|key| key.starts_with("apart/")) {
        assert!(Instant::now() < end, "a key of a release is left");
        std::thread::sleep(Duration::from_millis(50));
    }
    site.assert_nothing_is_shared();
}

#[test]
fn who_has_other_keys_than_the_others_does_not_start() {
    let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
    let (database, blobs) = (cluster.create_database(), S3Server::start());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let sites = folders.each_ref().map(|folder| Site::new(folder.path(), &cluster.url(&database), &blobs));
    let _first = sites[0].serve(0, "127.0.0.1:0");
    for does in ["serve", "work"] {
        let refused = finish(sites[1].command(does, 1).env("TRIBUTARY_HTTP_LISTEN", "127.0.0.1:0"));
        assert_eq!(refused.code, 3, "{refused}");
        assert!(refused.to_string().contains("have another identity.seal_key_file"), "{refused}");
    }
}
