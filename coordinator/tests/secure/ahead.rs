//! Asynchronous rounds under secure aggregation: a full buffer is a normal round, and each update starts from the assigned version.

use federation::round::{FailureReason, RoundState};
use recipe::digest::{application_digest, round_digest, training_digest};
use serde_json::{Value, json};
use task_spec::{Mode, Staleness};
use wire::Digest;
use wire::participant::{Assignment, CheckInReply, DiscardReason, HeldUpdate};

use crate::support::member::Member;
use crate::support::private::{Derived, assert_variance, charged_variance, mechanism};
use crate::support::secure::World;

/// Five participants, four training at a time; three updates make a round.
async fn buffered(schedule: Value) -> World {
    World::with(5, |spec| {
        spec["schedule"] = schedule;
        spec["selection"]["cohort"]["count"] = json!(3);
        spec["rounds"]["count"] = json!(5);
    })
    .await
}

fn four_at_a_time() -> Value {
    json!({ "mode": "buffered", "concurrency": 4, "max_staleness": 1, "staleness_p": 1.0 })
}

async fn told_to_train(member: &Member, world: &World) -> Assignment {
    match member.check_in(&world.t).await {
        CheckInReply::Train(assignment) => *assignment,
        other => panic!("it is not told to train: {other:?}"),
    }
}

async fn waits(member: &Member, world: &World) {
    let reply = member.check_in(&world.t).await;
    assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
}

/// Reports the state of its training.
fn says(world: &mut World, at: usize, serial: u32, ready: bool) {
    world.members[at].training = json!({ "task": world.task, "serial": serial, "ready": ready });
}

