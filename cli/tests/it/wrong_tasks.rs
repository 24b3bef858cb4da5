//! Wrong task files, generated: each key of a good one gets every value that it cannot have. The message names the key
//! and the valid values. The messages are in `wrong_tasks.txt` (see `wrong_lines`).

use std::fmt::Write as _;

use toml::{Table, Value};

use crate::support::Served;
use crate::wrong_lines::snapshot;

/// A task that is good.
const GOOD: &str = "name = \"t\"\n[model]\narchitecture = { kind = \"linear\", inputs = 3, classes = 2 }\n[selection]\ncohort = { count = 10 }\n";

/// Type of a key.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number from 1.
    Count,
    /// A number above 0.
    Positive,
    /// A part of a whole.
    Part,
    /// One of some words.
    Word,
    /// A boolean.
    Switch,
}

/// Keys that every task may have, and their types.
const KEYS: &[(&str, Kind)] = &[
    ("rounds.count", Kind::Count),
    ("rounds.select_max", Kind::Count),
    ("rounds.select_deadline_ms", Kind::Count),
    ("rounds.collect_deadline_ms", Kind::Count),
    ("rounds.aggregate_deadline_ms", Kind::Count),
    ("training.epochs", Kind::Count),
    ("training.steps", Kind::Count),
    ("training.batch_size", Kind::Count),
    ("training.accumulate", Kind::Count),
    ("training.learning_rate", Kind::Positive),
    ("training.gradient_clip", Kind::Positive),
    ("training.precision", Kind::Word),
    ("training.solver.name", Kind::Word),
    ("training.optimizer.name", Kind::Word),
    ("selection.cohort.count", Kind::Count),
    ("selection.strategy", Kind::Word),
    ("selection.report_utility", Kind::Switch),
    ("aggregation.clip_range", Kind::Positive),
    ("aggregation.clip_norm", Kind::Positive),
    ("aggregation.max_weight", Kind::Count),
    ("aggregation.modulus_bits", Kind::Count),
    ("aggregation.optimizer.name", Kind::Word),
    ("aggregation.optimizer.learning_rate", Kind::Positive),
    ("secure_aggregation.enabled", Kind::Switch),
    ("secure_aggregation.min_cohort", Kind::Count),
    ("secure_aggregation.max_corrupt_fraction", Kind::Part),
    ("secure_aggregation.max_dropout_fraction", Kind::Part),
    ("secure_aggregation.share_deadline_ms", Kind::Count),
    ("schedule.mode", Kind::Word),
    ("compression.codec", Kind::Word),
    ("personalization.method", Kind::Word),
    ("privacy.mechanism", Kind::Word),
    ("privacy.epsilon", Kind::Positive),
    ("privacy.delta", Kind::Positive),
    ("retain.last", Kind::Count),
];

fn wrong_values(kind: Kind) -> Vec<Value> {
    let text = || Value::from("ten");
    match kind {
        Kind::Count => vec![text(), Value::Integer(-1), Value::Integer(0), Value::Float(1.5)],
        Kind::Positive => vec![text(), Value::Float(-1.0), Value::Float(0.0)],
        Kind::Part => vec![text(), Value::Float(-0.1), Value::Float(1.5)],
        Kind::Word => vec![Value::from("nonsense"), Value::Integer(7)],
        Kind::Switch => vec![Value::from("perhaps"), Value::Integer(1)],
    }
}

/// The good task with one changed value.
fn with(key: &str, value: Value) -> String {
    let mut task: Table = toml::from_str(GOOD).unwrap();
    let mut parts: Vec<_> = key.split('.').collect();
    let last = parts.pop().unwrap();
    let folder = parts.into_iter().fold(&mut task, |table, part| {
        let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        inner.as_table_mut().unwrap()
    });
    folder.insert(last.to_owned(), value);
    match key {
        // Where there is privacy at all.
        "privacy.epsilon" | "privacy.delta" => {
            folder.insert("mechanism".to_owned(), "distributed_discrete_gaussian".into());
            folder.entry("delta").or_insert(Value::Float(1e-5));
            folder.entry("epsilon").or_insert(Value::Float(8.0));
        }
        "aggregation.optimizer.learning_rate" => {
            folder.insert("name".to_owned(), "fed_avg".into());
        }
        _ => {}
    }
    toml::to_string(&task).unwrap()
}

/// Words with which messages introduce the valid form.
const RIGHT: [&str; 13] = [
    "must ",
    "expected `",
    "expected one of `",
    "expected a whole number",
    "expected a number",
    "expected true or false",
    "between ",
    "at least",
    "at most",
    "needs ",
    "leave ",
    "is not below",
    "instead",
];

#[test]
fn each_wrong_task_file_names_its_key_and_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev_with(&folder.path().join("data"), &[("TRIBUTARY_HTTP_OPERATOR_RATE", "100000")]);
    let file = folder.path().join("task.toml");
    let checked = |text: &str| {
        std::fs::write(&file, text).unwrap();
        served.operate(&["task", "create", file.to_str().unwrap(), "--check"])
    };
    assert_eq!(checked(GOOD).code, 0, "the task is good as it is");
    let (mut all, mut lacking, mut count) = (String::new(), Vec::new(), 0);
    for &(key, kind) in KEYS {
        for value in wrong_values(kind) {
            let ran = checked(&with(key, value.clone()));
            let said = ran.stderr.replace(&folder.path().display().to_string(), "FOLDER");
            let last = key.rsplit('.').next().unwrap();
            let names_it = said.contains(key) || said.contains(last);
            if ran.code == 0 || !names_it || !RIGHT.iter().any(|words| said.contains(words)) {
                lacking.push(format!("{key} = {value}: exit code {}\n{said}", ran.code));
            }
            count += 1;
            writeln!(all, "{key} = {value}\n{}\n", said.trim_end()).unwrap();
        }
    }
    assert!(count >= 100, "{count}");
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
    snapshot("wrong_tasks.txt", &all);
}
