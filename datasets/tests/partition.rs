//! Properties of every partition, for any labels.

use datasets::{DataError, Partition};
use proptest::prelude::*;

const CLASSES: usize = 10;

fn any_partition() -> impl Strategy<Value = Partition> {
    prop_oneof![
        Just(Partition::Iid),
        (-4.0..4.0f64).prop_map(|exponent| Partition::Dirichlet { alpha: 10f64.powf(exponent) }),
        (1..4usize).prop_map(|per_participant| Partition::Shards { per_participant }),
    ]
}

fn any_labels() -> impl Strategy<Value = Vec<u32>> {
    // Sometimes of few classes only, so that empty classes occur.
    (1..=10u32).prop_flat_map(|most| prop::collection::vec(0..most, 30..400))
}

proptest! {
    #[test]
    fn every_index_goes_to_exactly_one_participant(
        partition in any_partition(), labels in any_labels(), participants in 1..10usize, seed: u64,
    ) {
        let parts = partition.partition(&labels, CLASSES, participants, seed).unwrap();
        prop_assert_eq!(parts.len(), participants);
        prop_assert!(parts.iter().all(|part| !part.is_empty() && part.is_sorted()));
        let mut all = parts.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..labels.len()).collect::<Vec<_>>());
    }

    #[test]
    fn a_partition_is_a_function_of_its_seed(
        partition in any_partition(), labels in any_labels(), participants in 2..10usize, seed: u64,
    ) {
        let first = partition.partition(&labels, CLASSES, participants, seed).unwrap();
        prop_assert_eq!(first, partition.partition(&labels, CLASSES, participants, seed).unwrap());
    }

    #[test]
    fn iid_and_shards_are_even(labels in any_labels(), participants in 1..10usize, each in 1..4usize, seed: u64) {
        let iid = Partition::Iid.partition(&labels, CLASSES, participants, seed).unwrap();
        prop_assert!(iid.iter().all(|part| part.len().abs_diff(labels.len() / participants) <= 1));
        let shards = Partition::Shards { per_participant: each };
        let parts = shards.partition(&labels, CLASSES, participants, seed).unwrap();
        prop_assert!(parts.iter().all(|part| part.len().abs_diff(labels.len() / participants) <= each));
    }

    #[test]
    fn what_is_printed_parses_again(partition in any_partition()) {
        prop_assert_eq!(partition.to_string().parse::<Partition>().unwrap(), partition);
    }
}

/// Ten classes of 300 each, in turn.
fn balanced() -> Vec<u32> {
    (0..10).cycle().take(3000).collect()
}

/// Mean over participants of the share of the most frequent class in their examples: 0.1 is even, 1 is one class each.
fn skew(parts: &[Vec<usize>], labels: &[u32]) -> f64 {
    let commonest = |part: &Vec<usize>| {
        let count = |class| part.iter().filter(|&&i| labels[i] == class).count();
        (0..10).map(count).max().unwrap() as f64 / part.len() as f64
    };
    parts.iter().map(commonest).sum::<f64>() / parts.len() as f64
}

#[test]
fn a_smaller_alpha_is_more_skewed() {
    let labels = balanced();
    for seed in 0..10 {
        let skew_at = |alpha| {
            let parts = Partition::Dirichlet { alpha }.partition(&labels, CLASSES, 10, seed).unwrap();
            skew(&parts, &labels)
        };
        let (small, middle, large) = (skew_at(0.1), skew_at(1.0), skew_at(100.0));
        assert!(small > middle + 0.05 && middle > large + 0.05, "seed {seed}: {small} {middle} {large}");
        assert!(small > 0.4 && large < 0.2, "seed {seed}: {small} {large}");
    }
}

#[test]
fn dirichlet_shares_have_the_variance_of_the_distribution() {
    // Of 10 participants, the share of one class has mean 1/10 and variance (1/10)(9/10) / (10 α + 1). α = 2 hardly
    // ever needs a second draw, which would skew the sample.
    let labels = balanced();
    let mut squares = 0.0;
    for seed in 0..100 {
        let parts = Partition::Dirichlet { alpha: 2.0 }.partition(&labels, CLASSES, 10, seed).unwrap();
        for part in &parts {
            for class in 0..10 {
                let share = part.iter().filter(|&&i| labels[i] == class).count() as f64 / 300.0;
                squares += (share - 0.1).powi(2);
            }
        }
    }
    let (variance, expected) = (squares / 10_000.0, 0.09 / 21.0);
    assert!((variance / expected - 1.0).abs() < 0.1, "{variance} should be near {expected}");
}

