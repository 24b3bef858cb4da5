//! From keys to model version: the released sum is exactly that of the survivors, with any dropouts.

use federation::id::RoundKey;
use federation::round::{AssignmentState, FailureReason, RoundState};
use federation::task_status::TaskStatus;
use serde_json::json;
use wire::DeviceReason;
use wire::inspect::RoundView;
use wire::provenance::{Provenance, SignedProvenance, roster_digest, survivors_digest};
use wire::route;

use crate::support::secure::{Drops, World};

/// The sizes of U1…U5.
fn sets(view: &RoundView) -> [u32; 5] {
    let session = view.secure_aggregation.as_ref().unwrap();
    [session.advertised, session.shared, session.included, session.signed, session.unmasked]
}

/// The sets of a participant that falls silent at this point.
fn sets_of(drops: Drops) -> Vec<String> {
    let count = match drops {
        Drops::Keys => 0,
        Drops::Shares => 1,
        Drops::Input => 2,
        Drops::Signature => 3,
        Drops::Answer => 4,
        Drops::Never => 5,
    };
    (1..=count).map(|set| format!("U{set}")).collect()
}

async fn assert_exact(world: &World, number: u32, drops: &[Drops]) {
    let expected = world.plain(number, |at| drops[at] > Drops::Input);
    assert_eq!(world.released(number).await, Some(expected), "{drops:?}");
}

/// The signed provenance of a version.
async fn record(world: &World, version: u32) -> Provenance {
    let path = route::fill(route::MODEL_PROVENANCE, &[&world.task, &version]);
    world.t.get(&world.t.viewer, &path).await.read::<SignedProvenance>().open().unwrap()
}

#[tokio::test]
async fn a_round_in_which_nobody_is_missing() {
    let mut world = World::new(5).await;
    let view = world.complete(1).await;
    assert_exact(&world, 1, &[Drops::Never; 5]).await;
    assert_eq!(sets(&view), [5; 5]);
    let record = record(&world, 1).await;
    let members = [world.members.iter().map(|member| member.id).collect()];
    assert_eq!((record.roster, record.updates), (Some(roster_digest(&members)), Some(5)));
    assert_eq!(record.survivors, Some(survivors_digest(&members)));
    let session = view.secure_aggregation.clone().unwrap();
    assert_eq!((session.threshold, session.out_degree, session.min_out, session.tolerated_corrupt), (3, 4, 2, 0));
    assert_eq!((view.cohort, view.reported, view.dropped, view.spent), (5, 5, 0, false));
    assert!(view.dropped_in.is_empty(), "{:?}", view.dropped_in);
    assert_eq!(view.model.unwrap().version, 1);
    let means: Vec<_> = view.metrics.keys().cloned().collect();
    assert_eq!(means, ["loss"], "metrics travel inside the mask");
    let task = world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json();
    assert_eq!(task["protection"]["updates"], "hidden_in_sums");
}

/// Each of two members could subtract its own input from their sum.
#[tokio::test]
async fn a_sum_of_two_of_three_is_not_opened() {
    let mut world = World::with(3, |spec| spec["rounds"]["collect_min"] = json!(2)).await;
    world.run(1, &[Drops::Input, Drops::Never, Drops::Never]).await;
    let view = world.assert_failed(1, FailureReason::TooFewInputs).await;
    assert_eq!(view.secure_aggregation.map(|session| session.threshold), Some(2), "the threshold alone allows it");
    // The next round opens after a pause.
    world.time_out().await;
    let view = world.complete(2).await;
    assert_eq!(view.reported, 3, "the next round has all three");
}

/// A viewer of rounds with different cohorts could subtract exact figures.
#[tokio::test]
async fn metrics_of_a_round_are_rounded() {
    let mut world = World::new(5).await;
    let view = world.complete(1).await;
    let key = RoundKey { task: world.task, number: 1 };
    let row = world.t.inner.store.read("test", |tx| Box::pin(async move { tx.round(key).await }));
    let exact = row.await.unwrap().unwrap().metrics.remove(0);
    let shown = view.metrics["loss"];
    assert_eq!((exact.count, shown.count), (55, 60));
    assert_eq!(shown.value, format!("{:.1}", exact.value).parse::<f64>().unwrap(), "{exact:?}");
    assert_ne!(shown.value, exact.value);
}

