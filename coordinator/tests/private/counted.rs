//! Counted participations under distributed noise: nobody is drawn more often, the ledger charges as many releases as one participant is
//! in, and a task waits when nobody is left.

use federation::id::ParticipantId;
use federation::round::RoundState;
use serde_json::{Value, json};

use crate::support::member::Member;
use crate::support::private::mechanism;
use crate::support::secure::World;

/// `members` participants, three in each of three rounds, each in at most `most` of them.
async fn world(name: &str, members: usize, most: u32) -> World {
    World::on_disk(members, |spec| {
        mechanism(spec, name);
        spec["model"]["tensors"][0]["shape"] = json!([16]);
        spec["privacy"]["participations"] = json!(most);
        spec["rounds"]["count"] = json!(3);
        spec["selection"] = json!({ "cohort": { "count": 3 }, "require": { "max_participations": most } });
    })
    .await
}

/// Runs a round of three drawn participants of these members, who all make keys; returns them.
async fn run_drawn(world: &mut World, number: u32, joins: impl Fn(&ParticipantId) -> bool) -> Vec<ParticipantId> {
    let joining: Vec<bool> = world.members.iter().map(|member| joins(&member.id)).collect();
    world.join(|at| joining[at]).await;
    let cohort: Vec<_> = world.assignments(number).await.into_keys().collect();
    let has_place: Vec<bool> = world.members.iter().map(|member| cohort.contains(&member.id)).collect();
    world.assign(|at| has_place[at]).await;
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        world.act(phase, |at| has_place[at]).await;
    }
    assert_eq!((world.state(number).await, cohort.len()), (RoundState::Completed, 3));
    cohort
}

async fn task(world: &World) -> Value {
    world.t.get(&world.t.viewer, "/v1/tasks/secure").await.json()
}

/// Six participants have places for two rounds of three: the third waits until others enrol, also after a restart.
#[tokio::test]
async fn participant_at_its_maximum_is_not_drawn_and_ledger_stops_growing() {
    for name in ["distributed_discrete_gaussian", "distributed_skellam"] {
        let mut world = world(name, 6, 1).await;
        let first = run_drawn(&mut world, 1, |_| true).await;
        let after_one = world.ledger().await.spent;
        world.restart().await;
        let second = run_drawn(&mut world, 2, |_| true).await;
        assert!(second.iter().all(|id| !first.contains(id)), "{first:?} {second:?}");
        let report = world.ledger().await;
        assert_eq!((report.releases.len(), &report.spent), (2, &after_one), "one release of each participant");
        assert!(report.releases.iter().all(|row| row.parameters["participations"] == 1), "{report:?}");
        assert_eq!(report.spent.server, Some(report.spent.published));

        // All are there and make keys, and nobody is drawn.
        world.join(|_| true).await;
        assert_eq!(world.state(3).await, RoundState::Selecting);
        let starved = task(&world).await;
        assert_eq!(starved["shortage"], json!({ "needed": 3, "enrolled": 0, "waiting": 0 }), "{starved}");
        assert_eq!(starved["waiting_for"]["kind"], "participants", "{starved}");
        for seed in 7..=9 {
            let member = Member::enroll(&world.t, seed).await;
            world.members.push(member);
        }
        world.members.sort_by_key(|member| member.id);
        let is_new = |id: &ParticipantId| !first.contains(id) && !second.contains(id);
        let third = run_drawn(&mut world, 3, is_new).await;
        assert!(third.iter().all(is_new), "{third:?}");
        assert_eq!(task(&world).await["status"], "COMPLETED");
        assert_eq!(world.ledger().await.spent, after_one);
    }
}

/// Two participations each: the third round costs what two cost, while all rounds cost more without a maximum.
#[tokio::test]
async fn ledger_charges_as_many_releases_as_a_participant_may_be_in() {
    let mut counted = world("distributed_skellam", 6, 2).await;
    let mut spent = Vec::new();
    let mut times = std::collections::BTreeMap::new();
    for number in 1..=3 {
        for id in run_drawn(&mut counted, number, |_| true).await {
            *times.entry(id).or_insert(0) += 1;
        }
        spent.push(counted.ledger().await.spent.cohort_known);
    }
    assert!(times.values().all(|times| *times <= 2), "{times:?}");
    assert!(spent[0] < spent[1] && spent[1] == spent[2], "{spent:?}");
}
