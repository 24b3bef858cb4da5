//! Backup while a coordinator serves, restore, and the limits of a restored older database; damage found and repaired.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::killed::{rounds, three, wait_for_round};
use crate::restored::wait_for;
use crate::support::{Background, Ran, Served, run};

/// Flags of the demo that give the task of [`task_file`] noise of the coordinator's and a ledger.
pub(crate) const PRIVATE: [&str; 2] = ["--privacy", "noise=40,delta=1e-5,mechanism=central_gaussian,sampling=none"];

/// A task of many rounds, in a file, made with further flags of the demo.
pub(crate) fn task_file(folder: &Path, more: &[&str]) -> PathBuf {
    let task = folder.join("task.toml");
    let usual = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    let ran = run(&[&usual, more].concat());
    assert_eq!(ran.code, 0, "{ran}");
    let text = std::fs::read_to_string(&task).unwrap();
    assert!(text.contains("count = 1\n"), "{text}");
    // The second number is the planned number of releases of a privacy promise.
    let text = text.replacen("count = 1\n", "count = 200\n", 1).replacen("\nrounds = 1\n", "\nrounds = 200\n", 1);
    std::fs::write(&task, text).unwrap();
    task
}

/// A command about the coordinator's data in `data`.
fn keep(data: &Path, args: &[&str]) -> Ran {
    run(&[&["--format", "json"], args, &["--data-dir", data.to_str().unwrap()]].concat())
}

fn event(ran: &Ran, name: &str) -> Value {
    let events = ran.events();
    events.into_iter().find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name}: {ran}"))
}

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// The files of the backup are free of the coordinator's keys.
fn assert_without_keys(data: &Path, backup: &Path) {
    let keys: Vec<_> = ["seal.key", "ca-key.pem"].iter().map(|name| std::fs::read(data.join(name)).unwrap()).collect();
    for path in files(backup) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            keys.iter().all(|key| !bytes.windows(key.len()).any(|part| part == key)),
            "{} has a key",
            path.display()
        );
        let name = path.strip_prefix(backup).unwrap().to_str().unwrap();
        let known = ["backup.lock", "manifest.json", "rows/", "blobs/"];
        assert!(known.iter().any(|known| name.starts_with(known)), "{name} has no business in a backup");
    }
}

/// Waits for the end of the round that is open when a task is paused.
pub(crate) fn pause(served: &Served, folder: &Path) -> usize {
    served.operate(&["task", "pause", "demo"]).data();
    wait_for("the end of the last round", folder, || {
        let rounds = rounds(served);
        rounds.iter().all(|round| round["state"] == "COMPLETED").then_some(rounds.len())
    })
}

