//! Three hospitals and 90 patients: a regression, survival and a contingency table, from CSV files to printed results and a report.

use std::path::Path;

use crate::support::{Served, finish, run, tributary};
use crate::tables::complete;

/// Patients with cancer of the larynx (Kardaun 1983), as in `learning`, whose tests have the pooled answers.
const PATIENTS: &str = include_str!("../../../learning/src/analytics/tests/larynx/patients.csv");

const TABLE: &str = r#"
[selection]
cohort = { count = 3 }
[model.table]
"#;

/// Writes the table of each hospital: stages as words, one age left out at the first two.
fn write_tables(folder: &Path) {
    let rows: Vec<_> = PATIENTS.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()).collect();
    for (number, rows) in (1..=3).zip(rows.chunks(30)) {
        let mut text = "time,age,stage,death\n".to_owned();
        for (at, row) in rows.iter().enumerate() {
            let [time, age, stage, death] = row.as_slice() else { panic!("{row:?}") };
            let age = if at == 7 && number < 3 { "" } else { age };
            let stage = ["I", "II", "III", "IV"][stage.parse::<usize>().unwrap()];
            let death = ["no", "yes"][death.parse::<usize>().unwrap()];
            text += &format!("{time},{age},{stage},{death}\n");
        }
        std::fs::write(folder.join(format!("hospital-{number}.csv")), text).unwrap();
    }
}

fn write_task(folder: &Path, name: &str, analysis: &str, rounds: u32, table: &str) {
    let task = format!(
        "name = \"{name}\"\n[analytics]\nmax_rows = 100\n{analysis}\n[rounds]\ncount = {rounds}\n{TABLE}{table}\n"
    );
    std::fs::write(folder.join(format!("{name}.toml")), task).unwrap();
}

const AGE: &str = r#"{ type = "real", name = "age", low = 20, high = 100 }"#;
const STAGE: &str = r#"{ type = "category", name = "stage", categories = 4 }"#;
const YEARS: &str = r#"{ type = "time", name = "time", step = 0.1, steps = 120 }"#;
const STAGES: &str = r#"{ column = "stage", one_of = ["I", "II", "III", "IV"] }"#;
const DEATH: &str = r#"{ column = "death", one_of = ["no", "yes"] }"#;

