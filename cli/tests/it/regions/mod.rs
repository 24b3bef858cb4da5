//! Regions as participants of a task above, each with a coordinator and devices of its own.

#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use learning::{Parameters, checkpoint};
use recipe::{TaskModel, UpdateCodec};
use serde_json::Value;
use test_servers::postgres::Cluster;

use crate::support::{Background, Served, tributary};

mod killed;
mod levels;

/// Waiting devices notice the next task within two seconds.
const POLLS: &[(&str, &str)] = &[("TRIBUTARY_HTTP_POLL_MAX_MS", "2000")];
/// Devices of a region.
const DEVICES: usize = 3;

/// A task on the demo's synthetic data in which every update has the same weight.
fn task(folder: &Path, name: &str, cohort: usize, rounds: u32, more: &str) -> String {
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"{name}\"\n[model]\narchitecture = {{ kind = \"linear\", inputs = 60, classes = 10 }}\nseed = 7\n[training]\nepochs = 1\n\
         batch_size = 10\nlearning_rate = 0.05\n[rounds]\ncount = {rounds}\n[selection]\ncohort = {{ count = {cohort} }}\n\
         [aggregation]\nmax_weight = 1\n[secure_aggregation]\nmax_corrupt_fraction = 0.0\n{more}"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// A coordinator in this folder, with its rows in SQLite or on this server.
fn coordinator(folder: &Path, cluster: Option<&Cluster>) -> Served {
    let Some(cluster) = cluster else {
        return Served::dev_with(&folder.join("data"), POLLS);
    };
    let text = format!(
        "[http]\npoll_max_ms = 2000\n[database]\nurl = {:?}\n[blobs]\nurl = \"file:{}\"\n[identity]\n\
         ca_certificate_file = {:?}\nca_key_file = {:?}\n",
        cluster.url(&cluster.create_database()),
        folder.join("blobs").display(),
        folder.join("ca.pem"),
        folder.join("ca-key.pem"),
    );
    std::fs::write(folder.join("coordinator.toml"), text).unwrap();
    configured(folder, "127.0.0.1:0")
}

/// A coordinator of this folder's configuration.
fn configured(folder: &Path, listen: &str) -> Served {
    let mut command = tributary();
    command.args(["--format", "json", "serve", "--listen", listen, "--config"]).arg(folder.join("coordinator.toml"));
    Served::until(command, "serving")
}

/// A region: its coordinator, its devices, and the process that takes part above.
struct Region {
    index: usize,
    folder: PathBuf,
    served: Option<Served>,
    _devices: Vec<Background>,
    relay: Option<Background>,
}

/// What each region runs, and where it takes part.
struct Federation<'a> {
    upper: &'a Served,
    /// The task there; without a name the regions take part in all.
    task: Option<&'a str>,
    regions: usize,
    through: &'a str,
    flags: &'a [&'a str],
    /// Where the rows of the regional coordinators are, if not in SQLite.
    cluster: Option<&'a Cluster>,
}

impl Federation<'_> {
    fn start(&self, folder: &Path, index: usize, devices: usize) -> Region {
        let folder = folder.join(format!("region-{index}"));
        std::fs::create_dir_all(&folder).unwrap();
        let served = coordinator(&folder, self.cluster);
        let devices = (0..devices).map(|device| self.device(&served, &folder, DEVICES * index + device)).collect();
        let mut region = Region { index, folder, served: Some(served), _devices: devices, relay: None };
        region.relay = Some(self.relay(&region, Some(&self.upper.enrollment_token())));
        region
    }

    fn all(&self, folder: &Path) -> Vec<Region> {
        (0..self.regions).map(|index| self.start(folder, index, DEVICES)).collect()
    }

    /// A device, which takes part in every task of its region.
    fn device(&self, served: &Served, folder: &Path, index: usize) -> Background {
        let participants = (DEVICES * self.regions).to_string();
        let mut command = tributary();
        command.args(["participant", "run", "--server", &served.url, "--ca", &served.ca]);
        command.args(["--participants", &participants, "--index", &index.to_string(), "--seed", "5"]);
        command.args(["--min-cohort", "3", "--min-tolerated-colluders", "0", "--insecure-aggregation"]);
        command.args(["--token", &served.enrollment_token(), "--journal"]).arg(folder.join(format!("journal-{index}")));
        logged(command, &folder.join(format!("device-{index}.log")))
    }

    /// The process between both coordinators; with a token it enrols, later it goes on from its journal.
    fn relay(&self, region: &Region, token: Option<&str>) -> Background {
        let served = region.served.as_ref().unwrap();
        let mut command = tributary();
        command.args(["--format", "json", "region", "--upstream", &self.upper.url, "--ca", &self.upper.ca]);
        command.args(self.task.iter().flat_map(|task| ["--task", task]));
        command.args(["--name", &format!("region-{}", region.index), "--seed", "5"]);
        command.args(["--through", self.through, "--server", &served.url, "--server-ca", &served.ca]);
        command.args(["--min-cohort", "3", "--min-tolerated-colluders", "0"]).args(self.flags);
        command.arg("--journal").arg(region.folder.join("journal")).env("TRIBUTARY_TOKEN", &served.token);
        let file = region.folder.join("token");
        if let Some(token) = token {
            std::fs::write(&file, format!("{token}\n")).unwrap();
        }
        // Once used, it does not matter.
        command.arg("--token-file").arg(file);
        logged(command, &region.folder.join("relay.log"))
    }
}

