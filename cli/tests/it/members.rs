//! Who certifies members: an app that pins its company's authority takes part with members of that authority alone.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use crate::company::{Company, Mood, enrollment_token, participant};
use crate::support::{Background, run, tributary};

#[test]
fn a_coordinator_that_certifies_members_itself_is_refused_by_who_pins_a_company() {
    let folder = tempfile::tempdir().unwrap();
    let served = Company::new().serve(folder.path(), "");
    let token = enrollment_token(&served);
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
         token_file = {:?}\ntimeout_ms = 5000",
        hook.url,
        at("token"),
    );
    let served = company.serve(folder.path(), &identity);

    // Whom the company does not know, the coordinator cannot certify.
    *hook.mood.lock().unwrap() = Mood::Refuses;
    let refused = participant(&served, &at("journal-0"), &["--token", &enrollment_token(&served)]);
    let first = refused.first.clone().unwrap();
    let (_, code, complaint) = refused.end();
    assert_eq!(code, 6, "{first} {complaint}");
    assert!(complaint.contains("refused to certify"), "{complaint}");

    // What comes back is judged; a participant asks again and is told no more than that.
    *hook.mood.lock().unwrap() = Mood::IsBroken;
    let token = enrollment_token(&served);
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
    let note = notes.find(|line| line.contains("not to be had now"));
    assert!(note.is_some_and(|note| !note.contains("signed")), "the peer is not told why");

    // As soon as the company signs, three participants run a round of secure aggregation.
    *hook.mood.lock().unwrap() = Mood::Signs;
    let task = at("task.toml");
    let demo = ["demo", "--participants", "3", "--rounds", "1", "--seed", "5", "--task-file", task.to_str().unwrap()];
    assert_eq!(run(&demo).code, 0);
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    let others: Vec<_> = (1..3).map(|index| start(index, &enrollment_token(&served))).collect();
    let watched = served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    for mut process in others.into_iter().chain([waiting]) {
        assert_eq!(process.0.wait().unwrap().code(), Some(0), "the task is over");
    }
    assert!(hook.tokens.lock().unwrap().iter().all(|token| token == "secret of the hook"));
}
