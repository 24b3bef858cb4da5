//! The first start, killed at any moment, on disks that end at any size, with its token written to a closed pipe. The
//! next one starts, and an operator can get access. Also other processes that open the folder at the same time.
//!
//! `TRIBUTARY_TEST_KILLS=1000` and `TRIBUTARY_TEST_DISKS=all` try more; `TRIBUTARY_TEST_SEED` others.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Background, Ran, Served, executable, finish, number, run, tributary};

/// SplitMix64: the draws depend on the seed alone.
struct Draws(u64);

impl Draws {
    #[expect(clippy::print_stdout, reason = "whoever reads of a failure must know the seed")]
    fn from_environment() -> Self {
        let seed = number("TRIBUTARY_TEST_SEED", 13);
        println!("TRIBUTARY_TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }
}

fn serve(data: &Path) -> Command {
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command
}

/// Starts it with its output in the files `name.out` and `name.err`.
fn spawn(command: &mut Command, folder: &Path, name: &str) -> Background {
    let file = |end: &str| File::create(folder.join(format!("{name}.{end}"))).unwrap();
    Background(command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).spawn().unwrap())
}

fn said(folder: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.out"))).unwrap();
    // The last line may be cut off.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn event(folder: &Path, name: &str, wanted: &str) -> Option<Value> {
    said(folder, name).into_iter().find(|event| event["event"] == wanted)
}

/// Waits until it serves or ends.
fn settle(child: &mut Child, folder: &Path, name: &str) -> Option<Value> {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        let ended = child.try_wait().unwrap().is_some();
        if let Some(serving) = event(folder, name, "serving") {
            return Some(serving);
        }
        if ended {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it neither serves nor ends");
}

/// Starts once more, undisturbed, and gets in with the token that this start shows, or else the one before has shown.
fn assert_way_in(folder: &Path, data: &Path, case: &str) {
    let errors = || std::fs::read_to_string(folder.join("again.err")).unwrap();
    let mut again = spawn(&mut serve(data), folder, "again");
    let serving = settle(&mut again.0, folder, "again").unwrap_or_else(|| panic!("{case}: {}", errors()));
    let shown =
        |name: &str| event(folder, name, "first_token").map(|shown| shown["token"].as_str().unwrap().to_owned());
    let token = shown("again").or_else(|| shown("first")).unwrap_or_else(|| panic!("{case}: nobody was shown a token"));
    let text = |key: &str| serving[key].as_str().unwrap();
    let ran = run(&["task", "list", "--server", text("url"), "--ca", text("ca"), "--token", &token]);
    assert_eq!(ran.code, 0, "{case}: {ran}");
}

#[test]
fn killed_at_any_moment_the_next_start_serves_and_somebody_has_a_token() {
    let mut draws = Draws::from_environment();
    let kills = number("TRIBUTARY_TEST_KILLS", 30);
    let calm = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let mut child = spawn(&mut serve(&calm.path().join("data")), calm.path(), "first");
    settle(&mut child.0, calm.path(), "first").unwrap();
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap();
    drop(child);
    let mut before_it_served = 0;
    for kill in 0..kills {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let after = Duration::from_micros(draws.below(micros + micros / 8));
        let mut child = spawn(&mut serve(&data), folder.path(), "first");
        std::thread::sleep(after);
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        before_it_served += u64::from(event(folder.path(), "first", "serving").is_none());
        assert_way_in(folder.path(), &data, &format!("kill {kill}, after {after:?}"));
    }
    println!("{kills} kills, {before_it_served} before it served; an undisturbed start took {micros} µs");
}

#[test]
fn where_no_file_may_grow_further_the_first_start_fails_and_the_next_one_serves() {
    let mut draws = Draws::from_environment();
    for limit in (0..8).map(|n| n * 64 + draws.below(64)) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        // A write beyond the limit fails as on a full disk, instead of ending the process.
        let mut command = Command::new("sh");
        let script = r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#;
        let served = serve(&data);
        command.args(["-c", script, &limit.to_string()]).arg(served.get_program()).args(served.get_args());
        let mut child = spawn(&mut command, folder.path(), "first");
        settle(&mut child.0, folder.path(), "first");
        drop(child);
        assert_way_in(folder.path(), &data, &format!("limit of {limit} blocks"));
    }
}

/// A first start on a disk of so many KiB, then room, and another; within a namespace where the disk can be mounted.
const SMALL_DISK: &str = r#"
set -e
size=$1 disk=$2 out=$3 program=$4
mount -t tmpfs -o size="${size}k" none "$disk"
start() { # NAME: until it serves or ends
    "$program" --format json serve --dev --listen 127.0.0.1:0 --data-dir "$disk/data" >"$out/$1.out" 2>"$out/$1.err" &
    pid=$!
    for _ in $(seq 600); do
        grep -q '"serving"' "$out/$1.out" && return 0
        kill -0 $pid 2>/dev/null || return 0
        sleep 0.02
    done
    return 0
}
shown() { sed -n 's/.*"first_token".*"token":"\([^"]*\)".*/\1/p' "$out/$1.out"; }
start first
kill -9 $pid 2>/dev/null || true
wait $pid || true
mount -o remount,size=64m "$disk"
start again
grep -q '"serving"' "$out/again.out" || { cat "$out/first.err" "$out/again.err"; exit 1; }
token=$(shown again); [ -n "$token" ] || token=$(shown first)
url=$(sed -n 's/.*"serving".*"url":"\([^"]*\)".*/\1/p' "$out/again.out")
code=0; "$program" task list --server "$url" --ca "$disk/data/ca.pem" --token "$token" || code=1
kill -9 $pid
exit $code
"#;

#[test]
fn on_full_disks_of_every_size_the_first_start_fails_and_the_next_one_serves() {
    let mut unshare = Command::new("unshare");
    let mountable = unshare.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null()).status();
    if !mountable.is_ok_and(|status| status.success()) {
        test_servers::skipped("no disk can be mounted here; the test with limits on files stands for this one");
        return;
    }
    let mut draws = Draws::from_environment();
    // A first start takes some 600 KiB; a disk has at least one page.
    let sizes: Vec<u64> = match std::env::var("TRIBUTARY_TEST_DISKS").as_deref() {
        Ok("all") => (1..=200).map(|pages| pages * 4).collect(),
        _ => (0..10).map(|n| 4 + (n * 18 + draws.below(18)) * 4).collect(),
    };
    let mut started = 0;
    for size in &sizes {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let ran = Command::new("unshare")
            .args(["-rm", "sh", "-c", SMALL_DISK, "small-disk", &size.to_string()])
            .args([&disk, folder.path()])
            .arg(executable())
            .output()
            .unwrap();
        let told = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(ran.status.success(), "a disk of {size} KiB: {told}");
        started += usize::from(event(folder.path(), "first", "serving").is_some());
    }
    println!("{} disks, {started} of them large enough", sizes.len());
}

