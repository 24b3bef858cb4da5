//! `participant withdraw` and `participant leave`: a participant that leaves, and what remains of it.

use std::path::Path;

use wire::contributions::{Contributions, SignedContributions};

use crate::killed::{logs, participant_of, three, wait};
use crate::support::{Ran, Served, run, tributary};

#[test]
fn withdrawn_participant_gets_a_signed_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("statement.json");
    let out = path.to_str().unwrap();
    let demo = ["--rounds", "2", "--participants", "8", "--privacy", "epsilon=8,delta=1e-5"];
    let served = Served::demo(folder.path(), &demo);
    let participants = served.operate(&["participant", "list"]).data();
    let name = participants[0]["name"].as_str().unwrap();
    let answer = served.operate(&["participant", "withdraw", name, "--out", out]).data();
    let task = &answer["tasks"][0];
    assert_eq!(
        (&task["name"], &task["version_before"], &task["newest_version"]),
        (&"demo".into(), &0.into(), &2.into())
    );
    let spent = served.operate(&["privacy", "show", "demo"]).data();
    assert_eq!(task["privacy"]["epsilon"]["cohort_known"], spent["spent"]["cohort_known"]);

    let signed: SignedContributions = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let statement = signed.open().unwrap();
    assert_eq!(statement.coordinator.to_string(), answer["key"].as_str().unwrap());
    let rounds: Vec<_> = statement.tasks[0].rounds.iter().map(|round| (round.round, round.version)).collect();
    assert_eq!(rounds, [(1, 1), (2, 2)]);
    assert!(statement.revoked_at.is_some());
    let again = served.operate(&["participant", "withdraw", name, "--out", out]);
    assert!(again.code != 0 && again.to_string().contains("exists: choose another file"), "{again}");
    std::fs::remove_file(&path).unwrap();
    let words = served.read(&["participant", "withdraw", name, "--out", out]);
    for part in [
        "is revoked",
        "rounds 1, 2 have an update of it",
        "versions 1 to 2 may depend",
        "`tributary model restore demo 0`",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

fn statement(path: &Path) -> Contributions {
    serde_json::from_slice::<SignedContributions>(&std::fs::read(path).unwrap()).unwrap().open().unwrap()
}

#[test]
fn participant_leaves_with_its_journal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let served = Served::dev(&folder.join("data"));
    let task = folder.join("task.toml");
    let task = task.to_str().unwrap();
    let demo =
        run(&["--format", "json", "demo", "--participants", "3", "--rounds", "2", "--seed", "5", "--task-file", task]);
    assert_eq!(demo.code, 0, "{demo}");
    served.operate(&["task", "create", task]).data();
    let leave = |journal: &str, out: &str, format: &str| -> Ran {
        let (journal, out) = (folder.join(journal), folder.join(out));
        let at = ["--format", format, "participant", "leave", "--server", &served.url, "--ca", &served.ca];
        run(&[&at[..], &["--journal", journal.to_str().unwrap(), "--out", out.to_str().unwrap()]].concat())
    };
    let mut running = three(&served, folder);
    // The statement cannot be asked for with a journal in use.
    let early = leave("journal-0", "early.json", "json");
    assert!(early.code != 0 && !folder.join("early.json").exists(), "{early}");
    for one in &mut running {
        assert_eq!(wait(&mut one.0), Some(0), "{}", logs(folder));
    }
    let stranger = leave("journal-7", "stranger.json", "json");
    assert!(stranger.code == 6 && stranger.to_string().contains("is not enrolled"), "{stranger}");

    let left = leave("journal-0", "left.json", "json").data();
    let stated = statement(&folder.join("left.json"));
    assert_eq!(left["participant"], stated.participant.to_string());
    assert_eq!(left["key"], served.operate(&["audit", "head"]).data()["key"]);
    let rounds: Vec<_> = stated.tasks[0].rounds.iter().map(|round| (round.round, round.version)).collect();
    assert_eq!((rounds, stated.tasks[0].version_before), (vec![(1, 1), (2, 2)], 0));
    let shown = served.operate(&["participant", "show", &stated.participant.to_string()]).data();
    assert_eq!(shown["revoked_at"].as_i64(), stated.revoked_at.map(|at| at.0), "{shown}");
    let noted = served.operate(&["audit", "list", "--kind", "participant_revoked"]).data();
    assert_eq!(noted[0]["actor"]["participant"], stated.participant.to_string(), "by itself: {noted}");

    // Its statement may have got lost.
    let words = leave("journal-0", "again.json", "text");
    assert!(words.stdout.contains("rounds 1, 2 have an update of it"), "{words}");
    assert!(!words.stdout.contains("model restore"), "which is the operators' part: {words}");
    assert_eq!(statement(&folder.join("again.json")).revoked_at, stated.revoked_at);
    // It is out for good.
    let mut back = participant_of(tributary(), &served, folder, 0, None);
    let ended = back.args(["--once", "--once-within", "100"]).status().unwrap();
    assert_eq!(ended.code(), Some(6), "{}", logs(folder));
    assert!(logs(folder).contains("was revoked"), "{}", logs(folder));
}