#[tokio::test]
async fn the_operator_sees_phases_bytes_and_work() {
    let mut world = World::new(5).await;
    let view = world.complete(1).await;
    let phases: Vec<_> = view.phases.iter().map(|phase| (phase.state, phase.count, phase.min)).collect();
    assert_eq!(
        phases,
        [
            (RoundState::Selecting, Some(5), Some(5)),
            (RoundState::Sharing, Some(5), Some(3)),
            (RoundState::Collecting, Some(5), Some(3)),
            (RoundState::Confirming, Some(5), Some(3)),
            (RoundState::Unmasking, Some(5), Some(3)),
            (RoundState::Aggregating, Some(5), None),
        ]
    );
    let bytes = |state| {
        let phase = view.phases.iter().find(|phase| phase.state == state).unwrap();
        (phase.bytes_up, phase.bytes_down)
    };
    // Each of five seals 64 bytes and a tag for each of four.
    assert!(bytes(RoundState::Sharing).0 >= 5 * 4 * 80 && bytes(RoundState::Sharing).1 > 0, "{view:?}");
    let masked = 5 * u64::try_from(world.members[0].masked.len()).unwrap();
    assert_eq!(masked, 5 * world.model.packed_len());
    assert!(bytes(RoundState::Collecting).0 > masked, "the signatures are counted, too");
    assert!(bytes(RoundState::Collecting).1 >= 5 * 4 * 80);
    assert!(bytes(RoundState::Confirming).0 >= 5 * 64 && bytes(RoundState::Confirming).1 > 0);
    assert!(bytes(RoundState::Unmasking).0 >= 5 * 5 * 32 && bytes(RoundState::Unmasking).1 >= 5 * 5 * 64);
    assert_eq!(view.bytes_up, view.phases.iter().map(|phase| phase.bytes_up).sum::<u64>());
    let work = view.work.unwrap();
    assert!(work.sum_device.starts_with("cpu") && work.unmask_device.starts_with("cpu"), "{work:?}");
    let no_gpu = cfg!(any(feature = "cuda", feature = "wgpu")).then_some(DeviceReason::NoGpu);
    let reasons = (work.sum_because, work.unmask_because, work.device_failure.as_deref());
    assert_eq!(reasons, (no_gpu, no_gpu, None), "`auto`, and it is the processor: a build without GPUs had no choice");
    // Without dropouts: one self mask for each.
    let words = u64::try_from(world.model.codec.len()).unwrap();
    assert!(work.keystream_bytes >= 5 * 4 * words, "{work:?}");
    assert!(work.sum_seconds >= 0.0 && work.unmask_seconds >= 0.0);
}

#[tokio::test]
async fn one_falls_silent_in_each_phase() {
    for silent in [Drops::Shares, Drops::Input, Drops::Signature, Drops::Answer] {
        let mut world = World::new(5).await;
        let mut drops = [Drops::Never; 5];
        drops[2] = silent;
        let view = world.run(1, &drops).await;
        assert_eq!(view.state, RoundState::Completed, "{silent:?}");
        assert_exact(&world, 1, &drops).await;
        let record = record(&world, 1).await;
        let members = world.members.iter().map(|member| member.id);
        let in_sum =
            members.clone().zip(&drops).filter(|(_, drops)| **drops > Drops::Input).map(|(id, _)| id).collect();
        assert_eq!(record.survivors, Some(survivors_digest(&[in_sum])), "{silent:?}");
        assert_eq!(record.roster, Some(roster_digest(&[members.collect()])), "whoever was drawn");
        let state = match silent {
            Drops::Shares => RoundState::Sharing,
            Drops::Input => RoundState::Collecting,
            Drops::Signature => RoundState::Confirming,
            _ => RoundState::Unmasking,
        };
        assert_eq!(view.dropped_in, [(state, 1)].into());
        let late = u32::from(silent <= Drops::Input);
        assert_eq!((view.reported, view.dropped), (5 - late, late), "{silent:?}: {view:?}");
        let cohort = world.assignments(1).await;
        for (at, member) in world.members.iter().enumerate() {
            let place = &cohort[&member.id];
            assert_eq!(place.sets, sets_of(drops[at]), "{silent:?}");
            assert_eq!(place.dropped_in, (at == 2).then_some(state));
            let reported = at != 2 || late == 0;
            let expected = if reported { AssignmentState::Reported } else { AssignmentState::Late };
            assert_eq!((place.state, place.bytes_up.is_some()), (expected, reported));
        }
    }
}

