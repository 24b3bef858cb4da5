//! Programs of a line of shell: good ones, clumsy ones and hostile ones.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Mutex;

use learning::Layout;
use learning::checkpoint;
use learning::parameters::TensorSpec;
use task_spec::{Budget, TrainingPlan};
use tempfile::TempDir;
use wire::Timestamp;
use zeroize::Zeroizing;

mod stays;

use super::*;
use crate::checkpoints::{Checkpoints, Keep, NotKept};
use crate::clock::Now;
use crate::trainer::{Cancel, Purpose};

const COPY: &str = r#"cd "$TRIBUTARY_JOB"; cp model.safetensors t; chmod u+w t; "#;
const TRAINED: &str = "mv t trained.safetensors; ";
const RESULT: &str =
    r#"printf '{"examples":3,"metrics":{"train_loss":0.5,"a":{"value":2,"count":7}}}' >r; mv r result.json; "#;

/// A site with a folder, and a job for it.
struct Site {
    folder: TempDir,
    job: TrainingJob,
    kept: Arc<Memory>,
}

/// Keeps one state in memory.
#[derive(Default)]
struct Memory {
    state: Mutex<Option<Vec<u8>>>,
    /// Once this file is there.
    pauses_at: Mutex<Option<PathBuf>>,
}

impl Keep for Memory {
    fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.state.lock().unwrap().clone().map(Zeroizing::new)
    }

    fn has_state(&self) -> bool {
        self.state.lock().unwrap().is_some()
    }

    /// As the journal's, which has a state only some time after it was saved, unless it is wanted at once.
    fn save(&self, state: &[u8], at_once: bool) -> Result<(), NotKept> {
        if at_once {
            *self.state.lock().unwrap() = Some(state.to_vec());
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        false
    }

    fn should_pause(&self) -> bool {
        self.pauses_at.lock().unwrap().as_ref().is_some_and(|path| path.exists())
    }

    fn must_pause(&self) -> bool {
        self.should_pause()
    }
}

fn model(name: &str, values: &[f32]) -> Parameters {
    let tensors = vec![TensorSpec { name: name.to_owned(), shape: vec![values.len() as u64] }];
    Parameters::new(Arc::new(Layout::new(tensors).unwrap()), values.to_vec()).unwrap()
}

fn w() -> Parameters {
    model("w", &[1.0, 2.0, 3.0])
}

/// A clock that is a second later at each look.
#[derive(Default)]
struct Hasty(std::sync::atomic::AtomicU64);

impl Clock for Hasty {
    fn now(&self) -> Now {
        let seconds = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Now { elapsed: Duration::from_secs(seconds), wall: Timestamp(1) }
    }
}

/// A clock whose wall time is constant, so that folders are numbered from 1.
struct Beginning(SystemClock);

impl Clock for Beginning {
    fn now(&self) -> Now {
        Now { wall: Timestamp(1), ..self.0.now() }
    }
}

