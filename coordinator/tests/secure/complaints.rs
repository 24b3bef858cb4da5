//! A dealer of garbage, and a falsely accused one: the round ends without a release, and its number is spent.

use federation::round::{FailureReason, RoundState};
use secure_agg::client::{Client, Received};
use secure_agg::codec::Message as _;
use secure_agg::messages::{Complaint, ComplaintBody, ShareKeys, Signed};
use wire::participant::{Announcement, Answer};
use wire::problem::ProblemType;
use wire::{Attempt, route};

use crate::support::member::{Member, parts};
use crate::support::secure::World;

/// A collecting round in which the first member dealt garbage to the second; the rest is valid.
async fn garbage() -> World {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Sharing).await;
    let dealt = world.members[0].deal(&world.t).await;
    let mut body = dealt.body;
    let mut sealed: Vec<_> = body.sealed.as_slice().to_vec();
    // The first of its ciphertexts is for the second of the roster.
    sealed[0][7] ^= 1;
    body.sealed = sealed.into();
    let bent = Signed::sign(body, &world.members[0].signer).unwrap();
    assert_eq!(world.members[0].say(&world.t, Answer::KeyShares, &bent.encode()).await.status, 204);
    world.act(RoundState::Sharing, |at| at > 0).await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    world
}

async fn evidence(world: &World, caller: &Member, dealer: &Member) -> ShareKeys {
    let reply =
        world.t.get(&caller.who, &route::evidence(Attempt { task: world.task, round: 1, attempt: 1 }, dealer.id)).await;
    assert_eq!(reply.status, 200);
    ShareKeys::decode(&reply.body).unwrap()
}

#[tokio::test]
async fn garbage_is_found_proven_and_ends_the_round() {
    let mut world = garbage().await;
    world.act(RoundState::Collecting, |at| at > 1).await;
    let challenge = world.members[1].challenge(&world.t).await;
    assert_eq!(challenge.dealer(), 1);
    let proof = evidence(&world, &world.members[1], &world.members[0]).await;
    let step = challenge.complain(&proof, &world.members[1].signer).unwrap();
    let complaint = world.members[1].keep(step).encode();
    assert_eq!(world.members[1].say(&world.t, Answer::Complaint, &complaint).await.status, 204);
    assert_eq!(world.members[1].say(&world.t, Answer::Complaint, &complaint).await.status, 204, "said twice");
    world.t.work().await;
    let view = world.assert_failed(1, FailureReason::BadShares).await;
    assert!(view.spent, "two inputs are out");
    world.t.advance(crate::support::secure::PHASE);
    world.t.work().await;
    assert_eq!(world.complete(2).await.model.unwrap().version, 1);
    assert_eq!(world.released(2).await, Some(world.plain(2, |_| true)));
}

#[tokio::test]
async fn whoever_complained_sends_no_input() {
    let mut world = garbage().await;
    let challenge = world.members[1].challenge(&world.t).await;
    let proof = evidence(&world, &world.members[1], &world.members[0]).await;
    let step = challenge.complain(&proof, &world.members[1].signer).unwrap();
    // The inputs are incomplete: the round still collects.
    let complaint = step.send.encode();
    assert_eq!(world.members[1].say(&world.t, Answer::Complaint, &complaint).await.status, 204);
    let (sid, sender) = (proof.body.sid, 2);
    let drawn = Client::restore(world.members[1].snapshots.last().unwrap()).unwrap();
    let own = ShareKeys::decode(&drawn.resend()).unwrap();
    let body = vec![0; usize::try_from(world.model.packed_len()).unwrap()];
    let signed = secure_agg::messages::MaskedInputBody {
        sid,
        sender,
        bytes: world.model.packed_len(),
        digest: secure_agg::upload::digest(&body),
        dealers: secure_agg::IndexSet::full(4).digest(),
        out: own.body.out,
    };
    let signed = Signed::sign(signed, &world.members[1].signer).unwrap();
    let reply = world.t.send(&world.members[1].who, world.members[1].upload(&body, &signed)).await;
    assert!(reply.problem(ProblemType::NotAssigned).contains("complained"));
}

