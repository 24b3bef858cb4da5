//! Valid and invalid uploads of an update.

use std::time::Duration;

use axum::body::Body;
use federation::round::RoundState;
use futures_util::{StreamExt as _, stream};
use http::{Method, Request, StatusCode};
use secure_agg::codec::Message as _;
use secure_agg::messages::{MaskedInput, Signed};
use serde_json::json;
use wire::headers::{ATTEMPT, CONTENT_SHA256, MEDIA_MASKED_INPUT, RECORD_BELOW, SIGNED_INPUT};
use wire::participant::{Assignment, Receipt};
use wire::problem::ProblemType;
use wire::{ParticipantId, route};

use crate::support::secure::World;
use crate::support::{SMALL_BYTES, TestCoordinator, Who, input, sha256, small_task};

/// A collecting round with two working participants.
struct Scene {
    t: TestCoordinator,
    a: (ParticipantId, Who),
    b: (ParticipantId, Who),
    work: Assignment,
}

async fn scene() -> Scene {
    scene_of(&small_task()).await
}

async fn scene_of(task: &serde_json::Value) -> Scene {
    let t = TestCoordinator::start().await;
    t.create_task(task).await;
    let a = t.enroll("a").await;
    let b = t.enroll("b").await;
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    Scene { t, a, b, work }
}

impl Scene {
    async fn upload(&self, body: &[u8]) -> crate::support::Reply {
        self.t.send(&self.a.1, self.t.upload(&self.work, self.a.0, body)).await
    }

    /// A's input was rejected, and its data was dropped.
    async fn nothing_stored(&self) {
        let round = self.t.get(&self.t.viewer, "/v1/tasks/small/rounds/1").await.json();
        assert_eq!((&round["reported"], &round["bytes_up"]), (&json!(0), &json!(0)));
        assert_eq!(self.blobs().await, 1, "only the model");
    }

    async fn blobs(&self) -> usize {
        self.t.inner.store.blobs().list(Duration::ZERO).await.unwrap().len()
    }
}

#[tokio::test]
async fn an_update_is_accepted_and_the_same_bytes_get_the_same_receipt() {
    let s = scene().await;
    let body = input([1, 2, 3]);
    let first: Receipt = s.upload(&body).await.read();
    assert_eq!((first.sha256, first.bytes, first.accepted_at), (sha256(&body), 16, s.t.now()));
    s.t.advance(Duration::from_secs(5));
    assert_eq!(s.upload(&body).await.read::<Receipt>(), first);
    let round = s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["reported"], &round["bytes_up"]), (&json!(1), &json!(16)));
    // Also after the end of the round.
    let other = s.t.send(&s.b.1, s.t.upload(&s.work, s.b.0, &body)).await;
    assert_eq!(other.status, 200);
    s.t.work().await;
    assert_eq!(s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json()["state"], "COMPLETED");
    assert_eq!(s.upload(&body).await.read::<Receipt>(), first);
}

#[tokio::test]
async fn sent_twice_with_other_bytes_is_refused() {
    let s = scene().await;
    assert_eq!(s.upload(&input([1, 2, 3])).await.status, 200);
    let detail = s.upload(&input([1, 2, 4])).await.problem(ProblemType::DifferentInput);
    assert!(detail.contains(&sha256(&input([1, 2, 3])).to_string()), "{detail}");
    // Also if it claims the same digest.
    let mut lie = s.t.upload(&s.work, s.a.0, &input([9, 9, 9]));
    lie.headers_mut().insert(CONTENT_SHA256, sha256(&input([1, 2, 3])).to_string().parse().unwrap());
    s.t.send(&s.a.1, lie).await.problem(ProblemType::DigestMismatch);
}

#[tokio::test]
async fn two_at_once_count_once() {
    let s = scene().await;
    let (one, two) = (input([1, 2, 3]), input([3, 2, 1]));
    let (x, y, z) = tokio::join!(s.upload(&one), s.upload(&one), s.upload(&two));
    let accepted = [&x, &y, &z].iter().filter(|reply| reply.status == 200).count();
    assert!(accepted == 2 || accepted == 1, "{x:?} {y:?} {z:?}");
    let round = s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["reported"], &round["bytes_up"]), (&json!(1), &json!(16)));
}

