//! A coordinator whose rows are in PostgreSQL, killed in the middle: its published models are those of the demo on
//! SQLite.

#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use test_servers::postgres::{Cluster, Options, USER};

use crate::killed::{logs, rounds, three, wait_for_round};
use crate::restored::{Rows, the_same_cohort_goes_on};
use crate::support::{Served, run, tributary};

const ROUNDS: &str = "10";

/// `serve` at an address.
fn serve(config: &str, listen: &str) -> Served {
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--config", config]).env("TRIBUTARY_HTTP_LISTEN", listen);
    Served::until(command, "serving")
}

/// A server on 127.0.0.1 that demands a password there.
fn by_password() -> Options {
    let access = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    Options { tcp: true, files: vec![("pg_hba.conf".to_owned(), access.to_owned())], ..Options::default() }
}

fn written(folder: &Path, url: &str, password: Option<&Path>) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let password = password.map(|file| format!("password_file = {file:?}\n")).unwrap_or_default();
    let text = format!(
        "[http]\nhealth_listen = \"127.0.0.1:0\"\n[database]\nurl = {url:?}\n{password}[blobs]\nurl = \"file:{}\"\n\
         [identity]\nca_certificate_file = {:?}\nca_key_file = {:?}\n",
        at("blobs"),
        at("ca.pem"),
        at("ca-key.pem"),
    );
    let file = folder.join("coordinator.toml");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Counters so far, with their labels.
pub(crate) fn counters(served: &Served) -> Vec<(String, u64)> {
    let mut stream = TcpStream::connect(&served.health).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let counters = answer.lines().filter_map(|line| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    counters.collect()
}

#[test]
fn a_secure_task_runs_to_its_end_on_postgres_through_a_kill() {
    // With real commits: answered requests must outlive the coordinator. It authenticates by a password, from its file.
    let Some(cluster) = Cluster::start(Options { fsync: true, ..by_password() }) else { return };
    let database = cluster.create_database();
    cluster.sql("postgres", &format!("ALTER USER {USER} PASSWORD 'geheim'"));
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "geheim\n").unwrap();
    let task = folder.path().join("task.toml").display().to_string();
    let args = ["--participants", "3", "--rounds", ROUNDS, "--seed", "5", "--task-file", &task];
    let on_sqlite = run(&[&["--format", "json", "demo"][..], &args].concat());
    assert_eq!(on_sqlite.code, 0, "{on_sqlite}");
    let events = on_sqlite.events();
    let expected: Vec<_> =
        events.iter().filter(|event| event["event"] == "round").map(|event| &event["model"]["sha256"]).collect();

    let url = format!("postgres://{USER}@127.0.0.1:{}/{database}", cluster.port());
    let config = written(folder.path(), &url, Some(&password));
    for _ in 0..2 {
        assert_eq!(run(&["--format", "json", "migrate", "--config", &config]).data()["database"], "up_to_date");
    }
    let served = serve(&config, "127.0.0.1:0");
    // A token created with database access while the coordinator runs.
    let made = run(&[
        "--format",
        "json",
        "token",
        "create",
        "--role",
        "viewer",
        "--name",
        "ann",
        "--offline",
        "--config",
        &config,
    ]);
    let token = made.data()["token"].as_str().unwrap().to_owned();
    assert_eq!(served.operate_as(&token, &["task", "list"]).code, 0);

    served.operate(&["task", "create", &task]).data();
    let mut participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 4);
    let mut counted = counters(&served);
    counted.retain(|(name, _)| {
        name.starts_with("tributary_database_round_trips_total{")
            || ["tributary_polls_total", "tributary_masked_inputs_total"].contains(&name.as_str())
    });
    counted.sort();
    for (name, count) in &counted {
        println!("{count:6} {name}");
    }
    let waits = |name: &str| {
        let name = format!("tributary_database_round_trips_total{{transaction=\"{name}\"}}");
        counted.iter().find(|(counted, _)| *counted == name).map_or(0, |(_, count)| *count)
    };
    assert!(waits("admit") > 0 && waits("look_for_work") > 0 && waits("find_participant") > 0, "{counted:?}");

    let Served { process, url, token, .. } = served;
    drop(process);
    let port = url.rsplit(':').next().unwrap();
    let served = Served { token, ..serve(&config, &format!("127.0.0.1:{port}")) };
    let end = Instant::now() + Duration::from_secs(120);
    for child in &mut participants {
        while child.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "{:?}\n{}", rounds(&served).first(), logs(folder.path()));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(child.0.wait().unwrap().code(), Some(0), "{}", logs(folder.path()));
    }
    let models = served.operate(&["model", "list", "demo"]).data();
    let published: Vec<_> = models.as_array().unwrap().iter().rev().skip(1).map(|model| &model["sha256"]).collect();
    assert_eq!(published, expected);
    for round in rounds(&served).iter().filter(|round| round["state"] == "COMPLETED") {
        assert_eq!(round["reported"], 3, "{round}");
    }
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM session_message WHERE message IS NOT NULL"), "0");
    let log = std::fs::read_to_string(cluster.folder().join("log")).unwrap();
    assert!(!log.contains("no transaction in progress"), "{log}");
    // Each kind of transaction that conflicts does so once a minute, not several times a round.
    let refused = log.matches("could not serialize access").count();
    println!("{refused} transactions were refused in {ROUNDS} rounds");
    assert!(refused <= 60, "{refused} transactions were refused in {ROUNDS} rounds");
}

