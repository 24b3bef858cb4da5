//! `participant withdraw`: a participant that leaves, and what remains of it.

use wire::contributions::SignedContributions;

use crate::support::Served;

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