#[test]
fn a_backup_that_is_made_while_rounds_run_is_restored_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (task, to) = (task_file(folder.path(), &[]), backup.to_str().unwrap());
    let served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    let made = keep(&data, &["backup", to]);
    assert_eq!(made.code, 0, "{made}");
    let stages: Vec<_> = made.events().iter().filter_map(|event| event["stage"].as_str().map(str::to_owned)).collect();
    assert!(stages.contains(&"rows".to_owned()) && stages.contains(&"blobs".to_owned()), "{made}");
    let first = event(&made, "backed_up");
    assert!(first["blobs"].as_u64() >= Some(3) && first["reused"] == 0 && first["lacks"] == Value::Array(vec![]));
    let apart = first["keep_apart"].to_string();
    assert!(["seal.key", "seal.ledgers", "ca-key.pem"].iter().all(|name| apart.contains(name)), "{apart}");
    assert_without_keys(&data, &backup);
    let checked = keep(&data, &["fsck"]);
    assert_eq!(checked.code, 0, "beside a coordinator that works: {checked}");

    // Updated, with copies of its own, when the coordinator is idle.
    let last = pause(&served, folder.path());
    let made = keep(&data, &["backup", "--copy", to]);
    let second = event(&made, "backed_up");
    assert!(second["reused"].as_u64() >= Some(3) && second["linked"] == 0, "{second}");
    assert_without_keys(&data, &backup);
    let refused = keep(&data, &["restore", to, "--replace"]);
    assert_eq!((refused.code, event(&refused, "failed")["exit_code"].as_u64()), (15, Some(15)), "{refused}");

    let lost = folder.path().join("lost");
    let served = served.kill_and_restart_after(&data, || {
        std::fs::create_dir(&lost).unwrap();
        for name in ["coordinator.db", "coordinator.db-wal", "coordinator.db-shm", "blobs"] {
            let _ = std::fs::rename(data.join(name), lost.join(name));
        }
        let restored = keep(&data, &["restore", to]);
        assert_eq!(restored.code, 0, "{restored}");
        assert_eq!(event(&restored, "restored")["copied"], second["blobs"], "{restored}");
        assert_eq!(keep(&data, &["restore", to]).code, 8, "there is a database now");
        // A restore that was cut off is not taken for a whole one.
        std::fs::write(data.join("coordinator.db.restoring"), "").unwrap();
        let refused = run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
        assert!(refused.code == 15 && refused.stderr.contains("restore` again"), "{refused}");
        let again = keep(&data, &["restore", to]);
        assert!(again.code == 0 && !data.join("coordinator.db.restoring").exists(), "{again}");
    });
    assert_eq!(rounds(&served).len(), last, "as it was");
    served.operate(&["task", "resume", "demo"]).data();
    wait_for_round(&served, folder.path(), last as u64 + 2);
    drop((participants, served));

    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::copy(data.join("seal.key"), empty.join("seal.key")).unwrap();
    // One bit of a blob, a half-made backup, a missing one.
    let blob = files(&backup.join("blobs")).into_iter().find(|path| path.file_name().unwrap().len() == 64).unwrap();
    let whole = std::fs::read(&blob).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&blob, flipped).unwrap();
    let damaged = keep(&empty, &["restore", to]);
    assert!(damaged.code == 17 && damaged.stderr.contains(blob.file_name().unwrap().to_str().unwrap()), "{damaged}");
    assert!(!empty.join("coordinator.db").exists() && files(&empty.join("blobs")).len() <= 1, "nothing was changed");
    assert!(!empty.join("seal.ledgers").exists(), "no ledger is missed because of a restore that was none");
    std::fs::write(&blob, whole).unwrap();
    std::fs::rename(backup.join("manifest.json"), backup.join("manifest.json.draft")).unwrap();
    let half = keep(&empty, &["restore", to]);
    assert!(half.code == 4 && half.stderr.contains("no manifest.json"), "{half}");
    assert!(!empty.join("seal.ledgers").exists(), "nor because of a mistyped one");
}

