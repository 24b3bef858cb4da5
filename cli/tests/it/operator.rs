//! An operator's day against `serve --dev`: tokens, tasks, models, and every refusal with its number.

use std::io::{BufRead as _, BufReader};

use crate::support::{Background, Served, run, tributary};

pub(crate) const TASK: &str = r#"
name = "digits"
[model.architecture]
kind = "linear"
inputs = 60
classes = 10
[rounds]
count = 2
[selection.cohort]
count = 3
"#;

/// A coordinator with that task.
pub(crate) fn with_digits(folder: &std::path::Path) -> Served {
    let served = Served::dev(&folder.join("data"));
    let file = folder.join("task.toml");
    std::fs::write(&file, TASK).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();
    served
}

#[test]
fn tasks_are_created_once_and_steered() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let file = folder.path().join("task.toml");
    std::fs::write(&file, TASK).unwrap();
    let file = file.to_str().unwrap();

    let checked = served.operate(&["task", "create", file, "--check"]).data();
    assert!(checked["update_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{checked}");
    assert_eq!(served.operate(&["task", "list"]).data(), serde_json::json!([]), "a check creates nothing");
    let made = served.operate(&["task", "create", file, "--idempotency-key", "k1"]).data();
    assert_eq!(
        (&made["name"], &made["status"], &made["parameters"]),
        (&"digits".into(), &"ACTIVE".into(), &610.into())
    );
    assert_eq!(made["protection"]["updates"], "hidden_in_sums", "secure aggregation is on by default");
    let shown = served.read(&["task", "show", "digits"]);
    for line in ["Updates     each hidden inside each opened sum, of at least", "across rounds: not protected"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let again = served.operate(&["task", "create", file, "--idempotency-key", "k1"]).data();
    assert_eq!(again["id"], made["id"], "the same key makes the same task");
    let taken = served.operate(&["task", "create", file]);
    assert_eq!(taken.code, 8, "the name is taken: {taken}");

    assert_eq!(served.operate(&["task", "pause", "digits"]).data()["status"], "PAUSED");
    assert_eq!(served.operate(&["task", "resume", "digits"]).data()["status"], "ACTIVE");
    let id = made["id"].as_str().unwrap();
    assert_eq!(served.operate(&["task", "show", id]).data()["spec"]["rounds"]["count"], 2);
    assert_eq!(served.operate(&["round", "show", "digits", "1"]).data()["state"], "SELECTING");
    assert_eq!(served.operate(&["round", "list", "digits"]).data()[0]["number"], 1);
    assert_eq!(served.operate(&["round", "list", "digits", "--device", "gpu"]).data(), serde_json::json!([]));
    assert_eq!(served.operate(&["round", "devices", "--task", "digits"]).data(), serde_json::json!([]));
    assert_eq!(served.operate(&["round", "devices", "--task", "nobody"]).code, 7);

    let models = served.operate(&["model", "list", "digits"]).data();
    assert_eq!(models[0]["version"], 0);
    let out = folder.path().join("m.safetensors");
    let fetched = served.operate(&["model", "fetch", "digits", "--out", out.to_str().unwrap()]).data();
    assert_eq!(fetched["sha256"], models[0]["sha256"]);
    assert_eq!(std::fs::metadata(&out).unwrap().len(), models[0]["bytes"].as_u64().unwrap());
    a_model_is_held_against_its_record(&served, &out);

    assert_eq!(served.operate(&["task", "cancel", "digits"]).data()["status"], "CANCELLED");
    assert_eq!(served.operate(&["task", "resume", "digits"]).code, 8);
    let watched = served.operate(&["round", "watch", "digits"]);
    assert_eq!(watched.code, 14, "{watched}");
}

/// Verifies a model with the file and its record alone; any other file, record or key is detected.
fn a_model_is_held_against_its_record(served: &Served, model: &std::path::Path) {
    let record = model.with_extension("provenance.json");
    let (model, record) = (model.to_str().unwrap(), record.to_str().unwrap());
    let fetch = ["model", "fetch", "digits", "--out", model, "--provenance", record];
    served.operate(&fetch).data();
    let key = served.operate(&["audit", "head"]).data()["key"].as_str().unwrap().to_owned();
    let verify = |key: &str| run(&["--format", "json", "model", "verify", model, "--provenance", record, "--key", key]);
    let verdict = verify(&key).data();
    assert_eq!((&verdict["record"]["version"], &verdict["key_was_given"]), (&0.into(), &true.into()), "{verdict}");
    let shown = served.operate(&["model", "show", "digits", "0"]).data();
    assert_eq!((&shown["provenance"], &shown["sha256"]), (&verdict["record"], &verdict["record"]["sha256"]));
    assert_eq!(served.operate(&["model", "show", "digits", "7"]).code, 7);
    assert_eq!(verify(&"0".repeat(64)).code, 17, "another key");
    let signed = std::fs::read_to_string(record).unwrap();
    std::fs::write(record, signed.replace(r#"version\":0"#, r#"version\":1"#)).unwrap();
    assert_ne!(std::fs::read_to_string(record).unwrap(), signed);
    assert_eq!(verify(&key).code, 17, "another record");
    std::fs::write(record, signed).unwrap();
    let mut bytes = std::fs::read(model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(model, bytes).unwrap();
    assert_eq!(verify(&key).code, 17, "another model");
}

#[test]
fn a_token_may_be_for_some_days_and_some_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = Served::dev(&data);
    let file = folder.path().join("task.toml");
    std::fs::write(&file, TASK).unwrap();
    let task = served.operate(&["task", "create", file.to_str().unwrap()]).data();
    std::fs::write(&file, TASK.replace("digits", "letters")).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();
    let ward = ["token", "create", "--role", "viewer", "--name", "ward", "--task", "digits", "--valid-for", "30d"];
    let made = served.operate(&ward).data();
    let listed = served.operate(&["token", "list"]).data();
    let listed = listed.as_array().unwrap().iter().find(|token| token["id"] == made["id"]).unwrap();
    let days = (listed["expires_at"].as_i64().unwrap() - listed["created_at"].as_i64().unwrap()) / (24 * 3_600_000);
    assert_eq!(
        (days, &listed["tasks"], &listed["expires_at"]),
        (30, &serde_json::json!([task["id"]]), &made["expires_at"])
    );
    let as_ward = |args: &[&str]| served.operate_as(made["token"].as_str().unwrap(), args);
    let seen = as_ward(&["task", "list"]).data();
    assert_eq!((seen.as_array().unwrap().len(), &seen[0]["name"]), (1, &"digits".into()));
    let (away, shut) = (as_ward(&["task", "show", "letters"]), as_ward(&["participant", "list"]));
    assert_eq!((away.code, shut.code), (7, 6), "{away} {shut}");
    let refused = |args: &[&str], code: i32| {
        let ran = served.operate(&[&["token", "create", "--name", "x"], args].concat());
        assert_eq!(ran.code, code, "{args:?}: {ran}");
    };
    refused(&["--role", "viewer", "--valid-for", "soon"], 2);
    refused(&["--role", "viewer", "--valid-for", "367d"], 9);
    refused(&["--role", "viewer", "--task", "none"], 9);
    refused(&["--role", "admin", "--task", "digits"], 9);
    drop(served);
    let offline = |args: &[&str]| {
        let given = ["--format", "json", "token", "create", "--offline", "--data-dir", data.to_str().unwrap()];
        run(&[&given, ["--role", "operator", "--name", "x"].as_slice(), args].concat())
    };
    assert_eq!((offline(&["--task", "none"]).code, offline(&["--valid-for", "367d"]).code), (7, 2));
    assert!(offline(&["--task", "letters", "--valid-for", "90m"]).data()["expires_at"].is_i64());
}

#[test]
fn a_part_of_a_list_says_where_the_next_one_begins() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    for name in ["a", "b", "c"] {
        served.operate(&["token", "create", "--role", "viewer", "--name", name]).data();
    }
    let (mut joined, mut sizes, mut cursor) = (Vec::new(), Vec::new(), None::<String>);
    loop {
        let mut args = vec!["token", "list", "--limit", "2"];
        args.extend(cursor.as_deref().into_iter().flat_map(|cursor| ["--cursor", cursor]));
        let ran = served.operate(&args);
        assert_eq!(ran.code, 0, "{ran}");
        let part: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let items = part["data"].as_array().unwrap().clone();
        sizes.push(items.len());
        joined.extend(items);
        cursor = part["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes[0], 2, "{sizes:?}");
    assert!(sizes.len() > 1, "{sizes:?}");
    // An envelope of a whole list lacks a cursor.
    assert_eq!(serde_json::Value::from(joined), served.operate(&["token", "list"]).data());
    assert_eq!(served.operate(&["token", "list", "--cursor", "tasks.1"]).code, 9, "a cursor of another list");
}

#[test]
fn the_task_in_the_documentation_is_taken() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/API.md")).unwrap();
    let task = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.toml");
    std::fs::write(&file, task).unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let made = served.operate(&["task", "create", file.to_str().unwrap()]).data();
    assert_eq!(made["parameters"], 159_010);
}

#[test]
fn a_download_goes_on_where_it_was_cut_off_and_damage_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    let out = folder.path().join("m.safetensors");
    let fetch = || served.operate(&["model", "fetch", "digits", "--out", out.to_str().unwrap()]);
    let sha256 = fetch().data()["sha256"].as_str().unwrap().to_owned();
    let whole = std::fs::read(&out).unwrap();

    let part = folder.path().join(format!("m.safetensors.{}.part", &sha256[..16]));
    std::fs::write(&part, &whole[..100]).unwrap();
    fetch().data();
    assert_eq!(std::fs::read(&out).unwrap(), whole);
    assert!(!part.exists());

    std::fs::write(&part, vec![7; 100]).unwrap();
    let damaged = fetch();
    assert_eq!(damaged.code, 12, "{damaged}");
    assert!(!part.exists(), "what is worth nothing is gone");
    fetch().data();
}

#[test]
fn refusals_have_their_numbers_and_problem_types() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let missing = served.operate(&["task", "show", "nobody"]);
    assert_eq!(missing.code, 7, "{missing}");
    assert!(missing.stderr.contains("nobody"), "{missing}");
    let unknown = served.operate_as("not-a-token", &["task", "list"]);
    assert_eq!(unknown.code, 6, "{unknown}");
    assert_eq!(unknown.envelope()["data"]["type"], "urn:tributary:problem:unauthenticated");

    let viewer = served.operate(&["token", "create", "--role", "viewer", "--name", "eve"]).data();
    let viewer_token = viewer["token"].as_str().unwrap();
    assert_eq!(served.operate_as(viewer_token, &["task", "list"]).code, 0);
    let file = folder.path().join("task.toml");
    std::fs::write(&file, TASK).unwrap();
    let denied = served.operate_as(viewer_token, &["task", "create", file.to_str().unwrap()]);
    assert_eq!(denied.code, 6, "{denied}");
    let tokens = served.operate(&["token", "list"]).data();
    assert_eq!(tokens.as_array().unwrap().len(), 2);
    assert!(tokens.to_string().find(viewer_token).is_none(), "secrets are not listed");
    assert_eq!(served.operate(&["token", "revoke", viewer["id"].as_str().unwrap()]).code, 0);
    assert_eq!(served.operate_as(viewer_token, &["task", "list"]).code, 6);
    let nobody = "01934c2e-7d3a-7b1c-9f00-0123456789ab";
    let unknown = served.operate(&["token", "revoke", nobody]);
    assert_eq!(unknown.code, 7, "{unknown}");
    assert!(unknown.stderr.contains(&format!("there is no operator token {nobody}")), "{unknown}");

    std::fs::write(&file, format!("{TASK}\n[training]\nbatch_size = 0\nlearning_rate = -1.0\n")).unwrap();
    let refused = served.operate(&["task", "create", file.to_str().unwrap()]);
    assert_eq!(refused.code, 9, "{refused}");
    let errors = refused.envelope()["data"]["errors"].to_string();
    assert!(errors.contains("training.batch_size") && errors.contains("training.learning_rate"), "{errors}");
    assert!(refused.stderr.contains("training.batch_size"), "{refused}");
}

#[test]
fn a_foreign_authority_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("one"));
    let other = Served::dev(&folder.path().join("two"));
    let ran = run(&["task", "list", "--server", &served.url, "--ca", &other.ca, "--token", &served.token]);
    assert_eq!(ran.code, 5, "{ran}");
    assert!(ran.stderr.contains("the CA file has to be this coordinator's own"), "{ran}");
    // A token may begin with any characters.
    let ran = run(&["task", "list", "--server", &served.url, "--ca", &other.ca, "--token", "-Vx"]);
    assert_eq!(ran.code, 5, "{ran}");
}

