//! Apps that bring an HTTP client of their own, along with apps with the SDK's HTTPS, against a real coordinator. Their
//! models equal those of apps with the SDK's HTTPS, bit for bit, also where that client fails in every way it can.

mod client;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters, checkpoint};
use client_sdk::runner::OverClient;
use client_sdk::transport::retry::RetryPolicy;
use client_sdk::transport::{HttpTransport, Proxy};
use client_sdk::{Outcome, Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use self::client::{Fate, Own, Sent};
use crate::support::Served;

/// Participants in each federation, all of them in each round.
const EACH: usize = 4;
/// Size of the model: its file is larger than the buffer of an exchange.
const VALUES: usize = 300_000;
const TASK: &str = "name = \"lent\"\n[model]\ntensors = [{ name = \"w\", shape = [300000], init = \"zeros\" }]\nseed = 7\n\
                    [rounds]\ncount = 2\nselect_min = 4\ncollect_min = 4\n[selection]\ncohort = { count = 4 }\nseed = 1\n\
                    [aggregation]\nclip_range = 8.0\n[secure_aggregation]\nmax_dropout_fraction = 0.3\n";

/// Moves the value at each place by an amount of its own.
struct Moves(usize);

impl Moves {
    fn by(&self, place: usize) -> f32 {
        f32::from(u8::try_from((place * 7 + self.0 * 3) % 11).unwrap()) / 16.0 - 0.25
    }
}

impl Trainer for Moves {
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters.values_mut().iter_mut().enumerate().for_each(|(place, value)| *value += self.by(place));
        Ok(Trained { parameters, examples: 10, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn examples(&self) -> u64 {
        10
    }
}

/// Runs the task to its end; a participant has the SDK's HTTPS unless it is given another client.
async fn play(served: &Served, own: [Option<Own>; EACH]) {
    let ca = std::fs::read_to_string(&served.ca).unwrap();
    let mut running = JoinSet::new();
    for (index, own) in own.into_iter().enumerate() {
        let builder = Participant::builder()
            .ca_pem(&ca)
            .enrollment_token(served.enrollment_token())
            .name(format!("device-{index}"))
            .task("lent")
            .seed(Some(index as u64))
            .journal(MemoryJournal::new())
            .trainer(Moves(index))
            .secure_aggregation(SecurityPolicy::lowest())
            .retry(RetryPolicy { first: Duration::from_millis(20), ..RetryPolicy::default() });
        let builder = match own {
            Some(own) => builder.transport(HttpTransport::new(OverClient(own))),
            None => builder.server(&served.url).proxy(Proxy::none()),
        };
        let mut participant = builder.build().unwrap();
        running.spawn(async move { participant.run(std::future::pending()).await });
    }
    while let Some(ended) = running.join_next().await {
        let outcome = ended.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::TaskOver { .. }), "{outcome:?}");
    }
}

/// A coordinator that has the task.
fn serve(folder: &Path) -> Served {
    let served = Served::dev(&folder.join("data"));
    let task = folder.join("task.toml");
    std::fs::write(&task, TASK).unwrap();
    served.operate(&["task", "create", task.to_str().unwrap()]).data();
    served
}

/// The digests of the published versions, and the last model. Asserts that all rounds succeeded with all participants.
fn published(served: &Served, folder: &Path) -> (Vec<Value>, Parameters) {
    let rounds = served.operate(&["round", "list", "lent"]).data();
    let rounds = rounds.as_array().unwrap();
    assert_eq!(rounds.len(), 2, "{rounds:?}");
    for round in rounds {
        assert_eq!(round["state"], "COMPLETED", "{round}");
        assert_eq!((round["attempt"].as_u64(), round["dropped"].as_u64()), (Some(1), Some(0)), "{round}");
        assert_eq!(round["reported"], EACH, "{round}");
    }
    let models = served.operate(&["model", "list", "lent"]).data();
    let digests = models.as_array().unwrap().iter().rev().map(|model| model["sha256"].clone()).collect();
    let file = folder.join("model.safetensors");
    served.operate(&["model", "fetch", "lent", "--out", file.to_str().unwrap()]).data();
    let bytes = std::fs::read(file).unwrap();
    let layout = Arc::new(checkpoint::read_layout(&bytes).unwrap());
    (digests, checkpoint::read_published(&bytes, &layout).unwrap())
}

/// Asserts the fates of each request in turn: all troubles in their order, then answers. Every request was carried
/// through.
fn assert_all_troubles_came(sent: &[Sent], first: usize) {
    assert!(sent.iter().all(|sent| !sent.was_taken_twice), "{sent:?}");
    let mut lines: Vec<&str> = sent.iter().map(|sent| sent.line.as_str()).collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(lines.len() > 10, "enrolment, check-ins, and two rounds: {lines:?}");
    for line in ["POST /v1/enroll", "POST /v1/check-in"] {
        assert!(lines.contains(&line), "{lines:?}");
    }
    for line in lines {
        let fates: Vec<Fate> = sent.iter().filter(|sent| sent.line == line).map(|sent| sent.fate).collect();
        let mut due = Fate::WRONG;
        due.rotate_left(first);
        let expected = due.into_iter().chain(std::iter::repeat(Fate::AnsweredTwice)).take(fates.len());
        assert!(expected.eq(fates.iter().copied()), "{line}: {fates:?}");
    }
}

/// Each model's download resumed where it was cut, and the coordinator sent only the rest. A download that began ahead
/// of its turn may be given up, and then it begins anew.
fn assert_downloads_went_on(sent: &[Sent]) {
    let mut resumed: BTreeMap<&str, usize> = BTreeMap::new();
    for sent in sent.iter().filter(|sent| sent.line.ends_with("/parameters")) {
        let times = resumed.entry(&sent.line).or_default();
        if sent.range.is_some() && sent.status.is_some() {
            assert_eq!(sent.status, Some(206), "{sent:?}");
            *times += 1;
        }
    }
    assert!(resumed.len() >= 2 && resumed.values().all(|times| *times > 0), "{resumed:?}");
}

#[test]
fn rounds_are_the_same_over_an_apps_own_client_however_it_fails() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [alike, mixed] = folders.each_ref().map(tempfile::TempDir::path);
    let participants = Runtime::new().unwrap();

    let served = serve(alike);
    participants.block_on(play(&served, [None, None, None, None]));
    let (expected, _) = published(&served, alike);
    assert_eq!(expected.len(), 3, "{expected:?}");

    let served = serve(mixed);
    let ca = std::fs::read_to_string(&served.ca).unwrap();
    let threads = Runtime::new().unwrap();
    let own = |first| Own::new(&served.url, &ca, first, threads.handle().clone());
    let (one, other) = (own(0), own(2));
    participants.block_on(play(&served, [None, Some(one.clone()), None, Some(other.clone())]));
    let (digests, model) = published(&served, mixed);
    assert_eq!(digests, expected);

    // The mean of their updates, twice; the rest is the rounding of a round.
    assert_eq!(model.values().len(), VALUES);
    for (place, value) in model.values().iter().enumerate() {
        let sum: f32 = (0..EACH).map(|index| Moves(index).by(place)).sum();
        let mean = sum / 4.0;
        assert!((value - 2.0 * mean).abs() < 1e-3, "{place}: {value}, not {}", 2.0 * mean);
    }
    for (own, first) in [(one, 0), (other, 2)] {
        let sent = own.sent();
        assert_eq!(own.identified(), 1);
        assert_all_troubles_came(&sent, first);
        assert_downloads_went_on(&sent);
    }
}
