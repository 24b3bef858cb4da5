//! The formats' own readers, or their definitions, read the exported files.

use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use serde_json::{Value, json};

use super::*;

/// Two rounds, of which the first took two attempts.
fn task() -> TaskRounds {
    let attempt = |number: u32, attempt: u32, state: &str, accuracy: Option<f64>| {
        let mut round = json!({
            "task": "00000000-0000-0000-0000-000000000007", "number": number, "attempt": attempt, "state": state,
            "failure": (state == "FAILED").then_some("too_few_participants"),
            "phases": [{"state": "COLLECTING", "started_at": 1_700_000_000_000_i64, "ended_at": 1_700_000_002_500_i64,
                        "deadline_at": null, "min": 2, "max": 3, "count": 3}],
            "cohort": 3, "reported": 3, "dropped": 0, "dropped_why": {}, "bytes_up": 1200, "bytes_down": 3600,
            "metrics": {}, "base": {"version": number - 1, "sha256": "00".repeat(32)}, "model": null,
            "opened_at": 1_700_000_000_000_i64 + i64::from(number * 10_000), "ended_at": 1_700_000_003_000_i64 + i64::from(number * 10_000),
            "seconds": 3.0,
        });
        if let Some(accuracy) = accuracy {
            round["metrics"]["accuracy"] = json!({"value": accuracy, "count": 60});
            round["model"] = json!({"version": number, "sha256": "11".repeat(32)});
            round["epsilon"] = json!({"published": 0.5 * f64::from(number), "cohort_known": 2.0, "server": null});
        }
        serde_json::from_value::<RoundView>(round).unwrap()
    };
    let task = json!({
        "id": "00000000-0000-0000-0000-000000000007", "name": "digits", "status": "COMPLETED", "rounds_completed": 2,
        "rounds_total": 2, "model_version": 2, "parameters": 610, "created_at": 1_700_000_000_000_i64,
        "spec": {"name": "digits", "model": {"architecture": {"kind": "linear", "inputs": 60, "classes": 10}}, "rounds": {"count": 2}},
        "history": [{"status": "COMPLETED", "at": 1_700_000_023_000_i64}],
    });
    TaskRounds {
        task: serde_json::from_value(task).unwrap(),
        rounds: vec![
            attempt(1, 1, "FAILED", None),
            attempt(1, 2, "COMPLETED", Some(0.25)),
            attempt(2, 1, "COMPLETED", Some(0.1 + 0.2)),
        ],
    }
}

#[test]
fn a_table_of_text_has_a_row_for_each_attempt_and_the_same_numbers() {
    let mut text = Vec::new();
    csv::write(&Records::of(&[task()]), &mut text).unwrap();
    let mut read = ::csv::Reader::from_reader(text.as_slice());
    let headings = read.headers().unwrap().clone();
    let rows: Vec<_> = read.records().map(Result::unwrap).collect();
    let get = |row: usize, name: &str| {
        rows[row].get(headings.iter().position(|heading| heading == name).unwrap()).unwrap().to_owned()
    };
    assert_eq!(rows.len(), 3);
    assert_eq!([get(0, "state"), get(0, "failure")], ["FAILED", "too_few_participants"]);
    assert_eq!([get(0, "metrics.accuracy.value"), get(0, "model_version")], ["", ""], "there was none");
    assert_eq!(get(2, "metrics.accuracy.value").parse::<f64>().unwrap(), 0.1 + 0.2, "to the last bit");
    assert_eq!([get(1, "epsilon.published"), get(0, "epsilon.published")], ["0.5", ""]);
}

/// The same task with cohorts that are drawn at random, and kept secret.
fn sampled() -> TaskRounds {
    let mut task = task();
    let mut spec = serde_json::to_value(&task.task.spec).unwrap();
    spec["secure_aggregation"] = json!({ "enabled": false });
    spec["privacy"] =
        json!({"mechanism": "central_gaussian", "sampling": { "poisson": 0.25 }, "epsilon": 4.0, "delta": 1e-5});
    task.task.spec = serde_json::from_value(spec).unwrap();
    assert!(task.task.spec.sampling_amplifies());
    for round in &mut task.rounds {
        let spread =
            json!({"participants": 3, "resolution": 0.1, "p10": 0.1, "p25": 0.2, "p50": 0.5, "p75": 0.7, "p90": 0.9});
        round.distributions.extend(serde_json::from_value(spread).ok().map(|of| ("accuracy".to_owned(), of)));
    }
    task
}