/// All participants check in, and the assigned ones train; returns them with their trainings.
async fn grant(world: &World) -> Vec<(usize, u32)> {
    for member in &world.members {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    let mut told = Vec::new();
    for (at, member) in world.members.iter().enumerate() {
        if let CheckInReply::Train(assignment) = member.check_in(&world.t).await {
            told.push((at, assignment.attempt));
        }
    }
    told
}

/// The digest agreed by the members of a place's session.
fn agreed(place: &Assignment) -> Digest {
    let application = application_digest(&place.encoding, &place.metrics, place.privacy.as_ref());
    let training = training_digest(&application, &place.task_name, &place.model, &place.training);
    round_digest(&training, place.base.version, &place.earlier)
}

/// These finish their trainings, and are drawn into the round filled by them.
async fn draw(world: &mut World, number: u32, finished: &[(usize, u32)]) {
    for &(at, serial) in finished {
        says(world, at, serial, true);
        waits(&world.members[at], world).await;
    }
    world.t.work().await;
    assert_eq!(world.state(number).await, RoundState::Selecting);
    for &(at, _) in finished {
        world.members[at].join(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(number).await, RoundState::Sharing);
}

/// These finish their trainings, and the round filled by them completes.
async fn aggregate(world: &mut World, number: u32, finished: &[(usize, u32)]) {
    draw(world, number, finished).await;
    let drawn = |at: usize| finished.iter().any(|(member, _)| *member == at);
    world.assign(drawn).await;
    for &(at, serial) in finished {
        says(world, at, serial, false);
    }
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        assert_eq!(world.state(number).await, phase);
        world.act(phase, drawn).await;
    }
    assert_eq!(world.state(number).await, RoundState::Completed);
}

#[tokio::test]
async fn a_full_buffer_is_a_round_of_its_own_and_old_updates_join_the_next() {
    let mut world = buffered(four_at_a_time()).await;
    world.t.work().await;
    assert_eq!(world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/1").await.status, 404, "nobody is ready");

    let told = grant(&world).await;
    assert_eq!(told.len(), 4, "as many as may train at a time");
    let first = told_to_train(&world.members[told[0].0], &world).await;
    assert_eq!((first.round, first.attempt, first.base.version, first.update), (1, 1, 0, None));
    assert_eq!((first.cohort, first.remaining_ms), (3, 600_000));
    assert!(first.secure_aggregation.is_some(), "it knows before it trains that it will be masked");
    assert_eq!(first.encoding.staleness, Some(Staleness { a: 1.0, p: 1.0, max: 1 }));
    let idle = (0..5).find(|at| told.iter().all(|(member, _)| member != at)).unwrap();

    aggregate(&mut world, 1, &told[..3]).await;
    let place = world.members[told[0].0].place.clone().unwrap();
    assert_eq!((place.update, place.base.version), (Some(HeldUpdate { serial: 1, version: 0 }), 0));
    assert_eq!(place.earlier, [], "there is no version before the first");
    let first = place.base.sha256;
    assert_eq!(world.released(1).await, Some(world.plain(1, |at| told[..3].iter().any(|(member, _)| *member == at))));
    let view = world.view(1).await.buffer.unwrap();
    assert_eq!((view.mode, view.updates, view.max_staleness, view.mean_weight), (Mode::Buffered, 3, 0, 1.0));

    // The fourth was still training, and the fifth had taken a slot of the drawn ones.
    let slow = told[3];
    assert_eq!(told_to_train(&world.members[slow.0], &world).await.base.version, 0, "it is told the same again");
    assert_eq!(told_to_train(&world.members[idle], &world).await.base.version, 0);
    let again = grant(&world).await;
    assert!(again.contains(&slow) && again.contains(&(idle, 1)) && again.len() == 4, "{again:?}");
    let fresh: Vec<_> = again.iter().copied().filter(|told| *told != slow && told.0 != idle).collect();
    for (at, serial) in &fresh {
        assert_eq!(*serial, 2);
        assert_eq!(told_to_train(&world.members[*at], &world).await.base.version, 1);
    }
    aggregate(&mut world, 2, &[slow, fresh[0], fresh[1]]).await;
    let places = [slow, fresh[0]].map(|(at, _)| world.members[at].place.clone().unwrap());
    let told = places.each_ref().map(|place| (place.base.version, place.earlier.clone()));
    assert_eq!(told, [(1, vec![first]), (1, vec![first])], "all agree on what the old update started from");
    for place in &places {
        assert_eq!(place.secure_aggregation.as_ref().unwrap().application, agreed(place));
    }
    let view = world.view(2).await.buffer.unwrap();
    assert_eq!((view.oldest_version, view.newest_version, view.max_staleness), (0, 1, 1));
    assert!(
        (view.mean_staleness - 1.0 / 3.0).abs() < 1e-12 && (view.mean_weight - 2.5 / 3.0).abs() < 1e-12,
        "{view:?}"
    );
}

#[tokio::test]
async fn no_claim_makes_an_update_fresher_and_none_is_taken_twice() {
    let mut world = buffered(four_at_a_time()).await;
    let told = grant(&world).await;
    let slow = told[3];
    let discard = async |world: &World, at: usize| match world.members[at].check_in(&world.t).await {
        CheckInReply::Discard { serial, reason, .. } => (serial, reason),
        other => panic!("{other:?}"),
    };
    for serial in [0, 2, 7] {
        says(&mut world, slow.0, serial, true);
        assert_eq!(discard(&world, slow.0).await, (serial, DiscardReason::Unknown));
    }
    world.members[slow.0].training = Value::Null;
    aggregate(&mut world, 1, &told[..3]).await;
    // Already in the sum.
    let (at, serial) = told[0];
    says(&mut world, at, serial, true);
    assert_eq!(discard(&world, at).await, (serial, DiscardReason::Unknown));
    says(&mut world, at, serial, false);

    let fresh: Vec<_> = grant(&world).await.into_iter().filter(|told| *told != slow).collect();
    aggregate(&mut world, 2, &fresh).await;
    // Two versions behind; one is the maximum.
    says(&mut world, slow.0, slow.1, true);
    assert_eq!(discard(&world, slow.0).await, (slow.1, DiscardReason::TooStale));
    says(&mut world, slow.0, slow.1, false);
    let again = grant(&world).await;
    assert!(again.contains(&(slow.0, slow.1 + 1)), "it trains again, from the newest version: {again:?}");
}

#[tokio::test]
async fn places_are_free_again_when_a_training_is_given_up_or_nobody_counts_on_it() {
    let mut world = buffered(json!({ "mode": "buffered", "concurrency": 3, "training_deadline_ms": 60_000 })).await;
    let told = grant(&world).await;
    let [(first, serial), ..] = told[..] else { panic!("three at a time: {told:?}") };
    // A participant that gives up rests until the next version; another takes its slot.
    says(&mut world, first, serial, false);
    waits(&world.members[first], &world).await;
    let now: Vec<_> = grant(&world).await.iter().map(|(at, _)| *at).collect();
    assert!(now.len() == 3 && !now.contains(&first), "{now:?}");
    world.t.advance(std::time::Duration::from_secs(59));
    assert_eq!(grant(&world).await.len(), 3, "they are counted on");
    world.t.advance(std::time::Duration::from_secs(1));
    world.t.work().await;
    let later = grant(&world).await;
    assert_eq!(later.len(), 3, "{later:?}");
    // A late finished update is still accepted.
    let trains = |at: usize| later.iter().any(|(other, _)| *other == at);
    // Unless all of them were assigned another training.
    if let Some((late, serial)) = told[1..].iter().find(|(at, _)| !trains(*at)).copied() {
        says(&mut world, late, serial, true);
        waits(&world.members[late], &world).await;
    }
}

#[tokio::test]
async fn a_training_is_for_a_round_that_has_not_drawn() {
    for rounds in [2, 1] {
        let mut world = World::with(5, |spec| {
            spec["schedule"] = four_at_a_time();
            spec["selection"]["cohort"]["count"] = json!(3);
            spec["rounds"]["count"] = json!(rounds);
        })
        .await;
        let told = grant(&world).await;
        draw(&mut world, 1, &told[..3]).await;
        let idle = (0..5).find(|at| told.iter().all(|(member, _)| member != at)).unwrap();
        let later = grant(&world).await;
        if rounds == 2 {
            assert_eq!(later.len(), 2, "the fourth still trains, and a place is free");
            for &(at, _) in &later {
                assert_eq!(told_to_train(&world.members[at], &world).await.round, 2);
            }
            continue;
        }
        assert_eq!(later, [], "no round can take what they would train");
        waits(&world.members[idle], &world).await;
        // Unless the last one fails.
        world.time_out().await;
        world.assert_failed(1, FailureReason::TooFewShares).await;
        world.t.advance(std::time::Duration::from_secs(1));
        assert!(grant(&world).await.contains(&(idle, 1)));
        assert_eq!(told_to_train(&world.members[idle], &world).await.round, 1);
    }
}

/// Noise is for a round's cohort, and the ledger has one release per round, however old the updates are.
#[tokio::test]
async fn a_private_buffer_releases_what_the_ledger_says() {
    for name in ["central_gaussian", "distributed_skellam"] {
        let mut world = World::with(12, |spec| {
            mechanism(spec, name);
            spec["schedule"] = json!({ "mode": "buffered", "concurrency": 12, "max_staleness": 2 });
            spec["selection"]["cohort"]["count"] = json!(6);
        })
        .await;
        let told = grant(&world).await;
        assert_eq!(told.len(), 12, "{name}");
        let terms = told_to_train(&world.members[told[0].0], &world).await.privacy;
        let terms = terms.expect("it knows before it trains what its update will be protected by");
        aggregate(&mut world, 1, &told[..6]).await;
        let place = world.members[told[0].0].place.clone().unwrap();
        assert_eq!((place.privacy.as_ref(), place.cohort), (Some(&terms), 6), "{name}: the same terms");
        // The others are now one version behind.
        aggregate(&mut world, 2, &told[6..]).await;
        assert_eq!(world.view(2).await.buffer.unwrap().max_staleness, 1);
        let report = world.ledger().await;
        assert_eq!(report.releases.len(), 2, "{name}: {report:?}");
        assert!(report.releases.iter().all(|row| row.published && row.participants == Some(6)), "{name}: {report:?}");
        let last = &told[6..];
        let derived = Derived::new(&place, &terms);
        let residual = world.residual(2, |at| last.iter().any(|(member, _)| *member == at)).await;
        let charged = charged_variance(&report.releases[1].parameters);
        match derived.shares {
            None => assert_variance(&residual, charged),
            // Noise known to colluders is present, but excluded from the charge.
            Some(_) => assert!(charged > 0.0),
        }
        let sensitivity = report.releases[1].parameters["sum"]["sensitivity"].as_f64().unwrap();
        assert!((sensitivity - derived.codec.sensitivity()).abs() < 1e-9, "{name}");
        assert_eq!(report.spent.published, report.releases[1].total.published);
    }
}

#[tokio::test]
async fn a_period_takes_whatever_is_ready_when_it_is_over() {
    let mut world = World::with(5, |spec| {
        spec["schedule"] = json!({ "mode": "semi_sync", "period_ms": 300_000, "concurrency": 5 });
        spec["selection"]["cohort"] = json!({ "fraction": 1.0 });
        spec["rounds"]["select_min"] = json!(3);
    })
    .await;
    let told = grant(&world).await;
    assert_eq!(told.len(), 5);
    for &(at, serial) in &told[..4] {
        says(&mut world, at, serial, true);
        waits(&world.members[at], &world).await;
    }
    world.t.work().await;
    assert_eq!(world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/1").await.status, 404, "the period is not over");
    world.t.advance(std::time::Duration::from_secs(300));
    for &(at, _) in &told[..4] {
        world.members[at].check_in(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting);
    for &(at, _) in &told[..3] {
        world.members[at].join(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting, "the fourth holds an update, too");
    world.members[told[3].0].join(&world.t).await;
    world.t.work().await;
    assert_eq!((world.state(1).await, world.view(1).await.cohort), (RoundState::Sharing, 4));
}

#[tokio::test]
async fn an_update_outlives_a_round_that_fails_before_it_was_sent() {
    let mut world = buffered(four_at_a_time()).await;
    let told = grant(&world).await;
    for &(at, serial) in &told[..3] {
        says(&mut world, at, serial, true);
        waits(&world.members[at], &world).await;
    }
    world.t.work().await;
    for &(at, _) in &told[..3] {
        world.members[at].join(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Sharing);
    world.time_out().await;
    world.assert_failed(1, FailureReason::TooFewShares).await;
    world.t.advance(std::time::Duration::from_secs(1));
    for &(at, _) in &told[..3] {
        waits(&world.members[at], &world).await;
    }
    world.t.work().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.attempt), (RoundState::Selecting, 2), "the same updates, once more");
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_at_creation() {
    let world = World::new(3).await;
    let mut spec = crate::support::secure::spec(4);
    spec["name"] = json!("other");
    spec["schedule"] = json!({ "mode": "buffered" });
    spec["selection"]["strategy"] = json!({ "oort": {} });
    let reply = world.t.post(&world.t.admin, "/v1/tasks", &json!({ "spec": spec })).await;
    assert_eq!(reply.status, 422);
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(text.contains("selection.strategy") && text.contains("trains one version together"), "{text}");
}
