//! Tables of one's own: the commands of docs/TABLES.md, from files to a model; and a file that does not fit.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::serving::Models;
use crate::support::{Background, Ran, Served, finish, tributary};

const PAGE: &str = include_str!("../../../docs/TABLES.md");

/// The blocks of the page that begin with these words.
pub(crate) fn blocks(kind: &str) -> Vec<&'static str> {
    let mut rest = PAGE;
    let mut found = Vec::new();
    let fence = format!("```{kind}\n");
    while let Some((_, after)) = rest.split_once(&fence) {
        let (block, later) = after.split_once("```").unwrap();
        found.push(block);
        rest = later;
    }
    found
}

/// A hospital's rows, which a seed decides: old people with long stays come back. The age of every tenth is unknown, and some wards are
/// rare.
pub(crate) fn table(seed: u32) -> String {
    let header = blocks("csv")[0].lines().next().unwrap();
    let mut text = format!("{header}\n");
    let mut state = seed;
    let mut next = |most: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % most
    };
    for patient in 0..200 {
        let (age, stay, ward) = (next(100), next(60), ["surgery", "medicine", "icu"][next(3) as usize]);
        let is_back = if age + stay > 80 { "yes" } else { "no" };
        let age = if patient % 10 == 3 { "NA".to_owned() } else { age.to_string() };
        let ward = if patient % 50 == 7 { "burns" } else { ward };
        writeln!(text, "{patient},{age},{stay},{ward},{is_back}").unwrap();
    }
    text
}

fn hospital(folder: &Path, served: &Served, number: u32) -> Command {
    hospital_of(folder, served, number, "readmissions")
}

/// The same in another task, with a journal for it.
fn hospital_of(folder: &Path, served: &Served, number: u32, task: &str) -> Command {
    hospital_with(folder, served, number, task, &format!("csv:hospital-{number}.csv"))
}

/// The same with other data.
pub(crate) fn hospital_with(folder: &Path, served: &Served, number: u32, task: &str, data: &str) -> Command {
    let script = blocks("sh hospital")[0].replace("-1", &format!("-{number}"));
    let script = script.replace("readmissions", task).replace("journal-", &format!("{task}-journal-"));
    let mut words = script.split_whitespace();
    assert_eq!(words.next(), Some("tributary"));
    let name = format!("{task}-hospital-{number}");
    let made = served.operate(&["token", "create", "--enrollment", "--name", &name]).data();
    let token = made["token"].as_str().unwrap();
    let mut command = tributary();
    command.current_dir(folder).env("TRIBUTARY_SERVER", &served.url).env("TRIBUTARY_CA", &served.ca);
    command.args(words.map(|word| match word {
        "\"$ENROLMENT\"" => token,
        file if file.starts_with("csv:") => data,
        word => word,
    }));
    command
}

fn operator(folder: &Path, served: &Served, block: &str) -> Vec<Ran> {
    let run = |line: &str| {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("tributary"));
        let mut command = tributary();
        command.current_dir(folder).env("TRIBUTARY_SERVER", &served.url).env("TRIBUTARY_CA", &served.ca);
        let ran = finish(command.env("TRIBUTARY_TOKEN", &served.token).args(words));
        assert_eq!(ran.code, 0, "{line}: {ran}");
        ran
    };
    block.lines().map(run).collect()
}

#[test]
fn the_pages_commands_lead_from_files_to_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("readmissions.toml"), blocks("toml")[0]).unwrap();
    for number in 1..=3 {
        std::fs::write(folder.join(format!("hospital-{number}.csv")), table(number)).unwrap();
    }
    std::fs::write(folder.join("held-out.csv"), table(9)).unwrap();
    let served = Served::dev(&folder.join("data"));
    let [create, end] = blocks("sh operator")[..] else { panic!("two blocks") };
    operator(folder, &served, create);
    let mut hospitals: Vec<_> = (1..=3)
        .map(|number| hospital(folder, &served, number).stdout(Stdio::null()).spawn().map(Background).unwrap())
        .collect();
    let said = operator(folder, &served, end).pop().unwrap().stdout;
    for hospital in &mut hospitals {
        assert_eq!(hospital.0.wait().unwrap().code(), Some(0));
    }
    let accuracy: f64 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(accuracy > 85.0 && said.contains("on 200 examples"), "{said}");
}