#[test]
fn damage_is_found_and_repaired_from_a_backup_or_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (task, from) = (task_file(folder.path(), &[]), backup.to_str().unwrap());
    let served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    pause(&served, folder.path());
    assert_eq!(keep(&data, &["backup", "--copy", from]).code, 0);
    let models = served.operate(&["model", "list", "demo"]).data();
    let blob = |version: u64| {
        let model = models.as_array().unwrap().iter().find(|model| model["version"] == version).unwrap();
        let digest = model["sha256"].as_str().unwrap();
        data.join("blobs").join(&digest[..2]).join(digest)
    };
    let mut bytes = std::fs::read(blob(2)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(blob(2), &bytes).unwrap();
    std::fs::remove_file(blob(1)).unwrap();
    std::fs::remove_file(blob(0)).unwrap();

    let found = |ran: &Ran| {
        let findings = event(ran, "checked")["findings"].clone();
        let kinds = findings.as_array().unwrap().iter().map(|finding| {
            assert!(finding["meaning"].as_str().unwrap().len() > 10 && !finding["remedy"].as_str().unwrap().is_empty());
            (finding["kind"].as_str().unwrap().to_owned(), finding["repaired"].as_str().unwrap_or_default().to_owned())
        });
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort();
        kinds
    };
    let pair = |kind: &str, repaired: &str| (kind.to_owned(), repaired.to_owned());
    let (damaged, missing) = (pair("damaged_blob", ""), pair("missing_blob", ""));
    let looked = keep(&data, &["fsck"]);
    assert_eq!(
        (looked.code, found(&looked)),
        (17, vec![damaged.clone(), missing.clone(), missing.clone()]),
        "{looked}"
    );
    let lacking = keep(&data, &["backup", folder.path().join("lacking").to_str().unwrap()]);
    assert_eq!(lacking.code, 17, "{lacking}");
    assert_eq!(event(&lacking, "backed_up")["lacks"].as_array().unwrap().len(), 3, "{lacking}");
    // The first version is drawn from the seed; the others have only their copies in the backup.
    let seeded = keep(&data, &["fsck", "--repair"]);
    let by_seed = pair("missing_blob", "the task's seed");
    assert_eq!((seeded.code, found(&seeded)), (17, vec![damaged, missing, by_seed]), "{seeded}");
    let repaired = keep(&data, &["fsck", "--repair", "--from", from]);
    let (damaged, missing) = (pair("damaged_blob", "the backup"), pair("missing_blob", "the backup"));
    assert_eq!((repaired.code, found(&repaired)), (0, vec![damaged, missing]), "{repaired}");
    assert_eq!(found(&keep(&data, &["fsck"])), []);

    // Rows that contradict each other, and a file that is not a database.
    drop(served);
    let database = data.join("coordinator.db");
    assert_eq!(keep(&data, &["backup", from]).code, 0, "of a coordinator that does not run");
    assert_eq!(keep(&data, &["restore", from, "--replace"]).code, 0);
    let whole = std::fs::read(&database).unwrap();
    let page = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    let mut torn = whole.clone();
    torn[3 * page..4 * page].fill(0xff);
    std::fs::write(&database, torn).unwrap();
    let malformed = keep(&data, &["fsck"]);
    assert_eq!(malformed.code, 17, "{malformed}");
    assert!(found(&malformed).iter().all(|(kind, _)| kind == "database"), "{malformed}");
    assert_eq!(keep(&data, &["backup", from]).code, 17, "what is malformed replaces no backup");
    let restored = keep(&data, &["restore", from, "--replace"]);
    assert_eq!(restored.code, 0, "{restored}");
    assert_eq!(keep(&data, &["fsck"]).code, 0);
}

#[test]
fn rows_in_postgresql_are_left_to_its_tools() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("coordinator.toml");
    std::fs::write(&config, "[database]\nurl = \"postgres://tributary@db.example/tributary\"\n").unwrap();
    let (config, backup) = (config.to_str().unwrap(), folder.path().join("backup"));
    for command in [&["backup", backup.to_str().unwrap()][..], &["restore", backup.to_str().unwrap()]] {
        let ran = run(&[command, &["--config", config]].concat());
        assert!(ran.code == 18 && ran.stderr.contains("pg_dump"), "{command:?}: {ran}");
    }
    assert!(!backup.exists());
}

#[test]
fn versions_that_are_not_retained_go_unless_they_are_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let task = task_file(folder.path(), &["--set", "retain.last=2"]);
    let served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    assert!(served.operate(&["model", "pin", "demo", "0"]).data()["pinned_at"].is_u64());
    assert_eq!(served.operate(&["model", "pin", "demo", "100"]).code, 7);
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 5);
    pause(&served, folder.path());
    let models = served.operate(&["model", "list", "demo"]).data();
    let models = models.as_array().unwrap();
    let kept: Vec<_> =
        models.iter().filter(|model| model["removed_at"].is_null()).map(|m| m["version"].as_u64()).collect();
    let newest = models[0]["version"].as_u64().unwrap();
    assert_eq!(kept, [Some(newest), Some(newest - 1), Some(0)]);
    let text = served.read(&["model", "list", "demo"]);
    assert!(["kept", "pinned", "removed"].iter().all(|word| text.contains(word)), "{text}");
    let out = folder.path().join("model.safetensors");
    let fetch = |version: &str| {
        served.operate(&["model", "fetch", "demo", "--model-version", version, "--out", out.to_str().unwrap()])
    };
    assert_eq!(fetch("0").code, 0);
    let gone = fetch("1");
    assert!(gone.code == 7 && gone.stderr.contains("model version 1 is removed"), "{gone}");
    assert!(served.operate(&["model", "unpin", "demo", "0"]).data()["removed_at"].is_u64());
    assert_eq!(fetch("0").code, 7);
    let made = keep(&data, &["backup", backup.to_str().unwrap()]);
    assert_eq!(event(&made, "backed_up")["blobs"], 2, "{made}");
    assert_eq!(keep(&data, &["fsck"]).code, 0);
}

