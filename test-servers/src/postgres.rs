//! PostgreSQL clusters from installed binaries, each with a socket and optionally a port of 127.0.0.1.
//!
//! `initdb` runs once per machine, under a lock, and clusters are copies of its result. PostgreSQL refuses to run as root, so root tests
//! run the server as `postgres` or `nobody`. A watchdog process stops the server and removes its folder when the test process ends, even by
//! a crash.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// The superuser of every cluster. The socket requires no password.
pub const USER: &str = "tributary";

const STEP: Duration = Duration::from_millis(20);
/// More steps than a server ever takes to start or stop.
const STEPS: u32 = 3_000;

/// Options of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether commits are flushed to disk: `true` for crash tests.
    pub fsync: bool,
    /// Whether the server also listens on 127.0.0.1.
    pub tcp: bool,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// Files for the data folder, readable only by the server's user, such as `server.key` or `pg_hba.conf`.
    pub files: Vec<(String, String)>,
}

/// A running server; its folder is removed with it.
#[derive(Debug)]
pub struct Cluster {
    binaries: PathBuf,
    folder: PathBuf,
    port: u16,
    options: Options,
    databases: AtomicU32,
    /// Stops everything when its standard input is closed.
    watchdog: Child,
}

impl Cluster {
    /// A cluster shared by all tests of a process. Without PostgreSQL, reports it and returns `None`.
    ///
    /// # Panics
    /// It cannot be started, or is missing and [`REQUIRE`](crate::REQUIRE) is set.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Options::default())).as_ref()
    }

    /// A cluster for one test. Without PostgreSQL, reports it and returns `None`.
    ///
    /// # Panics
    /// It cannot be started, or is missing and [`REQUIRE`](crate::REQUIRE) is set.
    pub fn start(options: Options) -> Option<Self> {
        let Some(binaries) = binaries() else {
            crate::skip("PostgreSQL's initdb and postgres are not installed (apt-get install postgresql-15)");
            return None;
        };
        let template = template(&binaries);
        let folder = tempfile::Builder::new().prefix("tributary-pg").tempdir().unwrap().keep();
        give(&folder);
        run(unprivileged("cp").arg("-a").arg(&template).arg(folder.join("data")));
        for (name, contents) in &options.files {
            let path = folder.join("data").join(name);
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            give(&path);
        }
        let port = if options.tcp { free_port() } else { 5432 };
        let cluster =
            Self { watchdog: watchdog(&folder), binaries, folder, port, options, databases: AtomicU32::new(0) };
        cluster.run_server();
        Some(cluster)
    }

    /// The folder of the server's socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The port of 127.0.0.1, also in the socket's name.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates an empty database, and returns its name.
    ///
    /// # Panics
    /// The server fails.
    pub fn create_database(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy"));
        name
    }

    /// Removes a database, even with open connections: each database takes 8 MB.
    ///
    /// # Panics
    /// The server fails.
    pub fn drop_database(&self, name: &str) {
        self.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    /// The URL of a database through the socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{}/{database}", self.port)
    }

    /// Runs statements as the superuser; returns their output without headers.
    ///
    /// # Panics
    /// A statement fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let output = self
            .client("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c"])
            .arg(statements)
            .output()
            .unwrap();
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Kills the server like a crash, without flushing.
    pub fn crash(&self) {
        // The server's processes notice the death of their parent; the next start waits for them.
        signal(&self.folder, Signal::KILL);
    }

    /// Restarts the server after [`Cluster::crash`]; returns when it responds.
    ///
    /// # Panics
    /// The server does not start.
    pub fn restart(&self) {
        self.run_server();
    }

    fn run_server(&self) {
        let (on_tcp, fsync) =
            (if self.options.tcp { "127.0.0.1" } else { "" }, if self.options.fsync { "on" } else { "off" });
        let settings = [
            ("listen_addresses", on_tcp),
            ("fsync", fsync),
            ("full_page_writes", fsync),
            ("synchronous_commit", fsync),
            ("unix_socket_directories", self.folder.to_str().unwrap()),
            ("max_connections", "200"),
            ("shared_buffers", "32MB"),
        ];
        let more = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for _ in 0..10 {
            let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
            let mut server = unprivileged(self.binaries.join("postgres"));
            server.arg("-D").arg(self.folder.join("data")).args(["-p", &self.port.to_string()]);
            for (name, value) in settings.into_iter().chain(more.clone()) {
                server.arg("-c").arg(format!("{name}={value}"));
            }
            let mut server =
                server.stdout(Stdio::null()).stderr(log).stdin(Stdio::null()).process_group(0).spawn().unwrap();
            for _ in 0..STEPS {
                if self.client("pg_isready").arg("-q").status().unwrap().success() {
                    // Reaps the server, to leave no zombie for processes waiting for its end.
                    std::thread::spawn(move || server.wait());
                    return;
                }
                // After a crash the server refuses to start until the earlier processes have ended.
                if server.try_wait().unwrap().is_some() {
                    break;
                }
                sleep(STEP);
            }
            sleep(5 * STEP);
        }
        panic!("PostgreSQL does not start: {}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        command.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]);
        if name == "psql" {
            command.args(["-U", USER]);
        }
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// The program folder of the newest version.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but this")]
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders.into_iter().find(|folder| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).exists()))
}