#[test]
fn sizes_of_secret_cohorts_are_in_no_format() {
    const SECRET: [&str; 7] = [
        "cohort",
        "reported",
        "dropped",
        "bytes_up",
        "metrics.accuracy.examples",
        "phases.COLLECTING.count",
        "distributions.accuracy.participants",
    ];
    let shown = |task: &TaskRounds| {
        let folder = tempfile::tempdir().unwrap();
        let mut text = Vec::new();
        csv::write(&Records::of(std::slice::from_ref(task)), &mut text).unwrap();
        let csv = String::from_utf8(text).unwrap();
        let path = folder.path().join("rounds.parquet");
        parquet::write(&Records::of(std::slice::from_ref(task)), fs::File::create_new(&path).unwrap()).unwrap();
        let parquet = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        tensorboard::write(task, folder.path()).unwrap();
        let file = fs::read_dir(folder.path().join("digits")).unwrap().next().unwrap().unwrap().path();
        let tensorboard = String::from_utf8_lossy(&fs::read(file).unwrap()).replace('/', ".");
        mlflow::write(task, &folder.path().join("runs")).unwrap();
        let run = fs::read_dir(folder.path().join("runs")).unwrap().next().unwrap().unwrap().path();
        let metrics = fs::read_dir(run.join("00000000000000000000000000000007/metrics")).unwrap();
        let mlflow: Vec<_> = metrics.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        [csv.lines().next().unwrap().to_owned(), parquet, tensorboard, mlflow.join(",")]
    };
    for (plain, secret) in shown(&task()).iter().zip(shown(&sampled())) {
        for name in &SECRET[..6] {
            assert!(plain.contains(name), "{name}: {plain}");
        }
        for name in SECRET {
            assert!(!secret.contains(name) || name == "cohort", "{name}: {secret}");
        }
        for name in ["seconds", "epsilon.published", "epsilon.cohort_known", "metrics.accuracy.value"] {
            assert!(secret.contains(name), "{name}: {secret}");
        }
    }
    let columns = Records::of(&[sampled()]).columns;
    assert!(columns.iter().all(|(name, _)| name != "cohort"));
    let both = Records::of(&[sampled(), task()]);
    let at = both.columns.iter().position(|(name, _)| name == "cohort").unwrap();
    assert_eq!((&both.rows[0][at], &both.rows[3][at]), (&records::Cell::Empty, &records::Cell::Float(3.0)));
}

#[test]
fn names_are_no_formulas_and_lead_nowhere_else() {
    let mut hostile = task();
    hostile.task.summary.name = "=cmd|' /C calc'!A0".to_owned();
    let mut text = Vec::new();
    csv::write(&Records::of(&[hostile]), &mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains(",'=cmd|"));

    let folder = tempfile::tempdir().unwrap();
    let (out, mut hostile) = (folder.path().join("out"), task());
    hostile.task.summary.name = "../outside".to_owned();
    for round in &mut hostile.rounds {
        let metric = round.metrics.get("accuracy").copied();
        round.metrics.extend(metric.map(|metric| ("../../../../outside".to_owned(), metric)));
    }
    tensorboard::write(&hostile, &out).unwrap();
    mlflow::write(&hostile, &out).unwrap();
    let entries: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries, ["out"]);
}

#[test]
fn parquet_has_types_and_empty_cells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rounds.parquet");
    parquet::write(&Records::of(&[task()]), fs::File::create_new(&path).unwrap()).unwrap();
    let file = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
    let rows: Vec<_> = file.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let get = |row: usize, name: &str| {
        rows[row].get_column_iter().find(|(known, _)| *known == name).map(|(_, field)| field.clone()).unwrap()
    };
    assert_eq!(rows.len(), 3);
    assert_eq!(get(0, "metrics.accuracy.value"), Field::Null);
    assert_eq!(get(2, "metrics.accuracy.value"), Field::Double(0.1 + 0.2));
    assert_eq!(get(2, "opened_at"), Field::TimestampMillis(1_700_000_020_000));
    assert_eq!(get(1, "task_name"), Field::Str("digits".to_owned()));
    assert_eq!(get(1, "attempt"), Field::Long(2));
}

#[test]
fn a_tensorboard_file_is_the_one_that_was_once_read_by_tensorboard() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        tensorboard::write(&task(), folder.path()).unwrap();
    }
    let files: Vec<_> =
        fs::read_dir(folder.path().join("digits")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "a later export replaces an earlier one");
    let bytes = fs::read(&files[0]).unwrap();
    // Length 24, its masked CRC-32C, then `wall_time`, `step` and `file_version` as `tf.summary` writes them.
    assert_eq!(&bytes[..8], 24_u64.to_le_bytes());
    assert_eq!(&bytes[8..12], [0xa3, 0x7f, 0x4b, 0x22]);
    assert!(bytes[12..36].ends_with(b"\x1a\x0dbrain.Event:2"));
    let steps =
        bytes.windows(b"metrics/accuracy/value".len()).filter(|window| window == b"metrics/accuracy/value").count();
    assert_eq!(steps, 2, "of two attempts, the last");
    // Its value is field 2, of four bytes, also where it is 0.
    let zeros = bytes.array_windows::<12>().filter(|window| *window == b"dropped\x15\0\0\0\0").count();
    assert_eq!(zeros, 2, "nobody was dropped");
}

#[test]
fn an_mlflow_run_has_metrics_by_step_and_the_keys_of_its_task() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        mlflow::write(&task(), folder.path()).unwrap();
    }
    let experiment = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let run = experiment.join("00000000000000000000000000000007");
    let read = |name: &str| fs::read_to_string(run.join(name)).unwrap();
    assert_eq!(read("metrics/metrics.accuracy.value"), "1700000013000 0.25 1\n1700000023000 0.30000000000000004 2\n");
    assert_eq!(read("params/model.architecture.kind"), "linear");
    assert_eq!(read("tags/mlflow.runName"), "digits");
    let meta = read("meta.yaml");
    let field = |key: &str| {
        let line = meta.lines().find_map(|line| line.strip_prefix(&format!("{key}: "))).unwrap();
        serde_json::from_str::<Value>(line).unwrap()
    };
    assert_eq!(field("run_name"), "digits");
    assert_eq!(field("status"), 3);
    assert_eq!(field("end_time"), 1_700_000_023_000_i64);
    assert!(experiment.join("meta.yaml").exists());
}
