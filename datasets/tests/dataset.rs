//! Choosing, joining and splitting examples.

use datasets::{DataError, Dataset, Federated, Labelled, Partition, Text};

/// Example `i` has the features `i, -i` and the label `i % 3`.
fn labelled(count: u16) -> Labelled {
    Labelled {
        features: (0..count).flat_map(|i| [f32::from(i), -f32::from(i)]).collect(),
        labels: (0..u32::from(count)).map(|i| i % 3).collect(),
        width: 2,
        classes: 3,
    }
}

/// The characters 0, 1, 2, … in sequences of two.
fn text(count: u32) -> Text {
    Text { inputs: (0..2 * count).collect(), targets: (1..=2 * count).collect(), length: 2, vocabulary: 100 }
}

#[test]
fn subsets_keep_examples_whole() {
    let chosen = labelled(6).subset(&[4, 0, 4]);
    assert_eq!(chosen.features, [4.0, -4.0, 0.0, 0.0, 4.0, -4.0]);
    assert_eq!(chosen.labels, [1, 0, 1]);
    let chosen = text(4).subset(&[3, 1]);
    assert_eq!((chosen.inputs, chosen.targets), (vec![6, 7, 2, 3], vec![7, 8, 3, 4]));
    assert!(labelled(3).subset(&[]).is_empty());
}

#[test]
fn parts_join_in_order_if_their_shapes_agree() {
    let whole = labelled(6);
    let parts = [whole.subset(&[0, 1]), whole.subset(&[]), whole.subset(&[2, 3, 4, 5])];
    assert_eq!(Labelled::concat(&parts).unwrap(), whole);
    let parts = [Dataset::Text(text(4).subset(&[0])), Dataset::Text(text(4).subset(&[1, 2, 3]))];
    assert_eq!(Dataset::concat(&parts).unwrap(), Dataset::Text(text(4)));

    let mut wide = labelled(6);
    wide.width = 4;
    for bad in [
        vec![],
        vec![Dataset::Labelled(labelled(6)), Dataset::Labelled(wide)],
        vec![Dataset::Labelled(labelled(6)), Dataset::Text(text(4))],
        vec![Dataset::Text(text(4)), Dataset::Text(Text { vocabulary: 99, ..text(4) })],
    ] {
        assert!(matches!(Dataset::concat(&bad), Err(DataError::Incompatible(_))), "{bad:?}");
    }
    assert!(Text::concat(&[]).is_err());
}

#[test]
fn vectors_are_split_at_random_without_loss() {
    let (train, held_out) = labelled(100).split(0.25, 1);
    assert_eq!((train.len(), held_out.len()), (75, 25));
    let mut all = Labelled::concat(&[train.clone(), held_out.clone()]).unwrap().features;
    all.retain(|&x| x > 0.0);
    all.sort_by(f32::total_cmp);
    assert_eq!(all, (1..100u8).map(f32::from).collect::<Vec<_>>());
    assert_eq!((train.clone(), held_out), labelled(100).split(0.25, 1));
    assert_ne!(train, labelled(100).split(0.25, 2).0);
}

#[test]
fn text_is_split_in_time() {
    let (train, held_out) = Dataset::Text(text(10)).split(0.2, 1);
    assert_eq!(train, Dataset::Text(text(10).subset(&[0, 1, 2, 3, 4, 5, 6, 7])));
    assert_eq!(held_out, Dataset::Text(text(10).subset(&[8, 9])));
}

#[test]
fn splits_leave_no_side_empty_unless_asked_to() {
    let sizes = |count, fraction| {
        let (train, held_out) = labelled(count).split(fraction, 1);
        (train.len(), held_out.len())
    };
    assert_eq!(sizes(3, 0.01), (2, 1));
    assert_eq!(sizes(3, 0.99), (1, 2));
    assert_eq!(sizes(1, 0.2), (1, 0));
    assert_eq!(sizes(0, 0.2), (0, 0));
    assert_eq!(sizes(5, 0.0), (5, 0));
    assert_eq!(sizes(5, 1.0), (0, 5));
    assert_eq!(sizes(5, 7.0), (0, 5));
    assert_eq!(sizes(5, f64::NAN), (5, 0));
}

#[test]
fn debug_shows_shapes_and_no_data() {
    let shown = format!("{:?} {:?}", Dataset::Labelled(labelled(50)), Dataset::Text(text(50)));
    assert_eq!(
        shown,
        "Labelled(Labelled(50 examples of 2 features, 3 classes)) \
         Text(Text(100 characters in sequences of 2, vocabulary 100))"
    );
}

#[test]
fn a_test_set_must_fit_what_is_dealt_out() {
    let odd = Labelled { features: vec![1.0], labels: vec![0], width: 1, classes: 3 };
    let refused = Federated::partitioned(&labelled(30), odd, Partition::Iid, 3, 1, "numbers");
    assert!(matches!(refused, Err(DataError::Incompatible(_))));
    let federated = Federated::partitioned(&labelled(30), labelled(3), Partition::Iid, 3, 1, "numbers").unwrap();
    assert_eq!(federated.names, ["participant-0", "participant-1", "participant-2"]);
    assert!(federated.shards.iter().all(|shard| shard.len() == 10));
}
