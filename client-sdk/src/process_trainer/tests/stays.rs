//! Programs that take one job after the other.

use std::process::{Child, Command};

use super::*;

/// Takes each job once; the following commands work in its folder.
const EACH: &str = r#"while sleep 0.02; do
    job="$TRIBUTARY_JOBS/$(cat "$TRIBUTARY_JOBS/current" 2>/dev/null)"
    [ -e "$job/job.json" ] && [ ! -e "$job/result.json" ] || continue
    TRIBUTARY_JOB=$job; "#;
const DONE: &str = "cd /; done";

impl Site {
    /// The program's output in the file `said`, next to its folder.
    fn said(&self) -> Vec<String> {
        let said = std::fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }

    fn stays(&self, before: &str, work: &[&str]) -> Program {
        let said = self.folder.path().join("said");
        let line = format!("echo started >>{}; {before} {EACH} {} {DONE}", said.display(), work.concat());
        Program { starts: Starts::Once, ..Program::new(line) }
    }

    fn left(&self) -> usize {
        strays::find(&self.work().canonicalize().unwrap()).len()
    }

    /// Another job than the last.
    fn forget(&self) {
        *self.kept.state.lock().unwrap() = None;
    }
}

#[test]
fn one_start_does_for_many_jobs() {
    let site = Site::new();
    let mut trainer = site.trainer(site.stays("", &[COPY, TRAINED, RESULT]));
    for _ in 0..2 {
        assert_eq!(trainer.train(&w(), &site.job).unwrap().parameters, w());
        site.forget();
        assert_eq!(trainer.evaluate(&w(), &site.job).unwrap().len(), 2);
    }
    assert_eq!(site.said(), ["started"]);
    assert!(!site.work().join("current").exists(), "no job waits");
    assert!(site.left() > 0, "it waits for the next job");
    drop(trainer);
    assert_eq!(site.left(), 0, "nothing is left running");
}

#[test]
fn one_that_fails_or_ends_is_started_again() {
    let site = Site::new();
    let fails = r#"[ -e "$job/checkpoint/x" ] || { : >"$job/checkpoint/x"; echo out of luck >&2; exit 9; }; "#;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let mut trainer = site
        .trainer(site.stays("", &[fails, COPY, TRAINED, RESULT]))
        .on_event(move |event| heard.lock().unwrap().push(event.clone()));
    assert_eq!(trainer.train(&w(), &site.job).unwrap().examples, 3);
    let reason = "the program ended with status 9; it said last: out of luck".to_owned();
    let started = |start| ProgramEvent::Started { start };
    assert_eq!(*told.lock().unwrap(), [started(1), ProgramEvent::Failed { reason }, started(2)]);
    drop(trainer);
    // A program may end after each job; this is not a failure.
    let mut trainer = site.trainer(site.stays("", &[COPY, TRAINED, RESULT, "exit; "]));
    for _ in 0..2 {
        site.forget();
        assert_eq!(trainer.train(&w(), &site.job).unwrap().examples, 3);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(site.said(), ["started"; 4]);
    drop(trainer);
    site.forget();
    let told = site.train(Program { restarts: 0, ..site.stays("exit 0;", &[]) }).unwrap_err();
    assert!(told.contains("the program ended with status 0 and said nothing"), "{told}");
}

#[test]
fn one_whose_job_nobody_waits_for_is_ended() {
    let site = Site::new();
    let mut trainer = site.trainer(site.stays("", &["sleep 1000; "]));
    site.job.cancel.cancel();
    let told = trainer.train(&w(), &site.job).unwrap_err().to_string();
    assert!(told.contains("nobody waits"), "{told}");
    assert_eq!(site.left(), 0);
    assert!(!site.work().join("current").exists());
}

#[test]
fn one_that_stays_refuses_by_a_file() {
    let site = Site::new();
    let refuses = r#"[ -e "$job/refused" ] || { printf 'no rows' >"$job/r"; mv "$job/r" "$job/refused"; }; "#;
    let mut trainer = site.trainer(site.stays("", &[refuses]));
    for _ in 0..2 {
        let told = trainer.train(&w(), &site.job).unwrap_err();
        assert!(matches!(told, TrainerError::Refused(_)) && told.to_string().contains("no rows"), "{told}");
    }
    assert_eq!(site.said(), ["started"]);
}

/// A program that something else has started, for as long as the test runs.
struct Elsewhere(Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_that_something_else_starts_is_left_alone() {
    let site = Site::new();
    let line = format!("{EACH} {COPY} {TRAINED} {RESULT} {DONE}");
    let program = Command::new("sh").args(["-c", &line]).env(JOBS_VARIABLE, site.work()).spawn().unwrap();
    let mut program = Elsewhere(program);
    for _ in 0..2 {
        let mut trainer = site.trainer(Program::attached());
        assert_eq!(trainer.train(&w(), &site.job).unwrap().parameters, w());
        site.forget();
        assert_eq!(trainer.evaluate(&w(), &site.job).unwrap().len(), 2);
    }
    assert!(program.0.try_wait().unwrap().is_none(), "it runs on");
    // The next participant reads the training from before the kill.
    let mut trainer = site.trainer(Program::attached());
    let folder = trainer.folder_to_train(&w(), &site.job).unwrap();
    folder.offer(&trainer.folder).unwrap();
    while !folder.is_answered() {
        std::thread::sleep(LOOK);
    }
    drop(program);
    assert_eq!(trainer.train(&w(), &site.job).unwrap().examples, 3);
    // An untaken job is reported once.
    site.forget();
    drop(trainer);
    let mut trainer = site.trainer(Program { stall: Some(Duration::from_millis(100)), ..Program::attached() });
    let told = trainer.train(&w(), &site.job).unwrap_err().to_string();
    assert!(told.ends_with("reported no progress for 0 s"), "{told}");
}
