//! Regressions, survival and contingency tables of 90 patients at several sites, next to pooled answers by statsmodels, lifelines and SciPy
//! (`larynx/pooled.py`), and data that these methods cannot use.

use serde_json::{Value, json};

use super::*;

/// Relative difference from the pooled answers that a grid and another order of additions may make.
const NEAR: f64 = 1e-6;

/// Time, age, stage and death of each patient.
fn patients() -> Vec<[f64; 4]> {
    let line = |line: &str| {
        let numbers: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    };
    include_str!("larynx/patients.csv").lines().skip(1).map(line).collect()
}

fn pooled(of: &str) -> Value {
    let mut all: Value = serde_json::from_str(include_str!("larynx/pooled.json")).unwrap();
    all[of].take()
}

/// The patients at seven sites, sorted by time: each site sees another part of it.
fn sites(columns: &[usize], target: Option<usize>) -> Vec<Table> {
    let mut rows = patients();
    rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let values = rows.iter().flat_map(|row| columns.iter().map(|&column| row[column])).collect();
    let table = Table::new(columns.len(), values).unwrap();
    let table = match target {
        Some(column) => table.with_targets(rows.iter().map(|row| row[column]).collect()).unwrap(),
        None => table,
    };
    deal(&table, 7)
}

fn analysis(spec: Value) -> Analysis {
    Analysis::new(serde_json::from_value(spec).unwrap(), 32, 20).unwrap()
}

/// Runs an analysis of the patients to its published JSON.
fn result(spec: Value, columns: &[usize], target: Option<usize>) -> Value {
    let kind = spec["kind"].as_str().unwrap().to_owned();
    let state = run(&analysis(spec), &sites(columns, target));
    let mut state = serde_json::to_value(&state).unwrap();
    state[&kind].take()
}

/// Every figure of the pooled answer, in that of the federation.
fn assert_near(found: &Value, expected: &Value, path: &str) {
    match expected {
        Value::Object(expected) => {
            expected.iter().for_each(|(key, value)| assert_near(&found[key], value, &format!("{path}.{key}")));
        }
        Value::Array(expected) => {
            let found = found.as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{path}");
            let pairs = found.iter().zip(expected).enumerate();
            pairs.for_each(|(index, (a, b))| assert_near(a, b, &format!("{path}[{index}]")));
        }
        _ => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!(
                (found - expected).abs() <= NEAR * (1e-3 + expected.abs()),
                "{path}: {found} instead of {expected}"
            );
        }
    }
}

fn age() -> Value {
    json!({ "type": "real", "name": "age", "low": 20, "high": 100 })
}

fn stage() -> Value {
    json!({ "type": "category", "name": "stage", "categories": 4 })
}

fn years() -> Value {
    json!({ "type": "time", "name": "years", "step": 0.1, "steps": 120 })
}

fn regression(target: Value, columns: Value) -> Value {
    json!({ "kind": "regression", "max_rows": 1000, "target": target, "columns": columns })
}

#[test]
fn linear_regression_equals_the_pooled_one() {
    let spec = regression(json!({ "type": "real", "low": 0, "high": 15 }), json!([age(), stage()]));
    let found = result(spec, &[1, 2], Some(0));
    assert_eq!((&found["converged"], &found["problem"], &found["rows"]), (&json!(true), &json!(null), &json!(90)));
    let names: Vec<_> = found["coefficients"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["intercept", "age", "stage[1]", "stage[2]", "stage[3]"]);
    assert_near(&found, &pooled("linear"), "linear");
}

#[test]
fn logistic_regression_equals_the_pooled_one() {
    let found = result(regression(json!({ "type": "binary" }), json!([age(), stage()])), &[1, 2], Some(3));
    assert_eq!(found["converged"], true);
    assert_near(&found, &pooled("logistic"), "logistic");
}

#[test]
fn poisson_regression_equals_the_pooled_one() {
    let exposure = json!({ "type": "exposure", "name": "years" });
    let spec = regression(json!({ "type": "count", "high": 1 }), json!([age(), stage(), exposure]));
    let found = result(spec, &[1, 2, 0], Some(3));
    assert_eq!(found["converged"], true);
    assert_near(&found, &pooled("poisson"), "poisson");
}

#[test]
fn cox_regression_equals_the_pooled_one() {
    let spec = json!({ "kind": "cox", "max_rows": 1000, "columns": [years(), age(), stage()] });
    let found = result(spec, &[0, 1, 2], Some(3));
    assert_eq!((&found["converged"], &found["events"]), (&json!(true), &json!(50)));
    assert_near(&found, &pooled("cox"), "cox");
}

