//! Statistics of a federation are those of one table, and right.

use serde_json::json;

use super::*;

fn spec() -> StatisticsSpec {
    let quantiles = vec![0.01, 0.25, 0.5, 0.9];
    let columns = vec![
        StatisticSpec::Real {
            name: "a".into(),
            low: -50.0,
            high: 150.0,
            edges: vec![0.0, 10.0, 20.0],
            quantiles,
            missing: false,
        },
        StatisticSpec::Category { name: "c".into(), categories: 3, missing: false },
        StatisticSpec::Real {
            name: "tight".into(),
            low: 0.0,
            high: 1000.0,
            edges: vec![],
            quantiles: vec![0.5],
            missing: false,
        },
    ];
    StatisticsSpec { max_rows: 2000, columns, quantile_rounds: 5 }
}

fn table() -> Table {
    let mut rng = random(1);
    let row = |_| {
        let skewed = (normal(&mut rng) * 0.8 + 2.0).exp();
        let category = (unit(&mut rng) * 3.3).floor();
        [skewed, category, 500.0 + 1e-4 * normal(&mut rng)]
    };
    Table::new(3, (0..9000).flat_map(row).collect()).unwrap()
}

fn result(participants: usize, modulus_bits: u8, table: &Table) -> StatisticsState {
    let max_rows = u32::try_from(table.rows().div_ceil(participants)).unwrap();
    let spec = StatisticsSpec { max_rows, ..spec() };
    let analysis = Analysis::new(AnalyticsSpec::Statistics(spec), modulus_bits, 50).unwrap();
    match run(&analysis, &deal(table, participants)) {
        AnalyticsState::Statistics(state) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn are_exactly_those_of_one_table() {
    let table = table();
    let one = result(1, 32, &table);
    for (participants, bits) in [(45, 32), (7, 24), (9, 20)] {
        let many = result(participants, bits, &table);
        assert_eq!((many.rows, many.participants as usize), (9000, participants));
        assert_eq!(many.columns, one.columns, "{participants} {bits}");
    }
}

#[test]
fn are_right() {
    let table = table();
    let state = result(45, 32, &table);
    let column = |column| (0..table.rows()).map(|row| table.row(row)[column]).collect::<Vec<f64>>();
    for (index, tolerance) in [(0, 1e-6), (2, 1e-6)] {
        let ColumnStatistics::Real { mean, variance, quantiles, histogram, below, above, .. } = &state.columns[index]
        else {
            panic!("a real column")
        };
        let range = if index == 0 { (-50.0, 150.0) } else { (0.0, 1000.0) };
        let raw = column(index);
        let mut values: Vec<f64> = raw.iter().map(|value| value.clamp(range.0, range.1)).collect();
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let exact = values.iter().sum::<f64>() / n;
        let spread = values.iter().map(|value| (value - exact) * (value - exact)).sum::<f64>() / n;
        assert!((mean.unwrap() - exact).abs() < tolerance, "{mean:?} {exact}");
        // A standard deviation of a ten millionth of the range still has its first digits.
        assert!((variance.unwrap() / spread - 1.0).abs() < 1e-3, "{variance:?} {spread}");
        for quantile in quantiles {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank")]
            let exact = values[(quantile.of * n).ceil() as usize - 1];
            assert!((quantile.value - exact).abs() < 2e-6, "{quantile:?} {exact}");
        }
        if index == 0 {
            let cell = |low: f64, high: f64| raw.iter().filter(|&&v| v >= low && v < high).count() as u64;
            let cells = [cell(-1e9, 0.0), cell(0.0, 10.0), cell(10.0, 20.0), cell(20.0, 1e9)];
            assert_eq!(histogram[..], cells);
            assert_eq!((*below, *above), (0, raw.iter().filter(|&&v| v > 150.0).count() as u64));
            assert!(*above > 0);
        }
    }
    let ColumnStatistics::Category { counts, other, .. } = &state.columns[1] else { panic!("categories") };
    let having = |wanted: f64| column(1).iter().filter(|&&value| value == wanted).count() as u64;
    assert_eq!((counts[..].to_vec(), *other), (vec![having(0.0), having(1.0), having(2.0)], having(3.0)));
    assert!(*other > 0);
}

#[test]
fn fewer_rounds_know_a_quantile_less_closely() {
    let quantiles = vec![0.5];
    let columns =
        vec![StatisticSpec::Real { name: "a".into(), low: 0.0, high: 64.0, edges: vec![], quantiles, missing: false }];
    let spec = StatisticsSpec { max_rows: 100, columns, quantile_rounds: 1 };
    let analysis = Analysis::new(AnalyticsSpec::Statistics(spec), 32, 10).unwrap();
    let tables = [Table::new(1, vec![10.2, 11.7, 40.9]).unwrap()];
    let AnalyticsState::Statistics(state) = run(&analysis, &tables) else { panic!("statistics") };
    let ColumnStatistics::Real { quantiles, .. } = &state.columns[0] else { panic!("a real column") };
    assert_eq!(quantiles[0].value, 11.5, "the middle of [11, 12)");
}

#[test]
fn only_so_many_rows_of_a_participant_count() {
    let columns = vec![StatisticSpec::Category { name: "c".into(), categories: 1, missing: false }];
    let spec = StatisticsSpec { max_rows: 5, columns, quantile_rounds: 1 };
    let analysis = Analysis::new(AnalyticsSpec::Statistics(spec), 16, 10).unwrap();
    let tables = [Table::new(1, vec![0.0; 100]).unwrap(), Table::new(1, vec![0.0; 3]).unwrap()];
    let advanced = round(&analysis, &analysis.initial(), &tables);
    let AnalyticsState::Statistics(state) = advanced.state else { panic!("statistics") };
    assert_eq!((state.rows, state.participants), (8, 2));
    assert_eq!(advanced.metrics, [("rows_per_participant".to_owned(), MetricValue { value: 4.0, count: 2 })]);
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let real = |change: serde_json::Value| {
        let mut column = json!({ "type": "real", "name": "a", "low": 0.0, "high": 1.0 });
        column.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({ "kind": "statistics", "max_rows": 100, "columns": [column] })
    };
    let error = |spec| refusal(spec, 32, 10);
    assert!(error(real(json!({ "low": 2.0 }))).contains("the first below the second"));
    assert!(error(real(json!({ "edges": [1.0, 0.5] }))).contains("ascending"));
    assert!(error(real(json!({ "quantiles": [1.0] }))).contains("above 0, below 1"));
    assert!(error(real(json!({ "name": "" }))).contains("a name is 1 to 64"));
    assert!(error(real(json!({ "high": 1e200 }))).contains("the first below the second"));
    assert!(error(real(json!({ "median": true }))).contains("median"));
    let mut spec = real(json!({}));
    spec["columns"] = json!([]);
    assert!(error(spec.clone()).contains("0 columns"));
    spec["columns"] = json!([{ "type": "category", "name": "c", "categories": 0 }]);
    assert!(error(spec.clone()).contains("0 categories"));
    spec["columns"][0]["categories"] = json!(3);
    spec["max_rows"] = json!(0);
    assert!(error(spec.clone()).contains("max_rows"));
    spec["max_rows"] = json!(10);
    spec["quantile_rounds"] = json!(6);
    assert!(error(spec.clone()).contains("quantile_rounds"));
    spec["quantile_rounds"] = json!(1);
    assert!(refusal(spec, 16, 60_000).contains("raise modulus_bits or lower the cohort"));
}

#[test]
fn a_table_that_does_not_fit_is_refused() {
    let asked = AnalyticsSpec::Statistics(spec());
    let analysis = Analysis::new(asked.clone(), 32, 10).unwrap();
    let state = analysis.initial();
    let error = |table: Table| {
        let error = analysis.contribution(&state, &table).unwrap_err();
        assert_eq!(asked.check(&table), Err(error.clone()));
        error
    };
    assert_eq!(asked.check(&Table::new(3, vec![0.0; 3]).unwrap()), Ok(()));
    let columns = AnalyticsError::Shape { what: "columns", expected: 3, got: 2 };
    assert_eq!(error(Table::new(2, vec![0.0; 4]).unwrap()), columns);
    assert_eq!(error(Table::new(3, vec![]).unwrap()), AnalyticsError::NoRows);
}

#[test]
fn empty_cells_are_counted_and_left_out_of_figures() {
    let counted = |missing| {
        let (name, quantiles) = ("a".to_owned(), vec![0.5]);
        let real = StatisticSpec::Real { name, low: 0.0, high: 64.0, edges: vec![8.0], quantiles, missing };
        let columns = vec![real, StatisticSpec::Category { name: "c".into(), categories: 2, missing }];
        let spec = StatisticsSpec { max_rows: 100, columns, quantile_rounds: 5 };
        Analysis::new(AnalyticsSpec::Statistics(spec), 32, 10).unwrap()
    };
    let empty = f64::NAN;
    let tables = [
        Table::with_holes(2, vec![4.0, 0.0, empty, 1.0, 6.0, empty]).unwrap(),
        Table::with_holes(2, vec![empty, 9.0, 20.0, empty, empty, 1.0]).unwrap(),
        Table::with_holes(2, vec![empty, empty]).unwrap(),
    ];
    let AnalyticsState::Statistics(state) = run(&counted(true), &tables) else { panic!("statistics") };
    let [ColumnStatistics::Real { mean, histogram, quantiles, missing, .. }, words] = &state.columns[..] else {
        panic!("{state:?}")
    };
    assert_eq!((state.rows, *missing, histogram[..].to_vec()), (7, 4, vec![2, 1]));
    assert!((mean.unwrap() - 10.0).abs() < 1e-6 && (quantiles[0].value - 6.0).abs() < 1e-6, "{state:?}");
    let expected = ColumnStatistics::Category { name: "c".into(), counts: vec![1, 2], other: 1, missing: 3 };
    assert_eq!(*words, expected);
    let refused = counted(false);
    let error = refused.contribution(&refused.initial(), &tables[0]).unwrap_err();
    assert_eq!(error, AnalyticsError::NotFinite { row: 1, column: 0 });
}
