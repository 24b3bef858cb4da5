//! Updates of more than 8 MiB in parts: valid and invalid, across restarts, and in any order.

use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::round::RoundState;
use futures_util::stream;
use http::{Method, Request};
use secure_agg::codec::Message as _;
use secure_agg::messages::MaskedInput;
use secure_agg::upload::{PART_BYTES, PartTree};
use serde_json::{Value, json};
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY, Treatment};
use wire::headers::{ATTEMPT, MEDIA_MASKED_INPUT, PROTOCOL, PROTOCOL_VERSION_PARTS, SIGNED_INPUT};
use wire::participant::{Assignment, Receipt, UploadReply};
use wire::problem::ProblemType;
use wire::{Digest, ParticipantId, route};

use crate::support::secure::World;
use crate::support::{Reply, TestCoordinator, Who, config, put, sha256, small_task};

/// Slightly more than one part, including the weight.
const PARAMETERS: usize = 2_100_000;

fn large_task() -> Value {
    let mut task = small_task();
    task["model"]["tensors"][0]["shape"] = json!([PARAMETERS]);
    task
}

/// An update of these words in turn, and a weight of 10.
fn body(words: [i32; 3]) -> Vec<u8> {
    words.into_iter().cycle().take(PARAMETERS).chain([10]).flat_map(i32::to_le_bytes).collect()
}

/// A collecting round with two working participants.
struct Scene {
    t: TestCoordinator,
    a: (ParticipantId, Who),
    b: (ParticipantId, Who),
    work: Assignment,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&config()).await
    }

    async fn with(config: &Config) -> Self {
        let t = TestCoordinator::with(config).await;
        t.create_task(&large_task()).await;
        let (a, b) = (t.enroll("a").await, t.enroll("b").await);
        let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
        Self { t, a, b, work }
    }

    async fn announce(&self, tree: &PartTree) -> Reply {
        self.t.send(&self.a.1, manifest(&self.work, self.a.0, tree, None)).await
    }

    async fn missing(&self, tree: &PartTree) -> Vec<u32> {
        match self.announce(tree).await.read() {
            UploadReply::Missing { parts } => parts,
            UploadReply::Accepted(receipt) => panic!("accepted: {receipt:?}"),
        }
    }

    async fn part(&self, number: u32, bytes: &[u8]) -> Reply {
        self.t.send(&self.a.1, part(&self.work, self.a.0, number, bytes)).await
    }

    async fn send_all(&self, body: &[u8]) -> Receipt {
        let tree = PartTree::of(body);
        for number in self.missing(&tree).await {
            assert_eq!(self.part(number, slice(body, number)).await.status, 204);
        }
        receipt(&self.announce(&tree).await)
    }

    async fn is_stored(&self, bytes: &[u8]) -> bool {
        self.t.inner.store.blobs().len(sha256(bytes)).await.unwrap().is_some()
    }
}

fn slice(body: &[u8], number: u32) -> &[u8] {
    body.chunks(PART_BYTES).nth(number as usize).unwrap()
}

fn receipt(reply: &Reply) -> Receipt {
    match reply.read() {
        UploadReply::Accepted(receipt) => receipt,
        UploadReply::Missing { parts } => panic!("{parts:?} are missing"),
    }
}

fn manifest(work: &Assignment, who: ParticipantId, tree: &PartTree, signed: Option<&MaskedInput>) -> Request<Body> {
    let parts: Vec<_> = tree.parts().iter().copied().map(Digest).collect();
    let body = json!({ "bytes": tree.bytes(), "parts": parts }).to_string();
    let path = route::upload_manifest(work.task, work.round, who);
    let mut request = put(&path, "application/json", work.attempt, body.as_bytes());
    request.headers_mut().insert(PROTOCOL, PROTOCOL_VERSION_PARTS.into());
    if let Some(signed) = signed {
        request.headers_mut().insert(SIGNED_INPUT, wire::base64::encode(&signed.encode()).parse().unwrap());
    }
    request
}

fn part(work: &Assignment, who: ParticipantId, number: u32, bytes: &[u8]) -> Request<Body> {
    put(&route::upload_part(work.task, work.round, who, number), MEDIA_MASKED_INPUT, work.attempt, bytes)
}

