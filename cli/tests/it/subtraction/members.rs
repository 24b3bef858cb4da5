//! The federation under attack: a real coordinator process, and members with the SDK in this one, over TLS.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client_sdk::journal::MemoryJournal;
use client_sdk::learning::{MetricValue, Parameters, Table, checkpoint};
use client_sdk::{Event, Participant, SecurityPolicy, Trained, Trainer, TrainerError, TrainingJob};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use wire::ParticipantId;

use crate::liar::Liar;
use crate::support::Served;

/// Members, in batches of [`BATCH`] where a task demands batches.
pub(super) const MEMBERS: usize = 9;
pub(super) const BATCH: usize = 3;
/// The longest poll of a coordinator whose rounds are short: deadlines are at least that long.
pub(super) const POLL_MS: u32 = 5000;
/// Length of the model.
pub(super) const VALUES: usize = 256;

/// The update of a member, for the model that starts at zero.
pub(super) fn update(member: usize) -> Vec<f64> {
    let mut state = u32::try_from(member).unwrap().wrapping_mul(2_654_435_761).wrapping_add(7);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        0.8 * (f64::from(state >> 8) / f64::from(1 << 24) - 0.5)
    };
    (0..VALUES).map(|_| next()).collect()
}

/// The age in a member's table, which has one row.
pub(super) fn age(member: usize) -> f64 {
    if member == super::VICTIM { 37.25 } else { 70.0 + 4.0 * f64::from(u8::try_from(member).unwrap()) }
}

/// A member's data. Its training depends smoothly on the model, as training does.
struct Local {
    update: Vec<f64>,
    table: Table,
}

impl Trainer for Local {
    #[expect(clippy::cast_possible_truncation, reason = "models are of f32")]
    fn train(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Trained, TrainerError> {
        let mut parameters = model.clone();
        parameters
            .values_mut()
            .iter_mut()
            .zip(&self.update)
            .for_each(|(value, by)| *value += 0.1 * *value + *by as f32);
        Ok(Trained { parameters, examples: 10, metrics: Vec::new() })
    }

    fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        Ok(Vec::new())
    }

    fn table(&mut self, _: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        Ok(Cow::Borrowed(&self.table))
    }

    fn examples(&self) -> u64 {
        10
    }
}

/// Protection that bounds differences of sums.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Protection {
    None,
    /// Batches of [`BATCH`] members.
    Batches,
}

/// A task to create.
pub(super) struct Task<'t> {
    pub(super) name: &'t str,
    pub(super) rounds: u32,
    /// Updates in a round, or in a buffer.
    pub(super) cohort: usize,
    pub(super) protection: Protection,
    /// Whether its rounds soon go on without the inputs of a batch.
    pub(super) may_lose: bool,
    /// The tables `[model]` and `[aggregation]`, or `[analytics]`, and more.
    pub(super) body: &'t str,
}

/// `[model]` with these initial values, and `[aggregation]` with these further keys.
pub(super) fn model(init: &str, aggregation: &str) -> String {
    format!(
        "[model]\ntensors = [{{ name = \"w\", shape = [{VALUES}], init = {init} }}]\nseed = 7\n\
         [aggregation]\nclip_range = 1.0\nmax_weight = 1\n{aggregation}\n"
    )
}

/// A sum that a completed round opened: its round, the set of its members, and its group if the cohort was divided.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opened {
    pub(super) round: u32,
    pub(super) base_version: u32,
    pub(super) group: Option<u32>,
    /// 1 for each member in the sum, 0 for the others.
    pub(super) set: Vec<f64>,
}

/// Messages from the members.
#[derive(Default)]
pub(super) struct Told {
    /// Sizes of the batches that members were drawn into.
    pub(super) batches: Vec<u16>,
    pub(super) refusals: Vec<String>,
    /// Sizes of the sets of survivors that members signed.
    pub(super) signed: Vec<u16>,
}

/// Ends with the test.
pub(super) struct Federation {
    _runtime: Runtime,
    members: Vec<(ParticipantId, AbortHandle)>,
    _liar: Option<Liar>,
    served: Served,
    folder: tempfile::TempDir,
    told: Arc<Mutex<Told>>,
}

