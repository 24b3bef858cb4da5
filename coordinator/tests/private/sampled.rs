//! Only the draw from all enrolled participants decides who may be in a round. If the figures rest on the draw, it decides nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use federation::id::{ParticipantId, RoundKey};
use federation::round::{FailureReason, RoundState};
use serde_json::{Value, json};
use wire::participant::CheckInReply;

use crate::support::private::{assert_variance, charged_variance, mechanism};
use crate::support::secure::{Drops, PHASE, World};

fn sampling(spec: &mut Value, is_secure: bool, sampling: &Value, cohort: &Value, population: u32) {
    mechanism(spec, "central_gaussian");
    spec["model"]["tensors"][0]["shape"] = json!([16]);
    spec["secure_aggregation"]["enabled"] = json!(is_secure);
    spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.0);
    spec["rounds"] = json!({ "count": 100, "select_max": 64 });
    spec["selection"] = json!({ "cohort": cohort });
    spec["privacy"]["sampling"] = sampling.clone();
    spec["privacy"]["population"] = json!(population);
}

async fn poisson(participants: usize, is_secure: bool, rate: f64, population: u32) -> World {
    World::with(participants, |spec| {
        sampling(spec, is_secure, &json!({ "poisson": rate }), &json!({ "fraction": rate }), population);
    })
    .await
}

/// The draw of the latest attempt; empty once it is deleted.
async fn drawn(world: &World, number: u32) -> Vec<ParticipantId> {
    let (key, attempt) = (RoundKey { task: world.task, number }, world.view(number).await.attempt);
    world
        .t
        .inner
        .store
        .read("test", |tx| Box::pin(async move { tx.sampled(key.attempt(attempt)).await }))
        .await
        .unwrap()
}

/// Ends the open attempt without participants, and opens the next.
async fn next_attempt(world: &World) {
    let before = world.view(1).await.attempt;
    for _ in 0..50 {
        world.t.advance(PHASE);
        world.t.work().await;
        if world.view(1).await.attempt > before {
            return;
        }
    }
    panic!("no other attempt opens");
}

#[tokio::test]
async fn nobody_is_drawn_or_invited_who_was_not_sampled() {
    let world = poisson(12, true, 0.5, 12).await;
    world.t.work().await;
    while drawn(&world, 1).await.len() < 3 {
        next_attempt(&world).await;
    }
    let sampled = drawn(&world, 1).await;
    let attempt = world.view(1).await.attempt;
    for member in world.members.iter().filter(|member| !sampled.contains(&member.id)) {
        let reply = member.check_in(&world.t).await;
        assert!(matches!(reply, CheckInReply::ComeBack { .. }), "{reply:?}");
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting, "it waits for those who were sampled");
    world.time_out().await;
    let view = world.view(1).await;
    assert_eq!((view.attempt, view.failure), (attempt, Some(FailureReason::TooFewParticipants)));
    assert!(world.assignments(1).await.is_empty());
    next_attempt(&world).await;
    let sampled = drawn(&world, 1).await;
    for member in &world.members {
        let invited = matches!(member.check_in(&world.t).await, CheckInReply::Invited(_));
        assert_eq!(invited, sampled.contains(&member.id));
    }
}

/// Rounds with secret draws: the online participants check in, the selection times out, and drawn participants report. Returns
/// the participants of each released round, and the number of attempts.
async fn rounds_with_absentees(world: &mut World, online: &[usize], rounds: u32) -> (Vec<Vec<ParticipantId>>, u32) {
    let (mut cohorts, mut attempts) = (Vec::new(), 0);
    for number in 1..=rounds {
        for pass in 0.. {
            assert!(pass < 1000, "round {number} does not come to an end");
            world.t.work().await;
            if world.t.get(&world.t.viewer, &format!("/v1/tasks/secure/rounds/{number}")).await.status != 200 {
                world.t.advance(PHASE);
                continue;
            }
            match world.state(number).await {
                RoundState::Selecting => {
                    // They check in at the last moment, and are still present at the end.
                    world.t.advance(PHASE - Duration::from_secs(2));
                    for &at in online {
                        world.members[at].check_in(&world.t).await;
                    }
                    world.t.work().await;
                    world.t.advance(Duration::from_secs(2));
                }
                RoundState::Collecting => {
                    let cohort = world.assignments(number).await;
                    for member in world.members.iter_mut().filter(|member| cohort.contains_key(&member.id)) {
                        member.assigned(&world.t).await;
                        member.report(&world.t, &world.model).await;
                    }
                }
                RoundState::Completed => break,
                _ => world.t.advance(PHASE),
            }
        }
        cohorts.push(world.assignments(number).await.into_keys().collect());
        attempts += world.view(number).await.attempt;
    }
    (cohorts, attempts)
}