#[tokio::test]
async fn an_update_in_parts_counts_like_one_that_was_sent_whole() {
    let (one, two) = (body([1, 2, 3]), body([4, 5, -6]));
    let mut published = Vec::new();
    for in_parts in [true, false] {
        let s = Scene::new().await;
        let name = if in_parts {
            let first = s.send_all(&one).await;
            s.t.advance(Duration::from_secs(5));
            assert_eq!(receipt(&s.announce(&PartTree::of(&one)).await), first, "the same again");
            assert_eq!(first.bytes, one.len() as u64);
            assert_eq!(first.sha256.0, PartTree::of(&one).root());
            first.sha256
        } else {
            s.t.send(&s.a.1, s.t.upload(&s.work, s.a.0, &one)).await.read::<Receipt>().sha256
        };
        assert_eq!(s.t.send(&s.b.1, s.t.upload(&s.work, s.b.0, &two)).await.status, 200);
        s.t.work().await;
        let round = s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json();
        assert_eq!((&round["state"], &round["reported"]), (&json!("COMPLETED"), &json!(2)), "{round}");
        assert_eq!(round["bytes_up"], json!(2 * one.len()));
        published.push(s.t.get(&s.t.viewer, "/v1/tasks/small/models/1").await.json()["sha256"].clone());
        // Long after the round, when its parts were collected.
        s.t.advance(Duration::from_secs(3_600));
        s.t.inner.engine.collect_garbage().await.unwrap();
        assert!(!s.is_stored(slice(&one, 0)).await && !s.is_stored(&two).await);
        if in_parts {
            assert_eq!(receipt(&s.announce(&PartTree::of(&one)).await).sha256, name);
        }
    }
    assert_eq!(published[0], published[1]);
}

/// Only codecs that need the whole upload delay other uploads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_whose_parts_are_slow_to_read_holds_up_no_other() {
    let (server, folder) = (S3Server::start(), tempfile::tempdir().unwrap());
    let credentials = folder.path().join("credentials");
    let keys = format!(
        "aws_access_key_id = {ACCESS_KEY}
aws_secret_access_key = {SECRET_KEY}
"
    );
    std::fs::write(&credentials, keys).unwrap();
    let mut config = config();
    config.blobs.url = format!("s3://{BUCKET}/blobs");
    config.blobs.endpoint = Some(server.endpoint());
    config.blobs.credentials_file = Some(credentials);
    config.blobs.cache = folder.path().join("cache");
    let s = Scene::with(&config).await;
    let (slow, quick) = (body([1, 2, 3]), body([4, 5, -6]));
    let (slow_tree, quick_tree) = (PartTree::of(&slow), PartTree::of(&quick));
    let announce = |who: &(ParticipantId, Who), tree| {
        let (id, who) = who.clone();
        let (t, request) = (&s.t, manifest(&s.work, id, tree, None));
        async move { t.send(&who, request).await }
    };
    for (who, tree, bytes) in [(&s.a, &slow_tree, &slow), (&s.b, &quick_tree, &quick)] {
        assert!(matches!(announce(who, tree).await.read(), UploadReply::Missing { .. }));
        for (number, piece) in (0..).zip(bytes.chunks(PART_BYTES)) {
            assert_eq!(s.t.send(&who.1, part(&s.work, who.0, number, piece)).await.status, 204);
        }
    }
    let first = hex::encode(slow_tree.parts()[0]);
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    server.treat(move |method, uri| {
        if *method != Method::GET || !uri.path().ends_with(&first) {
            return Treatment::Serve;
        }
        if let Some(tell) = tell.take() {
            let _ = tell.send(());
        }
        Treatment::Delay(Duration::from_secs(4))
    });
    let ended = Mutex::new(Vec::new());
    tokio::join!(
        async {
            receipt(&announce(&s.a, &slow_tree).await);
            ended.lock().unwrap().push("slow");
        },
        async {
            told.await.unwrap();
            receipt(&announce(&s.b, &quick_tree).await);
            ended.lock().unwrap().push("quick");
        }
    );
    assert_eq!(ended.into_inner().unwrap(), ["quick", "slow"]);
}

#[tokio::test]
async fn parts_outlive_a_restart_and_come_in_any_order() {
    let (config, _folder) = World::place();
    let mut s = Scene::with(&config).await;
    let body = body([1, 2, 3]);
    let tree = PartTree::of(&body);
    assert_eq!(s.missing(&tree).await, [0, 1]);
    assert_eq!(s.part(1, slice(&body, 1)).await.status, 204);
    // A part in transit when the process dies is lost.
    let cut = stream::iter([Ok(slice(&body, 0)[..100_000].to_vec()), Err(std::io::Error::other("connection reset"))]);
    let request = part(&s.work, s.a.0, 0, slice(&body, 0)).map(|_| Body::from_stream(cut));
    s.t.send(&s.a.1, request).await.problem(ProblemType::MalformedRequest);
    s.t.restart(&config, 2).await;
    s.t.inner.engine.collect_garbage().await.unwrap();
    assert_eq!(s.missing(&tree).await, [0]);
    s.t.advance(Duration::from_secs(60));
    s.t.inner.engine.collect_garbage().await.unwrap();
    assert_eq!(s.part(0, slice(&body, 0)).await.status, 204);
    s.t.restart(&config, 3).await;
    assert_eq!(receipt(&s.announce(&tree).await).bytes, body.len() as u64);
}