#[tokio::test]
async fn somebody_falls_silent_in_every_phase_of_one_round() {
    use Drops::{Answer, Input, Keys, Never, Shares, Signature};
    let mut world = World::with(10, |spec| spec["selection"]["cohort"] = json!({ "count": 9 })).await;
    let drops = [Never, Shares, Never, Input, Signature, Never, Answer, Never, Keys, Never];
    let view = world.run(1, &drops).await;
    assert_eq!((view.state, view.cohort), (RoundState::Completed, 9));
    assert_eq!(sets(&view), [9, 8, 7, 6, 5]);
    assert_exact(&world, 1, &drops).await;
    let phases = [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking];
    assert_eq!(view.dropped_in, phases.map(|phase| (phase, 1)).into());
    let counts: Vec<_> = view.phases.iter().filter_map(|phase| phase.count).collect();
    assert_eq!(counts, [9, 8, 7, 6, 5, 7], "who answered each phase; then the inputs of the sum: {view:?}");
    let cohort = world.assignments(1).await;
    assert!(!cohort.contains_key(&world.members[8].id), "without keys nobody is drawn");
    // The next round is drawn from participants with keys for it.
    let mut drops = [Never; 10];
    drops[0] = Keys;
    let view = world.run(2, &drops).await;
    assert_eq!((view.state, view.cohort), (RoundState::Completed, 9));
    assert_exact(&world, 2, &drops).await;
}

#[tokio::test]
async fn with_exactly_the_threshold_a_round_completes_and_with_one_less_it_fails() {
    // Five, so t = 3.
    for (silent, fails, spent) in [
        (Drops::Shares, FailureReason::TooFewShares, false),
        (Drops::Input, FailureReason::TooFewInputs, true),
        (Drops::Signature, FailureReason::TooFewConfirmations, true),
        (Drops::Answer, FailureReason::TooFewUnmaskShares, true),
    ] {
        let drops = |missing: usize| {
            let mut drops = [Drops::Never; 5];
            drops[..missing].fill(silent);
            drops
        };
        let mut world = World::new(5).await;
        let view = world.run(1, &drops(2)).await;
        assert_eq!(view.state, RoundState::Completed, "{silent:?}");
        assert_exact(&world, 1, &drops(2)).await;

        let mut world = World::new(5).await;
        world.run(1, &drops(3)).await;
        let view = world.assert_failed(1, fails).await;
        assert_eq!(view.spent, spent, "{silent:?}");
    }
}

#[tokio::test]
async fn a_task_completes_after_its_rounds() {
    let mut world = World::new(3).await;
    for number in 1..=2 {
        let view = world.complete(number).await;
        assert_exact(&world, number, &[Drops::Never; 3]).await;
        assert_eq!((view.base.version, view.model.unwrap().version), (number - 1, number));
    }
    let task = world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json();
    assert_eq!(task["status"], TaskStatus::Completed.as_str());
    assert_eq!((&task["rounds_completed"], &task["model_version"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn over_selected_inputs_that_come_too_late_are_not_in_the_sum() {
    let mut world = World::with(7, |spec| {
        spec["selection"]["cohort"] = json!({ "count": 5 });
        spec["selection"]["over_selection"] = json!(0.4);
        spec["rounds"]["select_min"] = json!(7);
    })
    .await;
    world.join(|_| true).await;
    world.assign(|_| true).await;
    world.act(RoundState::Sharing, |_| true).await;
    world.act(RoundState::Collecting, |at| at < 5).await;
    assert_eq!(world.state(1).await, RoundState::Confirming, "five were aimed at");
    world.act(RoundState::Confirming, |at| at < 5).await;
    world.act(RoundState::Unmasking, |at| at < 5).await;
    assert_eq!(world.view(1).await.state, RoundState::Completed);
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| at < 5)));
}
