//! Trees of a federation equal those of one table; unsuitable tables are rejected.

use serde_json::json;

use super::*;

fn spec(method: Method, target: TargetSpec) -> TreesSpec {
    let target = serde_json::to_value(target).unwrap();
    let text = json!({
        "method": method, "target": target, "max_rows": 100, "trees": 6, "depth": 3, "bins": 16,
        "columns": [{ "name": "x", "low": -4.0, "high": 4.0, "repeat": 4 }],
    });
    serde_json::from_value(text).unwrap()
}

fn state(state: AnalyticsState) -> TreesState {
    match state {
        AnalyticsState::Trees(state) => state,
        other => panic!("{other:?}"),
    }
}

/// `classes` 0: a number.
fn table(rows: usize, classes: u32, seed: u64) -> Table {
    let mut rng = random(seed);
    let (mut values, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let row: [f64; 4] = std::array::from_fn(|_| normal(&mut rng));
        let signal = row[0] * row[1] + 0.7 * row[2];
        targets.push(match classes {
            0 => signal,
            2 => f64::from(signal > 0.0),
            _ => f64::from(u8::from(signal > -0.5) + u8::from(signal > 0.7)),
        });
        values.extend(row);
    }
    Table::new(4, values).unwrap().with_targets(targets).unwrap()
}

fn grow(spec: &TreesSpec, table: &Table, participants: usize) -> TreesState {
    let max_rows = u32::try_from(table.rows() / participants).unwrap();
    let cohort = u32::try_from(participants).unwrap();
    let analysis = Analysis::new(AnalyticsSpec::Trees(TreesSpec { max_rows, ..spec.clone() }), 32, cohort).unwrap();
    state(run(&analysis, &deal(table, participants)))
}

fn accuracy(state: &TreesState, table: &Table) -> f64 {
    let right = |row: &usize| state.ensemble.predict(table.row(*row)).value() == table.targets()[*row];
    (0..table.rows()).filter(right).count() as f64 / table.rows() as f64
}

const TWO: TargetSpec = TargetSpec::Class { classes: 2 };
const THREE: TargetSpec = TargetSpec::Class { classes: 3 };
const REAL: TargetSpec = TargetSpec::Real { low: -6.0, high: 6.0 };

#[test]
fn a_forest_is_exactly_that_of_one_table() {
    for (target, classes) in [(TWO, 2), (THREE, 3)] {
        let spec = TreesSpec { trees_per_round: 4, ..spec(Method::Forest, target) };
        let table = table(800, classes, 4);
        let (one, many) = (grow(&spec, &table, 1), grow(&spec, &table, 40));
        assert_eq!(one, many);
        assert_eq!(one.ensemble.trees.len(), 6);
        assert!(one.ensemble.trees.windows(2).all(|pair| pair[0] != pair[1]), "each sees other rows");
    }
}

#[test]
fn boosted_trees_differ_by_no_more_than_the_grid() {
    let spec = spec(Method::Boosting, TWO);
    let table = table(800, 2, 5);
    let (one, many) = (grow(&spec, &table, 1), grow(&spec, &table, 40));
    assert_eq!(one.ensemble.trees.len(), 6);
    let score = |state: &TreesState, row| match state.ensemble.predict(table.row(row)) {
        Prediction::Class(p) => p[1],
        other => panic!("{other:?}"),
    };
    let far = (0..800).filter(|&row| (score(&one, row) - score(&many, row)).abs() > 0.02).count();
    assert!(far < 40, "{far} of 800 rows are judged otherwise");
    assert!((accuracy(&one, &table) - accuracy(&many, &table)).abs() <= 0.01);
}

#[test]
fn measures_are_those_of_the_published_trees() {
    for (method, target, classes) in [(Method::Boosting, THREE, 3), (Method::Forest, TWO, 2)] {
        let table = table(600, classes, 6);
        let state = grow(&spec(method, target), &table, 6);
        assert_eq!(state.rows, 600);
        assert!((state.accuracy.unwrap() - accuracy(&state, &table)).abs() < 1e-12);
    }
}