#[tokio::test]
async fn an_update_of_the_wrong_length_is_refused() {
    let s = scene().await;
    for length in [0, 1, SMALL_BYTES - 1, SMALL_BYTES + 1, SMALL_BYTES * 10] {
        let detail = s.upload(&vec![0; length]).await.problem(ProblemType::WrongLength);
        assert!(detail.contains("16"), "{detail}");
    }
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_of_unannounced_length_is_refused_as_soon_as_it_is_too_long() {
    let s = scene().await;
    for (pieces, sent) in [(1, 8), (3, 24), (1_000_000, 24)] {
        let endless = stream::iter((0..pieces).map(|_| Ok::<_, std::io::Error>(vec![7_u8; 8])));
        let mut request = s.t.upload(&s.work, s.a.0, &[]).map(|_| Body::from_stream(endless));
        request.headers_mut().remove("content-length");
        let detail = s.t.send(&s.a.1, request).await.problem(ProblemType::WrongLength);
        assert!(detail.contains(&format!("has {sent} bytes")), "{detail}");
    }
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_larger_than_any_is_refused_before_it_is_read() {
    let s = scene().await;
    let never_read = stream::once(async { panic!("the body was read") as Result<Vec<u8>, std::io::Error> });
    let mut request = s.t.upload(&s.work, s.a.0, &[]).map(|_| Body::from_stream(never_read));
    request.headers_mut().insert("content-length", (1_u64 << 40).into());
    s.t.send(&s.a.1, request).await.problem(ProblemType::TooLarge);
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_cut_off_in_the_middle_leaves_nothing() {
    let s = scene().await;
    let cut = stream::iter([Ok(vec![1_u8; 8]), Err(std::io::Error::other("connection reset"))]);
    let request = s.t.upload(&s.work, s.a.0, &input([1, 2, 3])).map(|_| Body::from_stream(cut));
    let detail = s.t.send(&s.a.1, request).await.problem(ProblemType::MalformedRequest);
    assert!(detail.contains("cut off after 8 bytes"), "{detail}");
    s.nothing_stored().await;
    assert_eq!(s.upload(&input([1, 2, 3])).await.status, 200);
}

#[tokio::test]
async fn an_update_changed_on_the_way_is_refused() {
    let s = scene().await;
    let mut request = s.t.upload(&s.work, s.a.0, &input([1, 2, 3]));
    *request.body_mut() = Body::from(input([1, 2, 4]));
    s.t.send(&s.a.1, request).await.problem(ProblemType::DigestMismatch);
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_for_a_closed_phase_is_refused() {
    let s = scene().await;
    let (c_id, c) = s.t.enroll("c").await;
    for who in [&s.a, &s.b] {
        assert_eq!(s.t.send(&who.1, s.t.upload(&s.work, who.0, &input([1, 2, 3]))).await.status, 200);
    }
    s.t.work().await;
    // Round 2 is selecting, without members so far.
    let mut next = s.work.clone();
    next.round = 2;
    s.t.send(&c, s.t.upload(&next, c_id, &input([1, 2, 3]))).await.problem(ProblemType::NotAssigned);
    // Round 1 is over: participants with unused places are late.
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    assert_eq!(t.send(&a.1, t.upload(&work, a.0, &input([1, 2, 3]))).await.status, 200);
    t.advance(Duration::from_secs(600));
    t.work().await;
    let detail = t.send(&b.1, t.upload(&work, b.0, &input([1, 2, 3]))).await.problem(ProblemType::PhaseClosed);
    assert!(detail.contains("COMPLETED"), "{detail}");
}

#[tokio::test]
async fn an_update_for_another_round_or_attempt_is_refused() {
    let s = scene().await;
    let mut other = s.work.clone();
    other.round = 7;
    s.t.send(&s.a.1, s.t.upload(&other, s.a.0, &input([1, 2, 3]))).await.problem(ProblemType::NotFound);
    other.round = 1;
    other.attempt = 2;
    s.t.send(&s.a.1, s.t.upload(&other, s.a.0, &input([1, 2, 3]))).await.problem(ProblemType::NotFound);
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_from_someone_not_selected_is_refused() {
    let s = scene().await;
    let (id, c) = s.t.enroll("c").await;
    s.t.send(&c, s.t.upload(&s.work, id, &input([1, 2, 3]))).await.problem(ProblemType::NotAssigned);
    // A participant cannot send in another's name.
    s.t.send(&c, s.t.upload(&s.work, s.a.0, &input([1, 2, 3]))).await.problem(ProblemType::Forbidden);
    s.nothing_stored().await;
}

#[tokio::test]
async fn headers_that_are_missing_are_named() {
    let s = scene().await;
    for (name, kind) in [
        ("content-type", ProblemType::UnsupportedMediaType),
        (ATTEMPT, ProblemType::MalformedRequest),
        (CONTENT_SHA256, ProblemType::MalformedRequest),
    ] {
        let mut request = s.t.upload(&s.work, s.a.0, &input([1, 2, 3]));
        request.headers_mut().remove(name);
        let detail = s.t.send(&s.a.1, request).await.problem(kind);
        assert!(detail.contains(if name == "content-type" { MEDIA_MASKED_INPUT } else { name }), "{detail}");
    }
    let path = route::masked_input(s.work.task, 1, s.a.0);
    let request = Request::builder().method(Method::POST).uri(path).body(Body::empty()).unwrap();
    assert_eq!(s.t.send(&s.a.1, request).await.status, StatusCode::METHOD_NOT_ALLOWED);
    s.nothing_stored().await;
}

#[tokio::test]
async fn a_record_below_that_is_no_digest_is_refused() {
    let s = scene().await;
    for bad in [String::new(), "ab".repeat(31), "ab".repeat(33), "zz".repeat(32), "ab".repeat(2000)] {
        let mut request = s.t.upload(&s.work, s.a.0, &input([1, 2, 3]));
        request.headers_mut().insert(RECORD_BELOW, bad.parse().unwrap());
        let detail = s.t.send(&s.a.1, request).await.problem(ProblemType::MalformedRequest);
        assert!(detail.contains(RECORD_BELOW), "{detail}");
    }
    s.nothing_stored().await;
}

#[tokio::test]
async fn an_update_of_someone_revoked_or_excused_is_refused() {
    let s = scene().await;
    let path = route::fill(route::EXCUSE, &[&s.work.task, &1, &s.a.0]);
    assert_eq!(s.t.post(&s.t.operator, &path, &json!({})).await.status, 204);
    let detail = s.upload(&input([1, 2, 3])).await.problem(ProblemType::NotAssigned);
    assert!(detail.contains("excused"), "{detail}");
    let path = route::fill(route::PARTICIPANT_REVOKE, &[&s.b.0]);
    assert_eq!(s.t.post(&s.t.operator, &path, &json!({})).await.status, 200);
    s.t.send(&s.b.1, s.t.upload(&s.work, s.b.0, &input([1, 2, 3]))).await.problem(ProblemType::CertificateRevoked);
    s.nothing_stored().await;
}

#[tokio::test]
async fn a_panic_is_a_problem_that_tells_nothing() {
    let s = scene().await;
    let bomb = stream::once(async { panic!("a secret") as Result<Vec<u8>, std::io::Error> });
    let request = s.t.upload(&s.work, s.a.0, &input([1, 2, 3])).map(|_| Body::from_stream(bomb));
    let reply = s.t.send(&s.a.1, request).await;
    assert_eq!(reply.problem(ProblemType::Internal), "");
    s.nothing_stored().await;
}

#[tokio::test]
async fn a_later_upload_of_the_same_participant_ends_the_earlier_one() {
    let s = scene().await;
    let body = input([1, 2, 3]);
    let mut slow = s.t.upload(&s.work, s.a.0, &body);
    let begun = stream::iter([Ok::<_, std::io::Error>(body[..8].to_vec())]);
    *slow.body_mut() = Body::from_stream(begun.chain(stream::pending()));
    let slow = s.t.send(&s.a.1, slow);
    let again = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        s.upload(&body).await
    };
    let both = async { tokio::join!(slow, again) };
    let (slow, again) = tokio::time::timeout(Duration::from_secs(5), both).await.expect("the first one is still held");
    slow.problem(ProblemType::Conflict);
    assert_eq!(again.read::<Receipt>().sha256, sha256(&body));
}

/// An update with invalid contents costs its participant the place, but does not fail the round.
async fn refused_alone(s: &Scene, bad: &[u8], good: &[u8]) {
    let detail = s.upload(bad).await.problem(ProblemType::InvalidValue);
    assert!(detail.contains("not valid in this task's encoding"), "{detail}");
    s.upload(good).await.problem(ProblemType::NotAssigned);
    assert_eq!(s.t.send(&s.b.1, s.t.upload(&s.work, s.b.0, good)).await.status, 200);
    s.t.work().await;
    let round = s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["state"], &round["reported"]), (&json!("COMPLETED"), &json!(1)), "{round}");
    assert_eq!(round["dropped_why"], json!({ "ABANDONED": 1 }));
}

#[tokio::test]
async fn an_update_beyond_its_bounds_is_refused_and_the_round_goes_on() {
    let weight = |weight: u32| [&input([1, 2, 3])[..12], &weight.to_le_bytes()].concat();
    for bad in [input([1, i32::MIN, 3]), input([0x0fff_ffff, 2, 3]), weight(0), weight(1001), weight(u32::MAX)] {
        refused_alone(&scene().await, &bad, &input([1, 2, 3])).await;
    }
}

#[tokio::test]
async fn an_update_with_bits_behind_its_end_is_refused_and_the_round_goes_on() {
    let mut task = small_task();
    task["aggregation"] = json!({ "modulus_bits": 21 });
    let s = scene_of(&task).await;
    let modulus = secure_agg::modular::Modulus::new(21).unwrap();
    let good = secure_agg::packing::pack(&[1, 2, 3, 10], modulus);
    let mut bad = good.clone();
    *bad.last_mut().unwrap() |= 0xf0;
    refused_alone(&s, &bad, &good).await;
}

/// A collecting round under secure aggregation, and the signed inputs of all members, unsent.
async fn secure_scene() -> (World, Vec<MaskedInput>) {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Collecting).await;
    let mut signed = Vec::new();
    for member in &mut world.members {
        signed.push(member.mask(&world.t, &world.model).await);
    }
    (world, signed)
}

#[tokio::test]
async fn a_signed_input_is_accepted_and_the_same_bytes_get_the_same_receipt() {
    let (world, signed) = secure_scene().await;
    let first = &world.members[0];
    let send = async || world.t.send(&first.who, first.upload(&first.masked, &signed[0])).await;
    let receipt: Receipt = send().await.read();
    assert_eq!((receipt.sha256, receipt.bytes), (sha256(&first.masked), world.model.packed_len()));
    world.t.advance(Duration::from_secs(5));
    assert_eq!(send().await.read::<Receipt>(), receipt);
    // A repeated receipt does not require a signature.
    let mut request = first.upload(&first.masked, &signed[0]);
    request.headers_mut().remove(SIGNED_INPUT);
    assert_eq!(world.t.send(&first.who, request).await.read::<Receipt>(), receipt);
    for (member, signed) in world.members.iter().zip(&signed).skip(1) {
        assert_eq!(world.t.send(&member.who, member.upload(&member.masked, signed)).await.status, 200);
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Confirming);
    assert_eq!(send().await.read::<Receipt>(), receipt, "when the round has gone on");
    let mut other = first.masked.clone();
    other[0] ^= 1;
    let reply = world.t.send(&first.who, first.upload(&other, &signed[0])).await;
    reply.problem(ProblemType::DifferentInput);
}

#[tokio::test]
async fn an_input_without_its_own_signature_is_not_accepted() {
    let (world, signed) = secure_scene().await;
    let (t, first, second) = (&world.t, &world.members[0], &world.members[1]);
    let mut request = first.upload(&first.masked, &signed[0]);
    request.headers_mut().remove(SIGNED_INPUT);
    let detail = t.send(&first.who, request).await.problem(ProblemType::MalformedRequest);
    assert!(detail.contains(SIGNED_INPUT), "{detail}");
    for garbage in ["%%%", "", "AAAA"] {
        let mut request = first.upload(&first.masked, &signed[0]);
        request.headers_mut().insert(SIGNED_INPUT, garbage.parse().unwrap());
        t.send(&first.who, request).await.problem(ProblemType::MalformedRequest);
    }
    // Signed by another sender, for its body or for this one.
    let detail =
        t.send(&first.who, first.upload(&first.masked, &signed[1])).await.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("not_expected"), "{detail}");
    let forged = Signed::sign(signed[0].body.clone(), &second.signer).unwrap();
    let other_sid = |mut body: secure_agg::messages::MaskedInputBody| {
        body.sid[0] ^= 1;
        Signed::sign(body, &first.signer).unwrap()
    };
    let other_masks = |mut body: secure_agg::messages::MaskedInputBody| {
        body.dealers[0] ^= 1;
        Signed::sign(body, &first.signer).unwrap()
    };
    let longer = |mut body: secure_agg::messages::MaskedInputBody| {
        body.bytes += 4;
        Signed::sign(body, &first.signer).unwrap()
    };
    for (message, code) in [
        (forged, "signature"),
        (other_sid(signed[0].body.clone()), "wrong_session"),
        (other_masks(signed[0].body.clone()), "other_masks"),
        (longer(signed[0].body.clone()), "input_bytes"),
    ] {
        let reply = t.send(&first.who, first.upload(&first.masked, &message)).await;
        let detail = reply.problem(ProblemType::SessionRejected);
        assert!(detail.starts_with(code), "{detail}");
    }
    // Signed for another body.
    let mut other = first.masked.clone();
    other[5] ^= 1;
    t.send(&first.who, first.upload(&other, &signed[0])).await.problem(ProblemType::DigestMismatch);
    let view = world.view(1).await;
    assert_eq!(view.reported, 0);
    assert_eq!(t.inner.store.blobs().list(Duration::ZERO).await.unwrap().len(), 1, "only the model");
    // These attempts do not affect the valid one.
    assert_eq!(t.send(&first.who, first.upload(&first.masked, &signed[0])).await.status, 200);
}