impl Region {
    /// The relay's output.
    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.join("relay.log")).unwrap_or_default()
    }

    /// An event of the relay, awaited.
    fn event(&self, name: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let said = self.said();
            let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if let Some(event) = events.into_iter().find(|event| event["event"] == name) {
                return event;
            }
            assert!(Instant::now() < end, "no {name}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn tasks(&self) -> Vec<Value> {
        self.served.as_ref().unwrap().operate(&["task", "list"]).data().as_array().unwrap().clone()
    }
}

/// Starts a process whose output is appended to a file.
fn logged(mut command: Command, log: &Path) -> Background {
    let file = || OpenOptions::new().create(true).append(true).open(log).unwrap();
    Background(command.stdin(Stdio::null()).stdout(file()).stderr(file()).spawn().unwrap())
}

/// SHA-256 of a task's versions, oldest first.
fn versions(served: &Served, task: &str) -> Vec<Value> {
    let models = served.operate(&["model", "list", task]).data();
    models.as_array().unwrap().iter().rev().map(|model| model["sha256"].clone()).collect()
}

/// Waits until the upper task has as many versions, of which each comes within five minutes.
fn wait_for_versions(served: &Served, count: usize, regions: &[Region]) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        let versions = versions(served, "upper");
        if versions.len() >= count {
            return;
        }
        if versions.len() > seen {
            (seen, since) = (versions.len(), Instant::now());
        }
        let said: String = regions.iter().map(Region::said).collect();
        assert!(since.elapsed() < Duration::from_secs(300), "{seen} of {count} versions\n{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn newest(served: &Served, folder: &Path, task: &str) -> Parameters {
    let out = folder.join(format!("{task}.safetensors"));
    served.operate(&["model", "fetch", task, "--out", out.to_str().unwrap()]).data();
    let bytes = std::fs::read(&out).unwrap();
    checkpoint::read(&bytes, &Arc::new(checkpoint::read_layout(&bytes).unwrap())).unwrap()
}

/// One unit of a task's sums, in parameters.
fn unit(file: &str) -> f64 {
    let mut spec: task_spec::TaskSpec = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    client_sdk::models::complete(&mut spec.model).unwrap();
    match TaskModel::new(&spec).unwrap().codec {
        UpdateCodec::Plain(codec) => 1.0 / codec.by_word().unwrap().scale(),
        UpdateCodec::Private(_) | UpdateCodec::Sums(_) => panic!("the task is plain"),
    }
}

#[test]
fn one_regional_round_of_equal_weights_is_flat_averaging() {
    let folder = tempfile::tempdir().unwrap();
    let flat = task(folder.path(), "flat", 3 * DEVICES, 1, "");
    let demo = ["--participants", "9", "--seed", "5", "--task", &flat];
    let demo = Served::demo(&folder.path().join("flat"), &demo);
    let expected = newest(&demo, folder.path(), "flat");
    let before = versions(&demo, "flat").remove(0);
    drop(demo);

    let served = Served::dev(&folder.path().join("data"));
    let upper = task(folder.path(), "upper", 3, 1, "");
    let through = task(folder.path(), "through", DEVICES, 9, "");
    served.operate(&["task", "create", &upper]).data();
    let federation = Federation {
        upper: &served,
        task: Some("upper"),
        regions: 3,
        through: &through,
        flags: &["--rounds", "1"],
        cluster: None,
    };
    let mut regions = federation.all(folder.path());
    for region in &mut regions {
        assert_eq!(region.relay.as_mut().unwrap().0.wait().unwrap().code(), Some(0), "{}", region.said());
        let answer = region.event("regional_answer");
        assert_eq!((&answer["rounds"], &answer["examples"]), (&1.into(), &3.into()), "{answer}");
    }
    assert_eq!(versions(&served, "upper")[0], before, "both begin with the same model");
    let model = newest(&served, folder.path(), "upper");
    assert_eq!(model.layout(), expected.layout());
    let apart = model.values().iter().zip(expected.values()).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    let grid = [&flat, &upper, &through].iter().map(|file| unit(file)).sum::<f64>();
    println!(
        "three regions of three devices and nine devices differ by {apart:e} at most; the grids' units add up to {grid:e}"
    );
    assert!(apart <= grid + f64::from(f32::EPSILON), "{apart:e} > {grid:e}");
    let round = served.operate(&["round", "show", "upper", "1"]).data();
    assert!(round["metrics"]["loss"]["value"].as_f64().unwrap() > 0.0 && round["reported"] == 3, "{round}");
    colluders_learn_the_sum_of_the_last_region(&served, &model, &regions, folder.path(), grid);
}