#[tokio::test]
async fn whoever_is_there_is_in_as_many_releases_as_the_rate_that_is_charged_says() {
    const ROUNDS: u32 = 50;
    let fixed = |spec: &mut Value| {
        sampling(spec, false, &json!({ "fixed_size": 20 }), &json!({ "count": 20 }), 40);
        spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.5);
    };
    let poisson = |spec: &mut Value| {
        sampling(spec, false, &json!({ "poisson": 0.5 }), &json!({ "fraction": 0.5 }), 40);
        spec["secure_aggregation"]["max_dropout_fraction"] = json!(0.3);
    };
    // With the smallest cohort left by a draw from all and the allowed dropouts.
    for (mut world, least) in [(World::with(40, poisson).await, 9), (World::with(40, fixed).await, 10)] {
        // 22 of 40 are present: in every other round, fewer of them are drawn than the smallest draw from all would leave.
        let online: Vec<_> = (0..22).collect();
        let (cohorts, attempts) = rounds_with_absentees(&mut world, &online, ROUNDS).await;
        let row = &world.ledger().await.releases[0].parameters["sampled"].clone();
        let charged = match row["poisson"]["rate"].as_f64() {
            Some(rate) => rate,
            None => row["fixed_size"]["cohort"].as_f64().unwrap() / row["fixed_size"]["population"].as_f64().unwrap(),
        };
        assert!((charged - 0.5).abs() < 1e-9, "{row}");
        let included: usize = cohorts.iter().map(Vec::len).sum();
        let trials = f64::from(ROUNDS) * 22.0;
        let (really, spread) = (included as f64 / trials, (charged * (1.0 - charged) / trials).sqrt());
        assert!((really - charged).abs() < 4.0 * spread, "in with {really}, charged for {charged}");
        for &at in &online {
            let id = world.members[at].id;
            let times = cohorts.iter().filter(|cohort| cohort.contains(&id)).count() as f64;
            let spread = (f64::from(ROUNDS) * charged * (1.0 - charged)).sqrt();
            assert!((times - f64::from(ROUNDS) * charged).abs() < 4.5 * spread, "{id}: in {times} rounds");
        }
        assert!(
            cohorts.iter().any(|cohort| cohort.len() < least),
            "small ones are released like all others: {cohorts:?}"
        );
        assert_eq!(attempts, ROUNDS, "no draw was made again");
        // At this rate and noise the general bound may be no better than that of known cohorts; it is never worse.
        let report = world.ledger().await;
        assert!(report.spent.published <= report.spent.cohort_known);
    }
}

#[tokio::test]
async fn a_draw_of_nobody_who_is_there_is_released_as_noise_alone() {
    let mut world = poisson(12, false, 0.2, 12).await;
    let online: Vec<_> = (0..6).collect();
    let (cohorts, _) = rounds_with_absentees(&mut world, &online, 16).await;
    let empty: Vec<_> = (1..).zip(&cohorts).filter(|(_, cohort)| cohort.is_empty()).map(|(number, _)| number).collect();
    assert!(!empty.is_empty(), "with probability 0.02: {cohorts:?}");
    let report = world.ledger().await;
    assert_eq!((report.releases.len(), world.digests().await.len()), (16, 17));
    for number in empty {
        let row = &report.releases[number as usize - 1];
        assert_eq!((row.round, world.view(number).await.reported, row.published), (number, 0, true));
        let noise = world.residual(number, |_| false).await;
        assert_variance(&noise, charged_variance(&row.parameters));
        assert_eq!(
            row.parameters["sampled"], report.releases[0].parameters["sampled"],
            "it costs what the others cost"
        );
    }
    // Every release increases the spent budget equally.
    let spent: Vec<_> = report.releases.iter().map(|row| row.total.published).collect();
    assert!(spent.windows(2).all(|pair| pair[1] > pair[0]), "{spent:?}");
}