#[tokio::test]
async fn a_masked_input_is_not_judged_by_what_it_might_hold() {
    // Garbage under the masks only shows in the sum; only the form is validated.
    let (world, signed) = secure_scene().await;
    let first = &world.members[0];
    let body = vec![0xff; first.masked.len()];
    let mut said = signed[0].body.clone();
    said.digest = secure_agg::upload::digest(&body);
    let message = Signed::sign(said, &first.signer).unwrap();
    assert_eq!(MaskedInput::decode(&message.encode()).unwrap(), message);
    assert_eq!(world.t.send(&first.who, first.upload(&body, &message)).await.status, 200);
}

#[tokio::test]
async fn who_dealt_nothing_sends_no_input() {
    let mut world = World::new(4).await;
    world.up_to(1, RoundState::Sharing).await;
    world.act(RoundState::Sharing, |at| at < 3).await;
    world.time_out().await;
    let signed = world.members[0].mask(&world.t, &world.model).await;
    let mut said = signed.body;
    said.sender = 4;
    let (silent, body) = (&world.members[3], &world.members[0].masked);
    let message = Signed::sign(said, &silent.signer).unwrap();
    let reply = world.t.send(&silent.who, silent.upload(body, &message)).await;
    let detail = reply.problem(ProblemType::SessionRejected);
    assert!(detail.starts_with("not_expected"), "{detail}");
}
