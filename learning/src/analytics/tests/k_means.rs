//! Clusters of a federation equal those of one table; unsuitable tables are rejected.

use serde_json::json;

use super::*;

fn analysis(clusters: u32, iterations: u32, max_rows: u32, bits: u8, cohort: u32) -> Analysis {
    let columns = vec![column("x", -10.0, 10.0, 2)];
    let spec = KMeansSpec { max_rows, columns, clusters, iterations, seed: 3 };
    Analysis::new(AnalyticsSpec::KMeans(spec), bits, cohort).unwrap()
}

fn state(state: AnalyticsState) -> KMeansState {
    match state {
        AnalyticsState::KMeans(state) => state,
        other => panic!("{other:?}"),
    }
}

/// Three blobs, sorted: most participants hold rows of one.
fn blobs(rows: usize) -> Table {
    let mut rng = random(2);
    let centres = [(-6.0, -6.0), (0.0, 6.0), (6.0, -2.0)];
    let row = |i: usize| {
        let (x, y) = centres[i * 3 / rows];
        [x + 0.5 * normal(&mut rng), y + 0.5 * normal(&mut rng)]
    };
    Table::new(2, (0..rows).flat_map(row).collect()).unwrap()
}

#[test]
fn are_exactly_those_of_one_table() {
    let table = blobs(900);
    // The same product of rows and cohort, so the same grid.
    let one = state(run(&analysis(3, 4, 900, 32, 1), &deal(&table, 1)));
    let many = state(run(&analysis(3, 4, 20, 32, 45), &deal(&table, 45)));
    assert_eq!(one, many);
    let narrow = state(run(&analysis(3, 4, 100, 20, 9), &deal(&table, 9)));
    assert_eq!(narrow.counts, one.counts);
    assert!(narrow.centroids.iter().flatten().zip(one.centroids.iter().flatten()).all(|(a, b)| (a - b).abs() < 0.01));
}

#[test]
fn find_the_blobs() {
    let table = blobs(900);
    let found = state(run(&analysis(3, 5, 30, 32, 30), &deal(&table, 30)));
    assert_eq!((found.counts.clone(), found.rows), (vec![300; 3], 900));
    for (x, y) in [(-6.0, -6.0), (0.0, 6.0), (6.0, -2.0)] {
        let (_, distance) = found.nearest(&[x, y]).unwrap();
        assert!(distance < 0.02, "{distance}");
    }
    // The published inertia is that of the published centroids.
    let exact: f64 = (0..900).map(|row| found.nearest(table.row(row)).unwrap().1).sum();
    assert!((found.inertia.unwrap() / exact - 1.0).abs() < 1e-6);
}

#[test]
fn fewer_places_than_clusters_leave_clusters_empty() {
    let table = Table::new(2, [[1.0, 1.0], [-3.0, 2.0]].concat().repeat(10)).unwrap();
    let found = state(run(&analysis(5, 3, 30, 32, 10), &deal(&table, 4)));
    assert_eq!(found.counts.iter().filter(|&&count| count > 0).count(), 2);
    assert!(found.inertia.unwrap() < 1e-3);
    assert!(found.centroids.iter().flatten().all(|value| value.is_finite()));
}

#[test]
fn a_cluster_that_lost_its_rows_begins_again_where_it_is_needed() {
    let table = blobs(90);
    let analysis = analysis(3, 5, 90, 32, 10);
    let mut current = analysis.initial();
    while state(current.clone()).centroids.is_empty() {
        current = round(&analysis, &current, &deal(&table, 3)).state;
    }
    let AnalyticsState::KMeans(own) = &mut current else { panic!("k-means") };
    own.centroids[1] = vec![9.9, 9.9];
    own.centroids[2] = vec![9.9, 9.9];
    for _ in 0..6 {
        current = round(&analysis, &current, &deal(&table, 3)).state;
    }
    let mut counts = state(current).counts;
    counts.sort_unstable();
    assert_eq!(counts, [30, 30, 30]);
}

#[test]
fn values_beyond_the_range_count_as_its_end() {
    let table = Table::new(2, vec![1e9, -1e300]).unwrap();
    let found = state(run(&analysis(1, 1, 30, 32, 10), &[table]));
    assert_eq!((found.centroids, found.inertia), (vec![vec![10.0, -10.0]], Some(0.0)));
}

#[test]
fn columns_that_are_repeated_count_as_often() {
    let column = |repeat: u32| json!({ "name": "x", "low": 0.0, "high": 1.0, "repeat": repeat });
    let spec = json!({ "kind": "k_means", "max_rows": 100, "clusters": 2, "columns": [column(2), column(3)] });
    let asked: AnalyticsSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(asked.width(), 5);
    assert_eq!(asked.check(&Table::new(5, vec![0.0; 10]).unwrap()), Ok(()));
    let columns = AnalyticsError::Shape { what: "columns", expected: 5, got: 2 };
    assert_eq!(asked.check(&Table::new(2, vec![0.0; 10]).unwrap()), Err(columns));
}

#[test]
fn what_cannot_be_clustered_is_refused() {
    let spec = |clusters: u32, columns: u32| {
        let columns = json!([{ "name": "x", "low": 0.0, "high": 1.0, "repeat": columns }]);
        json!({ "kind": "k_means", "max_rows": 100, "clusters": clusters, "columns": columns })
    };
    assert!(refusal(spec(0, 2), 32, 10).contains("clusters: is 0; it must be 1 to 1024"));
    assert!(refusal(spec(1025, 2), 32, 10).contains("1025"));
    assert!(refusal(spec(1024, 4096), 32, 10).contains("a contribution would have"));
    let mut endless = spec(2, 2);
    endless["iterations"] = json!(0);
    assert!(refusal(endless, 32, 10).contains("iterations"));
    let mut reversed = spec(2, 2);
    reversed["columns"][0]["low"] = json!(2.0);
    assert!(refusal(reversed, 32, 10).contains("the first below the second"));
    assert!(refusal(json!({ "kind": "k_medians" }), 32, 10).contains("k_means"));
}