/// Klein and Moeschberger, *Survival Analysis* (2003), example 8.2: stage alone, Breslow's ties, to three digits.
#[test]
fn breslow_ties_give_the_textbook_coefficients() {
    let spec = json!({ "kind": "cox", "max_rows": 1000, "ties": "breslow", "columns": [years(), age(), stage()] });
    let found = result(spec, &[0, 1, 2], Some(3));
    let estimates: Vec<f64> =
        found["coefficients"].as_array().unwrap().iter().map(|one| one["estimate"].as_f64().unwrap()).collect();
    for (found, expected) in estimates.iter().zip([0.0189, 0.1386, 0.6383, 1.6931]) {
        assert!((found - expected).abs() < 1e-4, "{estimates:?}");
    }
}

#[test]
fn curves_and_log_rank_test_equal_the_pooled_ones() {
    let spec = |min_count: u32| json!({ "kind": "survival", "max_rows": 1000, "columns": [years(), stage()], "min_count": min_count });
    let found = result(spec(1), &[0, 2], Some(3));
    let expected = pooled("survival");
    assert_near(
        &found["log_rank"],
        &json!({ "chi_square": expected["chi_square"], "p_value": expected["p_value"] }),
        "",
    );
    for (group, curve) in expected["curves"].as_array().unwrap().iter().enumerate() {
        assert_near(&found["groups"][group]["points"], curve, &format!("group {group}"));
        assert_near(&found["groups"][group]["median"], &expected["medians"][group], &format!("median {group}"));
    }
    // Fewer points, each after five events, at the same heights.
    let sparse = result(spec(5), &[0, 2], Some(3));
    assert_eq!(sparse["log_rank"], found["log_rank"]);
    let medians =
        |state: &Value| state["groups"].as_array().unwrap().iter().map(|one| one["median"].clone()).collect::<Vec<_>>();
    assert_eq!(medians(&sparse), medians(&found));
    for (curve, all) in sparse["groups"].as_array().unwrap().iter().zip(found["groups"].as_array().unwrap()) {
        for point in curve["points"].as_array().unwrap() {
            assert!(point["events"].as_u64().unwrap() >= 5);
            let same = all["points"].as_array().unwrap().iter().find(|other| other["time"] == point["time"]).unwrap();
            assert_eq!((&same["survival"], &same["at_risk"]), (&point["survival"], &point["at_risk"]));
        }
    }
    // Stage 2 has seven deaths.
    let hidden = result(spec(8), &[0, 2], Some(3));
    assert_eq!(hidden["problem"], "group 1 has fewer than 8 events (min_count): nothing is published");
    assert_eq!((&hidden["groups"], &hidden["log_rank"], &hidden["rows"]), (&json!([]), &json!(null), &json!(0)));
}

#[test]
fn contingency_tables_equal_the_pooled_ones() {
    let death = json!({ "type": "category", "name": "death", "categories": 2 });
    let spec = |min_count: u32, first: Value| json!({ "kind": "contingency", "max_rows": 1000, "columns": [first, death], "min_count": min_count });
    let found = result(spec(1, stage()), &[2, 3], None);
    let expected = pooled("contingency");
    assert_eq!(found["counts"], expected["counts"]);
    assert_near(&found["test"], &json!({ "chi_square": expected["chi_square"], "p_value": expected["p_value"] }), "");
    assert_eq!((&found["odds_ratio"], &found["problem"]), (&json!(null), &json!(null)));
    let hidden = result(spec(5, stage()), &[2, 3], None);
    assert_eq!(hidden["problem"], "a cell has fewer than 5 people (min_count): nothing is published");
    assert_eq!((&hidden["counts"], &hidden["test"]), (&json!([]), &json!(null)));

    let rows: Vec<f64> = patients().iter().flat_map(|row| [f64::from(u8::from(row[2] >= 2.0)), row[3]]).collect();
    let late = json!({ "type": "category", "name": "late", "categories": 2 });
    let state = run(&analysis(spec(5, late)), &deal(&Table::new(2, rows).unwrap(), 5));
    let AnalyticsState::Contingency(found) = state else { panic!("{state:?}") };
    let (test, corrected, ratio) = (found.test.unwrap(), found.corrected_test.unwrap(), found.odds_ratio.unwrap());
    let found = json!({
        "chi_square": test.chi_square, "p_value": test.p_value, "corrected_chi_square": corrected.chi_square,
        "corrected_p_value": corrected.p_value, "odds_ratio": ratio.estimate, "low": ratio.low, "high": ratio.high,
    });
    assert_near(&found, &pooled("two_by_two"), "two by two");
}

