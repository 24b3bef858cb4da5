//! Participants' answers during a session: stored once, repeatable, validated by the protocol.

use federation::round::RoundState;
use secure_agg::codec::Message as _;
use secure_agg::messages::{Consistency, ShareKeys, Signed, Unmasking};
use wire::headers::ATTEMPT;
use wire::participant::Answer;
use wire::problem::ProblemType;

use crate::support::member::Member;
use crate::support::secure::World;
use crate::support::{TestCoordinator, small_task};

/// The regular answers of a round; complaints have their own tests.
const USUAL: [Answer; 3] = [Answer::KeyShares, Answer::Consistency, Answer::UnmaskShares];

/// The accepting phase, and all answers, unsent.
async fn scene(what: Answer) -> (World, Vec<Vec<u8>>) {
    let mut world = World::new(4).await;
    world.up_to(1, what.state()).await;
    let mut answers = Vec::new();
    let t = &world.t;
    for member in &mut world.members {
        answers.push(match what {
            Answer::KeyShares => member.deal(t).await.encode(),
            Answer::Consistency => member.sign(t).await,
            Answer::UnmaskShares => member.reveal(t).await,
            Answer::Complaint => panic!("nobody has reason to"),
        });
    }
    (world, answers)
}

/// A message in the member's name signed by another member of the roster.
fn forged(what: Answer, bytes: &[u8], by: &Member) -> Vec<u8> {
    match what {
        Answer::KeyShares => Signed::sign(ShareKeys::decode(bytes).unwrap().body, &by.signer).unwrap().encode(),
        Answer::UnmaskShares => Signed::sign(Unmasking::decode(bytes).unwrap().body, &by.signer).unwrap().encode(),
        _ => {
            let mut message = Consistency::decode(bytes).unwrap();
            message.signature[5] ^= 1;
            message.encode()
        }
    }
}

/// The same for another session, correctly signed.
fn elsewhere(what: Answer, bytes: &[u8], by: &Member) -> Vec<u8> {
    match what {
        Answer::KeyShares => {
            let mut body = ShareKeys::decode(bytes).unwrap().body;
            body.sid[0] ^= 1;
            Signed::sign(body, &by.signer).unwrap().encode()
        }
        Answer::UnmaskShares => {
            let mut body = Unmasking::decode(bytes).unwrap().body;
            body.sid[0] ^= 1;
            Signed::sign(body, &by.signer).unwrap().encode()
        }
        _ => {
            let mut message = Consistency::decode(bytes).unwrap();
            message.sid[0] ^= 1;
            message.encode()
        }
    }
}

#[tokio::test]
async fn an_answer_is_taken_once_and_may_be_repeated_whenever() {
    for what in USUAL {
        let (world, answers) = scene(what).await;
        let (first, answer) = (&world.members[0], &answers[0]);
        assert_eq!(first.say(&world.t, what, answer).await.status, 204);
        assert_eq!(first.say(&world.t, what, answer).await.status, 204, "said twice");
        for (member, answer) in world.members.iter().zip(&answers).skip(1) {
            assert_eq!(member.say(&world.t, what, answer).await.status, 204, "{what:?}");
        }
        world.t.work().await;
        assert_ne!(world.state(1).await, what.state());
        assert_eq!(first.say(&world.t, what, answer).await.status, 204, "{what:?} when the round has gone on");
    }
}

#[tokio::test]
async fn another_answer_does_not_replace_the_first() {
    for what in USUAL {
        let (world, answers) = scene(what).await;
        let (first, second) = (&world.members[0], &world.members[1]);
        assert_eq!(first.say(&world.t, what, &answers[0]).await.status, 204);
        // The same content with another signature is validated first, and rejected by the protocol.
        let other = forged(what, &answers[0], second);
        first.say(&world.t, what, &other).await.problem(ProblemType::SessionRejected);
        for (member, answer) in world.members.iter().zip(&answers).skip(1) {
            assert_eq!(member.say(&world.t, what, answer).await.status, 204);
        }
        world.t.work().await;
        first.say(&world.t, what, &other).await.problem(ProblemType::DifferentMessage);
    }
}

#[tokio::test]
async fn two_good_answers_are_one_too_many() {
    let (world, answers) = scene(Answer::KeyShares).await;
    let first = &world.members[0];
    assert_eq!(first.say(&world.t, Answer::KeyShares, &answers[0]).await.status, 204);
    // A ciphertext verifiable only by its holder.
    let mut body = ShareKeys::decode(&answers[0]).unwrap().body;
    let mut sealed: Vec<_> = body.sealed.as_slice().to_vec();
    sealed[0][0] ^= 1;
    body.sealed = sealed.into();
    let other = Signed::sign(body, &first.signer).unwrap().encode();
    first.say(&world.t, Answer::KeyShares, &other).await.problem(ProblemType::DifferentMessage);

    let (world, answers) = scene(Answer::UnmaskShares).await;
    let first = &world.members[0];
    assert_eq!(first.say(&world.t, Answer::UnmaskShares, &answers[0]).await.status, 204);
    let mut body = Unmasking::decode(&answers[0]).unwrap().body;
    let mut shares: Vec<_> = body.shares.as_slice().to_vec();
    shares.swap(0, 1);
    body.shares = shares.into();
    let other = Signed::sign(body, &first.signer).unwrap().encode();
    first.say(&world.t, Answer::UnmaskShares, &other).await.problem(ProblemType::DifferentMessage);
}

