//! The attacks of a coordinator that lies, over the wire: training ahead of rounds from doctored bytes, and answers that it withholds.
//! Real participants before a proxy that owns the coordinator's authority.

use std::path::Path;
use std::sync::{Arc, Mutex};

use learning::{Layout, Parameters, TensorSpec, checkpoint};
use serde_json::{Value, json};
use wire::ParticipantId;

use crate::liar::{Asked, Device, Liar, device, sha256, start};
use crate::support::{Served, run, tributary};

const COHORT: usize = 6;
const VICTIM: usize = 2;

/// The liar's replacement of the first version: bytes of the same shape without training.
struct Doctored {
    /// The deceived participants: all but the victim.
    deceived: Mutex<Vec<ParticipantId>>,
    /// Applies to all of their messages, not only to the training.
    everywhere: bool,
    /// SHA-256 of the honest and of the forged bytes, in hex, and the forged bytes; set with the first training.
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
    let served = Served::dev(&folder.path().join("data"));
    let doctored = Doctored { everywhere, deceived: Mutex::default(), bytes: Mutex::default() };
    let doctored = Arc::new(doctored);
    let telling = Arc::clone(&doctored);
    let tell = move |asked: &Asked, body| telling.tell(asked, body);
    let liar = Liar::with_authority(&served, folder.path(), |lies| lies.tell = Box::new(tell));
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
        // Only the victim has trained on the honest bytes, and its update is absent from all sums.
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

/// Two tasks that begin with one model: the members of the first train in the second, with the same journals.
#[test]
fn a_second_task_from_one_model_trains() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(&folder.path().join("data"));
    let run_in = |task: &str, index: usize, token: Option<&str>| {
        let mut more = vec!["--task", task];
        more.extend(token.map(|token| ["--token", token]).into_iter().flatten());
        start(&served.url, &served.ca, folder.path(), (index, 4), &more)
    };
    for task in ["demo", "again"] {
        let named = format!("name = \"{task}\"");
        let file = task_file(folder.path(), 4, &[("name = \"demo\"", &named)]);
        served.operate(&["task", "create", &file]).data();
        let token = |_| (task == "demo").then(|| served.enrollment_token());
        let devices: Vec<_> = (0..4).map(|index| run_in(task, index, token(index).as_deref())).collect();
        let watched = served.operate(&["round", "watch", task]);
        assert_eq!(watched.code, 0, "{watched}");
        devices.iter().for_each(|device| drop(device.wait_for(|event| event["event"] == "task_over")));
    }
}

/// A liar that has all answers of a round claims to have too few. The members are in the next round, with fresh keys and masks.
#[test]
fn after_a_round_without_a_sum_its_members_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Deadlines are at least as long as a poll.
    let mut command = tributary();
    command.env("TRIBUTARY_HTTP_POLL_MAX_MS", "1000");
    command.args(["--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    let served = Served::until(command, "serving");
    let is_share = |asked: &Asked| asked.method == http::Method::PUT && asked.path.contains("/rounds/1/unmask-shares/");
    let liar = Liar::with_authority(&served, folder.path(), |lies| lies.swallow = Box::new(is_share));
    let devices: Vec<_> = (0..4).map(|index| device(&served, &liar, folder.path(), (index, 4), &[])).collect();
    let soon =
        [("unmask_deadline_ms = 3600000", "unmask_deadline_ms = 2000"), ("max_attempts = 3", "max_attempts = 0")];
    served.operate(&["task", "create", &task_file(folder.path(), 4, &soon)]).data();
    devices.iter().for_each(|device| drop(device.wait_for(|event| event["event"] == "task_over")));
    let rounds = served.operate(&["round", "list", "demo"]).data();
    let [second, first] = &rounds.as_array().unwrap()[..] else { panic!("two rounds: {rounds}") };
    assert!(first["failure"] == "too_few_unmask_shares" && first["spent"] == true, "{first}");
    assert!(second["state"] == "COMPLETED" && second["reported"] == 4 && second["base"]["version"] == 0, "{second}");
}