#[test]
fn seeds_differ() {
    let labels = balanced();
    for partition in [Partition::Iid, Partition::Dirichlet { alpha: 0.5 }, Partition::Shards { per_participant: 2 }] {
        let of = |seed| partition.partition(&labels, CLASSES, 10, seed).unwrap();
        assert_ne!(of(1), of(2), "{partition}");
    }
}

#[test]
fn dirichlet_takes_a_class_apart_at_random() {
    let labels = balanced();
    let parts = Partition::Dirichlet { alpha: 100.0 }.partition(&labels, CLASSES, 10, 1).unwrap();
    for part in parts {
        let own: Vec<usize> = part.into_iter().filter(|&i| labels[i] == 0).collect();
        let span = (own[own.len() - 1] - own[0]) / 10 + 1;
        assert!(span > 2 * own.len(), "{} examples of class 0 lie within {span} of its 300", own.len());
    }
}

#[test]
fn everybody_gets_the_minimum_even_where_it_must_be_topped_up() {
    let labels = balanced();
    for alpha in [1e-9, 1e-3, 0.1] {
        let parts = Partition::Dirichlet { alpha }.partition(&labels, CLASSES, 30, 7).unwrap();
        assert!(parts.iter().all(|part| part.len() >= 10), "alpha {alpha}");
    }
    let parts = Partition::Dirichlet { alpha: 1e-9 }.partition(&labels, CLASSES, labels.len(), 7).unwrap();
    assert!(parts.iter().all(|part| part.len() == 1));
}

#[test]
fn two_shards_of_sorted_data_hold_few_classes() {
    let labels = balanced();
    let parts = Partition::Shards { per_participant: 2 }.partition(&labels, CLASSES, 10, 3).unwrap();
    for part in parts {
        let mut classes: Vec<u32> = part.iter().map(|&i| labels[i]).collect();
        classes.sort_unstable();
        classes.dedup();
        assert!(classes.len() <= 2, "{classes:?}");
    }
}

#[test]
fn bad_requests_are_refused() {
    let labels = balanced();
    let partition = |partition: Partition, participants| partition.partition(&labels, CLASSES, participants, 1);
    assert!(matches!(partition(Partition::Iid, 0), Err(DataError::NoParticipants)));
    assert!(matches!(partition(Partition::Iid, 3001), Err(DataError::TooFewExamples { examples: 3000, needed: 3001 })));
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
        assert!(matches!(partition(Partition::Dirichlet { alpha }, 10), Err(DataError::BadAlpha(_))), "{alpha}");
    }
    assert!(matches!(partition(Partition::Shards { per_participant: 0 }, 10), Err(DataError::NoShards)));
    for per_participant in [301, usize::MAX] {
        let refused = partition(Partition::Shards { per_participant }, 10);
        assert!(matches!(refused, Err(DataError::TooFewExamples { .. })), "{per_participant}");
    }
    assert!(matches!(
        Partition::Iid.partition(&[0, 3, 1], 3, 1, 1),
        Err(DataError::LabelOutOfRange { label: 3, position: 1, classes: 3 })
    ));
}

#[test]
fn names_are_parsed_strictly() {
    assert_eq!("iid".parse::<Partition>().unwrap(), Partition::Iid);
    assert_eq!("dirichlet:0.5".parse::<Partition>().unwrap(), Partition::Dirichlet { alpha: 0.5 });
    assert_eq!("shards:2".parse::<Partition>().unwrap(), Partition::Shards { per_participant: 2 });
    for bad in
        ["", "IID", "iid:", "dirichlet", "dirichlet:", "dirichlet:x", "shards", "shards:-1", "shards:1.5", "dir:1"]
    {
        let error = bad.parse::<Partition>().unwrap_err();
        assert!(matches!(error, DataError::UnknownPartition(_)), "{bad}");
        assert!(error.to_string().contains("dirichlet:ALPHA"), "{error}");
    }
    assert!(matches!("dirichlet:0".parse::<Partition>(), Err(DataError::BadAlpha(_))));
    assert!(matches!("dirichlet:NaN".parse::<Partition>(), Err(DataError::BadAlpha(_))));
    assert!(matches!("shards:0".parse::<Partition>(), Err(DataError::NoShards)));
}