#[tokio::test]
async fn what_comes_in_another_phase_is_not_taken() {
    for phase in [RoundState::Sharing, RoundState::Collecting, RoundState::Confirming, RoundState::Unmasking] {
        let mut world = World::new(4).await;
        world.up_to(1, phase).await;
        for what in Answer::ALL.into_iter().filter(|what| what.state() != phase) {
            let reply = world.members[0].say(&world.t, what, &[1; 100]).await;
            let earlier = what.state() < phase && what != Answer::Complaint;
            // Earlier messages are known to differ.
            let kind = if earlier { ProblemType::DifferentMessage } else { ProblemType::PhaseClosed };
            reply.problem(kind);
        }
    }
}

#[tokio::test]
async fn too_late_is_too_late() {
    let (world, answers) = scene(Answer::KeyShares).await;
    for (member, answer) in world.members.iter().zip(&answers).take(3) {
        assert_eq!(member.say(&world.t, Answer::KeyShares, answer).await.status, 204);
    }
    world.time_out().await;
    let detail = world.members[3].say(&world.t, Answer::KeyShares, &answers[3]).await.problem(ProblemType::PhaseClosed);
    assert!(detail.contains("COLLECTING") && detail.contains("SHARING"), "{detail}");
}

#[tokio::test]
async fn everybody_speaks_for_itself_alone() {
    for what in USUAL {
        let (world, answers) = scene(what).await;
        let (first, second) = (&world.members[0], &world.members[1]);
        let reply = world.t.send(&second.who, first.request(what, &answers[0])).await;
        reply.problem(ProblemType::Forbidden);
        // Another member's message under its own path.
        let detail = second.say(&world.t, what, &answers[0]).await.problem(ProblemType::SessionRejected);
        assert!(detail.starts_with("not_expected"), "{detail}");
        let (id, stranger) = world.t.enroll("stranger").await;
        let mut request = first.request(what, &answers[0]);
        let path = request.uri().to_string().replace(&first.id.to_string(), &id.to_string());
        *request.uri_mut() = path.parse().unwrap();
        world.t.send(&stranger, request).await.problem(ProblemType::NotAssigned);
        world.t.send(&world.t.admin, first.request(what, &answers[0])).await.problem(ProblemType::Unauthenticated);
    }
}

#[tokio::test]
async fn what_the_protocol_does_not_admit_is_refused_with_its_code() {
    for what in USUAL {
        let (world, answers) = scene(what).await;
        let (first, second) = (&world.members[0], &world.members[1]);
        for (bytes, code) in
            [(forged(what, &answers[0], second), "signature"), (elsewhere(what, &answers[0], first), "wrong_session")]
        {
            let detail = first.say(&world.t, what, &bytes).await.problem(ProblemType::SessionRejected);
            assert!(detail.starts_with(code), "{what:?}: {detail}");
        }
        // All of these are ignored.
        for (member, answer) in world.members.iter().zip(&answers) {
            assert_eq!(member.say(&world.t, what, answer).await.status, 204);
        }
    }
    let (world, answers) = scene(Answer::UnmaskShares).await;
    let mut body = Unmasking::decode(&answers[0]).unwrap().body;
    let mut shares: Vec<_> = body.shares.as_slice().to_vec();
    shares.pop();
    body.shares = shares.into();
    let short = Signed::sign(body, &world.members[0].signer).unwrap().encode();
    let reply = world.members[0].say(&world.t, Answer::UnmaskShares, &short).await;
    assert!(reply.problem(ProblemType::SessionRejected).starts_with("share_count"));
}

#[tokio::test]
async fn bytes_that_are_no_message_are_refused() {
    for what in USUAL {
        let (world, answers) = scene(what).await;
        let first = &world.members[0];
        let mut longer = answers[0].clone();
        longer.push(0);
        let mut newer = answers[0].clone();
        newer[0] += 1;
        for bytes in [&b""[..], b"{}", &[0xff; 60], &newer, &answers[0][..answers[0].len() - 1]] {
            first.say(&world.t, what, bytes).await.problem(ProblemType::MalformedRequest);
        }
        // All signatures have the same length, also the maximum.
        let too_long = if what == Answer::Consistency { ProblemType::TooLarge } else { ProblemType::MalformedRequest };
        first.say(&world.t, what, &longer).await.problem(too_long);
        let mut request = first.request(what, &answers[0]);
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        world.t.send(&first.who, request).await.problem(ProblemType::UnsupportedMediaType);
        let mut request = first.request(what, &answers[0]);
        request.headers_mut().remove(ATTEMPT);
        world.t.send(&first.who, request).await.problem(ProblemType::MalformedRequest);
        let mut request = first.request(what, &answers[0]);
        request.headers_mut().insert(ATTEMPT, "2".parse().unwrap());
        world.t.send(&first.who, request).await.problem(ProblemType::NotFound);
        // Longer than any such message, with and without an announced length.
        for announced in [true, false] {
            let mut request = first.request(what, &vec![0; 200_000]);
            if !announced {
                request.headers_mut().remove("content-length");
            }
            world.t.send(&first.who, request).await.problem(ProblemType::TooLarge);
        }
        assert_eq!(first.say(&world.t, what, &answers[0]).await.status, 204, "nothing of it was kept");
    }
}

#[tokio::test]
async fn a_round_in_the_clear_takes_none_of_it() {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1]).await.remove(0);
    for what in Answer::ALL {
        let request = http::Request::put(wire::route::answer(what, work.task, work.round, a.0))
            .header("content-type", wire::headers::MEDIA_SECURE_AGG)
            .header(ATTEMPT, 1)
            .body(axum::body::Body::from("x"))
            .unwrap();
        let detail = t.send(&a.1, request).await.problem(ProblemType::NotFound);
        assert!(detail.contains("no secure aggregation"), "{detail}");
    }
}