/// The result of `initdb`, created once per machine, version and user.
fn template(binaries: &Path) -> PathBuf {
    let version = output(Command::new(binaries.join("postgres")).arg("--version"));
    let version = version.split_whitespace().nth(2).unwrap_or("unknown").replace('/', "");
    let folder = std::env::temp_dir().join(format!("tributary-initdb-{}-{version}", geteuid().as_raw()));
    fs::create_dir_all(&folder).unwrap();
    let owner = fs::metadata(&folder).unwrap().uid();
    assert!([geteuid().as_raw(), user().0].contains(&owner), "{} is somebody else's", folder.display());
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let data = folder.join("data");
    if !data.exists() {
        give(&folder);
        let unfinished = folder.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        run(unprivileged(binaries.join("initdb")).arg("-D").arg(&unfinished).args(["-U", USER]).args([
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-instructions",
        ]));
        fs::rename(unfinished, &data).unwrap();
    }
    data
}

/// Starts a process that waits for the end of its standard input, then stops the server and removes the folder.
fn watchdog(folder: &Path) -> Child {
    let script = "cd /; cat >/dev/null; pid=$(head -n 1 \"$0/data/postmaster.pid\" 2>/dev/null)
        [ -z \"$pid\" ] || kill -QUIT \"$pid\" 2>/dev/null
        while [ -n \"$pid\" ] && kill -0 \"$pid\" 2>/dev/null; do sleep 0.02; done
        rm -rf \"$0\"";
    let mut command = unprivileged("sh");
    command.arg("-c").arg(script).arg(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn().unwrap()
}

fn signal(folder: &Path, signal: Signal) {
    let told = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    let pid = told.lines().next().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
    kill_process(pid.unwrap(), signal).unwrap();
}

/// A command run as a user accepted by PostgreSQL.
fn unprivileged(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    if geteuid().is_root() {
        let (user, group) = user();
        command.uid(user).gid(group);
    }
    command
}

/// User and group of the servers.
fn user() -> (u32, u32) {
    if !geteuid().is_root() {
        return (geteuid().as_raw(), rustix::process::getegid().as_raw());
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let id = |name: &str| {
        let fields: Vec<&str> = users.lines().find(|line| line.split(':').next() == Some(name))?.split(':').collect();
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    id("postgres").or_else(|| id("nobody")).unwrap()
}

/// Changes the owner of a path to the server's user.
fn give(path: &Path) {
    let (user, group) = user();
    chown(path, Some(user), Some(group)).unwrap();
}

/// A recently free port.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn run(command: &mut Command) {
    output(command);
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_apart_and_a_crash_keeps_what_was_committed() {
        let Some(cluster) = Cluster::start(Options { fsync: true, tcp: true, ..Options::default() }) else { return };
        let (one, two) = (cluster.create_database(), cluster.create_database());
        cluster.sql(&one, "CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
        assert_eq!(cluster.sql(&two, "SELECT count(*) FROM pg_class WHERE relname = 't'"), "0");
        assert!(std::net::TcpStream::connect(("127.0.0.1", cluster.port())).is_ok());
        cluster.crash();
        cluster.restart();
        assert_eq!(cluster.sql(&one, "SELECT n FROM t"), "7");
        let folder = cluster.folder().to_owned();
        drop(cluster);
        assert!(!folder.exists(), "nothing is left");
    }
}