/// A command that runs on, and the first line with these words that it prints.
fn watched(served: &Served, args: &[&str], words: &'static str) -> (Background, String) {
    let mut command = tributary();
    command.args(args).args(["--server", &served.url, "--ca", &served.ca, "--token", &served.token]);
    let mut watch = Background(command.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (say, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.filter(|line| line.contains(words)).try_for_each(|line| say.send(line)));
    let line = told.recv_timeout(std::time::Duration::from_secs(60)).expect("it is not silent");
    (watch, line)
}

#[test]
fn a_watch_says_that_a_task_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    served.operate(&["task", "pause", "digits"]).data();
    let (_, line) = watched(&served, &["round", "watch", "digits"], "Stopped");
    assert!(line.starts_with("Stopped"), "{line}");
    assert!(line.contains("PAUSED since 20") && line.ends_with("`tributary task resume digits` goes on"), "{line}");
}

#[test]
fn a_watch_of_a_round_that_a_task_does_not_plan_says_so_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    let (mut watch, line) =
        watched(&served, &["--format", "json", "round", "watch", "digits", "3"], "round_not_planned");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["round"], &event["last_round"]), (&serde_json::json!(3), &serde_json::json!(2)));
    assert_eq!(watch.0.try_wait().unwrap(), None, "it may open all the same");
    served.operate(&["task", "cancel", "digits"]).data();
    let over = served.operate(&["round", "watch", "digits", "3"]);
    assert_eq!(over.code, 14, "{over}");
    assert!(over.stderr.contains("this round never opened") && !over.stdout.contains("round_not_planned"), "{over}");
}

