//! The attacks of a coordinator that lies, over the wire: training ahead of rounds from doctored bytes, and two sums of one update. Real
//! participants before a proxy that owns the coordinator's authority.

use std::path::Path;
use std::sync::{Arc, Mutex};

use learning::{Layout, Parameters, TensorSpec, checkpoint};
use rcgen::KeyPair;
use serde_json::{Value, json};
use wire::ParticipantId;

use crate::company::Company;
use crate::liar::{Asked, Device, Liar, Lies, device, sha256, start};
use crate::support::{Served, run, tributary};

/// The coordinator's own authority, which is the liar's.
fn own_authority(data: &Path) -> Company {
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let (pem, key) = (read("ca.pem"), KeyPair::from_pem(&read("ca-key.pem")).unwrap());
    Company { issuer: rcgen::Issuer::from_ca_cert_pem(&pem, key).unwrap(), pem }
}

const COHORT: usize = 6;
const VICTIM: usize = 2;

/// What the liar makes of the first version: bytes of the same shape from which nothing is learnt.
struct Doctored {
    /// Whom it deceives: all but the victim.
    deceived: Mutex<Vec<ParticipantId>>,
    /// In everything that these are told, not in the training alone.
    everywhere: bool,
    /// SHA-256 of the honest bytes and of these, in hex, and these; once somebody was told to train.
    bytes: Mutex<Option<(String, String, Vec<u8>)>>,
}

impl Doctored {
    fn tell(&self, asked: &Asked, body: Vec<u8>) -> Vec<u8> {
        if asked.member.is_none_or(|member| !self.deceived.lock().unwrap().contains(&member)) {
            return body;
        }
        if asked.path.ends_with("/models/0/parameters") {
            return self.bytes.lock().unwrap().clone().unwrap().2;
        }
        let Ok(mut told) = serde_json::from_slice::<Value>(&body) else { return body };
        if told["kind"] == "train" && told["base"]["version"] == 0 {
            let bytes = dead(&told["model"]["tensors"]);
            let (honest, doctored) = (told["base"]["sha256"].as_str().unwrap().to_owned(), sha256(&bytes));
            told["base"]["sha256"] = json!(doctored);
            told["base"]["bytes"] = json!(bytes.len());
            *self.bytes.lock().unwrap() = Some((honest, doctored, bytes));
            return serde_json::to_vec(&told).unwrap();
        }
        match &*self.bytes.lock().unwrap() {
            Some((honest, doctored, _)) if self.everywhere => told.to_string().replace(honest, doctored).into_bytes(),
            _ => body,
        }
    }
}

/// A model file of these tensors with one value everywhere.
fn dead(tensors: &Value) -> Vec<u8> {
    let tensor = |tensor: &Value| TensorSpec {
        name: tensor["name"].as_str().unwrap().to_owned(),
        shape: tensor["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect(),
    };
    let layout = Layout::new(tensors.as_array().unwrap().iter().map(tensor).collect()).unwrap();
    let mut model = Parameters::zeros(Arc::new(layout));
    model.values_mut().fill(-1e3);
    checkpoint::write(&model).unwrap()
}

struct Buffered {
    folder: tempfile::TempDir,
    served: Served,
    liar: Liar,
    doctored: Arc<Doctored>,
}

/// A buffered task behind a liar; devices enrol, and only then is there a task.
fn buffered(everywhere: bool) -> Buffered {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let served = Served::dev(&data);
    let own = Arc::new(own_authority(&data));
    let doctored = Doctored { everywhere, deceived: Mutex::default(), bytes: Mutex::default() };
    let doctored = Arc::new(doctored);
    let telling = Arc::clone(&doctored);
    let lies = Lies { tell: Box::new(move |asked, body| telling.tell(asked, body)), ..Lies::none(&own) };
    let liar = Liar::before(&served, &own, &[&own.pem], folder.path(), lies);
    Buffered { folder, served, liar, doctored }
}

impl Buffered {
    fn devices(&self, more: &[&str]) -> Vec<Device> {
        (0..COHORT).map(|index| device(&self.served, &self.liar, self.folder.path(), (index, COHORT), more)).collect()
    }

    fn create_task(&self) {
        let task = self.folder.path().join("task.toml");
        let cohort = COHORT.to_string();
        let demo = ["demo", "--participants", &cohort, "--rounds", "1", "--seed", "5", "--mode", "buffered"];
        let ran = run(&[&demo[..], &["--task-file", task.to_str().unwrap()]].concat());
        assert_eq!(ran.code, 0, "{ran}");
        self.served.operate(&["task", "create", task.to_str().unwrap()]).data();
    }

    fn models(&self) -> usize {
        self.served.operate(&["model", "list", "demo"]).data().as_array().unwrap().len()
    }
}

const ALLOWING: [&str; 2] = ["--max-staleness", "10"];

#[test]
fn behind_a_proxy_that_tells_no_lies_who_trained_ahead_is_added_up() {
    let world = buffered(false);
    let devices = world.devices(&ALLOWING);
    world.create_task();
    let watched = world.served.operate(&["round", "watch", "demo"]);
    assert_eq!(watched.code, 0, "{watched}");
    assert_eq!(world.models(), 2);
    for device in &devices {
        device.wait_for(|event| event["event"] == "task_over");
    }
}

#[test]
fn who_is_served_other_bytes_than_were_signed_does_not_learn_from_them() {
    for everywhere in [false, true] {
        let world = buffered(everywhere);
        let devices = world.devices(&ALLOWING);
        let deceived = devices.iter().enumerate().filter(|(index, _)| *index != VICTIM).map(|(_, device)| device.id);
        world.doctored.deceived.lock().unwrap().extend(deceived);
        world.create_task();
        for (index, device) in devices.iter().enumerate() {
            if index != VICTIM {
                let reason = device.refusal();
                assert!(reason.contains("the record of where the model comes from"), "device {index}: {reason}");
            }
        }
        // The victim is alone in having learnt from the honest bytes, and no sum has any of it.
        let seen = world.liar.seen();
        for (index, device) in devices.iter().enumerate().filter(|(index, _)| *index != VICTIM) {
            let own = seen.iter().filter(|asked| asked.member == Some(device.id));
            assert_eq!(
                own.filter(|asked| asked.path.ends_with("/parameters")).count(),
                0,
                "device {index} fetched a model"
            );
        }
        assert_eq!(world.models(), 1, "no sum was opened");
        let rounds = world.served.operate(&["round", "list", "demo"]).data();
        assert!(rounds.as_array().unwrap().iter().all(|round| round["state"] != "COMPLETED"), "{rounds}");
    }
}

#[test]
fn an_app_with_the_defaults_trains_nothing_ahead() {
    let world = buffered(false);
    let devices = world.devices(&[]);
    world.create_task();
    for device in &devices {
        let reason = device.refusal();
        assert!(reason.contains("versions behind the round"), "{reason}");
    }
    let seen = world.liar.seen();
    assert!(!seen.iter().any(|asked| asked.path.ends_with("/parameters")), "nobody asked for a model");
    assert_eq!(world.models(), 1);
}

/// Of a task like the demo's: the file as it is written, with these changes.
fn task_file(folder: &Path, members: usize, changes: &[(&str, &str)]) -> String {
    let file = folder.join("demo.toml").to_str().unwrap().to_owned();
    let demo = ["demo", "--participants", &members.to_string(), "--rounds", "1", "--seed", "5", "--task-file", &file];
    let ran = run(&demo);
    assert_eq!(ran.code, 0, "{ran}");
    let mut text = std::fs::read_to_string(&file).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}: {text}");
        text = text.replace(from, to);
    }
    std::fs::write(&file, text).unwrap();
    file
}