#[test]
fn a_restored_older_database_spends_no_privacy_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (task, to) = (task_file(folder.path(), &PRIVATE), backup.to_str().unwrap());
    let before = folder.path().join("before");
    let served = Served::dev(&data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    assert_eq!(keep(&data, &["backup", before.to_str().unwrap()]).code, 0);
    let _participants = three(&served, folder.path());
    wait_for_round(&served, folder.path(), 3);
    assert_eq!(keep(&data, &["backup", to]).code, 0);
    let backed_up = rounds(&served)[0]["number"].as_u64().unwrap();
    wait_for_round(&served, folder.path(), backed_up + 3);

    let restore = |served: Served, from: &str, prepare: &dyn Fn(), why: &str| {
        let served = served.kill_and_restart_after(&data, || {
            prepare();
            let restored = keep(&data, &["restore", from, "--replace"]);
            let paused = event(&restored, "restored")["paused"].to_string();
            assert!(restored.code == 0 && paused.contains(why), "{why}: {restored}");
        });
        let shown = served.operate(&["task", "show", "demo"]).data();
        assert!(shown["status"] == "PAUSED" && shown["history"].to_string().contains(why), "{why}: {shown}");
        served
    };
    let served = restore(served, to, &|| (), "or the database is older than what was released");
    let versions = served.operate(&["model", "list", "demo"]).data();
    // It is not resumed, and the next start finds it paused.
    refuse_to_resume(&served, "or the database is older than what was released");
    let served = served.kill_and_restart(&data);
    assert_eq!(served.operate(&["task", "show", "demo"]).data()["status"], "PAUSED");
    assert_eq!(served.operate(&["model", "list", "demo"]).data(), versions);
    // A lost file outside of the database is detected as well.
    let lose = || std::fs::remove_dir_all(data.join("seal.ledgers")).unwrap();
    let served = restore(served, to, &lose, "where the privacy ledger ends is gone");
    refuse_to_resume(&served, "where the privacy ledger ends is gone");
    let served = served.kill_and_restart(&data);
    assert_eq!(served.operate(&["task", "show", "demo"]).data()["status"], "PAUSED");
    assert_eq!(served.operate(&["model", "list", "demo"]).data(), versions);
    let nothing = || assert!(!data.join("seal.ledgers").exists());
    restore(served, before.to_str().unwrap(), &nothing, "releases after the backup cannot be ruled out");
}

/// `task resume` reports why the task can release no more sums, and leaves the task unchanged.
pub(crate) fn refuse_to_resume(served: &Served, why: &str) {
    let refused = served.operate(&["task", "resume", "demo"]);
    assert!(refused.code == 8 && refused.stderr.contains("stays PAUSED") && refused.stderr.contains(why), "{refused}");
    assert_eq!(served.operate(&["task", "show", "demo"]).data()["status"], "PAUSED");
}

/// A coordinator with a private task that is in round 3, and the task's participants.
fn private_rounds(folder: &Path, data: &Path) -> (Served, Vec<Background>) {
    let task = task_file(folder, &PRIVATE);
    let served = Served::dev(data);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let participants = three(&served, folder);
    wait_for_round(&served, folder, 3);
    (served, participants)
}