impl Federation {
    /// Enrols all members at a coordinator with default settings.
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let served = Served::dev(&folder.path().join("data"));
        Self::enrol(served, folder, None)
    }

    /// Enrols all members through a liar, at the coordinator in `data` of this folder.
    pub(super) fn behind(liar: Liar, served: Served, folder: tempfile::TempDir) -> Self {
        Self::enrol(served, folder, Some(liar))
    }

    fn enrol(served: Served, folder: tempfile::TempDir, liar: Option<Liar>) -> Self {
        let url = liar.as_ref().map_or(&served.url, |liar| &liar.url);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let told = Arc::new(Mutex::new(Told::default()));
        let members = (0..MEMBERS).map(|index| member(&runtime, &served, url, index, &told)).collect();
        Self { _runtime: runtime, members, _liar: liar, served, folder, told }
    }

    pub(super) fn id(&self, member: usize) -> ParticipantId {
        self.members[member].0
    }

    /// Switches a member off for good.
    pub(super) fn leave(&self, member: usize) {
        self.members[member].1.abort();
    }

    pub(super) fn told<T>(&self, look: impl Fn(&Told) -> T) -> T {
        look(&self.told.lock().unwrap())
    }

    pub(super) fn create(&self, task: &Task<'_>) {
        let Task { name, rounds, cohort, protection, may_lose, body } = *task;
        let (deadline_ms, dropouts) = if may_lose { (POLL_MS, 0.4) } else { (120_000, 0.3) };
        let batches = if protection == Protection::Batches { format!("batch_size = {BATCH}\n") } else { String::new() };
        let text = format!(
            "name = \"{name}\"\n[rounds]\ncount = {rounds}\nselect_max = {MEMBERS}\n\
             collect_deadline_ms = {deadline_ms}\n[selection]\ncohort = {{ count = {cohort} }}\n\
             [secure_aggregation]\nmax_corrupt_fraction = 0.0\nmax_dropout_fraction = {dropouts}\n{batches}{body}"
        );
        let file = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        self.served.operate(&["task", "create", file.to_str().unwrap()]).data();
    }

    /// Creates the task and waits for its end.
    pub(super) fn run(&self, task: &Task<'_>) {
        self.create(task);
        let watched = self.served.operate(&["round", "watch", task.name]);
        assert_eq!(watched.code, 0, "{watched}");
    }

    /// Has all members draw their batches: a task whose cohort they all are.
    pub(super) fn draw_batches(&self) {
        let body = model("\"zeros\"", "");
        self.run(&Task {
            name: "draw",
            rounds: 1,
            cohort: MEMBERS,
            protection: Protection::Batches,
            may_lose: false,
            body: &body,
        });
        assert_eq!(self.told(|told| told.batches.clone()), [3; MEMBERS], "everybody is in a batch");
    }

    /// Waits until `is_enough` of the sums that a task has opened, and returns these.
    pub(super) fn opened_until(&self, task: &str, is_enough: impl Fn(&[Opened]) -> bool) -> Vec<Opened> {
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            let opened = self.opened(task);
            if is_enough(&opened) {
                return opened;
            }
            assert!(Instant::now() < end, "{} sums of {task} are not enough: {opened:?}", opened.len());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The sums that a task has opened so far, as the coordinator's own rows have them.
    pub(super) fn opened(&self, task: &str) -> Vec<Opened> {
        let file = self.folder.path().join("data").join("coordinator.db");
        let rows = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        rows.busy_timeout(Duration::from_secs(10)).unwrap();
        let mut statement = rows
            .prepare(
                "SELECT place.number, round.base_version, place.cohort_group, place.participant
                 FROM assignment AS place JOIN round USING (task, number, attempt) JOIN task ON task.id = place.task
                 WHERE task.name = ?1 AND round.state = 'COMPLETED' AND place.state = 'REPORTED'
                 ORDER BY place.number, place.cohort_group",
            )
            .unwrap();
        let places = statement.query_map([task], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?, row.get::<_, Option<u32>>(2)?, row.get::<_, Vec<u8>>(3)?))
        });
        let mut opened: Vec<Opened> = Vec::new();
        for place in places.unwrap() {
            let (round, base_version, group, participant) = place.unwrap();
            let member = self.members.iter().position(|(id, _)| id.0.as_bytes()[..] == participant[..]).unwrap();
            if opened.last().is_none_or(|last| (last.round, last.group) != (round, group)) {
                opened.push(Opened { round, base_version, group, set: vec![0.0; MEMBERS] });
            }
            opened.last_mut().unwrap().set[member] = 1.0;
        }
        opened
    }

    /// The change of the published model by a round.
    pub(super) fn moved(&self, task: &str, opened: &Opened) -> Vec<f64> {
        let [before, after] = [0, 1].map(|step| {
            let bytes = self.version(task, opened.base_version + step);
            let layout = Arc::new(checkpoint::read_layout(&bytes).unwrap());
            checkpoint::read_published(&bytes, &layout).unwrap().values().to_vec()
        });
        after.iter().zip(&before).map(|(after, before)| f64::from(*after) - f64::from(*before)).collect()
    }

    /// The file of a published version.
    pub(super) fn version(&self, task: &str, version: u32) -> Vec<u8> {
        let file = self.folder.path().join(format!("{task}-{version}"));
        if !file.exists() {
            let (version, out) = (version.to_string(), file.to_str().unwrap());
            self.served.operate(&["model", "fetch", task, "--model-version", &version, "--out", out]).data();
        }
        std::fs::read(file).unwrap()
    }

    /// States of a task's rounds.
    pub(super) fn states(&self, task: &str) -> BTreeSet<String> {
        let rounds = self.served.operate(&["round", "list", task]).data();
        rounds.as_array().unwrap().iter().map(|round| round["state"].as_str().unwrap().to_owned()).collect()
    }
}

/// Starts a member and waits until it is enrolled.
fn member(
    runtime: &Runtime,
    served: &Served,
    url: &str,
    index: usize,
    told: &Arc<Mutex<Told>>,
) -> (ParticipantId, AbortHandle) {
    let (say, enrolled) = mpsc::channel();
    let told = Arc::clone(told);
    let mut participant = Participant::builder()
        .server(url)
        .ca_pem(std::fs::read_to_string(Path::new(&served.ca)).unwrap())
        .enrollment_token(served.enrollment_token())
        .journal(MemoryJournal::new())
        .trainer(Local { update: update(index), table: Table::new(1, vec![age(index)]).unwrap() })
        .secure_aggregation(SecurityPolicy::lowest())
        .on_event(move |event| match event {
            Event::Enrolled { participant, .. } => say.send(*participant).unwrap(),
            Event::InBatch { size, .. } => told.lock().unwrap().batches.push(*size),
            Event::Confirmed { survivors, .. } => told.lock().unwrap().signed.push(*survivors),
            Event::Refused { reason, .. } => told.lock().unwrap().refusals.push(reason.clone()),
            _ => {}
        })
        .build()
        .unwrap();
    let running = runtime.spawn(async move { participant.run(std::future::pending()).await });
    (enrolled.recv_timeout(Duration::from_secs(30)).unwrap(), running.abort_handle())
}
