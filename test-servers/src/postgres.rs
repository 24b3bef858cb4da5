//! PostgreSQL clusters from installed binaries, each with a socket, and a port of 127.0.0.1 if asked for.
//!
//! `initdb` runs once on a machine, under a lock, and clusters are copies of what it made. Where the tests run as root,
//! which PostgreSQL refuses, the server runs as `postgres` or `nobody`. A watchdog process stops the server and removes
//! its folder as soon as the test process is gone, however that ended.

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

/// The superuser of every cluster. The socket asks for no password.
pub const USER: &str = "tributary";

const STEP: Duration = Duration::from_millis(20);
/// More than a server ever takes to start or to stop.
const STEPS: u32 = 3_000;

/// What differs between clusters.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether commits reach the disk: `true` for tests of crashes.
    pub fsync: bool,
    /// Whether 127.0.0.1 is listened on, too.
    pub tcp: bool,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// Files to put into the data folder, which only the server's user can read, such as `server.key` or `pg_hba.conf`.
    pub files: Vec<(String, String)>,
}

/// A running server; its folder goes with it.
#[derive(Debug)]
pub struct Cluster {
    binaries: PathBuf,
    folder: PathBuf,
    port: u16,
    options: Options,
    databases: AtomicU32,
    /// Ends everything as soon as its standard input is closed.
    watchdog: Child,
}

impl Cluster {
    /// A cluster that all tests of a process share. `None` where there is no PostgreSQL, which has been said then.
    ///
    /// # Panics
    /// If it cannot be started, or is absent and [`REQUIRE`](crate::REQUIRE) is set.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Options::default())).as_ref()
    }

    /// A cluster of one's own. `None` where there is no PostgreSQL, which has been said then.
    ///
    /// # Panics
    /// A cluster for one test; `None`, and the test is skipped, where PostgreSQL is not installed.
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

    /// The port of 127.0.0.1, and of the socket's name.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new empty database; its name.
    ///
    /// # Panics
    /// If the server does not make it.
    pub fn create_database(&self) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy"));
        name
    }

    /// Removes a database, whoever is connected to it: each takes 8 MB.
    ///
    /// # Panics
    /// If the server does not.
    pub fn drop_database(&self, name: &str) {
        self.sql("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }

    /// Where a database is, through the socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{}/{database}", self.port)
    }

    /// Runs statements as the superuser; what they print, without headers.
    ///
    /// # Panics
    /// If one fails.
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

    /// Kills the server as a crash does: nothing is flushed that was not.
    pub fn crash(&self) {
        // The server's processes notice that their parent is gone; the next start waits for them.
        signal(&self.folder, Signal::KILL);
    }

    /// Starts it again after [`Cluster::crash`]; returns when it answers.
    ///
    /// # Panics
    /// If it does not start.
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
                    // Whoever waits for its end would see a process that has ended but was not asked how.
                    std::thread::spawn(move || server.wait());
                    return;
                }
                // After a crash it refuses to start while the processes of the one before are still ending.
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

/// The newest version's folder of programs.
#[expect(clippy::disallowed_methods, reason = "tests have no configuration but this")]
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    folders.into_iter().find(|folder| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).exists()))
}

/// What `initdb` makes, once on a machine for each version and user.
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

/// A process that waits until nobody holds its standard input, then stops the server and removes the folder.
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

/// A command as a user that PostgreSQL accepts.
fn unprivileged(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    if geteuid().is_root() {
        let (user, group) = user();
        command.uid(user).gid(group);
    }
    command
}

/// User and group that servers run as.
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

/// Makes a path the server's.
fn give(path: &Path) {
    let (user, group) = user();
    chown(path, Some(user), Some(group)).unwrap();
}

/// A port that was free a moment ago.
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