#[tokio::test]
async fn a_part_is_stored_once_and_only_as_it_was_announced() {
    let s = Scene::new().await;
    let body = body([1, 2, 3]);
    let (tree, [first, second]) = (PartTree::of(&body), [0, 1].map(|number| slice(&body, number)));
    s.part(0, first).await.problem(ProblemType::PartNotExpected);
    assert_eq!(s.missing(&tree).await, [0, 1]);
    for (number, bytes, kind) in [
        (2, second, ProblemType::PartNotExpected),
        (0, second, ProblemType::WrongLength),
        (1, first, ProblemType::WrongLength),
        (0, &[7; PART_BYTES][..], ProblemType::DigestMismatch),
    ] {
        s.part(number, bytes).await.problem(kind);
    }
    // Its length may be unannounced.
    let longer = stream::iter([first, b"x"].map(|piece| Ok::<_, std::io::Error>(piece.to_vec())));
    let mut request = part(&s.work, s.a.0, 0, &[]).map(|_| Body::from_stream(longer));
    request.headers_mut().remove("content-length");
    s.t.send(&s.a.1, request).await.problem(ProblemType::WrongLength);
    s.t.send(&s.b.1, part(&s.work, s.a.0, 0, first)).await.problem(ProblemType::Forbidden);
    s.t.send(&s.b.1, part(&s.work, s.b.0, 0, first)).await.problem(ProblemType::PartNotExpected);
    assert_eq!(s.missing(&tree).await, [0, 1], "none of it was kept");
    for _ in 0..2 {
        assert_eq!(s.part(0, first).await.status, 204);
        assert_eq!(s.missing(&tree).await, [1]);
    }
    // A stored part is not read again, regardless of its content.
    let never_read = stream::once(async { panic!("the body was read") as Result<Vec<u8>, std::io::Error> });
    let request = part(&s.work, s.a.0, 0, first).map(|_| Body::from_stream(never_read));
    assert_eq!(s.t.send(&s.a.1, request).await.status, 204);
}

/// Otherwise a participant could fill the disk with parts of several inputs, of which at most one is included.
#[tokio::test]
async fn who_has_announced_an_input_announces_no_other() {
    let s = Scene::new().await;
    let (one, two) = (body([1, 2, 3]), body([3, 2, 1]));
    let name = Digest(PartTree::of(&one).root()).to_string();
    assert_eq!(s.missing(&PartTree::of(&one)).await, [0, 1]);
    for number in [0, 1] {
        // Before and after its first part is stored.
        let detail = s.announce(&PartTree::of(&two)).await.problem(ProblemType::DifferentInput);
        assert!(detail.contains(&name), "{detail}");
        s.part(number, slice(&two, number)).await.problem(ProblemType::DigestMismatch);
        assert_eq!(s.part(number, slice(&one, number)).await.status, 204);
    }
    s.t.advance(Duration::from_secs(3_600));
    s.t.inner.engine.collect_garbage().await.unwrap();
    assert_eq!(receipt(&s.announce(&PartTree::of(&one)).await).sha256.to_string(), name);
    s.announce(&PartTree::of(&two)).await.problem(ProblemType::DifferentInput);
    let whole = s.t.send(&s.a.1, s.t.upload(&s.work, s.a.0, &two)).await;
    whole.problem(ProblemType::DifferentInput);
}

#[tokio::test]
async fn nothing_is_kept_of_a_part_that_comes_after_the_round() {
    let s = Scene::new().await;
    let body = body([1, 2, 3]);
    assert_eq!(s.missing(&PartTree::of(&body)).await, [0, 1]);
    assert_eq!(s.part(0, slice(&body, 0)).await.status, 204);
    assert_eq!(s.t.post(&s.t.operator, "/v1/tasks/small/cancel", &json!({})).await.status, 200);
    s.t.work().await;
    s.part(1, slice(&body, 1)).await.problem(ProblemType::PhaseClosed);
    s.announce(&PartTree::of(&body)).await.problem(ProblemType::PhaseClosed);
    s.t.advance(Duration::from_secs(3_600));
    s.t.inner.engine.collect_garbage().await.unwrap();
    assert!(!s.is_stored(slice(&body, 0)).await && !s.is_stored(slice(&body, 1)).await);
}