/// The database of a backup is put back by hand, as with PostgreSQL, without the files outside the database.
#[test]
fn an_older_database_alone_spends_no_privacy_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let (served, participants) = private_rounds(folder.path(), &data);
    assert_eq!(keep(&data, &["backup", backup.to_str().unwrap()]).code, 0);
    wait_for_round(&served, folder.path(), 5);
    drop(participants);
    let served = served.kill_and_restart_after(&data, || {
        std::fs::remove_dir_all(data.join("seal.ledgers")).unwrap();
        let rows = files(&backup.join("rows")).pop().unwrap();
        for ending in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(data.join(format!("coordinator.db{ending}")));
        }
        std::fs::copy(rows, data.join("coordinator.db")).unwrap();
    });
    let shown = served.operate(&["task", "show", "demo"]).data();
    assert!(shown["status"] == "PAUSED" && shown["history"].to_string().contains("ledger ends is gone"), "{shown}");
    refuse_to_resume(&served, "releases after the backup cannot be ruled out");
    let checked = keep(&data, &["fsck"]);
    assert!(checked.code == 17 && checked.stdout.contains("ledger ends is gone"), "{checked}");
}

#[test]
fn fsck_finds_changed_ledgers_of_finished_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (served, participants) = private_rounds(folder.path(), &data);
    served.operate(&["task", "cancel", "demo"]).data();
    drop((participants, served));
    let checked = keep(&data, &["fsck"]);
    assert_eq!((checked.code, event(&checked, "checked")["ledgers"].as_u64()), (0, Some(1)), "{checked}");
    let hand = rusqlite::Connection::open(data.join("coordinator.db")).unwrap();
    hand.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(hand);
    let whole = std::fs::read(data.join("coordinator.db")).unwrap();
    for (statement, why) in [
        ("UPDATE privacy_ledger SET row = replace(row, '\"rho\":', '\"rho\":1') WHERE idx = 1", "row 1"),
        ("DELETE FROM privacy_ledger WHERE idx > 0", "removed or added"),
        (
            "DELETE FROM privacy_ledger WHERE idx > 0; UPDATE task SET rounds_completed = 1, model_version = 1; \
             DELETE FROM provenance WHERE version > 1; DELETE FROM model_version WHERE version > 1; UPDATE privacy_head SET seal = \
             (SELECT json_extract(row, '$.seal') FROM privacy_ledger)",
            "has 1 rows, and had",
        ),
        ("UPDATE task SET spec = json_set(spec, '$.privacy.epsilon', 1000.0)", "not what it was created with"),
        ("UPDATE task SET spec = json_remove(spec, '$.privacy')", "not what it was created with"),
    ] {
        let hand = rusqlite::Connection::open(data.join("coordinator.db")).unwrap();
        hand.execute_batch(&format!("PRAGMA foreign_keys = OFF; {statement}; PRAGMA wal_checkpoint(TRUNCATE)"))
            .unwrap();
        drop(hand);
        let checked = keep(&data, &["fsck"]);
        let findings = event(&checked, "checked")["findings"].to_string();
        assert!(
            checked.code == 17 && findings.contains("\"ledger\"") && findings.contains(why),
            "{statement}: {checked}"
        );
        std::fs::write(data.join("coordinator.db"), &whole).unwrap();
        for ending in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(data.join(format!("coordinator.db{ending}")));
        }
    }
}

