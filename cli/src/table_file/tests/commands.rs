//! Tables that a command prints.

use std::time::Duration;

use super::*;

const ROWS: &str = "printf 'sick,age,ward\\nno,50,icu\\nyes,25,general\\n'";

fn command(line: &str) -> TableSource {
    format!("command:{line}").parse::<TablePath>().unwrap().open().unwrap()
}

fn fails(line: &str) -> String {
    chain(&labelled(&command(line), &spec(SPEC)).unwrap_err())
}

#[test]
fn output_of_a_command_is_a_table() {
    let expected = (vec![0.5, 1.0, 0.0, 0.25, 0.0, 1.0], vec![0, 1]);
    assert_eq!(labelled(&command(ROWS), &spec(SPEC)).unwrap(), expected);
    let reads_stdin = format!("cat; {ROWS}; echo noise >&2");
    assert_eq!(labelled(&command(&reads_stdin), &spec(SPEC)).unwrap(), expected);
    // A helper that a command leaves behind does not keep the table open.
    let leaves_helper = format!("{ROWS}; sleep 1000 >&2 &");
    assert_eq!(labelled(&command(&leaves_helper), &spec(SPEC)).unwrap(), expected);
    let by_r = "printf '\"sick\",\"age\",\"ward\"\\n\"1\",\"no\",50,\"icu\"\\n\"2\",\"yes\",25,\"general\"\\n'";
    assert_eq!(labelled(&command(by_r), &spec(SPEC)).unwrap(), expected);
    let (_, report) = command(ROWS).fit(&wanted(&spec(SPEC)), Keep::Nothing).unwrap();
    assert_eq!(report.words(), "the command: 2 of 2 rows can be used");
}

#[test]
fn command_runs_again_for_each_task() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let source = command(&format!("echo >> {}; {ROWS}", runs.display()));
    for run in 1..=3 {
        labelled(&source, &spec(SPEC)).unwrap();
        assert_eq!(std::fs::read(&runs).unwrap().len(), run);
    }
}

#[test]
fn failed_command_gives_its_status_and_errors() {
    let failed =
        "the command ended with status 3, so none of its rows are used; its standard error ends with: no such table";
    assert_eq!(fails(&format!("{ROWS}; echo 'no such table' >&2; exit 3")), failed);
    assert_eq!(fails("echo 'no such table' >&2; exit 3"), failed, "without output");
    assert_eq!(fails("printf 'sick,age,ward\\nno,5'; echo 'no such table' >&2; exit 3"), failed, "within a row");
    assert!(fails(&format!("{ROWS}; kill -9 $$")).starts_with("the command was killed by signal 9, so none"));
    assert!(fails("no-such-program").contains("status 127"));
    assert!(chain(&command("exit 3").count().unwrap_err()).contains("status 3"));
}

#[test]
fn wrong_output_of_a_command_is_placed() {
    for (line, expected) in [
        ("true", "the command is empty; its first line must name the columns, separated by commas"),
        ("echo age,ward", "the command names its columns, and has no row below them; at least one is needed"),
        (
            "printf 'sick,age,ward\\nno,50,icu\\nno,old,icu\\n'",
            "the command, line 3, column `age`: the cell is `old`; a number from 0 to 100 is expected",
        ),
        (
            "printf 'sick,age,ward\\nno,50,icu\\nno,50\\n'",
            "the command, line 3: has 2 cells, and the header names 3: each line must have as many",
        ),
    ] {
        assert_eq!(fails(line), expected);
    }
}

#[test]
fn command_line_is_not_shown() {
    let path = "command:psql password=secret".parse::<TablePath>().unwrap();
    assert!(!format!("{path:?}").contains("secret"));
}

/// Whether a process runs; one that has ended and that its parent has not waited for does not.
#[cfg(target_os = "linux")]
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[cfg(target_os = "linux")]
#[test]
fn endless_command_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let mut source = command(&format!(
        "echo $$ > {}; sleep 1000 & echo $! > {}; echo sick,age,ward; yes no,50,icu",
        file("shell").display(),
        file("child").display()
    ));
    source.most = 1000;
    let error = chain(&labelled(&source, &spec(SPEC)).unwrap_err());
    assert!(
        error.starts_with("the command has more than 250 rows, of each of which the task keeps 4 numbers"),
        "{error}"
    );
    for name in ["shell", "child"] {
        let pid = std::fs::read_to_string(file(name)).unwrap();
        let ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !runs(&pid)
        });
        assert!(ended, "{name} runs on");
    }
}