impl Site {
    fn new() -> Self {
        let kept = Arc::new(Memory::default());
        let job = TrainingJob {
            task: "digits".to_owned(),
            round: 3,
            purpose: Purpose::Shared,
            plan: TrainingPlan::default(),
            architecture: None,
            analytics: None,
            table: None,
            metrics: vec!["train_loss".to_owned()],
            seed: 42,
            deadline: None,
            cancel: Cancel::default(),
            checkpoints: Checkpoints::new(Arc::clone(&kept) as Arc<dyn Keep>),
        };
        Self { folder: tempfile::tempdir().unwrap(), job, kept }
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn trainer(&self, program: Program) -> ProcessTrainer {
        let program = Program { grace: Duration::from_millis(300), ..program };
        let mut trainer = ProcessTrainer::open(program, &self.work(), 1).unwrap();
        trainer.clock = Arc::new(Beginning(SystemClock::new()));
        trainer
    }

    fn train(&self, program: Program) -> Result<Trained, String> {
        let trained = self.trainer(program).train(&w(), &self.job).map_err(|error| error.to_string());
        assert!(strays::find(&self.work().canonicalize().unwrap()).is_empty(), "nothing is left running");
        trained
    }

    /// The error of a program that is started once.
    fn fails(&self, line: &str) -> String {
        self.train(Program { restarts: 0, ..Program::new(line) }).unwrap_err()
    }
}

/// The words of a line of shell, one after the other.
fn line(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn a_result_is_read_and_says_what_it_says() {
    let site = Site::new();
    let mut trainer = site.trainer(Program::new(line(&[COPY, TRAINED, RESULT])));
    let trained = trainer.train(&w(), &site.job).unwrap();
    assert_eq!((trained.parameters, trained.examples), (w(), 3));
    let metric = |value, count| MetricValue { value, count };
    assert_eq!(trained.metrics, [("a".to_owned(), metric(2.0, 7)), ("train_loss".to_owned(), metric(0.5, 3))]);
    assert_eq!(trainer.examples(), 3);
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = site.work().join("train-3-1");
    assert_eq!(
        (mode(site.work()), mode(folder.clone()), mode(folder.join("model.safetensors"))),
        (0o700, 0o700, 0o400)
    );
    let job: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("job.json")).unwrap()).unwrap();
    assert_eq!(
        (&job["schema"], &job["kind"], &job["round"], &job["seed"]),
        (&1.into(), &"train".into(), &3.into(), &42.into())
    );
    assert_eq!((&job["deadline"], &job["budget"]), (&serde_json::Value::Null, &serde_json::json!({})), "nobody waits");
    assert_eq!(job["tensors"], serde_json::json!([{ "name": "w", "shape": [3] }]));
}

#[test]
fn a_job_says_what_its_round_allows() {
    let mut site = Site::new();
    let trainer = site.trainer(Program::new(line(&[COPY, TRAINED, RESULT])));
    let now = Timestamp(1_000_000);
    let mut allowed = |deadline: i64, budget: Option<Budget>| {
        (site.job.deadline, site.job.plan.budget) = (Some(Timestamp(deadline)), budget);
        let folder = JobFolder::create(&trainer.folder, Kind::Train, &w(), &site.job, now).unwrap();
        let job = std::fs::read(folder.path().join("job.json")).unwrap();
        let job: serde_json::Value = serde_json::from_slice(&job).unwrap();
        (job["deadline"].clone(), job["budget"].clone())
    };
    let budget = Some(Budget { steps: Some(7), time_ms: Some(9_000) });
    assert_eq!(allowed(1_005_000, None), (1_005_000.into(), serde_json::json!({ "time_ms": 5_000 })));
    assert_eq!(allowed(1_005_000, budget), (1_005_000.into(), serde_json::json!({ "steps": 7, "time_ms": 5_000 })));
    assert_eq!(allowed(1_050_000, budget), (1_050_000.into(), serde_json::json!({ "steps": 7, "time_ms": 9_000 })));
    assert_eq!(allowed(999_000, None), (999_000.into(), serde_json::json!({ "time_ms": 0 })), "it is over");
}

#[test]
fn a_file_refuses_where_the_status_is_a_launchers() {
    let site = Site::new();
    let refuses = r#"printf 'no rows\033[31m here' >"$TRIBUTARY_JOB/refused"; exit 1"#;
    for program in [refuses.to_owned(), refuses.replace("exit 1", "exit 0")] {
        let told = site.trainer(Program::new(program)).train(&w(), &site.job).unwrap_err();
        assert!(matches!(told, TrainerError::Refused(_)), "{told}");
        assert!(told.to_string().contains("takes no part: no rows[31m here"), "{told}");
    }
    // A refusal is not permanent.
    assert_eq!(site.train(Program::new(line(&[COPY, TRAINED, RESULT]))).unwrap().examples, 3);
}