#[test]
fn numbers_are_predicted() {
    for method in [Method::Boosting, Method::Forest] {
        let spec = TreesSpec { trees: 20, depth: 4, ..spec(method, REAL) };
        let (train, test) = (table(1500, 0, 7), table(500, 0, 8));
        let state = grow(&spec, &train, 30);
        let error = |predict: &dyn Fn(usize) -> f64| {
            (0..500).map(|row| (predict(row) - test.targets()[row]).powi(2)).sum::<f64>() / 500.0
        };
        let mean = test.targets().iter().sum::<f64>() / 500.0;
        let (model, plain) = (error(&|row| state.ensemble.predict(test.row(row)).value()), error(&|_| mean));
        assert!(model < 0.6 * plain, "{method:?}: {model} against {plain}");
        assert_eq!(state.accuracy, None);
    }
}

#[test]
fn rows_of_one_class_make_a_leaf() {
    let table = Table::new(4, vec![0.5; 40]).unwrap().with_targets(vec![1.0; 10]).unwrap();
    for method in [Method::Boosting, Method::Forest] {
        let state = grow(&spec(method, TWO), &table, 2);
        assert_eq!(state.ensemble.trees.len(), 6);
        assert!(state.ensemble.trees.iter().all(|tree| tree.branching.leaves() == 1));
        assert_eq!(state.ensemble.predict(&[0.5; 4]).value(), 1.0);
    }
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let asked = AnalyticsSpec::Trees(spec(Method::Boosting, THREE));
    let analysis = Analysis::new(asked.clone(), 32, 10).unwrap();
    let state = analysis.initial();
    let error = |table: Table| {
        let error = analysis.contribution(&state, &table).unwrap_err();
        assert_eq!(asked.check(&table), Err(error.clone()));
        error
    };
    let rows = || Table::new(4, vec![0.0; 8]).unwrap();
    assert_eq!(asked.check(&rows().with_targets(vec![0.0, 2.0]).unwrap()), Ok(()));
    assert_eq!(error(rows()), AnalyticsError::Shape { what: "targets", expected: 2, got: 0 });
    for bad in [3.0, -1.0, 0.5] {
        let table = rows().with_targets(vec![0.0, bad]).unwrap();
        assert_eq!(error(table), AnalyticsError::Class { row: 1, value: bad.to_string(), last: 2 });
    }
}

#[test]
fn what_cannot_be_grown_is_refused() {
    let refuse = |method: Method, field: &str, value: serde_json::Value| {
        let mut text = serde_json::to_value(AnalyticsSpec::Trees(spec(method, THREE))).unwrap();
        text[field] = value;
        refusal(text, 32, 10)
    };
    let boosting = |field: &str, value| refuse(Method::Boosting, field, value);
    assert!(boosting("depth", json!(0)).contains("depth: is 0; it must be 1 to 10"));
    assert!(boosting("depth", json!(11)).contains("it must be 1 to 10"));
    assert!(boosting("bins", json!(1)).contains("bins: is 1; it must be 2 to 256"));
    assert!(boosting("bins", json!(257)).contains("257"));
    assert!(boosting("trees", json!(0)).contains("trees"));
    assert!(boosting("trees_per_round", json!(2)).contains("one after the other"));
    assert!(boosting("learning_rate", json!(0.0)).contains("above 0"));
    assert!(boosting("row_fraction", json!(1.5)).contains("at most 1"));
    assert!(boosting("l2", json!(-1.0)).contains("at least 0"));
    assert!(boosting("max_rows", json!(0)).contains("max_rows"));
    assert!(boosting("target", json!({ "type": "class", "classes": 1 })).contains("2 to 1000"));
    assert!(boosting("target", json!({ "type": "real", "low": 1.0, "high": 1.0 })).contains("the first below"));
    assert!(boosting("method", json!("bagging")).contains("forest"));
    assert!(refuse(Method::Forest, "learning_rate", json!(0.1)).contains("a forest has none"));
    assert!(refuse(Method::Forest, "trees_per_round", json!(7)).contains("it must be 1 to 6"));

    // Too long for a sum, and too large for a file.
    let large =
        TreesSpec { depth: 10, bins: 256, columns: vec![column("x", 0.0, 1.0, 500)], ..spec(Method::Boosting, TWO) };
    let text = serde_json::to_value(AnalyticsSpec::Trees(large)).unwrap();
    assert!(refusal(text, 32, 10).contains("at most 16777216"));
    let many = TreesSpec { depth: 10, trees: 10_000, ..spec(Method::Boosting, TWO) };
    let text = serde_json::to_value(AnalyticsSpec::Trees(many)).unwrap();
    assert!(refusal(text, 32, 10).contains("lower trees or depth"));
}