#[test]
fn serve_without_access_ends_at_once() {
    let Some(cluster) = Cluster::start(by_password()) else { return };
    cluster.sql("postgres", &format!("ALTER USER {USER} PASSWORD 'geheim'"));
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    for (database, secret, expected) in
        [("postgres", "verraten", "password authentication failed"), ("nowhere", "geheim", "does not exist")]
    {
        std::fs::write(&password, secret).unwrap();
        let url = format!("postgres://{USER}@127.0.0.1:{}/{database}", cluster.port());
        let config = written(folder.path(), &url, Some(&password));
        let mut command = tributary();
        command.args(["--format", "json", "serve", "--config", &config]);
        let ended = crate::support::finish(&mut command);
        let words = ended.to_string();
        assert_eq!(ended.code, 15, "{ended}");
        assert!(words.contains("no access to the database") && words.contains(expected), "{ended}");
        assert!(!words.contains("waiting for it") && !words.contains(secret), "{ended}");
    }
}

#[test]
fn serve_and_work_wait_for_a_database_that_is_away() {
    let Some(cluster) = Cluster::start(Options { tcp: true, ..Options::default() }) else { return };
    let database = cluster.create_database();
    cluster.crash();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("postgres://{USER}@127.0.0.1:{}/{database}", cluster.port());
    let config = written(folder.path(), &url, None);
    for (name, limit, waits) in [("serve", "0", false), ("serve", "1500", true), ("work", "1500", true)] {
        let begun = Instant::now();
        let mut command = tributary();
        command.args(["--format", "json", name, "--config", &config]).env("TRIBUTARY_DATABASE_START_TIMEOUT_MS", limit);
        let ended = crate::support::finish(&mut command);
        assert_eq!(ended.code, 15, "{ended}");
        assert!(ended.to_string().contains("the database cannot be reached"), "{ended}");
        assert_eq!(ended.to_string().contains("waiting for it"), waits, "{ended}");
        assert!(!waits || begun.elapsed() >= Duration::from_millis(700), "{ended}");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            cluster.restart();
        });
        let served = serve(&config, "127.0.0.1:0");
        assert_eq!(served.operate(&["task", "list"]).code, 0);
    });
}

/// A standby that takes over lacks the rows that the primary had not sent. Here its database is a copy from some rounds earlier.
#[test]
fn after_a_failover_that_lost_rounds_the_same_cohort_goes_on() {
    let Some(cluster) = Cluster::start(Options::default()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = cluster.create_database();
    let config = written(folder.path(), &cluster.url(&database), None);
    assert_eq!(run(&["migrate", "--config", &config]).code, 0);
    let copy = |from: &str, to: &str| {
        let ended = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{from}'");
        cluster.sql("postgres", &ended);
        cluster.sql("postgres", &format!("CREATE DATABASE {to} TEMPLATE {from}"));
    };
    let rows = Rows {
        restart: &|Served { process, url, token, .. }, act| {
            drop(process);
            act();
            let port = url.rsplit(':').next().unwrap();
            Served { token, ..serve(&config, &format!("127.0.0.1:{port}")) }
        },
        keep: &|| copy(&database, "standby"),
        forget: &|| {
            cluster.drop_database(&database);
            copy("standby", &database);
        },
    };
    the_same_cohort_goes_on(folder.path(), serve(&config, "127.0.0.1:0"), &rows);
}

#[test]
fn a_password_comes_from_its_file_and_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "geheim\n").unwrap();
    let config = written(folder.path(), "postgres://ann@localhost:1/rows", None);
    let with = |url: &str, file: Option<&Path>, args: &[&str]| {
        let mut command = tributary();
        command.args(["--format", "json"]).args(args).args(["--config", &config]).env("TRIBUTARY_DATABASE_URL", url);
        if let Some(file) = file {
            command.env("TRIBUTARY_DATABASE_PASSWORD_FILE", file);
        }
        let ran = crate::support::finish(&mut command);
        assert!(!ran.to_string().contains("geheim"), "{ran}");
        ran
    };
    // This port is closed.
    for (url, file) in
        [("postgres://ann@localhost:1/rows", Some(&*password)), ("postgres://ann:geheim@localhost:1/rows", None)]
    {
        let refused = with(url, file, &["migrate"]);
        assert_ne!(refused.code, 0);
        assert!(refused.to_string().contains("the database cannot be reached"), "{refused}");
        assert_eq!(with(url, file, &["check-config"]).code, 0);
    }
    let absent = folder.path().join("absent");
    let refused = with("postgres://ann@localhost:1/rows", Some(&absent), &["migrate"]);
    assert!(refused.to_string().contains("database.password_file"), "{refused}");
    let both = with("postgres://ann:geheim@localhost:1/rows", Some(&password), &["check-config"]);
    assert!(both.code != 0 && both.to_string().contains("database.password_file"), "{both}");
}
