//! Synthetic(α, β): shapes, reproducibility, and the effects of α and β.

use datasets::{DataError, Dataset, Labelled, synthetic};

fn labelled(data: &Dataset) -> &Labelled {
    match data {
        Dataset::Labelled(data) => data,
        Dataset::Text(_) => panic!("synthetic data are labelled"),
    }
}

#[test]
fn shapes_sizes_and_labels_are_those_of_the_benchmark() {
    let federated = synthetic::generate(100, 1.0, 1.0, 1).unwrap();
    assert_eq!((federated.shards.len(), federated.names.len()), (100, 100));
    let mut sizes = Vec::new();
    let mut seen = [false; 10];
    for data in federated.shards.iter().map(labelled).chain([labelled(&federated.test)]) {
        assert_eq!((data.width, data.classes), (60, 10));
        assert_eq!(data.features.len(), data.len() * 60);
        assert!(data.features.iter().all(|x| x.is_finite()));
        data.labels.iter().for_each(|&label| seen[label as usize] = true);
        sizes.push(data.len());
    }
    assert_eq!(seen, [true; 10]);
    let test = sizes.pop().unwrap();
    assert!(sizes.iter().all(|size| (40..=4000).contains(size)), "{sizes:?}");
    let all: usize = sizes.iter().sum();
    assert!((test as f64 / (all + test) as f64 - 0.2).abs() < 0.01, "{test} of {}", all + test);
    // The median of lognormal(4, 2) + 50 is 50 + e^4 = 105, four fifths of which are 84.
    sizes.sort_unstable();
    assert!((60..=120).contains(&sizes[50]), "median {}", sizes[50]);
}

#[test]
fn sizes_are_cut_at_the_documented_maximum() {
    let whole = |i| {
        let (own, held_out) = synthetic::shard(i, 0.0, 0.0, 3).unwrap();
        own.len() + held_out.len()
    };
    let largest = (0..500).map(whole).max().unwrap();
    assert_eq!(largest, synthetic::MAX_EXAMPLES, "about one participant in eighty is cut");
}

#[test]
fn a_shard_alone_is_the_shard_of_the_whole() {
    let federated = synthetic::generate(8, 0.5, 2.0, 99).unwrap();
    let mut held_out = Vec::new();
    for (index, shard) in federated.shards.iter().enumerate() {
        let (own, test) = synthetic::shard(index, 0.5, 2.0, 99).unwrap();
        assert!(&own == labelled(shard), "shard {index}");
        held_out.push(test);
    }
    assert!(Labelled::concat(&held_out).unwrap() == *labelled(&federated.test));
    assert!(federated.shards[..3] == synthetic::generate(3, 0.5, 2.0, 99).unwrap().shards);
    assert!(federated.shards[0] != synthetic::generate(1, 0.5, 2.0, 98).unwrap().shards[0]);
}

/// Mean of a participant's features.
fn mean(data: &Labelled) -> f64 {
    data.features.iter().map(|&x| f64::from(x)).sum::<f64>() / data.features.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

#[test]
fn beta_is_the_variance_between_participants_inputs() {
    let between = |beta| {
        let means: Vec<f64> = (0..300).map(|i| mean(&synthetic::shard(i, 0.0, beta, 5).unwrap().0)).collect();
        variance(&means)
    };
    // The mean over 60 features of v_k has variance β + 1/60, and sampling adds little.
    for (beta, tolerance) in [(0.0, 0.01), (1.0, 0.3), (4.0, 1.2)] {
        let expected = beta + 1.0 / 60.0;
        let found = between(beta);
        assert!((found - expected).abs() < tolerance, "β = {beta}: {found}, expected {expected}");
    }
}

#[test]
fn alpha_moves_parameters_alone() {
    let (same, _) = synthetic::shard(0, 0.0, 1.0, 11).unwrap();
    let (other, _) = synthetic::shard(0, 1.0, 1.0, 11).unwrap();
    assert_eq!(same.features, other.features);
    // One u_k for all classes shifts all logits alike: see the module's documentation.
    assert_eq!(same.labels, other.labels);
}

#[test]
fn features_scatter_less_and_less() {
    let shards = (0..100).map(|i| synthetic::shard(i, 1.0, 1.0, 2).unwrap().0);
    let big = shards.max_by_key(Labelled::len).unwrap();
    assert!(big.len() > 1000);
    for j in [1, 10, 60] {
        let column: Vec<f64> = big.features.iter().skip(j - 1).step_by(60).map(|&x| f64::from(x)).collect();
        let expected = (j as f64).powf(-1.2);
        assert!((variance(&column) / expected - 1.0).abs() < 0.2, "feature {j}: {}", variance(&column));
    }
}

#[test]
fn bad_parameters_are_refused() {
    assert!(matches!(synthetic::generate(0, 1.0, 1.0, 1), Err(DataError::NoParticipants)));
    for bad in [-0.1, f64::NAN, f64::INFINITY, 1e7] {
        assert!(matches!(synthetic::generate(1, bad, 1.0, 1), Err(DataError::BadSpread { name: "alpha", .. })));
        assert!(matches!(synthetic::shard(0, 1.0, bad, 1), Err(DataError::BadSpread { name: "beta", .. })));
    }
    let (extreme, _) = synthetic::shard(0, 1e6, 1e6, 1).unwrap();
    assert!(extreme.features.iter().all(|x| x.is_finite()));
}