#[tokio::test]
async fn a_part_that_was_lost_is_asked_for_again() {
    let s = Scene::new().await;
    let body = body([1, 2, 3]);
    let tree = PartTree::of(&body);
    for number in s.missing(&tree).await {
        assert_eq!(s.part(number, slice(&body, number)).await.status, 204);
    }
    assert!(s.t.inner.store.blobs().delete(sha256(slice(&body, 1))).await.unwrap());
    assert_eq!(s.missing(&tree).await, [0, 1]);
    assert_eq!(s.send_all(&body).await.bytes, body.len() as u64);
}

#[tokio::test]
async fn a_manifest_is_judged_before_any_part() {
    let s = Scene::new().await;
    let body = body([1, 2, 3]);
    let (tree, bytes) = (PartTree::of(&body), body.len() as u64);
    let of = |bytes: u64, parts: usize| {
        let body = json!({ "bytes": bytes, "parts": vec![Digest([1; 32]); parts] }).to_string();
        let path = route::upload_manifest(s.work.task, s.work.round, s.a.0);
        put(&path, "application/json", s.work.attempt, body.as_bytes())
    };
    for (bytes, parts, kind) in [
        (bytes, 1, ProblemType::InvalidValue),
        (bytes, 3, ProblemType::InvalidValue),
        (16, 1, ProblemType::InvalidValue),
        (0, 0, ProblemType::InvalidValue),
        (bytes + 4, 2, ProblemType::WrongLength),
        (u64::MAX, 2, ProblemType::InvalidValue),
        (1 << 36, 1 << 13, ProblemType::WrongLength),
    ] {
        s.t.send(&s.a.1, of(bytes, parts)).await.problem(kind);
    }
    let mut unnamed = manifest(&s.work, s.a.0, &tree, None);
    unnamed.headers_mut().remove(ATTEMPT);
    s.t.send(&s.a.1, unnamed).await.problem(ProblemType::MalformedRequest);
    s.t.send(&s.b.1, manifest(&s.work, s.a.0, &tree, None)).await.problem(ProblemType::Forbidden);
    let (stranger, who) = s.t.enroll("c").await;
    s.t.send(&who, manifest(&s.work, stranger, &tree, None)).await.problem(ProblemType::NotAssigned);
    let mut other = s.work.clone();
    other.attempt = 2;
    s.t.send(&s.a.1, manifest(&other, s.a.0, &tree, None)).await.problem(ProblemType::NotFound);
    // An abandoned place rejects announced parts.
    assert_eq!(s.missing(&tree).await, [0, 1]);
    let path = route::fill(route::EXCUSE, &[&s.work.task, &1, &s.a.0]);
    assert_eq!(s.t.post(&s.t.operator, &path, &json!({})).await.status, 204);
    s.part(0, slice(&body, 0)).await.problem(ProblemType::NotAssigned);
    s.announce(&tree).await.problem(ProblemType::NotAssigned);
}

#[tokio::test]
async fn an_update_beyond_its_bounds_is_refused_once_all_of_it_is_there() {
    // Out of bounds by the first part, and by a word across two parts.
    let weightless = [&body([1, 2, 3])[..4 * PARAMETERS], &0_u32.to_le_bytes()].concat();
    for bad in [body([1, i32::MIN, 3]), weightless] {
        let s = Scene::new().await;
        let tree = PartTree::of(&bad);
        for number in s.missing(&tree).await {
            assert_eq!(s.part(number, slice(&bad, number)).await.status, 204);
        }
        let detail = s.announce(&tree).await.problem(ProblemType::InvalidValue);
        assert!(detail.contains("not valid in this task's encoding"), "{detail}");
        s.announce(&PartTree::of(&body([1, 2, 3]))).await.problem(ProblemType::NotAssigned);
        assert_eq!(s.t.send(&s.b.1, s.t.upload(&s.work, s.b.0, &body([1, 2, 3]))).await.status, 200);
        s.t.work().await;
        let round = s.t.get(&s.t.viewer, "/v1/tasks/small/rounds/1").await.json();
        assert_eq!((&round["state"], &round["reported"]), (&json!("COMPLETED"), &json!(1)), "{round}");
    }
}