#[test]
fn number_of_sites_does_not_change_a_result() {
    let spec = || analysis(regression(json!({ "type": "binary" }), json!([age(), stage()])));
    let estimates = |count: usize| {
        let all = sites(&[1, 2], Some(3));
        let values: Vec<f64> =
            all.iter().flat_map(|part| (0..part.rows()).flat_map(|row| part.row(row).to_vec())).collect();
        let targets: Vec<f64> = all.iter().flat_map(|part| part.targets().to_vec()).collect();
        let table = Table::new(2, values).unwrap().with_targets(targets).unwrap();
        let AnalyticsState::Regression(found) = run(&spec(), &deal(&table, count)) else { panic!("a regression") };
        found.coefficients.iter().map(|one| one.estimate).collect::<Vec<_>>()
    };
    for (one, many) in estimates(1).iter().zip(estimates(18)) {
        assert!((one - many).abs() < 1e-8 * (1.0 + one.abs()), "{one} {many}");
    }
}

#[test]
fn data_without_an_answer_name_the_problem() {
    let binary = |columns| analysis(regression(json!({ "type": "binary" }), columns));
    let x = || json!({ "type": "real", "name": "x", "low": 0, "high": 10 });
    let twice = json!({ "type": "real", "name": "twice", "low": 0, "high": 20 });
    let targets = |rows: usize, of: fn(usize) -> bool| (0..rows).map(|row| f64::from(u8::from(of(row)))).collect();
    let problem = |analysis: &Analysis, table: Table| {
        let state = serde_json::to_value(run(analysis, &[table])).unwrap();
        let state = state.as_object().unwrap().values().next().unwrap().clone();
        state["problem"].as_str().unwrap_or_default().to_owned()
    };
    let pairs: Vec<f64> = (0..20).flat_map(|row| [f64::from(row % 7), 2.0 * f64::from(row % 7)]).collect();
    let table = Table::new(2, pairs).unwrap().with_targets(targets(20, |row| row % 3 == 0)).unwrap();
    assert!(problem(&binary(json!([x(), twice])), table).starts_with("`twice` is the same in all rows"));

    let column = || Table::new(1, (0..20).map(|row| f64::from(row) / 2.0).collect()).unwrap();
    let apart = column().with_targets(targets(20, |row| row > 9)).unwrap();
    assert!(problem(&binary(json!([x()])), apart).contains("told apart exactly"));
    let few = Table::new(1, vec![1.0, 2.0]).unwrap().with_targets(vec![0.0, 1.0]).unwrap();
    assert_eq!(problem(&binary(json!([x()])), few), "2 rows are too few for 2 coefficients");

    let time = json!({ "type": "time", "name": "t", "step": 1, "steps": 10 });
    let cox = analysis(json!({ "kind": "cox", "max_rows": 100, "columns": [x(), time] }));
    let same: Vec<f64> = (0..20).flat_map(|row| [5.0, f64::from(row % 9)]).collect();
    let table =
        |events: fn(usize) -> bool| Table::new(2, same.clone()).unwrap().with_targets(targets(20, events)).unwrap();
    assert!(problem(&cox, table(|row| row % 2 == 0)).starts_with("`x` is the same in all rows"));
    assert_eq!(problem(&cox, table(|_| false)), "0 events are too few for 1 coefficients");
}

/// From a rate of 1 to one of 60,000 no step may go too far for good.
#[test]
fn large_counts_and_a_far_start_converge() {
    let x = json!({ "type": "real", "name": "x", "low": -1, "high": 1 });
    let analysis = analysis(regression(json!({ "type": "count", "high": 200_000 }), json!([x])));
    let mut rng = random(5);
    let values: Vec<f64> = (0..300).map(|_| 2.0 * unit(&mut rng) - 1.0).collect();
    let counts = values.iter().map(|x| (10.0 + 1.5 * x).exp().round()).collect();
    let table = Table::new(1, values).unwrap().with_targets(counts).unwrap();
    let AnalyticsState::Regression(found) = run(&analysis, &deal(&table, 6)) else { panic!("a regression") };
    assert!(found.converged, "{found:?}");
    for (coefficient, expected) in found.coefficients.iter().zip([10.0, 1.5]) {
        assert!((coefficient.estimate - expected).abs() < 1e-4, "{coefficient:?}");
    }
}

