//! Certification of members: an app that pins its company's authority takes part only with members of that authority.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::company::{Company, Mood, participant};
use crate::support::{Background, Ran, Served, run, tributary};

#[test]
fn a_coordinator_that_certifies_members_itself_is_refused_by_who_pins_a_company() {
    let folder = tempfile::tempdir().unwrap();
    let served = Company::new().serve(folder.path(), "");
    let token = served.enrollment_token();
    let started = participant(&served, &folder.path().join("journal"), &["--token", &token]);
    let first = started.first.clone().unwrap();
    assert_ne!(first["event"], "enrolled", "the coordinator's own authority was taken: {first}");
    let (_, code, complaint) = started.end();
    assert_eq!(code, 5, "{first} {complaint}");
    assert!(format!("{first}{complaint}").contains("members"), "{first} {complaint}");
}

#[test]
fn a_federation_runs_whose_coordinator_never_has_the_members_key() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let company = Arc::new(Company::new());
    std::fs::create_dir(at("signer")).unwrap();
    let hook = company.hook(&at("signer"));
    std::fs::write(at("token"), "secret of the hook\n").unwrap();
    let ca = at("company.pem");
    let identity = format!(
        "members_ca_certificate_file = {ca:?}\n[identity.signer]\nurl = {:?}\nca_certificate_file = {ca:?}\n\
         token_file = {:?}\ntimeout_ms = 1500",
        hook.url,
        at("token"),
    );
    let served = company.serve(folder.path(), &identity);

    // The coordinator cannot certify devices that are unknown to the company.
    *hook.mood.lock().unwrap() = Mood::Refuses;
    let refused = participant(&served, &at("journal-0"), &["--token", &served.enrollment_token()]);
    let first = refused.first.clone().unwrap();
    let (_, code, complaint) = refused.end();
    assert_eq!(code, 6, "{first} {complaint}");
    assert!(complaint.contains("refused to certify"), "{complaint}");

    // The signer's response is verified; the participant only gets a retry.
    *hook.mood.lock().unwrap() = Mood::IsBroken;
    let token = served.enrollment_token();
    let arguments = |index: usize| {
        [
            "--min-cohort".to_owned(),
            "3".to_owned(),
            "--min-tolerated-colluders".to_owned(),
            "0".to_owned(),
            "--participants".to_owned(),
            "3".to_owned(),
            "--seed".to_owned(),
            "5".to_owned(),
            "--index".to_owned(),
            index.to_string(),
        ]
    };
    let start = |index: usize, token: &str| {
        let mut command = tributary();
        command
            .args([
                "participant",
                "run",
                "--server",
                &served.url,
                "--ca",
                &served.ca,
                "--task",
                "demo",
                "--token",
                token,
            ])
            .args(arguments(index))
            .arg("--journal")
            .arg(at(&format!("journal-{}", index + 1)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Background(command.spawn().unwrap())
    };
    let mut waiting = start(0, &token);
    let mut notes = BufReader::new(waiting.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let note = notes.find(|line| line.contains("is unavailable; try"));
    assert!(note.is_some_and(|note| !note.contains("signed")), "the peer is not told why");

    // A silent signer times out: the participant gets a retry, and succeeds.
    *hook.mood.lock().unwrap() = Mood::IsSilent;
    let mut late = start(1, &served.enrollment_token());
    let asked = hook.tokens.lock().unwrap().len();
    let mut notes = BufReader::new(late.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let note = notes.find(|line| line.contains("is unavailable; try again later")).unwrap();
    assert!(note.contains("enrol"), "{note}");
    assert!(hook.tokens.lock().unwrap().len() > asked, "it was asked");

    // As soon as the company signs, three participants run a round of secure aggregation.
    *hook.mood.lock().unwrap() = Mood::Signs;
    let task = at("task.toml");
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    assert_eq!(run(&demo).code, 0);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let last = start(2, &served.enrollment_token());
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for mut process in [waiting, late, last] {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    assert!(hook.tokens.lock().unwrap().iter().all(|token| token == "secret of the hook"));
}

/// The journal is lost; the operator lets the participant be itself again.
#[test]
fn a_token_made_for_a_participant_gives_its_id_and_name_to_whoever_has_it_and_ends_what_was_before() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let create = |more: &[&str]| served.operate(&[&["token", "create", "--enrollment"], more].concat());
    let token = |ran: Ran| ran.data()["token"].as_str().unwrap().to_owned();
    let enroll = |journal: &str, token: &str| participant(&served, &folder.path().join(journal), &["--token", token]);
    let first = enroll("journal", &token(create(&["--name", "ward-7"])));
    let enrolled = first.first.clone().unwrap();
    assert_eq!(enrolled["name"], "ward-7");
    let id = enrolled["participant"].as_str().unwrap();
    // At shutdown it keeps pending writes.
    let stopped = Command::new("kill").args(["-INT", &first.process.0.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(first.end().1, 0);

    let unknown = create(&["--participant", "nobody"]);
    assert!(unknown.code == 7 && unknown.stdout.contains("no participant is called `nobody`"), "{unknown}");
    let both = create(&["--participant", "ward-7", "--name", "ward-8"]);
    assert_eq!(both.code, 2, "{both}");
    // By its name, and by its id.
    for (journal, named) in [("journal-2", "ward-7"), ("journal-3", id)] {
        let again = enroll(journal, &token(create(&["--participant", named])));
        let again = again.first.clone().unwrap();
        assert_eq!((&again["participant"], &again["name"]), (&enrolled["participant"], &enrolled["name"]));
    }
    let listed = served.operate(&["participant", "list"]).data();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    // The finder of the lost journal is unauthenticated.
    let found = participant(&served, &folder.path().join("journal"), &[]);
    let told = found.first.clone().unwrap();
    assert!(told["detail"].as_str().unwrap().contains("replaced or is not known"), "{told}");
    assert_eq!(found.end().1, 6);
    // A revoked participant cannot return.
    let unused = token(create(&["--participant", "ward-7"]));
    served.operate(&["participant", "revoke", "ward-7"]).data();
    assert_eq!(create(&["--participant", "ward-7"]).code, 8);
    let refused = enroll("journal-4", &unused).first.clone().unwrap();
    assert!(refused["detail"].as_str().unwrap().contains("was revoked"), "{refused}");
}