/// Over the same rows, with the shortest request timeout.
async fn hasty(t: &TestCoordinator) -> TestCoordinator {
    let mut config = config();
    config.http.request_timeout_ms = 1;
    let parts = Parts { clock: t.clock.clone(), random: Random::from_seed(9) };
    let inner = Coordinator::assemble_on(&config, parts, t.inner.store.clone()).unwrap();
    let (viewer, operator, admin) = (t.viewer.clone(), t.operator.clone(), t.admin.clone());
    TestCoordinator { inner, clock: t.clock.clone(), viewer, operator, admin, told: Mutex::default() }
}

#[tokio::test]
async fn a_manifest_is_read_from_those_with_a_place_alone_and_not_for_long() {
    let s = Scene::new().await;
    let other = s.t.enroll("c").await;
    let (path, long) = (|who| route::upload_manifest(s.work.task, s.work.round, who), Duration::from_secs(120));
    let endless = |who| {
        let mut request = put(&path(who), "application/json", s.work.attempt, b"");
        request.headers_mut().remove("content-length");
        request.map(|_| Body::from_stream(stream::pending::<Result<&[u8], std::io::Error>>()))
    };
    let reply = tokio::time::timeout(long, s.t.send(&other.1, endless(other.0))).await;
    reply.expect("it is not waited for").problem(ProblemType::NotAssigned);
    let hasty = hasty(&s.t).await;
    let reply = tokio::time::timeout(long, hasty.send(&s.a.1, endless(s.a.0))).await;
    reply.expect("only an input has longer").problem(ProblemType::TooSlow);
}

#[tokio::test]
async fn masked_inputs_in_parts_are_signed_and_open_to_the_same_sum() {
    let large = |spec: &mut Value| spec["model"]["tensors"][0]["shape"] = json!([PARAMETERS]);
    let mut world = World::with(4, large).await;
    world.up_to(1, RoundState::Collecting).await;
    let mut signed = Vec::new();
    for member in &mut world.members {
        signed.push(member.mask(&world.t, &world.model).await);
    }
    let t = &world.t;
    for (at, member) in world.members.iter().enumerate() {
        let (work, tree) = (member.place().clone(), PartTree::of(&member.masked));
        assert_eq!(signed[at].body.digest, tree.root());
        t.send(&member.who, manifest(&work, member.id, &tree, None)).await.problem(ProblemType::MalformedRequest);
        let others = &signed[(at + 1) % 4];
        let reply = t.send(&member.who, manifest(&work, member.id, &tree, Some(others))).await;
        reply.problem(ProblemType::SessionRejected);
        let mut changed = member.masked.clone();
        changed[0] ^= 1;
        let request = manifest(&work, member.id, &PartTree::of(&changed), Some(&signed[at]));
        t.send(&member.who, request).await.problem(ProblemType::DigestMismatch);
        for number in [0, 1] {
            let request = part(&work, member.id, number, slice(&member.masked, number));
            t.send(&member.who, request).await.problem(ProblemType::PartNotExpected);
        }
        let announce = || manifest(&work, member.id, &tree, Some(&signed[at]));
        let reply: UploadReply = t.send(&member.who, announce()).await.read();
        assert_eq!(reply, UploadReply::Missing { parts: vec![0, 1] });
        for number in [1, 0] {
            let request = part(&work, member.id, number, slice(&member.masked, number));
            assert_eq!(t.send(&member.who, request).await.status, 204);
        }
        let accepted = receipt(&t.send(&member.who, announce()).await);
        assert_eq!(accepted.sha256.0, tree.root());
    }
    world.t.work().await;
    assert_eq!(world.state(1).await, RoundState::Confirming);
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    assert_eq!(world.released(1).await, Some(world.plain(1, |_| true)));
}

/// An old SDK sends an input of any length whole, signed over larger chunks.
#[tokio::test]
async fn an_input_of_the_first_version_of_the_contract_is_still_accepted_whole() {
    let large = |spec: &mut Value| spec["model"]["tensors"][0]["shape"] = json!([PARAMETERS]);
    let mut world = World::with(4, large).await;
    world.up_to(1, RoundState::Collecting).await;
    let member = &mut world.members[0];
    let signed = member.mask(&world.t, &world.model).await;
    let reply = world.t.send(&world.members[0].who, world.members[0].upload(&world.members[0].masked, &signed)).await;
    reply.problem(ProblemType::DigestMismatch);
    let mut said = signed.body;
    said.digest = secure_agg::upload::digest(&world.members[0].masked);
    let old = secure_agg::messages::Signed::sign(said, &world.members[0].signer).unwrap();
    let receipt: Receipt =
        world.t.send(&world.members[0].who, world.members[0].upload(&world.members[0].masked, &old)).await.read();
    assert_eq!(receipt.sha256, sha256(&world.members[0].masked));
}