#[test]
fn times_beyond_the_grid_are_observations_without_an_event() {
    let columns = json!([{ "type": "time", "name": "t", "step": 1, "steps": 5 }]);
    let spec = json!({ "kind": "survival", "max_rows": 100, "columns": columns, "min_count": 1 });
    let table = Table::new(1, vec![1.0, 2.0, 2.5, 5.0, 5.1, 99.0, 0.0]).unwrap().with_targets(vec![1.0; 7]).unwrap();
    let AnalyticsState::Survival(found) = run(&analysis(spec), &[table]) else { panic!("survival") };
    let curve = &found.groups[0];
    assert_eq!((curve.rows, curve.events, curve.median), (7, 5, Some(3.0)));
    let points: Vec<_> = curve.points.iter().map(|point| (point.time, point.at_risk, point.events)).collect();
    assert_eq!(points, [(0.0, 7, 1), (1.0, 6, 1), (2.0, 5, 1), (3.0, 4, 1), (5.0, 3, 1)]);
}

#[test]
fn wrong_specifications_name_what_would_be_right() {
    let time = json!({ "type": "time", "name": "t", "step": 1, "steps": 5 });
    let refused = |kind: &str, columns: Value| {
        refusal(json!({ "kind": kind, "max_rows": 10, "columns": columns, "target": { "type": "binary" } }), 32, 20)
    };
    let without_target =
        |kind: &str, columns: Value| refusal(json!({ "kind": kind, "max_rows": 10, "columns": columns }), 32, 20);
    assert!(
        refused("regression", json!([time]))
            .contains("\"t\" is of the type time; this regression takes real and category")
    );
    assert!(
        refused("regression", json!([{ "type": "real", "name": "x", "low": 1, "high": 1 }]))
            .contains("below the second")
    );
    assert!(without_target("survival", json!([stage()])).contains("must have one of the type time"));
    assert!(without_target("survival", json!([time, stage(), stage()])).contains("at most one category"));
    assert!(without_target("survival", json!([time, time])).contains("a second time"));
    assert!(without_target("cox", json!([time])).contains("a number or a category beside the time"));
    assert!(without_target("contingency", json!([stage()])).contains("a contingency table has 2"));
    assert!(without_target("contingency", json!([stage(), age()])).contains("is of the type real"));
    let one = json!({ "type": "category", "name": "c", "categories": 1 });
    assert!(without_target("contingency", json!([one, one])).contains("has 1 categories; 2 to 256"));
    let wide = json!({ "kind": "regression", "max_rows": 1 << 24, "columns": [age()], "target": { "type": "count", "high": 1_000_000 } });
    assert!(refusal(wide, 32, 60_000).contains("lower it"));
}

#[test]
fn rows_that_no_column_has_are_refused() {
    let spec = |spec: Value| serde_json::from_value::<AnalyticsSpec>(spec).unwrap();
    let poisson = spec(regression(
        json!({ "type": "count", "high": 9 }),
        json!([stage(), { "type": "exposure", "name": "years" }]),
    ));
    let check = |stage: f64, years: f64, count: f64| {
        let table = Table::new(2, vec![stage, years]).unwrap().with_targets(vec![count]).unwrap();
        poisson.check(&table).map_err(|error| error.to_string())
    };
    assert_eq!(check(3.0, 0.5, 2.0), Ok(()));
    assert_eq!(check(4.0, 0.5, 2.0).unwrap_err(), "row 0, column 0 is 4; it must be a category, 0 to 3");
    assert!(check(1.5, 0.5, 2.0).is_err());
    assert_eq!(check(1.0, 0.0, 2.0).unwrap_err(), "row 0, column 1 is 0; it must be from 1e-9 to 1e9");
    assert_eq!(check(1.0, 0.5, -1.0).unwrap_err(), "row 0, column 2 is -1; it must be a count, at least 0");
    let cox = spec(json!({ "kind": "cox", "max_rows": 10, "columns": [years(), age()] }));
    let table = |time: f64, event: f64| Table::new(2, vec![time, 40.0]).unwrap().with_targets(vec![event]).unwrap();
    assert_eq!(cox.check(&table(0.0, 1.0)), Ok(()));
    assert_eq!(cox.check(&table(-0.1, 1.0)).unwrap_err().to_string(), "row 0, column 0 is -0.1; it must be at least 0");
    let error = cox.check(&table(1.0, 2.0)).unwrap_err().to_string();
    assert_eq!(error, "the target of row 0 is 2, which is none of the classes 0 to 1");
    let error = cox.check(&Table::new(2, vec![1.0, 40.0]).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "targets: got 0 where 1 are needed");
}
