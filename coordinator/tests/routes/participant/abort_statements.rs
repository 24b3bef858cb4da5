//! What members say of a session that ended without a sum, and when it is shown to the others.

use federation::round::{FailureReason, RoundState};
use secure_agg::codec::Message as _;
use secure_agg::unopened::{AbortProof, AbortStatement};
use serde_json::json;
use wire::certificate::Recorded;
use wire::headers::MEDIA_SECURE_AGG;
use wire::problem::ProblemType;
use wire::{Attempt, route};

use crate::support::secure::{Drops, PHASE, World};
use crate::support::{Reply, put};

/// Leaves the session for good; what it says of that.
fn leave(world: &mut World, at: usize) -> AbortStatement {
    let member = &mut world.members[at];
    let departure = member.client.take().unwrap().departure().unwrap();
    departure.state(&member.signer).unwrap()
}

/// `at` hands in what `of` would.
async fn say(world: &World, at: usize, of: usize, attempt: u32, bytes: &[u8]) -> Reply {
    let path = route::abort_statement(world.task, 1, world.members[of].id);
    world.t.send(&world.members[at].who, put(&path, MEDIA_SECURE_AGG, attempt, bytes)).await
}

async fn told(world: &World, at: usize) -> Reply {
    world
        .t
        .get(&world.members[at].who, &route::abort_statements(Attempt { task: world.task, round: 1, attempt: 1 }))
        .await
}

#[tokio::test]
async fn a_spent_round_is_shown_to_be_unopened_once_t_members_have_left_it() {
    let mut world = World::new(5).await;
    let mut drops = [Drops::Signature; 5];
    drops[..2].fill(Drops::Never);
    let view = world.run(1, &drops).await;
    assert_eq!((view.failure, view.spent), (Some(FailureReason::TooFewConfirmations), true));
    let sid = *world.members[0].client.as_ref().unwrap().sid().unwrap();
    world.t.advance(PHASE);
    world.t.work().await;
    // Whoever waits is told why nobody comes.
    let waiting = world.view(2).await;
    assert_eq!((waiting.state, waiting.base_given_by), (RoundState::Selecting, 5));
    for at in [0, 4] {
        let statement = leave(&mut world, at).encode();
        for _ in 0..2 {
            assert_eq!(say(&world, at, at, 1, &statement).await.status, 204, "the same bytes as often as they come");
        }
        assert_eq!(told(&world, 1).await.status, 204, "too few");
    }
    assert_eq!(world.view(2).await.base_given_by, 5);
    let statement = leave(&mut world, 2);
    assert_eq!(say(&world, 2, 2, 1, &statement.encode()).await.status, 204);
    for at in 0..5 {
        let reply = told(&world, at).await;
        assert_eq!((reply.status.as_u16(), &reply.headers["content-type"]), (200, &MEDIA_SECURE_AGG.parse().unwrap()));
        let shown = AbortProof::decode(&reply.body).unwrap();
        let senders: Vec<_> = shown.statements.iter().map(|statement| statement.sender).collect();
        assert_eq!(senders, [1, 3, 5]);
        shown.prove(&sid, &Recorded).unwrap();
    }
    assert_eq!(world.view(2).await.base_given_by, 0);
}

#[tokio::test]
async fn a_statement_counts_while_the_round_is_under_way_and_after_it_was_cancelled() {
    let mut world = World::new(3).await;
    world.up_to(1, RoundState::Confirming).await;
    for at in 0..2 {
        let statement = leave(&mut world, at).encode();
        assert_eq!(say(&world, at, at, 1, &statement).await.status, 204);
        assert_eq!(told(&world, at).await.status, if at == 0 { 204 } else { 200 });
    }
    assert_eq!(world.t.post(&world.t.operator, "/v1/tasks/secure/cancel", &json!({})).await.status, 200);
    assert_eq!(told(&world, 2).await.status, 200);
}

#[tokio::test]
async fn what_is_not_the_callers_own_is_refused() {
    let mut world = World::new(5).await;
    let mut drops = [Drops::Signature; 5];
    drops[..2].fill(Drops::Never);
    world.run(1, &drops).await;
    let (own, others) = (leave(&mut world, 0).encode(), leave(&mut world, 1).encode());
    say(&world, 0, 1, 1, &others).await.problem(ProblemType::Forbidden);
    say(&world, 0, 0, 1, &others).await.problem(ProblemType::SessionRejected);
    let mut forged = AbortStatement::decode(&own).unwrap();
    forged.signature[0] ^= 1;
    say(&world, 0, 0, 1, &forged.encode()).await.problem(ProblemType::SessionRejected);
    say(&world, 0, 0, 2, &own).await.problem(ProblemType::NotFound);
    say(&world, 0, 0, 1, b"garbage").await.problem(ProblemType::MalformedRequest);
    assert_eq!(say(&world, 0, 0, 1, &own).await.status, 204);
}

#[tokio::test]
async fn nothing_is_kept_of_a_round_in_which_no_input_was_out_or_whose_sum_was_opened() {
    let mut world = World::new(5).await;
    world.run(1, &[Drops::Shares; 5]).await;
    world.assert_failed(1, FailureReason::TooFewShares).await;
    assert_eq!(told(&world, 0).await.status, 204);
    world.t.advance(PHASE);
    world.t.work().await;
    let view = world.complete(1).await;
    assert_eq!(view.base_given_by, 0);
    let reply = world
        .t
        .get(
            &world.members[0].who,
            &route::abort_statements(Attempt { task: world.task, round: 1, attempt: view.attempt }),
        )
        .await;
    assert_eq!(reply.status, 204);
    assert!(world.members[0].client.take().unwrap().departure().is_none(), "it has answered");
}
