//! Tables with holes, and what a task makes of them.

use serde_json::json;

use super::*;

/// Numbers of each row, and the report.
fn fitted(text: &str, columns: &str) -> (Vec<Vec<f64>>, Report) {
    let table = csv_of(text.as_bytes()).unwrap();
    let (fitted, report) = table.fitted(&wanted(&spec(columns)), Keep::ForAnalysis).unwrap();
    let table = fitted.table().unwrap();
    ((0..table.rows()).map(|row| table.row(row).to_vec()).collect(), report)
}

#[test]
fn empty_cells_get_the_values_of_the_task() {
    let text = "age\n10\n\"\"\nNA\nnull\n30\n";
    for (column, expected) in [
        (
            "missing = \"mean\", mean = 25, low = 0, high = 100",
            vec![vec![0.1], vec![0.25], vec![0.25], vec![0.25], vec![0.3]],
        ),
        (
            "missing = \"median\", mean = 25, median = 20",
            vec![vec![10.0], vec![20.0], vec![20.0], vec![20.0], vec![30.0]],
        ),
        ("missing = 0", vec![vec![10.0], vec![0.0], vec![0.0], vec![0.0], vec![30.0]]),
        (
            "missing = \"indicator\", low = 10, high = 20, mean = 15",
            vec![vec![0.0, 0.0], vec![0.5, 1.0], vec![0.5, 1.0], vec![0.5, 1.0]],
        ),
    ] {
        let text = if column.contains("high = 20") { text.replace("30\n", "") } else { text.to_owned() };
        let (rows, report) = fitted(&text, &format!("features = [{{ column = \"age\", {column} }}]"));
        assert_eq!((rows, report.imputed(), report.columns[0].empty), (expected, 3, 3), "{column}");
    }
}

#[test]
fn words_may_be_missing_or_others() {
    let text = "ward,n\nicu,1\n,1\nent,1\ngeneral,1\n";
    let column = |more: &str| format!("features = [{{ column = \"ward\", one_of = [\"icu\", \"general\"], {more} }}]");
    let (rows, report) = fitted(text, &column("other = true, missing = \"indicator\""));
    let expected = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]];
    assert_eq!(rows, expected);
    let words = json!({ "ent": 1, "general": 1, "icu": 1 });
    assert_eq!((json!(report.columns[0].words), report.columns[0].unlisted), (words, 1));
    let (rows, _) = fitted(text, &column("other = true, missing = \"general\""));
    assert_eq!(rows[1], [0.0, 1.0, 0.0]);
}

#[test]
fn rows_are_left_out_up_to_a_share() {
    let text = "sick,age,ward\nno,50,icu\nyes,,icu\nno,40\nyes,999,er\nno,30,general\nyes,20,icu\n";
    let may = |share: &str| spec(&format!("{SPEC}\nskip_rows_up_to = \"{share}\""));
    let table = csv_of(text.as_bytes()).unwrap();
    let (features, classes) = labelled(&table, &may("50 %")).unwrap();
    assert_eq!((features.len(), classes), (9, vec![0, 0, 1]));
    let (_, report) = table.fit(&wanted(&may("50 %")));
    assert_eq!((report.rows, report.used, report.skipped, report.count), (6, 3, 3, 4));
    let said = chain(&labelled(&table, &may("49 %")).unwrap_err());
    assert!(said.contains("ward.csv: 3 of 6 rows cannot be used, and the task allows 49 % to be left out"), "{said}");
    assert!(said.contains("line 3, column `age`: the cell is empty"), "{said}");
    let places: Vec<_> = report.problems.iter().map(|problem| problem.place()).collect();
    let line = |line| Some(Place::Line(line));
    assert_eq!(places, [(line(3), Some("age")), (line(4), None), (line(5), Some("age")), (line(5), Some("ward"))]);
    let balance = &report.columns[2];
    assert_eq!((balance.is_label, json!(balance.words)), (true, json!({ "no": 2, "yes": 1 })));
    assert_eq!((report.columns[0].found, report.columns[0].outside), (Some((20.0, 999.0)), 1));
    let none = csv_of(b"sick,age,ward\nno,,icu\n").unwrap();
    let said = chain(&labelled(&none, &may("100 %")).unwrap_err());
    assert!(said.contains("no row can be used; the first"), "{said}");
}