/// The key that opens a dealer's ciphertext for `holder`, from the holder's journal, as revealed in a complaint.
fn key_for(holder: &Member, position: usize) -> [u8; 32] {
    let snapshot = holder.snapshots.last().unwrap();
    parts(snapshot)[3][32 * position..][..32].try_into().unwrap()
}

#[tokio::test]
async fn a_false_complaint_ends_the_round_and_nothing_is_released() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Collecting).await;
    let proof = evidence(&world, &world.members[1], &world.members[0]).await;
    let accuse = |key, accused| {
        let body = ComplaintBody { sid: proof.body.sid, sender: 2, accused, key };
        Complaint::sign(body, &world.members[1].signer).unwrap().encode()
    };
    let (t, liar) = (&world.t, &world.members[1]);
    // Some lies are rejected.
    let detail = liar.say(t, Answer::Complaint, &accuse([1; 32], 9)).await.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("accused"), "{detail}");
    let forged = Complaint::sign(
        ComplaintBody { sid: proof.body.sid, sender: 2, accused: 1, key: [1; 32] },
        &world.members[2].signer,
    );
    let forged = forged.unwrap().encode();
    let detail = liar.say(t, Answer::Complaint, &forged).await.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("signature"), "{detail}");
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
    // This one is well-formed, and shows that the ciphertext opens.
    let complaint = accuse(key_for(&world.members[1], 0), 1);
    assert_eq!(world.members[1].say(&world.t, Answer::Complaint, &complaint).await.status, 204);
    world.t.work().await;
    world.assert_failed(1, FailureReason::BadShares).await;
}

#[tokio::test]
async fn whoever_sent_its_input_has_nothing_to_complain_about() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Collecting).await;
    let proof = evidence(&world, &world.members[1], &world.members[0]).await;
    let key = key_for(&world.members[1], 0);
    world.act(RoundState::Collecting, |at| at == 1).await;
    let body = ComplaintBody { sid: proof.body.sid, sender: 2, accused: 1, key };
    let complaint = Complaint::sign(body, &world.members[1].signer).unwrap().encode();
    let reply = world.members[1].say(&world.t, Answer::Complaint, &complaint).await;
    assert!(reply.problem(ProblemType::NotAssigned).contains("sent its input"));
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Collecting);
}

#[tokio::test]
async fn what_was_bent_on_the_way_is_no_reason_to_complain() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Collecting).await;
    // The dealer's signature reveals a coordinator's modified delivery; the real delivery is valid.
    let reply = world.t.get(&world.members[1].who, &world.members[1].announcement(Announcement::Delivery, 0)).await;
    let mut delivery = secure_agg::messages::Delivery::decode(&reply.body).unwrap();
    let mut sealed: Vec<_> = delivery.sealed.as_slice().to_vec();
    sealed[0][3] ^= 1;
    delivery.sealed = sealed.into();
    let state = world.members[1].client.take().unwrap().waiting_for_delivery().unwrap();
    let Received::Challenge(challenge) = state.receive(&delivery).unwrap() else { panic!("it opens") };
    let proof = evidence(&world, &world.members[1], &world.members[0]).await;
    assert!(challenge.complain(&proof, &world.members[1].signer).is_err());
    world.members[1].restore();
    world.act(RoundState::Collecting, |_| true).await;
    assert_eq!(world.state(1).await, RoundState::Confirming);
}

#[tokio::test]
async fn evidence_is_for_the_cohort_while_it_collects() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Sharing).await;
    let (_, stranger) = world.t.enroll("stranger").await;
    let path = route::evidence(Attempt { task: world.task, round: 1, attempt: 1 }, world.members[0].id);
    world.t.get(&world.members[1].who, &path).await.problem(ProblemType::PhaseClosed);
    world.act(RoundState::Sharing, |at| at < 3).await;
    world.time_out().await;
    world.t.get(&stranger, &path).await.problem(ProblemType::NotAssigned);
    assert_eq!(world.t.get(&world.members[1].who, &path).await.status, 200);
    let silent = route::evidence(Attempt { task: world.task, round: 1, attempt: 1 }, world.members[3].id);
    world.t.get(&world.members[1].who, &silent).await.problem(ProblemType::NotFound);
    world.act(RoundState::Collecting, |at| at < 3).await;
    world.t.get(&world.members[1].who, &path).await.problem(ProblemType::PhaseClosed);
}