/// Neighbouring data sets differ by one participant, so the published figure does not cover an exact count.
#[tokio::test]
async fn how_many_were_drawn_is_told_to_nobody_but_those_who_may_look_at_rounds() {
    let mut world = poisson(24, false, 0.5, 24).await;
    let (cohorts, _) = rounds_with_absentees(&mut world, &(0..20).collect::<Vec<_>>(), 8).await;
    let sizes: std::collections::BTreeSet<_> = cohorts.iter().map(Vec::len).collect();
    assert!(sizes.len() > 1, "{cohorts:?}");
    // The ledger may be shared: releases differ only in time and total cost.
    let mut releases = world.privacy().await.json()["releases"].as_array().unwrap().clone();
    assert_eq!(releases.len(), 8);
    for release in &mut releases {
        let fields = release.as_object_mut().unwrap();
        assert!(!fields.contains_key("participants"), "{fields:?}");
        for field in ["index", "round", "total", "at"] {
            assert!(fields.remove(field).is_some(), "{field}");
        }
        assert_eq!(fields["parameters"].as_object_mut().unwrap().remove("round").map(|it| it.is_number()), Some(true));
        assert!(fields["parameters"]["sampled"]["poisson"]["rate"].is_number());
    }
    assert!(releases.windows(2).all(|pair| pair[0] == pair[1]), "{releases:?}");
    // The drawn participants get the expected number.
    let told: Vec<_> = world.members.iter().filter_map(|member| Some(member.place.as_ref()?.cohort)).collect();
    assert!(told.len() > 10 && told.iter().all(|&cohort| cohort == 12), "{told:?}");
    // Counters of uploads require a token.
    for who in [&crate::support::Who::Nobody, &world.members[0].who] {
        world.t.get(who, wire::route::METRICS).await.problem(wire::problem::ProblemType::Unauthenticated);
    }
    assert_eq!(world.t.get(&world.t.viewer, wire::route::METRICS).await.status, 200);
    // Readers of rounds see it, and are treated as observers of cohorts.
    for (number, cohort) in (1..).zip(&cohorts) {
        assert_eq!(world.view(number).await.reported as usize, cohort.len());
    }
}

#[tokio::test]
async fn deadlines_say_nothing_of_who_was_drawn() {
    let mut world = poisson(24, false, 0.25, 24).await;
    // One online participant reports a slow line.
    world.members[3].round_trip_ms = Some(4000);
    let (cohorts, _) = rounds_with_absentees(&mut world, &(0..20).collect::<Vec<_>>(), 12).await;
    let slow = world.members[3].id;
    let drawn: std::collections::BTreeSet<_> = cohorts.iter().map(|cohort| cohort.contains(&slow)).collect();
    assert_eq!(drawn.len(), 2, "it is in some cohorts and not in others");
    assert!(cohorts.iter().any(|cohort| cohort.contains(&slow) && cohort.len() < 10), "where it is the slowest of ten");
    let told: Vec<_> = world.members.iter().filter_map(|member| member.place.as_ref()).collect();
    let with_slow = |round: u32| cohorts[round as usize - 1].contains(&slow);
    assert!(told.iter().any(|place| with_slow(place.round)) && !told.iter().all(|place| with_slow(place.round)));
    let told: std::collections::BTreeSet<_> = told.iter().map(|place| place.remaining_ms).collect();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn no_draw_is_made_while_so_few_are_there_that_it_would_be_noise() {
    let world = poisson(40, false, 0.5, 40).await;
    for _ in 0..4 {
        world.t.work().await;
        assert_eq!(world.state(1).await, RoundState::Selecting);
        world.t.advance(PHASE - Duration::from_secs(2));
        for member in &world.members[..8] {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        assert_eq!((world.state(1).await, drawn(&world, 1).await), (RoundState::Selecting, Vec::new()));
        world.t.advance(Duration::from_secs(2));
        world.t.work().await;
        let view = world.view(1).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewParticipants)));
        assert!(world.assignments(1).await.is_empty());
        world.t.advance(PHASE);
    }
    assert_eq!(world.rows().await, []);
}

#[tokio::test]
async fn what_secure_aggregation_and_noise_of_participants_depend_on_gains_nothing_from_sampling() {
    for (name, is_secure) in [("central_gaussian", true), ("distributed_skellam", true), ("local", false)] {
        let mut world = World::with(12, |spec| {
            sampling(spec, is_secure, &json!({ "poisson": 0.75 }), &json!({ "fraction": 0.75 }), 12);
            spec["privacy"]["mechanism"] = json!(name);
            spec["privacy"]["noise_multiplier"] = json!(null);
            spec["privacy"]["epsilon"] = json!(8.0);
            spec["privacy"]["rounds"] = json!(10);
        })
        .await;
        world.t.work().await;
        while world.state(1).await != RoundState::Selecting {
            next_attempt(&world).await;
        }
        let sampled = drawn(&world, 1).await;
        let drops: Vec<_> = world
            .members
            .iter()
            .map(|member| if sampled.contains(&member.id) { Drops::Never } else { Drops::Keys })
            .collect();
        let view = if is_secure {
            world.run(1, &drops).await
        } else {
            world.run_in_the_clear(1, |at| drops[at] == Drops::Never, |_| true).await
        };
        assert_eq!((view.state, view.failure), (RoundState::Completed, None), "{name}");
        let report = world.ledger().await;
        let row = &report.releases[0];
        assert_eq!(row.total.published.to_bits(), row.total.cohort_known.to_bits(), "{name}");
        assert_eq!(row.parameters["sampled"], json!("anyhow"), "{name}");
        // The noise was solved for the requested number of rounds at the charged cost.
        assert!(report.rounds_left.is_some_and(|left| (9..=11).contains(&left)), "{name}: {:?}", report.rounds_left);
    }
}

