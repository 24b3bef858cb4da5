//! Tables of one's own: the commands of docs/TABLES.md, from files to a model; and a file that does not fit.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Background, Ran, Served, finish, tributary};

const PAGE: &str = include_str!("../../../docs/TABLES.md");

/// The blocks of the page that begin with these words.
fn blocks(kind: &str) -> Vec<&'static str> {
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

/// A hospital's rows, which a seed decides: old people with long stays come back.
fn table(seed: u32) -> String {
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
        writeln!(text, "{patient},{age},{stay},{ward},{is_back}").unwrap();
    }
    text
}

fn hospital(folder: &Path, served: &Served, number: u32) -> Command {
    let script = blocks("sh hospital")[0].replace("-1", &format!("-{number}"));
    let mut words = script.split_whitespace();
    assert_eq!(words.next(), Some("tributary"));
    let name = format!("hospital-{number}");
    let made = served.operate(&["token", "create", "--enrollment", "--name", &name]).data();
    let token = made["token"].as_str().unwrap();
    let mut command = tributary();
    command.current_dir(folder).env("TRIBUTARY_SERVER", &served.url).env("TRIBUTARY_CA", &served.ca);
    command.args(words.map(|word| if word == "\"$ENROLMENT\"" { token } else { word }));
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
    let [create, watch, evaluate] = blocks("sh operator")[..] else { panic!("three blocks") };
    operator(folder, &served, create);
    let mut hospitals: Vec<_> = (1..=3)
        .map(|number| hospital(folder, &served, number).stdout(Stdio::null()).spawn().map(Background).unwrap())
        .collect();
    operator(folder, &served, watch);
    for hospital in &mut hospitals {
        assert_eq!(hospital.0.wait().unwrap().code(), Some(0));
    }
    let said = operator(folder, &served, evaluate).pop().unwrap().stdout;
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
