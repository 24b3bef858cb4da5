//! Blobs in a real S3 server with a copy on disk: rounds end in the same models despite lost or damaged objects.

use coordinator::config::Config;
use federation::round::RoundState;
use test_servers::s3::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY, Treatment};

use wire::problem::ProblemType;
use wire::route;

use crate::support::secure::World;
use crate::support::{Reply, TestCoordinator, config, input, small_task};

struct Place {
    server: S3Server,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { server: S3Server::start(), folder: tempfile::tempdir().unwrap() }
    }

    fn config(&self) -> Config {
        let at = |name: &str| self.folder.path().join(name);
        let keys = format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(at("credentials"), keys).unwrap();
        let mut config = config();
        config.blobs.url = format!("s3://{BUCKET}/models/and/inputs");
        config.blobs.replicas = vec![format!("file:{}", at("copy").display())];
        config.blobs.endpoint = Some(self.server.endpoint());
        config.blobs.credentials_file = Some(at("credentials"));
        config.blobs.cache = at("cache");
        config
    }

    /// Whether the object's bytes match its key.
    fn is_whole(&self, key: &str) -> bool {
        let bytes = std::fs::read(self.server.object(key)).unwrap();
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        key.ends_with(&hex::encode(digest.as_ref()))
    }

    /// Damages every intact object; returns their keys.
    fn damage_all(&self) -> Vec<String> {
        let keys: Vec<_> = self.server.keys().into_iter().filter(|key| self.is_whole(key)).collect();
        for key in &keys {
            let mut bytes = std::fs::read(self.server.object(key)).unwrap();
            bytes[0] ^= 1;
            std::fs::write(self.server.object(key), bytes).unwrap();
            assert!(!self.is_whole(key));
        }
        keys
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_ends_in_the_same_models_though_every_object_is_damaged_on_the_way() {
    let mut undisturbed = World::new(4).await;
    undisturbed.complete(1).await;
    undisturbed.complete(2).await;

    let place = Place::new();
    let mut world = World::with_config(4, place.config(), |_| {}).await;
    world.up_to(1, RoundState::Collecting).await;
    world.act(RoundState::Collecting, |at| at < 3).await;
    let before_sum = place.damage_all();
    assert_eq!(before_sum.len(), 4, "the model and three inputs");
    world.act(RoundState::Collecting, |at| at == 3).await;
    assert_eq!(world.state(1).await, RoundState::Confirming);
    assert_eq!(place.damage_all().len(), 1, "the last input");
    world.act(RoundState::Confirming, |_| true).await;
    world.act(RoundState::Unmasking, |_| true).await;
    assert_eq!(world.state(1).await, RoundState::Completed);
    let mended = before_sum.iter().filter(|key| place.is_whole(key)).count();
    assert!(mended >= 3, "{mended} objects of inputs were read, and stored again");
    place.damage_all();
    world.complete(2).await;
    assert_eq!(world.digests().await, undisturbed.digests().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_goes_on_while_the_copy_is_away_and_the_copy_gets_what_it_lacks() {
    let mut undisturbed = World::new(4).await;
    undisturbed.complete(1).await;
    undisturbed.complete(2).await;

    let place = Place::new();
    let mut config = place.config();
    // The folder is the primary, the server its copy.
    let copy = format!("s3://{BUCKET}/copy");
    config.blobs.url = std::mem::replace(&mut config.blobs.replicas[0], copy);
    let mut world = World::with_config(4, config, |_| {}).await;
    place.server.treat(|_, _| Treatment::Refuse(http::StatusCode::FORBIDDEN));
    world.complete(1).await;
    let troubles = world.t.inner.store.blobs().troubles();
    assert!(troubles.len() == 1 && troubles[0].contains("s3://blobs/copy is away"), "{troubles:?}");
    place.server.treat(|_, _| Treatment::Serve);
    world.t.advance(std::time::Duration::from_secs(61));
    world.complete(2).await;
    world.t.inner.engine.collect_garbage().await.unwrap();
    assert_eq!(world.t.inner.store.blobs().troubles(), [""; 0]);
    assert_eq!(world.digests().await, undisturbed.digests().await);
    let keys = place.server.keys();
    for digest in world.digests().await {
        let digest = digest.trim_matches('"');
        assert!(keys.iter().any(|key| key.ends_with(digest) && place.is_whole(key)), "{digest} in {keys:?}");
    }
}

/// The response requests a retry, and reveals neither the store nor its credentials.
fn asks_to_come_back(reply: &Reply) {
    assert_eq!(reply.problem(ProblemType::Unavailable), "");
    assert_eq!(reply.headers["retry-after"], "5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_participants_are_asked_to_come_back() {
    let mut place = Place::new();
    let mut config = place.config();
    config.blobs.replicas.clear();
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let enrolled = [t.enroll("a").await, t.enroll("b").await];
    let who = enrolled.each_ref().map(|(_, who)| who.clone());
    let assignments = t.assigned(&who).await;
    let base = route::model_parameters(task, assignments[0].base.version);
    let inputs = [input([1, 2, 3]), input([4, 5, 6])];
    let send = async |n: usize| t.send(&who[n], t.upload(&assignments[n], enrolled[n].0, &inputs[n])).await;

    place.server.kill();
    // A recently checked copy is valid for a while.
    t.advance(std::time::Duration::from_secs(11));
    asks_to_come_back(&t.get(&who[0], &base).await);
    asks_to_come_back(&send(0).await);
    // Requests without blobs are served.
    t.check_in(&who[1], "small").await;

    place.server.restart();
    assert_eq!(t.get(&who[0], &base).await.status, 200);
    assert_eq!(send(0).await.status, 200);
    assert_eq!(send(1).await.status, 200);
    place.server.kill();
    let failed = t.inner.engine.step_all().await.unwrap_err();
    assert_eq!(failed.code(), "store_blobs_away");
    place.server.restart();
    t.work().await;
    let round = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.json();
    assert_eq!((&round["state"], &round["reported"]), (&"COMPLETED".into(), &2.into()), "{round}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_moves_no_model_and_tells_of_one_that_is_gone() {
    let place = Place::new();
    let mut config = place.config();
    config.blobs.replicas.clear();
    let mut world = World::with_config(4, config, |_| {}).await;
    world.complete(1).await;
    world.t.advance(std::time::Duration::from_secs(600));
    let got = || place.server.requests()["GET"];
    let before = got();
    let ready = world.t.get(&world.t.viewer, "/readyz").await;
    assert_eq!((ready.status.as_u16(), String::from_utf8(ready.body).unwrap().as_str()), (200, "ready\n"));
    assert_eq!(got(), before, "no model is fetched");

    let digests = world.digests().await;
    let newest = digests[0].trim_matches('"');
    let key = place.server.keys().into_iter().find(|key| key.ends_with(newest)).unwrap();
    let kept = std::fs::read(place.server.object(&key)).unwrap();
    std::fs::remove_file(place.server.object(&key)).unwrap();
    world.t.advance(std::time::Duration::from_secs(2));
    let told = String::from_utf8(world.t.get(&world.t.viewer, "/readyz").await.body).unwrap();
    assert!(told.starts_with("degraded") && told.contains(newest), "{told}");

    // Changed bytes of the same length are detected before they are sent or a round uses them, and reported from then on.
    let damaged: Vec<_> = kept.iter().map(|byte| byte ^ 1).collect();
    std::fs::write(place.server.object(&key), damaged).unwrap();
    let refused = world.t.get(&world.t.viewer, "/v1/tasks/secure/models/1/parameters").await;
    assert_eq!(refused.status, 503);
    world.t.advance(std::time::Duration::from_secs(2));
    let told = String::from_utf8(world.t.get(&world.t.viewer, "/readyz").await.body).unwrap();
    assert!(told.starts_with("degraded") && told.contains(newest), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_is_answered_within_two_seconds_whatever_the_bucket_does() {
    let place = Place::new();
    let mut config = place.config();
    config.blobs.replicas.clear();
    let t = TestCoordinator::with(&config).await;
    let ready = async || {
        t.advance(std::time::Duration::from_secs(2));
        let reply = tokio::time::timeout(std::time::Duration::from_secs(2), t.get(&t.viewer, route::READYZ)).await;
        reply.expect("an answer within two seconds")
    };
    assert_eq!(ready().await.body, b"ready\n");
    for treatment in [
        Treatment::Refuse(http::StatusCode::FORBIDDEN),
        Treatment::Refuse(http::StatusCode::INTERNAL_SERVER_ERROR),
        Treatment::Delay(std::time::Duration::from_secs(14)),
    ] {
        place.server.treat(move |_, _| treatment);
        for _ in 0..2 {
            let detail = ready().await.problem(ProblemType::Unavailable);
            assert!(detail.contains("the folder of blobs"), "{treatment:?}: {detail}");
        }
        place.server.treat(|_, _| Treatment::Serve);
        let mut left = 600;
        while ready().await.status != 200 {
            assert!(left > 0, "{treatment:?}: it is ready again");
            left -= 1;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}