/// Two sums from one model, the second without the victim, under another name: with one admin token, and no lie at all.
#[test]
fn from_one_model_there_is_one_sum_whatever_the_tasks_are_called() {
    const VICTIM: usize = 1;
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let run_in = |task: &str, index: usize, token: Option<&str>| {
        let mut more = vec!["--task", task];
        more.extend(token.map(|token| ["--token", token]).into_iter().flatten());
        start(&served.url, &served.ca, folder.path(), (index, 4), &more)
    };
    let create = |file: &str| served.operate(&["task", "create", file]).data();
    create(&task_file(folder.path(), 4, &[]));
    let first: Vec<_> = (0..4).map(|index| run_in("demo", index, Some(&served.enrollment_token()))).collect();
    assert_eq!(served.operate(&["round", "watch", "demo"]).code, 0);
    first.iter().for_each(|device| drop(device.wait_for(|event| event["event"] == "task_over")));
    drop(first);

    let three = [("= 4\n", "= 3\n"), ("name = \"demo\"", "name = \"again\"")];
    create(&task_file(folder.path(), 4, &three));
    let others = || (0..4).filter(|index| *index != VICTIM);
    let again: Vec<_> = others().map(|index| run_in("again", index, None)).collect();
    for device in &again {
        let reason = device.refusal();
        assert!(reason.contains("an update was given from this very model before"), "{reason}");
    }
    drop(again);
    assert_eq!(served.operate(&["model", "list", "again"]).data().as_array().unwrap().len(), 1, "there is no sum");

    // From another model they give another update.
    let other = [
        three[0],
        ("name = \"demo\"", "name = \"other\""),
        ("init = \"zeros\"", "init = { uniform = { bound = 0.1 } }"),
    ];
    create(&task_file(folder.path(), 4, &other));
    let other: Vec<_> = others().map(|index| run_in("other", index, None)).collect();
    assert_eq!(served.operate(&["round", "watch", "other"]).code, 0);
    drop(other);
}

/// The same under two numbers of one task: a liar that has all answers says that it heard too few, and draws again without the victim.
#[test]
fn after_a_round_that_may_have_been_opened_nobody_answers_from_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Deadlines may be no shorter than a poll.
    let mut command = tributary();
    command.env("TRIBUTARY_HTTP_POLL_MAX_MS", "1000");
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let served = Served::until(command, "serving");
    let own = Arc::new(own_authority(&data));
    let lies = Lies {
        swallow: Box::new(|asked| asked.method == http::Method::PUT && asked.path.contains("/unmask-shares/")),
        ..Lies::none(&own)
    };
    let liar = Liar::before(&served, &own, &[&own.pem], folder.path(), lies);
    let devices: Vec<_> = (0..4).map(|index| device(&served, &liar, folder.path(), (index, 4), &[])).collect();
    let soon =
        [("unmask_deadline_ms = 3600000", "unmask_deadline_ms = 2000"), ("max_attempts = 3", "max_attempts = 0")];
    served.operate(&["task", "create", &task_file(folder.path(), 4, &soon)]).data();
    for device in &devices {
        device.wait_for(|event| event["event"] == "unmasked");
        let reason = device.refusal();
        assert!(reason.contains("an update was given from this very model before"), "{reason}");
    }
    let rounds = served.operate(&["round", "list", "demo"]).data();
    let ended = |round: &Value| round["failure"] == "too_few_unmask_shares" && round["spent"] == true;
    let rounds = rounds.as_array().unwrap();
    assert!(rounds.iter().any(ended), "{rounds:?}");
    assert!(rounds.iter().all(|round| round["state"] != "COMPLETED"), "{rounds:?}");
}
