//! Large cohorts: a hundred participants with thirty dropouts, and cohorts with sparse mask graphs.

use coordinator::work::WorkConfig;
use federation::round::RoundState;
use serde_json::json;

use crate::support::secure::{Drops, World};

#[tokio::test]
async fn a_hundred_participants_of_whom_thirty_drop_out() {
    let mut world = World::with(100, |spec| spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.44)).await;
    let drops: Vec<_> = (0..100)
        .map(|at| match at % 10 {
            3 => Drops::Shares,
            5 => Drops::Input,
            7 => Drops::Answer,
            _ => Drops::Never,
        })
        .collect();
    let view = world.run(1, &drops).await;
    assert_eq!((view.state, view.cohort, view.reported), (RoundState::Completed, 100, 80));
    let session = view.secure_aggregation.unwrap();
    assert_eq!((session.threshold, session.tolerated_corrupt, session.out_degree), (56, 10, 99));
    assert_eq!((session.shared, session.included, session.signed, session.unmasked), (90, 80, 80, 70));
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| drops[at] > Drops::Input)));
    // Ten dealers sent no input: one mask for each pair of such a dealer and a survivor, and a self mask of each survivor.
    let words = u64::try_from(world.model.codec.len()).unwrap();
    assert!(view.work.unwrap().keystream_bytes >= (10 * 80 + 80) * 4 * words);
    // Each participant gets the complete roster once, like a cohort's answers.
    let sharing = view.phases.iter().find(|phase| phase.state == RoundState::Sharing).unwrap();
    assert!(sharing.bytes_down > sharing.bytes_up / 2, "{sharing:?}");
}

#[tokio::test]
async fn masks_come_off_slice_by_slice() {
    let mut world = World::with(5, |spec| {
        spec["model"]["tensors"][0]["shape"] = json!([150_001]);
        spec["secure_aggregation"]["modulus_bits"] = json!(31);
        spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.4);
    })
    .await;
    world.t.inner.engine = world.t.inner.engine.with_config(|config| WorkConfig { slice_words: 1 << 16, ..config });
    let drops = [Drops::Never, Drops::Input, Drops::Never, Drops::Never, Drops::Never];
    let view = world.run(1, &drops).await;
    assert_eq!((view.state, view.reported), (RoundState::Completed, 4), "{:?}", view.failure);
    assert!(world.released(1).await == Some(world.plain(1, |at| drops[at] > Drops::Input)));
    // One dealer sent no input: a mask for each pair of it and a survivor, and a self mask of each survivor.
    let words = u64::try_from(world.model.codec.len()).unwrap();
    assert_eq!(view.work.unwrap().keystream_bytes, (4 + 4) * 4 * words, "the work on all slices");
}

#[tokio::test]
#[ignore = "a dozen seconds: `just soak`"]
async fn beyond_128_participants_mask_with_some_of_the_others_only() {
    let mut world = World::with(160, |spec| spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.2)).await;
    let drops: Vec<_> = (0..160)
        .map(|at| match at % 20 {
            3 => Drops::Shares,
            5 => Drops::Input,
            7 => Drops::Signature,
            9 => Drops::Answer,
            _ => Drops::Never,
        })
        .collect();
    let view = world.run(1, &drops).await;
    assert_eq!((view.state, view.cohort, view.reported), (RoundState::Completed, 160, 144), "{:?}", view.failure);
    let session = view.secure_aggregation.unwrap();
    assert!(session.out_degree < 159 && session.min_out < session.out_degree, "{session:?}");
    assert_eq!((session.threshold, session.unmasked), (89, 128));
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| drops[at] > Drops::Input)));
}