#[test]
fn hospitals_publish_regressions_and_curves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_tables(folder);
    let ages = r#"{ column = "age", missing = "median", median = 65 }"#;
    let analysis = format!("kind = \"cox\"\ncolumns = [{YEARS}, {AGE}, {STAGE}]\niterations = 5");
    let table = format!("features = [{{ column = \"time\" }}, {ages}, {STAGES}]\nlabel = {DEATH}");
    write_task(folder, "hazards", &analysis, 6, &table);
    let analysis = format!("kind = \"survival\"\ncolumns = [{YEARS}, {STAGE}]");
    let table = format!("features = [{{ column = \"time\" }}, {STAGES}]\nlabel = {DEATH}");
    write_task(folder, "curves", &analysis, 1, &table);
    let deaths = r#"{ type = "category", name = "death", categories = 2 }"#;
    let analysis = format!("kind = \"contingency\"\ncolumns = [{STAGE}, {deaths}]\nmin_count = 2");
    write_task(folder, "counts", &analysis, 1, &format!("features = [{STAGES}, {DEATH}]"));
    let words = ["participant", "check", "--task", "hazards.toml", "--data", "csv:hospital-1.csv"];
    let checked = finish(tributary().current_dir(folder).args(["--format", "json"]).args(words));
    assert_eq!((checked.code, &checked.events().pop().unwrap()["used"]), (0, &30.into()), "{checked}");

    let served = Served::dev(&folder.join("data"));
    for task in ["hazards", "curves", "counts"] {
        complete(folder, &served, task);
    }
    let found = served.operate(&["task", "result", "hazards"]).data()["cox"].clone();
    assert_eq!((&found["converged"], &found["rows"], &found["events"]), (&true.into(), &90.into(), &50.into()));
    // By lifelines on one table, two ages being 65: 1.71.
    let stage_four = found["coefficients"][3]["estimate"].as_f64().unwrap();
    assert!((stage_four - 1.70).abs() < 0.05, "{found}");
    let printed = served.read(&["task", "result", "hazards"]);
    for words in ["90 rows, 50 events; partial log-likelihood -1", "HAZARD RATIO", "\nage ", "stage = IV "] {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let printed = served.read(&["task", "result", "curves"]);
    for words in
        ["stage = II: 17 rows, 7 events; median 7.", "Log-rank test: chi-square 22.76 with 3 degrees of freedom"]
    {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let printed = served.read(&["task", "result", "counts"]);
    for words in
        ["death = no  death = yes", "IV", "Pearson's test: chi-square 7.833 with 3 degrees of freedom, P = 0.04959."]
    {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let words = ["task", "result", "hazards", "--model-version", "0"];
    let started = finish(served.command(&served.token).args(words));
    assert!(started.stdout.contains("There are no coefficients yet"), "{started}");
    assert!(started.stderr.contains("the state after 0 of 6 rounds"), "{started}");

    let page = folder.join("report.html");
    served.operate(&["task", "report", "curves", "--html", page.to_str().unwrap()]).data();
    let page = std::fs::read_to_string(page).unwrap();
    for words in ["<title>Kaplan-Meier curves</title>", ">stage = IV</text>", "Log-rank test: chi-square 22.76"] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    drop(served);
    let ran = run(&["task", "result"]);
    assert_eq!(ran.code, 2, "{ran}");
}

const PRIVATE: &str = r#"
[privacy]
mechanism = "distributed_skellam"
epsilon = 4.0
delta = 1e-3
"#;

#[test]
fn private_statistics_are_noised_and_charged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_tables(folder);
    let age =
        r#"{ type = "real", name = "age", low = 20, high = 100, edges = [50, 70], quantiles = [0.5], missing = true }"#;
    let analysis = format!("kind = \"statistics\"\nquantile_rounds = 1\ncolumns = [{age}]");
    let table = format!("features = [{{ column = \"age\" }}]\n{PRIVATE}");
    write_task(folder, "ages", &analysis, 1, &table);
    let served = Served::dev(&folder.join("data"));
    complete(folder, &served, "ages");
    let task = served.operate(&["task", "show", "ages"]).data();
    assert_eq!(task["spec"]["privacy"]["clip"], serde_json::json!({ "fixed": 1.0 }), "{task}");
    let found = served.operate(&["task", "result", "ages"]).data()["statistics"].clone();
    let noise = found["count_noise"].as_f64().unwrap();
    // Of at most 100 rows of each hospital.
    assert!(noise > 100.0, "{found}");
    let printed = served.read(&["task", "result", "ages"]);
    for words in ["below 50: ", "50 to 70: ", "from 70: ", "Noise: of 100 counts, 95 are at most "] {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let spent = served.operate(&["privacy", "show", "ages"]).data();
    let epsilon = spent["spent"]["cohort_known"].as_f64().unwrap();
    assert!(epsilon > 3.9 && epsilon <= 4.0, "{spent}");
    assert_eq!(spent["spent"]["server"], spent["spent"]["cohort_known"], "the coordinator sees no sum without noise");

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/config/private-statistics.toml");
    served.operate(&["task", "create", page]).data();

    // What has no private form, or another bound, is rejected with the reason.
    let rejected = |kind: &str, rounds: u32, columns: &str, rest: &str| {
        write_task(folder, "wrong", &format!("kind = \"{kind}\"\ncolumns = {columns}"), rounds, rest);
        let ran = served.operate(&["task", "create", folder.join("wrong.toml").to_str().unwrap()]);
        assert_ne!(ran.code, 0, "{ran}");
        ran.to_string()
    };
    let curves = format!("features = [{{ column = \"time\" }}]\nlabel = {DEATH}\n{PRIVATE}");
    let why = rejected("survival", 1, &format!("[{YEARS}]"), &curves);
    assert!(why.contains("privacy.mechanism") && why.contains("needs exact sums"), "{why}");
    let clipped = format!("features = [{{ column = \"age\" }}]\n{PRIVATE}clip = {{ fixed = 2.0 }}");
    let why = rejected("statistics", 1, &format!("[{AGE}]"), &clipped);
    assert!(why.contains("privacy.clip") && why.contains("max_rows bounds"), "{why}");
    let tree = clipped.replace("distributed_skellam", "tree").replace("clip = { fixed = 2.0 }", "max_weight = 3");
    let why = rejected("statistics", 1, &format!("[{AGE}]"), &tree);
    assert!(why.contains("ask different questions") && why.contains("have no weight"), "{why}");
}

#[test]
fn columns_that_do_not_fit_are_rejected_at_creation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let served = Served::dev(&folder.join("data"));
    let rejected = |analysis: &str, rounds: u32, table: &str| {
        write_task(folder, "wrong", analysis, rounds, table);
        let path = folder.join("wrong.toml");
        let ran = served.operate(&["task", "create", path.to_str().unwrap()]);
        assert_ne!(ran.code, 0, "{ran}");
        format!("{}{}", ran.stdout, ran.stderr)
    };
    let survival = format!("kind = \"survival\"\ncolumns = [{YEARS}, {STAGE}]");
    let time = "{ column = \"time\" }";
    let without = rejected(&survival, 1, &format!("features = [{time}, {STAGES}]"));
    assert!(
        without.contains("model.table.label") && without.contains("must name the column with the target"),
        "{without}"
    );
    let few = rejected(&survival, 1, &format!("features = [{time}]\nlabel = {DEATH}"));
    assert!(few.contains("names 1 columns, and the analysis has 2"), "{few}");
    let more = rejected(&survival, 2, &format!("features = [{time}, {STAGES}]\nlabel = {DEATH}"));
    assert!(more.contains("so it must be 1"), "{more}");
    let strange = rejected(
        &format!("kind = \"survival\"\ncolumns = [{YEARS}, {AGE}]"),
        1,
        &format!("features = [{time}, {STAGES}]\nlabel = {DEATH}"),
    );
    assert!(
        strange.contains("\\\"age\\\" is of the type real") || strange.contains("\"age\" is of the type real"),
        "{strange}"
    );
}