#[test]
fn a_backup_that_was_changed_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    let served = Served::dev(&data);
    let task = task_file(folder.path(), &[]);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    drop(served);
    assert_eq!(keep(&data, &["backup", backup.to_str().unwrap()]).code, 0);
    let manifest = backup.join("manifest.json");
    let whole = std::fs::read_to_string(&manifest).unwrap();
    let refuse = |why: &str| {
        let refused = keep(&data, &["restore", backup.to_str().unwrap(), "--replace"]);
        assert!(refused.code == 17 && refused.stderr.contains(why), "{why}: {refused}");
    };
    // A token of the thief's own, in a database whose digest the manifest names.
    let rows = files(&backup.join("rows")).pop().unwrap();
    let forged = backup.join("forged.db");
    std::fs::copy(&rows, &forged).unwrap();
    let hand = rusqlite::Connection::open(&forged).unwrap();
    hand.execute_batch("UPDATE operator_token SET secret_sha256 = zeroblob(32)").unwrap();
    drop(hand);
    let bytes = std::fs::read(&forged).unwrap();
    let digest = hex::encode(ring::digest::digest(&ring::digest::SHA256, &bytes));
    std::fs::rename(&forged, rows.with_file_name(format!("{digest}.db"))).unwrap();
    let old = rows.file_stem().unwrap().to_str().unwrap();
    let mut changed: Value = serde_json::from_str(&whole.replace(old, &digest)).unwrap();
    changed["rows"]["bytes"] = bytes.len().into();
    std::fs::write(&manifest, changed.to_string()).unwrap();
    refuse("its manifest was changed, or was written with another seal.key");
    changed.as_object_mut().unwrap().remove("mac");
    std::fs::write(&manifest, changed.to_string()).unwrap();
    refuse("has no MAC");
    let known = keep(&data, &["restore", backup.to_str().unwrap(), "--replace", "--unauthenticated"]);
    assert_eq!(known.code, 0, "an operator who knows where it comes from: {known}");
    std::fs::write(&manifest, &whole).unwrap();
    let key = std::fs::read(data.join("seal.key")).unwrap();
    std::fs::write(data.join("seal.key"), [7; 32]).unwrap();
    refuse("another seal.key");
    std::fs::remove_file(data.join("seal.key")).unwrap();
    refuse("there is no seal.key here");
    std::fs::write(data.join("seal.key"), key).unwrap();
    // Pipes without a writer, in the place of each kind of file.
    let blob = files(&backup.join("blobs")).into_iter().find(|path| path.file_name().unwrap().len() == 64).unwrap();
    for (path, code) in [(&blob, 17), (&rows, 17), (&manifest, 4)] {
        let bytes = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        let refused = keep(&data, &["restore", backup.to_str().unwrap(), "--replace"]);
        assert!(refused.code == code && refused.stderr.contains("regular file"), "{refused}");
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(keep(&data, &["restore", backup.to_str().unwrap(), "--replace"]).code, 0);
}

#[test]
fn a_coordinator_without_the_keys_of_its_database_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = Served::dev(&data);
    let task = task_file(folder.path(), &[]);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    drop(served);
    let start = || run(&["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    let forget = |what: &str| {
        let hand = rusqlite::Connection::open(data.join("coordinator.db")).unwrap();
        hand.execute(&format!("DELETE FROM fingerprint WHERE what LIKE '{what}'"), ()).unwrap();
    };
    let aside = |name: &str| folder.path().join(name);
    for (files, lost) in [(&["seal.key"][..], "seal.key"), (&["ca.pem", "ca-key.pem"], "ca-key.pem")] {
        for name in files {
            std::fs::rename(data.join(name), aside(name)).unwrap();
        }
        for is_older in [false, true] {
            if is_older {
                // As the program before this one left it.
                forget("%");
            }
            let refused = start();
            assert!(refused.code == 3 && refused.stderr.contains(&format!("{lost} is missing")), "{refused}");
            assert!(files.iter().all(|name| !data.join(name).exists()), "none is made");
        }
        for name in files {
            std::fs::copy(aside(name), data.join(name)).unwrap();
        }
        drop(Served::dev(&data));
    }
    // Another one in its place.
    std::fs::write(data.join("seal.key"), [7; 32]).unwrap();
    let refused = start();
    assert!(refused.code == 3 && refused.stderr.contains("another identity.seal_key_file"), "{refused}");
    // One that is replaced on purpose is made.
    forget("identity.seal_key_file");
    std::fs::remove_file(data.join("seal.key")).unwrap();
    drop(Served::dev(&data));
    assert!(data.join("seal.key").exists());
}
