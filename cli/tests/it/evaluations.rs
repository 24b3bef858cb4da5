//! Evaluations of a trained model: figures under masks equal those of `model evaluate` on all rows.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{Served, finish, run};
use crate::tables::{complete, table};

const READMISSIONS: &str = r#"
[model.table]
features = [
    { column = "age", low = 0, high = 120, missing = "median", median = 50 },
    { column = "ward", one_of = ["surgery", "medicine", "icu"], other = true },
]
label = { column = "readmitted", one_of = ["no", "yes"] }
"#;

/// Two columns would be needed for a good prediction.
const DAYS: &str = r#"
[model.table]
features = [
    { column = "age", low = 0, high = 120, missing = "median", median = 50 },
    { column = "readmitted", one_of = ["no", "yes"] },
]
label = { column = "stay_days", low = 0, high = 60 }
"#;

fn write_tasks(folder: &Path, name: &str, table: &str) {
    let training = "[model]\narchitecture = { kind = \"linear\" }\n[training]\nepochs = 3\nbatch_size = 16\nlearning_rate = 0.1\n\
                    [rounds]\ncount = 2\n[selection]\ncohort = { count = 3 }\n[aggregation]\nclip_range = 4.0\nmax_weight = 1000\n";
    let task = format!("name = \"{name}\"\n{training}{table}");
    std::fs::write(folder.join(format!("{name}.toml")), task).unwrap();
    let evaluation = format!(
        "name = \"{name}-validation\"\n[analytics]\nkind = \"evaluation\"\nmax_rows = 1000\nmin_count = 3\n\
         [model]\ninitial = {{ task = \"{name}\", version = 2 }}\n[rounds]\ncount = 1\n[selection]\ncohort = {{ count = 3 }}\n"
    );
    std::fs::write(folder.join(format!("{name}-validation.toml")), evaluation).unwrap();
}

/// What `model evaluate` prints of the newest model of `name` on the rows of all hospitals.
fn evaluated_in_one_place(folder: &Path, served: &Served, name: &str) -> Value {
    let path = |file: String| folder.join(file).display().to_string();
    let model = path(format!("{name}.safetensors"));
    served.read(&["model", "fetch", name, "--out", &model]);
    let (task, data) = (path(format!("{name}.toml")), format!("csv:{}", path("all.csv".to_owned())));
    run(&["--format", "json", "model", "evaluate", &model, "--task", &task, "--data", &data]).data()
}

#[test]
fn evaluations_equal_those_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut all = String::new();
    for number in 1..=3 {
        let text = table(number);
        std::fs::write(folder.join(format!("hospital-{number}.csv")), &text).unwrap();
        text.lines().skip(usize::from(number > 1)).for_each(|line| writeln!(all, "{line}").unwrap());
    }
    std::fs::write(folder.join("all.csv"), all).unwrap();
    write_tasks(folder, "back", READMISSIONS);
    write_tasks(folder, "days", DAYS);
    let served = Served::dev(&folder.join("data"));
    for task in ["back", "days", "back-validation", "days-validation"] {
        complete(folder, &served, task);
    }
    let close = |found: &Value, expected: &Value, most: f64| {
        let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
        assert!((found - expected).abs() <= most, "{found} for {expected}");
    };

    let expected = evaluated_in_one_place(folder, &served, "back");
    let found = served.operate(&["task", "result", "back-validation"]).data()["evaluation"].clone();
    let figures = &found["figures"]["classes"];
    assert_eq!((&found["rows"], &found["participants"], &found["model"]), (&600.into(), &3.into(), &Value::Null));
    close(&figures["accuracy"], &expected["accuracy"], 1e-6);
    close(&figures["loss"], &expected["loss"], 1e-4);
    let printed = served.read(&["task", "result", "back-validation"]);
    for words in
        ["600 rows of 3 participants.", "CLASS", "yes", "PREDICTED yes", "The accuracy of a single site: median "]
    {
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let rounds = served.operate(&["round", "list", "back-validation"]).data();
    // Of fewer than 1000 examples, a round shows two digits.
    close(&rounds[0]["metrics"]["accuracy"]["value"], &figures["accuracy"], 0.005_001);

    let expected = evaluated_in_one_place(folder, &served, "days");
    let found =
        served.operate(&["task", "result", "days-validation"]).data()["evaluation"]["figures"]["number"].clone();
    for figure in ["rmse", "mae", "r2"] {
        close(&found[figure], &expected[figure], 1e-3);
    }
    let printed = served.read(&["task", "result", "days-validation"]);
    assert!(
        printed.contains("Root mean squared error ") && printed.contains("Quantiles of the absolute error"),
        "{printed}"
    );

    let before = served.read(&["task", "result", "days-validation", "--model-version", "0"]);
    assert!(before.contains("The model is not measured yet."), "{before}");
    let page = folder.join("report.html");
    served.operate(&["task", "report", "back-validation", "--html", page.to_str().unwrap()]).data();
    assert!(std::fs::read_to_string(page).unwrap().contains("PREDICTED yes"));

    // Without a model there is nothing to evaluate, and without a label or classes nobody knows what it predicts.
    let nothing = "name = \"nothing\"\n[analytics]\nkind = \"evaluation\"\nmax_rows = 9\n[selection]\ncohort = { count = 3 }\n\
                   [rounds]\ncount = 1\n";
    std::fs::write(folder.join("nothing.toml"), nothing).unwrap();
    let create = ["task", "create", folder.join("nothing.toml").to_str().unwrap()].map(str::to_owned);
    let refused = finish(served.command(&served.token).args(create));
    assert!(refused.code != 0 && refused.stderr.contains("must name the model to evaluate"), "{refused}");
}