#[tokio::test]
async fn absentees_are_waited_for_and_dropped_at_the_deadline() {
    let mut world = poisson(12, false, 0.5, 12).await;
    world.t.work().await;
    world.t.advance(PHASE - Duration::from_secs(2));
    for member in &world.members[1..] {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Selecting, "one of them may still come");
    world.t.advance(Duration::from_secs(2));
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    let cohort: Vec<_> = world.assignments(1).await.into_keys().collect();
    assert!(!cohort.contains(&world.members[0].id), "who was absent is not in it");
    assert_eq!(drawn(&world, 1).await, [], "and whether it was drawn is not remembered");
    for member in &mut world.members {
        if cohort.contains(&member.id) {
            member.assigned(&world.t).await;
            member.report(&world.t, &world.model).await;
        }
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    let row = &world.ledger().await.releases[0];
    assert_eq!(world.view(1).await.reported as usize, cohort.len());
    assert!(row.total.published < row.total.cohort_known, "{row:?}");
    assert_eq!(row.parameters["sampled"]["poisson"]["rate"], json!(0.5));
}

#[tokio::test]
async fn draws_that_are_too_small_end_before_anybody_is_asked_for_anything() {
    // A population of a hundred was promised, and half are drawn; only twelve are present.
    let world = poisson(12, false, 0.5, 100).await;
    world.t.work().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.failure), (RoundState::Failed, Some(FailureReason::TooFewParticipants)));
    assert!(world.assignments(1).await.is_empty());
    let fixed = |spec: &mut Value| sampling(spec, true, &json!({ "fixed_size": 4 }), &json!({ "count": 4 }), 13);
    let world = World::with(12, fixed).await;
    world.t.work().await;
    assert_eq!(world.view(1).await.failure, Some(FailureReason::TooFewParticipants));
    assert_eq!((drawn(&world, 1).await, world.rows().await), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn everybody_who_enrolled_first_is_drawn_as_often_as_is_charged() {
    const DRAWS: u32 = 240;
    // Fourteen have enrolled; the population is twelve of them.
    let worlds = [
        (poisson(14, true, 0.5, 12).await, 0.5, None),
        (
            World::with(14, |spec| {
                sampling(spec, true, &json!({ "fixed_size": 4 }), &json!({ "count": 4 }), 12);
            })
            .await,
            1.0 / 3.0,
            Some(4),
        ),
    ];
    for (world, rate, size) in worlds {
        world.t.work().await;
        let (mut times, mut draws) = (BTreeMap::<_, u32>::new(), Vec::new());
        let mut sizes = BTreeMap::<_, u32>::new();
        for _ in 0..DRAWS {
            let sampled = drawn(&world, 1).await;
            // Too small draws have already ended, and are deleted.
            if world.state(1).await == RoundState::Selecting {
                *sizes.entry(sampled.len()).or_default() += 1;
                sampled.iter().for_each(|id| *times.entry(*id).or_default() += 1);
                draws.push(sampled);
            }
            next_attempt(&world).await;
        }
        assert!(draws.len() as f64 > 0.95 * f64::from(DRAWS));
        assert_eq!(times.len(), 12, "nobody outside of the population");
        let count = draws.len() as f64;
        let spread = (count * rate * (1.0 - rate)).sqrt();
        for (id, times) in &times {
            assert!((f64::from(*times) - count * rate).abs() < 4.5 * spread, "{id}: {times} of {count}");
        }
        let all: u32 = times.values().sum();
        let mean = f64::from(all) / 12.0;
        assert!((mean - count * rate).abs() < 4.5 * spread / 12.0_f64.sqrt() + 0.01 * count, "{mean} of {count}");
        draws.dedup();
        assert!(draws.len() as f64 > 0.95 * count, "each draw is a new one");
        match size {
            Some(size) => assert_eq!(sizes.into_keys().collect::<Vec<_>>(), [size]),
            None => assert!(sizes.len() > 5, "{sizes:?}"),
        }
    }
}