#[test]
fn unreadable_columns_and_quotes_cannot_be_left_out() {
    let all = spec(&format!("{SPEC}\nskip_rows_up_to = \"100 %\""));
    let table = csv_of(b"sick,ward,ward\nno,icu,icu\n").unwrap();
    let (_, report) = table.fit(&wanted(&all));
    assert_eq!(report.count, 2, "a column that is missing and two of one name: {:?}", report.problems);
    assert!(report.verdict().is_some());
    let open = "sick,age,ward\nno,50\nno,50,icu\nno,40,\"icu\nno,3,icu\n";
    let error = chain(&csv_of(open.as_bytes()).err().unwrap());
    assert!(error.contains("line 4: a quote opens a cell and is never closed"), "{error}");
    let (_, report) = inspected(open.as_bytes()).fit(&wanted(&all));
    let places: Vec<_> = report.problems.iter().map(|problem| problem.place().0).collect();
    assert_eq!((places, report.used), (vec![Some(Place::Line(2)), Some(Place::Line(4))], 1));
}

#[test]
fn statistics_count_empty_cells_and_words() {
    let table = csv_of(b"age,ward\n10,icu\n,general\n20,ent\nNA,\n").unwrap();
    let columns = json!([
        { "type": "real", "name": "age", "low": 0, "high": 100, "missing": true },
        { "type": "category", "name": "ward", "categories": 2, "missing": true },
    ]);
    let analysis = json!({ "kind": "statistics", "max_rows": 10, "columns": columns });
    let table_spec =
        spec("features = [{ column = \"age\" }, { column = \"ward\", one_of = [\"icu\", \"general\"], other = true }]");
    let wanted = Wanted { analysis: Some(serde_json::from_value(analysis).unwrap()), ..wanted(&table_spec) };
    let rows = table.fitted(&wanted, Keep::ForAnalysis).unwrap().0.table().unwrap();
    assert_eq!((rows.row(0), rows.row(2), rows.row(1)[1]), (&[10.0, 0.0][..], &[20.0, 2.0][..], 1.0));
    assert!(rows.row(1)[0].is_nan() && rows.row(3)[0].is_nan() && rows.row(3)[1].is_nan());
}

/// The targets of a task whose model is `linear` with this loss.
fn targets(text: &str, label: &str, loss: &str) -> Result<Dataset, TableError> {
    let table = spec(&format!("features = [{{ column = \"x\" }}]\nlabel = {{ column = \"y\", {label} }}"));
    let mut model = task_spec::ModelSpec {
        architecture: Some(json!({ "kind": "linear" })),
        loss: Some(serde_json::from_value(json!({ "kind": loss })).unwrap()),
        table: Some(table.clone()),
        ..task_spec::ModelSpec::default()
    };
    client_sdk::models::complete(&mut model).unwrap();
    let wanted = Wanted { architecture: model.architecture, ..wanted(&table) };
    let (fitted, _) = csv_of(text.as_bytes()).unwrap().fitted(&wanted, Keep::ForModel)?;
    Ok(fitted.dataset())
}

#[test]
fn numbers_are_targets_of_losses_for_numbers() {
    let numbers = |targets: Vec<f32>| client_sdk::Targets::Numbers(targets);
    for (text, label, loss, expected) in [
        ("x,y\n1,50\n2,0\n", "low = 0, high = 100", "mse", vec![0.5, 0.0]),
        ("x,y\n1,50\n2,-3\n", "", "huber", vec![50.0, -3.0]),
        ("x,y\n1,4\n2,0\n", "", "poisson", vec![4.0, 0.0]),
        ("x,y\n1,yes\n2,no\n", "one_of = [\"no\", \"yes\"]", "bce_with_logits", vec![1.0, 0.0]),
    ] {
        let label = label.trim_end_matches(", ");
        let label = if label.is_empty() { "one_of = []" } else { label };
        match targets(text, label, loss).unwrap() {
            Dataset::Tensors { targets, count, .. } => assert_eq!((targets, count), (numbers(expected), 2), "{loss}"),
            other => panic!("{other:?}"),
        }
    }
    let said = chain(&targets("x,y\n1,-4\n", "one_of = []", "poisson").unwrap_err());
    assert!(said.ends_with("column `y`: the cell is `-4`; a number of at least 0 is expected"), "{said}");
}
