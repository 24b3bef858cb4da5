//! Tables that commands print: of PostgreSQL, and of programs that fail or do not end.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use test_servers::postgres::{Cluster, USER};

use crate::support::{Background, Ran, Served, finish, tributary};
use crate::tables::{blocks, hospital_with, table};

fn check(folder: &Path, data: &str, variables: &[(&str, &Path)]) -> Ran {
    std::fs::write(folder.join("readmissions.toml"), blocks("toml")[0]).unwrap();
    let args = ["participant", "check", "--task", "readmissions.toml", "--data", data];
    finish(tributary().current_dir(folder).args(args).envs(variables.iter().copied()))
}

/// The `--data` of docs/TABLES.md for PostgreSQL.
fn query() -> &'static str {
    let (_, data) = blocks("sh psql")[0].split_once("--data \"").unwrap();
    data.trim_end().strip_suffix('"').unwrap()
}

/// A database with the rows of a hospital, and the file that names it. An age is NULL where the file has `NA`.
fn service(cluster: &Cluster, folder: &Path) -> PathBuf {
    let name = cluster.create_database();
    let text = table(1);
    let rows = text.lines().skip(1).map(|line| {
        let cells: Vec<_> = line.split(',').map(|cell| format!("'{cell}'")).collect();
        format!("({})", cells.join(",")).replace("'NA'", "NULL")
    });
    let rows: Vec<_> = rows.collect();
    let columns = "patient int, age int, stay_days int, ward text, readmitted text";
    cluster.sql(&name, &format!("CREATE TABLE stays ({columns}); INSERT INTO stays VALUES {}", rows.join(",")));
    let file = folder.join("pg_service.conf");
    let (host, port) = (cluster.folder().display(), cluster.port());
    std::fs::write(&file, format!("[hospital]\nhost={host}\nport={port}\nuser={USER}\ndbname={name}\n")).unwrap();
    file
}

#[test]
fn hospital_trains_from_a_query_of_postgresql() {
    let Some(cluster) = Cluster::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let service = service(cluster, folder);
    let checked = check(folder, query(), &[("PGSERVICEFILE", &service)]);
    assert!(checked.code == 0 && checked.stdout.contains("the command: 200 of 200 rows can be used"), "{checked}");
    for number in 2..=3 {
        std::fs::write(folder.join(format!("hospital-{number}.csv")), table(number)).unwrap();
    }
    let served = Served::dev(&folder.join("data"));
    served.operate(&["task", "create", folder.join("readmissions.toml").to_str().unwrap()]).data();
    let log = folder.join("log");
    let mut hospitals: Vec<_> = (1..=3)
        .map(|number| {
            let file = format!("csv:hospital-{number}.csv");
            let data = if number == 1 { query() } else { &file };
            let mut command = hospital_with(folder, &served, number, "readmissions", data);
            let output = if number == 1 { File::create(&log).unwrap().into() } else { Stdio::null() };
            command.env("PGSERVICEFILE", &service).stdout(output).spawn().map(Background).unwrap()
        })
        .collect();
    served.read(&["round", "watch", "readmissions"]);
    for hospital in &mut hospitals {
        assert_eq!(hospital.0.wait().unwrap().code(), Some(0));
    }
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("the command: 200 of 200 rows") && !said.contains("psql"), "{said}");
}

#[test]
fn failed_query_ends_the_participant_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = "command:echo age,stay_days,ward,readmitted; echo 71,12,icu,yes; echo 'relation secret' >&2; exit 3";
    let checked = check(folder.path(), data, &[]);
    let expected =
        "the command ended with status 3, so none of its rows are used; its standard error ends with: relation secret";
    assert!(checked.code == 4 && checked.stdout.contains(expected), "{checked}");
    let served = Served::dev(&folder.path().join("data"));
    let ran = finish(&mut hospital_with(folder.path(), &served, 1, "readmissions", data));
    assert!(ran.code == 4 && ran.stderr.contains(expected), "{ran}");
    let participants = served.operate(&["participant", "list"]).data();
    assert_eq!(participants.as_array().map(Vec::len), Some(0), "it fails before it enrols: {participants}");
}

#[test]
fn command_ends_with_a_killed_participant() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("readmissions.toml"), blocks("toml")[0]).unwrap();
    let args =
        ["participant", "check", "--task", "readmissions.toml", "--data", "command:echo $$ > pid; sleep 1000; true"];
    let mut participant = tributary().current_dir(folder.path()).args(args).spawn().map(Background).unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(10));
    let pid = std::iter::repeat_with(|| {
        pause();
        std::fs::read_to_string(folder.path().join("pid")).unwrap_or_default()
    });
    let pid = pid.take(1000).find(|pid| pid.ends_with('\n')).unwrap();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    assert!(runs());
    participant.0.kill().unwrap();
    let has_ended = (0..1000).any(|_| {
        pause();
        !runs()
    });
    assert!(has_ended, "the command runs on");
}