#[cfg(unix)]
#[test]
fn sigterm_ends_it_in_good_order_and_the_token_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut served = Served::dev(&data);
    assert!(!served.token.is_empty());
    let pid = served.process.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(served.process.0.wait().unwrap().code(), Some(0));
    let again = Served::dev(&data);
    assert_eq!(again.token, "", "there is an operator already");
    assert_eq!(again.operate_as(&served.token, &["task", "list"]).code, 0, "tokens outlive a restart");
}

#[cfg(unix)]
#[test]
fn a_signal_that_comes_before_it_serves_is_not_lost() {
    use std::io::Read as _;
    let folder = tempfile::tempdir().unwrap();
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut process = Background(child);
    let mut first = String::new();
    said.read_line(&mut first).unwrap();
    assert!(first.contains("first_token"), "{first}");
    let pid = process.0.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.contains("stopped"), "{rest}");
}

#[test]
fn what_a_round_was_is_exported_compared_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let served = with_digits(folder.path());
    let file = folder.path().join("task.toml");
    std::fs::write(&file, TASK.replace("digits", "letters").replace("count = 2", "count = 5")).unwrap();
    served.operate(&["task", "create", file.to_str().unwrap()]).data();

    let out = folder.path().join("rounds.csv");
    let export = ["export", "digits", "letters", "--as", "csv", "--out", out.to_str().unwrap()];
    assert_eq!(served.operate(&export).data()["rounds"], 2, "each has one that selects");
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("task,task_name,number,attempt,state,failure,opened_at,ended_at,"), "{text}");
    let again = served.operate(&export);
    assert_eq!(again.code, 15, "what is there stays: {again}");
    let unknown = served.operate(&["export", "digitz", "--as", "mlflow", "--out", out.to_str().unwrap()]);
    assert_eq!(unknown.code, 7, "{unknown}");

    let compared = served.operate(&["task", "compare", "digits", "letters"]).data();
    let keys = |name: &str| {
        let all = compared["keys"].as_array().unwrap();
        all.iter().find(|line| line["name"] == name).map(|line| line["values"].clone())
    };
    assert_eq!(keys("rounds.count"), Some(serde_json::json!(["2", "5"])));
    assert_eq!(keys("selection.cohort.count"), None, "they are the same");
    assert_eq!(compared["total"][0]["name"], "bytes_down");
    assert_eq!(served.operate(&["task", "compare", "digits"]).code, 2, "with what?");
    let unknown = served.operate(&["task", "compare", "digits", "digitz"]);
    let names = "no task is called `digitz`; there are letters, digits";
    assert!(unknown.code == 7 && unknown.stderr.contains(names), "{unknown}");
}

#[test]
fn a_name_that_an_earlier_task_had_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let file = folder.path().join("task.toml");
    std::fs::write(&file, TASK).unwrap();
    let create = ["task", "create", file.to_str().unwrap()];
    let first = served.operate(&create);
    assert!(!first.stderr.contains("earlier"), "{first}");
    served.operate(&["task", "cancel", "digits"]).data();
    let second = served.operate(&create);
    let words = format!(
        "an earlier task `digits` is CANCELLED: the name means the new one from now on, and {} the",
        first.data()["id"].as_str().unwrap()
    );
    assert!(second.code == 0 && second.stderr.contains(&words), "{second}");
}