#[test]
fn an_evaluation_is_measured_or_left_out() {
    let site = Site::new();
    let measures = line(&[r#"cd "$TRIBUTARY_JOB"; "#, RESULT]);
    assert_eq!(site.trainer(Program::new(measures)).evaluate(&w(), &site.job).unwrap().len(), 2);
    assert!(site.trainer(Program::new("exit 75")).evaluate(&w(), &site.job).unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(site.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn what_is_no_result_is_told_by_name() {
    let site = Site::new();
    let other = |name: &str, bytes: &[u8]| {
        let path = site.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let header = br#"{"w":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}"#;
    let halves = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 6]].concat();
    let instead = |path: String| format!(r#"cd "$TRIBUTARY_JOB"; cp {path} t; "#);
    let wrong = instead(other("wrong", &checkpoint::write(&model("v", &[0.0; 3])).unwrap()));
    let shape = instead(other("shape", &checkpoint::write(&model("w", &[0.0; 4])).unwrap()));
    let halves = instead(other("halves", &halves));
    let secret = other("secret", &checkpoint::write(&w()).unwrap());
    let linked = format!(r#"cd "$TRIBUTARY_JOB"; ln -s {secret} trained.safetensors; "#);
    let twice = format!(r#"cd "$TRIBUTARY_JOB"; ln {secret} trained.safetensors; "#);
    let nan = r"printf '\000\000\300\177' | dd of=t bs=1 conv=notrunc seek=$(($(wc -c <t) - 4)) 2>/dev/null; ";
    for (program, words) in [
        (line(&[COPY, nan, TRAINED, RESULT]), "NaN or infinity at position 2"),
        (line(&[&wrong, TRAINED, RESULT]), "\"v\" does not belong to the model"),
        (line(&[&shape, TRAINED, RESULT]), "shape [4] where the model has [3]"),
        (line(&[&halves, TRAINED, RESULT]), "holds F16; only F32"),
        (line(&[COPY, "truncate -s -2 t; ", TRAINED, RESULT]), "not a whole safetensors file"),
        (line(&[COPY, "truncate -s 10G t; ", TRAINED, RESULT]), "has 10737418240 bytes; for this job it has at most"),
        (line(&[COPY, TRAINED]), "status 0 and left no result.json; write it under another name, then rename it"),
        (line(&[COPY, RESULT]), "left no trained.safetensors"),
        (line(&[&linked, RESULT]), "trained.safetensors is a link"),
        (line(&[&twice, RESULT]), "trained.safetensors is a link"),
        (line(&[COPY, TRAINED, "mkfifo result.json"]), "result.json is a link, a folder or another thing"),
        (line(&[COPY, TRAINED, "mkdir result.json"]), "result.json is a link, a folder or another thing"),
        (line(&[COPY, TRAINED, "echo '{\"examples\": NaN}' >result.json"]), "result.json is not what a program writes"),
        (line(&[COPY, TRAINED, "echo '{\"exmples\": 3}' >result.json"]), "unknown field `exmples`"),
        (line(&[COPY, TRAINED, "echo '{}' >result.json"]), "no number of examples above 0"),
        (line(&[COPY, TRAINED, "echo '{\"examples\": 0}' >result.json"]), "no number of examples above 0"),
        (line(&[COPY, TRAINED, "truncate -s 2M result.json"]), "result.json has 2097152 bytes"),
    ] {
        *site.kept.state.lock().unwrap() = None;
        let told = site.fails(&program);
        assert!(told.contains(words), "{program}\n{told}");
    }
    assert_eq!(std::fs::read(&secret).unwrap(), checkpoint::write(&w()).unwrap(), "nothing was changed elsewhere");
}

#[test]
fn a_failed_program_goes_on_from_its_checkpoint() {
    let site = Site::new();
    let counts = r#"echo x >>"$TRIBUTARY_JOB/checkpoint/starts"; [ "$(wc -l <"$TRIBUTARY_JOB/checkpoint/starts")" -ge 3 ] || { echo "out of luck" >&2; exit 9; }; "#;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut trainer = site
        .trainer(Program::new(line(&[counts, COPY, TRAINED, RESULT])))
        .on_event(move |event| heard.lock().unwrap().push(event.clone()));
    assert_eq!(trainer.train(&w(), &site.job).unwrap().examples, 3);
    let failed =
        || ProgramEvent::Failed { reason: "the program ended with status 9; it said last: out of luck".to_owned() };
    let started = |start| ProgramEvent::Started { start };
    assert_eq!(*told.lock().unwrap(), [started(1), failed(), started(2), failed(), started(3)]);
}

#[test]
fn failures_and_refusals_say_what_the_program_said() {
    let site = Site::new();
    assert!(site.fails("echo no rows here; exit 75").contains("takes no part (status 75); it said last: no rows here"));
    assert!(site.fails("kill -9 $$").contains("was killed by a signal and said nothing; it was started 1 times"));
    assert!(site.fails("nothing-of-this-name").contains("status 127"));
    let told = site.fails("head -c 100000000 /dev/zero | tr '\\0' 'z'; echo >&2; exit 1");
    assert!(told.len() < 5000 && told.ends_with("z; it was started 1 times"), "{}", told.len());
}

#[test]
fn nothing_survives_its_job() {
    let site = Site::new();
    let leaves = "sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; ";
    assert_eq!(site.train(Program::new(line(&[leaves, COPY, TRAINED, RESULT]))).unwrap().examples, 3);
}

#[test]
fn a_line_is_asked_for_its_output_and_not_waited_for_without_end() {
    let (site, cancel) = (Site::new(), Cancel::default());
    let ask = |line: &str, clock: &Arc<dyn Clock>, cancel: &Cancel| {
        process::output(line, site.folder.path(), clock, cancel).map(|said| said.trim().to_owned())
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    assert_eq!(ask("sleep 1000 & echo 1 2 | wc -w", &clock, &cancel), Ok("2".to_owned()), "whoever is left is ended");
    assert_eq!(ask("echo 2; exit 3", &clock, &cancel), Err("ended with status 3".to_owned()));
    assert_eq!(ask("kill -9 $$", &clock, &cancel), Err("was killed by a signal".to_owned()));
    let hasty: Arc<dyn Clock> = Arc::new(Hasty::default());
    assert_eq!(ask("sleep 1000", &hasty, &cancel), Err("has not ended within 30 s".to_owned()));
    cancel.cancel();
    assert!(ask("sleep 1000", &clock, &cancel).unwrap_err().contains("nobody waits"));
    // They are killed, too.
    while !strays::find(&site.folder.path().canonicalize().unwrap()).is_empty() {
        std::thread::sleep(LOOK);
    }
}

#[test]
fn folders_have_names_that_come_once() {
    let site = Site::new();
    let within = site.folder.path();
    let name = |now| {
        let folder = JobFolder::create(within, Kind::Evaluate, &w(), &site.job, Timestamp(now)).unwrap();
        let name = folder.name().to_owned();
        folder.remove();
        name
    };
    assert_eq!(
        [name(1_790_000_000_000), name(1_790_000_000_001)],
        ["evaluate-3-1790000000000", "evaluate-3-1790000000001"]
    );
}

#[test]
#[cfg(target_os = "linux")]
fn who_still_saves_has_the_time_though_the_shell_has_ended() {
    let site = Site::new();
    let checkpoint = site.work().join("train-3-1/checkpoint");
    let saves = r#"( trap 'sleep 0.1; echo x >saved; exit' TERM; : >begun; while :; do sleep 0.02; done ) & "#;
    let program = line(&[r#"cd "$TRIBUTARY_JOB/checkpoint"; "#, saves, "trap 'exit 143' TERM; wait"]);
    let (cancel, begun) = (site.job.cancel.clone(), checkpoint.join("begun"));
    let waiter = std::thread::spawn(move || {
        while !begun.exists() {
            std::thread::sleep(LOOK);
        }
        cancel.cancel();
    });
    let mut trainer = site.trainer(Program::new(program));
    trainer.program.grace = Duration::from_secs(60);
    let told = trainer.train(&w(), &site.job).unwrap_err().to_string();
    assert!(told.contains("nobody waits for the result"), "{told}");
    waiter.join().unwrap();
    assert!(checkpoint.join("saved").exists());
}

#[test]
fn a_program_that_never_ends_is_ended() {
    let site = Site::new();
    let cancel = site.job.cancel.clone();
    let waiter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        cancel.cancel();
    });
    let told = site.fails("trap '' TERM; while :; do sleep 0.05; done");
    assert!(told.contains("nobody waits for the result"), "{told}");
    waiter.join().unwrap();
}

#[test]
fn a_program_without_progress_is_started_again() {
    let site = Site::new();
    let program = Program { stall: Some(Duration::from_millis(100)), restarts: 1, ..Program::new("sleep 1000") };
    let told = site.train(program).unwrap_err();
    assert!(told.contains("no progress for 0 s") && told.contains("2 times"), "{told}");
}

#[test]
fn a_folder_holds_no_more_than_its_limit() {
    let site = Site::new();
    let line = r#"head -c 3000000 /dev/zero >"$TRIBUTARY_JOB/checkpoint/x"; sleep 1000"#;
    let told = site.train(Program { folder_max_bytes: Some(1_000_000), ..Program::new(line) }).unwrap_err();
    assert!(told.contains("and the limit is 1000000"), "{told}");
}

#[test]
fn a_pause_and_a_kill_lose_what_is_not_in_the_checkpoint_alone() {
    let site = Site::new();
    let step = r#"echo x >>"$TRIBUTARY_JOB/checkpoint/steps"; "#;
    let steps = site.work().join("train-3-1/checkpoint/steps");
    *site.kept.pauses_at.lock().unwrap() = Some(site.work().join("train-3-1/begun"));
    let slow = Program::new(line(&[step, r#": >"$TRIBUTARY_JOB/begun"; trap 'exit 1' TERM; sleep 1000 & wait"#]));
    let told = site.trainer(slow).train(&w(), &site.job).unwrap_err();
    assert!(matches!(told, TrainerError::Paused), "{told}");
    *site.kept.pauses_at.lock().unwrap() = None;
    // Another process, later: the same folder, and a second line in the checkpoint.
    let ends = || Program::new(line(&[step, COPY, TRAINED, RESULT]));
    site.train(ends()).unwrap();
    assert_eq!(std::fs::read_to_string(&steps).unwrap(), "x\nx\n");
    // Killed before the update was kept: the stored result is read again, without another training.
    site.train(ends()).unwrap();
    assert_eq!(std::fs::read_to_string(&steps).unwrap(), "x\nx\n");
    // Another job removes the files of this one.
    *site.kept.state.lock().unwrap() = None;
    site.train(ends()).unwrap();
    assert!(!steps.exists());
}

#[test]
fn progress_is_told() {
    let site = Site::new();
    let said = r#"printf '{"step":1}\nnonsense\n{"step":2,"of":3,"loss":0.5,"processes":2,"more":[1]}\n{"step":' >>"$TRIBUTARY_JOB/progress.jsonl"; "#;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut trainer = site
        .trainer(Program::new(line(&[said, COPY, TRAINED, RESULT])))
        .on_event(move |event| heard.lock().unwrap().push(event.clone()));
    trainer.train(&w(), &site.job).unwrap();
    let progress = Progress { step: 2, of: Some(3), loss: Some(0.5), processes: Some(2), ..Progress::default() };
    assert_eq!(told.lock().unwrap().last(), Some(&ProgramEvent::Progress(progress)));
}

#[test]
fn one_trainer_works_in_a_folder() {
    let site = Site::new();
    let first = site.trainer(Program::new("true"));
    // Stands for the copy in a child process that another thread has forked.
    let _inherited = first._lock.try_clone().unwrap();
    let told = ProcessTrainer::open(Program::new("true"), &site.work(), 1).err().unwrap();
    assert!(told.to_string().contains("another trainer works in"), "{told}");
    drop(first);
    ProcessTrainer::open(Program::new("true"), &site.work(), 1).unwrap();
}

/// Run with `--run-ignored only`, in a release build: the overhead of a job at ten million parameters.
#[test]
#[ignore = "a measurement"]
fn what_the_folder_costs() {
    let site = Site::new();
    let large = model("w", &vec![0.5; 10_000_000]);
    let mut trainer = site.trainer(Program::new(line(&[COPY, TRAINED, RESULT])));
    let clock = SystemClock::new();
    let begun = clock.now().elapsed;
    let folder = JobFolder::create(&trainer.folder, Kind::Train, &large, &site.job, clock.now().wall).unwrap();
    let made = clock.now().elapsed;
    std::fs::copy(folder.path().join("model.safetensors"), folder.path().join("trained.safetensors")).unwrap();
    let copied = clock.now().elapsed;
    assert_eq!(folder.trained(large.layout()).unwrap(), large);
    let read = clock.now().elapsed;
    assert_eq!(trainer.train(&large, &site.job).unwrap().examples, 3);
    let whole = clock.now().elapsed;
    println!(
        "d = 10^7: folder made in {:?}, result read in {:?}; with a program that copies, by a shell: {:?}",
        made - begun,
        read - copied,
        whole - read
    );
}