/// The upper operator and all regions but one know the model and their own: together they learn the sum of the last one, whose devices
/// masked their updates from it. The upper coordinator has nothing about devices.
fn colluders_learn_the_sum_of_the_last_region(
    served: &Served,
    model: &Parameters,
    regions: &[Region],
    folder: &Path,
    grid: f64,
) {
    let models: Vec<_> = regions
        .iter()
        .map(|region| {
            let task = region.tasks().remove(0);
            let (regional, name) = (region.served.as_ref().unwrap(), task["name"].as_str().unwrap());
            let round = regional.operate(&["round", "show", name, "1"]).data();
            assert_eq!(round["secure_aggregation"]["included"], DEVICES, "{round}");
            newest(regional, folder, name)
        })
        .collect();
    let (last, colluding) = models.split_last().unwrap();
    for (index, value) in last.values().iter().enumerate() {
        let others: f64 = colluding.iter().map(|model| f64::from(model.values()[index])).sum();
        let learned = models.len() as f64 * f64::from(model.values()[index]) - others;
        assert!(
            (learned - f64::from(*value)).abs() <= models.len() as f64 * grid + 1e-5,
            "{index}: {learned}, {value}"
        );
    }
    let participants = served.operate(&["participant", "list"]).data();
    let mut names: Vec<_> =
        participants.as_array().unwrap().iter().filter_map(|participant| participant["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["region-0", "region-1", "region-2"], "{participants}");
}

/// A federation of one region without masks, whose upper round collects for 30 s.
fn one_region(folder: &Path, devices: usize, through: &str, flags: &[&str]) -> (Served, Region) {
    let served = Served::dev(&folder.join("data"));
    let upper = task(folder, "upper", 1, 1, "enabled = false\n");
    let text = std::fs::read_to_string(&upper).unwrap();
    std::fs::write(&upper, text.replace("[rounds]\n", "[rounds]\ncollect_deadline_ms = 30000\n")).unwrap();
    served.operate(&["task", "create", &upper]).data();
    let flags = [&["--insecure-aggregation"], flags].concat();
    let region = Federation { upper: &served, task: Some("upper"), regions: 1, through, flags: &flags, cluster: None }
        .start(folder, 0, devices);
    (served, region)
}

#[test]
fn region_answers_before_the_deadline_with_the_rounds_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let through = task(folder.path(), "through", 1, 1, "enabled = false\n");
    let (served, region) = one_region(folder.path(), 1, &through, &["--rounds", "100000", "--reserve", "20"]);
    let answer = region.event("regional_answer");
    let rounds = answer["rounds"].as_u64().unwrap();
    assert!(rounds > 0 && rounds < 100_000, "{answer}");
    wait_for_versions(&served, 2, &[]);
    assert_eq!(served.operate(&["round", "show", "upper", "1"]).data()["attempt"], 1);
    let tasks = region.tasks();
    assert_eq!(
        (tasks.len(), &tasks[0]["status"], &tasks[0]["model_version"]),
        (1, &"CANCELLED".into(), &rounds.into())
    );
}

#[test]
fn region_without_devices_declines_before_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let through = task(folder.path(), "through", 1, 1, "enabled = false\n");
    let (_served, region) = one_region(folder.path(), 0, &through, &["--rounds", "1", "--reserve", "25"]);
    let failed = region.event("training_failed");
    assert!(failed.to_string().contains("has completed no round"), "{failed}");
    region.event("abandoned");
    assert_eq!(region.tasks()[0]["status"], "CANCELLED");
}

#[test]
fn region_of_another_model_names_the_tensor_and_starts_no_task() {
    let folder = tempfile::tempdir().unwrap();
    let through = task(folder.path(), "through", 1, 1, "enabled = false\n");
    let text = std::fs::read_to_string(&through).unwrap().replace("classes = 10", "classes = 4");
    std::fs::write(&through, text).unwrap();
    let (_served, region) = one_region(folder.path(), 1, &through, &["--rounds", "1"]);
    let failed = region.event("training_failed").to_string();
    assert!(failed.contains("has shape [10, 60] in the received model, and [4, 60] in the regional task"), "{failed}");
    assert_eq!(region.tasks(), Vec::<Value>::new());
}