#[test]
fn a_participant_whose_file_does_not_fit_says_where_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("readmissions.toml"), blocks("toml")[0]).unwrap();
    for number in 1..=3 {
        std::fs::write(folder.join(format!("hospital-{number}.csv")), table(number)).unwrap();
    }
    let wrong = "patient,age,stay_days,ward,readmitted\n1,5,6,icu,no\n2,5,6,icu,no\n3,999,6,icu,no\n";
    std::fs::write(folder.join("hospital-1.csv"), wrong).unwrap();
    let served = Served::dev(&folder.join("data"));
    operator(folder, &served, blocks("sh operator")[0]);
    let _others: Vec<_> = (2..=3)
        .map(|number| {
            let mut other = hospital(folder, &served, number);
            other.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Background).unwrap()
        })
        .collect();
    let ran = finish(&mut hospital(folder, &served, 1));
    assert_eq!(ran.code, 4, "{ran}");
    let expected = blocks("text")[0].trim();
    assert!(ran.stderr.contains(expected), "{expected}: {ran}");
    // It left a round of three: the other two did not open the sum of their two updates.
    let rounds = served.operate(&["round", "list", "readmissions"]).data();
    assert!(rounds.as_array().unwrap().iter().all(|round| round["state"] != "COMPLETED"), "{rounds}");
}

#[test]
fn a_table_is_refused_where_no_task_names_its_columns() {
    let demo = crate::support::run(&["demo", "--data", "csv:x.csv"]);
    assert_eq!(demo.code, 2, "{demo}");
    assert!(demo.stderr.contains("`participant run` and `model evaluate`"), "{demo}");
    let unknown = crate::support::run(&["demo", "--data", "mnits"]);
    assert!(unknown.stderr.contains("synthetic, mnist, text, and tables of your own as csv:FILE"), "{unknown}");
}

/// Runs the participants of a task to its end.
pub(crate) fn complete(folder: &Path, served: &Served, task: &str) {
    served.operate(&["task", "create", folder.join(format!("{task}.toml")).to_str().unwrap()]).data();
    let mut hospitals: Vec<_> = (1..=3)
        .map(|number| hospital_of(folder, served, number, task).stdout(Stdio::null()).spawn().map(Background).unwrap())
        .collect();
    served.read(&["round", "watch", task]);
    for hospital in &mut hospitals {
        assert_eq!(hospital.0.wait().unwrap().code(), Some(0));
    }
}

const STATISTICS: &str = r#"
name = "patients"
[analytics]
kind = "statistics"
max_rows = 1000
columns = [
    { type = "real", name = "age", low = 0, high = 120, quantiles = [0.5], missing = true },
    { type = "category", name = "ward", categories = 4, missing = true },
    { type = "category", name = "readmitted", categories = 2 },
    { type = "real", name = "stay_days", low = 0, high = 60, edges = [50, 59.5] },
]
[model.table]
features = [{ column = "age" }, { column = "ward", one_of = ["surgery", "medicine", "icu", "burns"] },
            { column = "readmitted", one_of = ["no", "yes"] }, { column = "stay_days" }]
[rounds]
count = 3
[selection]
cohort = { count = 3 }
"#;

const REGRESSION: &str = r#"
name = "days"
metrics = ["loss", "rmse", "mae", "r2", "train_loss"]
[model]
architecture = { kind = "linear" }
[training]
epochs = 20
batch_size = 16
learning_rate = 0.02
[rounds]
count = 6
[selection]
cohort = { count = 3 }
[aggregation]
clip_range = 4.0
max_weight = 1000
"#;