#[test]
fn a_token_that_nobody_was_shown_is_worth_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = serve(&data).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(15), "{told}");
    assert!(told.contains("token could not be shown"), "{told}");
    File::create(folder.path().join("first.out")).unwrap();
    assert_way_in(folder.path(), &data, "stdout was full");
}

fn offline(data: &Path, args: &[&str]) -> Ran {
    let mut all = vec!["--format", "json", "token", "create", "--offline", "--data-dir", data.to_str().unwrap()];
    all.extend(args);
    run(&all)
}

#[test]
fn whoever_can_write_the_folder_makes_a_token_without_having_one() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let admin = ["--role", "admin", "--name", "found"];
    assert_eq!(offline(&data, &admin).code, 7, "there is no folder");
    assert!(!data.exists(), "and none is made");
    let served = Served::dev(&data);
    let tokens = served.operate(&["token", "list"]).data();
    let first = tokens[0]["id"].as_str().unwrap().to_owned();
    let kept = served.operate(&["token", "revoke", &first]);
    assert_eq!(kept.code, 8, "{kept}");
    assert!(kept.stderr.contains("last admin token"), "{kept}");
    assert_eq!(served.operate(&["token", "revoke", "--force", &first]).code, 0);
    assert_eq!(served.operate(&["token", "list"]).code, 6, "everybody is locked out");

    let while_it_runs = offline(&data, &admin);
    assert_eq!(while_it_runs.code, 15, "{while_it_runs}");
    assert!(while_it_runs.stderr.contains(&format!("process {} on", served.process.0.id())), "{while_it_runs}");
    drop(served);
    assert_eq!(offline(&data, &["--role", "admin", "--name", "no name"]).code, 2);
    assert_eq!(offline(&data, &["--name", "found"]).code, 2, "without a role");
    // The environment of a coordinator that has stopped.
    let mut command = tributary();
    command.args(["--format", "json", "token", "create", "--offline", "--data-dir"]).arg(&data).args(admin);
    command.env("TRIBUTARY_SERVER", "https://localhost:1").env("TRIBUTARY_CA", data.join("ca.pem"));
    let made = finish(command.env("TRIBUTARY_TOKEN", "revoked")).data();
    let served = Served::dev(&data);
    assert_eq!(served.token, "", "there are tokens");
    assert_eq!(served.operate_as(made["token"].as_str().unwrap(), &["token", "list"]).code, 0);
}

#[test]
fn a_second_coordinator_on_the_folder_is_refused_and_told_who_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = Served::dev(&data);
    let second = serve(&data).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(15), "{told}");
    for part in
        [format!("process {} on ", served.process.0.id()), "since 20".to_owned(), "coordinator.db.lock".to_owned()]
    {
        assert!(told.contains(&part), "{part:?} is missing in {told}");
    }
    // Another database does not help where the blobs are the same: each would collect the other's.
    let config = folder.path().join("coordinator.toml");
    let text = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:{0}/other.db\"\n[blobs]\nurl = \"file:{0}/data/blobs\"\n\
         [identity]\nca_certificate_file = \"{0}/ca.pem\"\nca_key_file = \"{0}/ca-key.pem\"\n",
        folder.path().display()
    );
    std::fs::write(&config, text).unwrap();
    let third = run(&["serve", "--config", config.to_str().unwrap()]);
    assert_eq!(third.code, 15, "{third}");
    assert!(third.stderr.contains("blobs/coordinator.lock"), "{third}");
    assert_eq!(run(&["migrate", "--config", config.to_str().unwrap()]).code, 15);
    assert_eq!(served.operate(&["task", "list"]).code, 0, "the first goes on");
    // However it dies, the lock dies with it.
    drop(served);
    Served::dev(&data);
}