/// Statistics under masks give the table of a task, whose model predicts a number better than two means do.
#[test]
fn statistics_give_the_columns_of_a_regression() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("patients.toml"), STATISTICS).unwrap();
    let (mut ages, mut rows) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let text = table(number);
        let cells = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        for cells in cells {
            ages.extend(cells[1].parse::<f64>());
            rows.push((cells[4] == "yes", cells[2].parse::<f64>().unwrap()));
        }
        std::fs::write(folder.join(format!("hospital-{number}.csv")), text).unwrap();
    }
    let served = Served::dev(&folder.join("data"));
    complete(folder, &served, "patients");
    let words: Vec<_> = blocks("sh statistics")[0].split_whitespace().skip(1).collect();
    let words = words.iter().map(|word| if *word == "readmitted" { "stay_days" } else { word });
    let proposal = served.operate(&words.chain(["--rare", "20"].iter().copied()).collect::<Vec<_>>()).data();
    let features = proposal["table"]["features"].as_array().unwrap();
    assert_eq!((&features[0]["missing"], &features[1]["other"]), (&"median".into(), &true.into()), "{proposal}");
    assert_eq!(features[1]["one_of"].as_array().unwrap().len(), 3, "burns are rare: {proposal}");
    let mean = ages.iter().sum::<f64>() / ages.len() as f64;
    assert!((features[0]["mean"].as_f64().unwrap() - mean).abs() < 1e-3, "{mean}: {proposal}");
    assert_eq!(proposal["table"]["label"]["high"], 59.5, "no stay is longer: {proposal}");
    let task = format!("{REGRESSION}\n{}", proposal["toml"].as_str().unwrap());
    std::fs::write(folder.join("days.toml"), task).unwrap();
    complete(folder, &served, "days");
    served.read(&["model", "fetch", "days", "--out", folder.join("days.safetensors").to_str().unwrap()]);
    std::fs::write(folder.join("all.csv"), table(9)).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let data = format!("csv:{}", path("all.csv"));
    let args = ["--format", "json", "model", "evaluate", &path("days.safetensors"), "--task", &path("days.toml")];
    let measured = crate::support::run(&[&args[..], &["--data", &data]].concat()).data();
    // A model that knows only who came back predicts a mean of its own for each.
    let mean_of = |back: bool| {
        let (days, count) =
            rows.iter().filter(|row| row.0 == back).fold((0.0, 0.0), |sum, row| (sum.0 + row.1, sum.1 + 1.0));
        days / count
    };
    let squares = rows.iter().map(|row| (row.1 - mean_of(row.0)).powi(2)).sum::<f64>();
    let simple = (squares / rows.len() as f64).sqrt();
    let rmse = measured["rmse"].as_f64().unwrap();
    assert!(rmse < simple && rmse > 5.0, "in days, {simple} by two means: {measured}");
    assert!(measured["r2"].as_f64().unwrap() > 0.2 && measured["accuracy"].is_null(), "{measured}");
    assert_served(folder, &served, rmse);
    let rounds = served.operate(&["round", "list", "days"]).data();
    let last = &rounds.as_array().unwrap()[0]["metrics"];
    assert!(
        last["rmse"]["value"].as_f64().is_some_and(|rmse| rmse > 5.0 / 60.0 && rmse < 1.0)
            && last["r2"]["value"].is_number(),
        "{rounds}"
    );
}

/// The model of `days`, served by columns, predicts the days of `all.csv` with this error.
fn assert_served(folder: &Path, served: &Served, rmse: f64) {
    let text = std::fs::read_to_string(folder.join("all.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let column = |name: &str, at: usize| {
        let cells: Vec<_> = rows.iter().map(|row| row[at]).collect();
        json!({ "name": name, "datatype": "BYTES", "shape": [rows.len()], "data": cells })
    };
    let body = json!({ "inputs": [column("age", 1), column("ward", 3), column("readmitted", 4)] });
    let models = folder.join("models");
    let flags = ["--from", &served.url, "--ca", &served.ca, "--token", &served.token, "--task", "days"];
    let answer = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let models = Models::serve(&models, &flags);
        models.until_answers(6).await;
        models.post("/v2/models/days/infer", &body, None).await
    });
    assert_eq!(answer.0, 200, "{}", answer.1);
    let predicted: Vec<f64> = serde_json::from_value(answer.1["outputs"][0]["data"].clone()).unwrap();
    let squares =
        rows.iter().zip(&predicted).map(|(row, days)| (row[2].parse::<f64>().unwrap() - days).powi(2)).sum::<f64>();
    let found = (squares / rows.len() as f64).sqrt();
    assert!((found - rmse).abs() < 1e-3, "{found} days by the server, {rmse} by `model evaluate`");
}

#[test]
fn check_reports_every_problem_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("readmissions.toml"), blocks("toml")[0]).unwrap();
    let words: Vec<_> = blocks("sh check")[0].split_whitespace().skip(1).collect();
    let check = |text: &str, more: &[&str]| {
        std::fs::write(folder.join("hospital-1.csv"), text).unwrap();
        finish(tributary().current_dir(folder).args(["--format", "json"]).args(&words).args(more))
    };
    let good = check(&table(1), &[]);
    assert_eq!(good.code, 0, "{good}");
    let report = good.events().pop().unwrap();
    let figures = ["rows", "used", "skipped", "problems"].map(|key| report[key].as_u64().unwrap());
    assert_eq!((&report["event"], figures), (&"checked".into(), [200, 200, 0, 0]), "{report}");
    assert_eq!(
        (&report["columns"][0]["imputed"], &report["columns"][2]["unlisted"]),
        (&20.into(), &4.into()),
        "{report}"
    );
    assert_eq!(
        report["columns"][3]["words"]["no"].as_u64().unwrap() + report["columns"][3]["words"]["yes"].as_u64().unwrap(),
        200
    );

    let bad = "Patient,Alter,stay_days,ward,readmitted\n1,5,6,icu,no\n2,5,x,icu,maybe\n3,999,6\n4,5,-1,icu,no\n";
    let ran = check(bad, &["--map", "Alter=age"]);
    assert_eq!(ran.code, 4, "{ran}");
    let places: Vec<_> = ran
        .events()
        .iter()
        .filter(|event| event["event"] == "problem")
        .map(|event| (event["line"].clone(), event["column"].clone()))
        .collect();
    let place = |line: u32, column: Option<&str>| (line.into(), column.into());
    assert_eq!(
        places,
        [place(3, Some("stay_days")), place(3, Some("readmitted")), place(4, None), place(5, Some("stay_days"))]
    );
    assert!(ran.stderr.contains("3 of 4 rows cannot be used, and the task allows 1 %"), "{ran}");

    let unmapped = check(bad, &[]);
    assert!(unmapped.code == 4 && unmapped.stderr.contains("there is no column `age`"), "{unmapped}");
    let text = finish(tributary().current_dir(folder).args(&words).args(["--map", "Alter=age", "--most", "1"]));
    assert!(text.stdout.contains("… and 3 problems more") && text.stdout.contains("-1 to 6"), "{text}");
}

#[test]
fn check_reads_the_task_from_a_server_and_the_table_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let task = blocks("toml")[0];
        let mut line = [0; 1024];
        assert!(std::io::Read::read(&mut stream, &mut line).unwrap() > 0);
        std::io::Write::write_all(
            &mut stream,
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{task}", task.len()).as_bytes(),
        )
        .unwrap();
    });
    let url = format!("http://{address}/task.toml");
    std::fs::write(folder.path().join("rows.csv"), table(2)).unwrap();
    let rows = std::fs::File::open(folder.path().join("rows.csv")).unwrap();
    let mut piped = Command::new("cat").stdin(rows).stdout(Stdio::piped()).spawn().unwrap();
    let mut check = tributary();
    check.args(["--format", "json", "participant", "check", "--task", &url, "--data", "csv:/dev/stdin"]);
    let output = check.stdin(piped.stdout.take().unwrap()).output().unwrap();
    piped.wait().unwrap();
    server.join().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("\"used\":200"), "{said}");
    let far = crate::support::run(&["participant", "check", "--task", "http://example.org/t", "--data", "csv:x"]);
    assert!(far.code == 2 && far.stderr.contains("must begin with https://"), "{far}");
}
