//! Robust rules: their results and anomaly scores, and their resistance to one attacker.

use federation::device_reason::DeviceReason;
use learning::robust;
use learning::{NoisedSum, Update};
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use store::BlobStore as _;
use store::entity::noised_sum::NoisedSumRow;
use task_spec::{RobustRule, RobustSpec};

use crate::world::World;

const PEOPLE: usize = 9;
const RULES: [RobustRule; 6] = [
    RobustRule::Median,
    RobustRule::TrimmedMean,
    RobustRule::Krum,
    RobustRule::MultiKrum,
    RobustRule::GeometricMedian,
    RobustRule::NormFilter,
];

const fn spec(rule: RobustRule) -> RobustSpec {
    RobustSpec { rule, attackers: 0.23, norm_factor: None, group_size: None }
}

async fn world(rule: RobustRule) -> World {
    World::with(PEOPLE, |spec| {
        spec.aggregation.robust = Some(self::spec(rule));
        spec.rounds.count = 1;
        spec.rounds.collect_min = Some(7);
    })
    .await
}

/// Close to a common direction; the first two are reversed and five times as long.
fn delta(person: usize, length: usize) -> Vec<f32> {
    let value = |i: usize| 0.05 + 0.01 * ((person * 7 + i * 5) % 11) as f32 / 11.0;
    (0..length).map(|i| if person < 2 { -5.0 * value(i) } else { value(i) }).collect()
}

/// The decoded mean of the round's release, and the scores.
async fn run(world: &World) -> (Vec<f32>, Vec<Option<f64>>) {
    let engine = world.engine(1);
    world.start_round(&engine).await;
    let codec = *world.model.codec.plain().unwrap();
    for (person, &id) in world.participants.iter().enumerate() {
        let delta = delta(person, codec.params().parameters);
        let metrics = vec![Default::default(); codec.params().metrics];
        // Attackers claim the maximum number of examples.
        let examples = if person < 2 { u64::MAX } else { 10 + person as u64 };
        let update = Update { delta, examples, metrics };
        let words = codec.encode(&update, &mut ChaCha20Rng::seed_from_u64(person as u64)).unwrap().words;
        assert!(world.upload(id, secure_agg::packing::pack(&words, world.model.modulus).into()).await);
    }
    engine.step_all().await.unwrap();
    let key = world.key(1);
    let people = &world.participants;
    let (row, scores) = world
        .store
        .read("test", |tx| {
            Box::pin(async move {
                let mut scores = Vec::new();
                for &id in people {
                    scores.push(tx.anomaly_score(key.attempt(1), id).await?);
                }
                Ok::<_, store::StoreError>((tx.noised_sum(key.attempt(1)).await?.unwrap(), scores))
            })
        })
        .await
        .unwrap();
    let sum = NoisedSum::from_bytes(&world.blobs.get(row.blob).await.unwrap()).unwrap();
    assert_eq!(row.participants as usize, PEOPLE);
    (codec.decode(&sum).unwrap().delta, scores)
}

#[tokio::test]
async fn a_round_releases_what_the_rule_makes_of_its_inputs() {
    for rule in RULES {
        let world = world(rule).await;
        let (mean, scores) = run(&world).await;
        let rows: Vec<_> = (0..PEOPLE).map(|person| delta(person, mean.len())).collect();
        let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
        let expected = robust::combine(&self::spec(rule), &rows, 2).unwrap();
        for (got, expected) in mean.iter().zip(&expected.values) {
            assert!((got - expected).abs() < 5e-5, "{}: {got} is not {expected}", rule.as_str());
        }
        for (got, expected) in scores.iter().zip(&expected.scores) {
            let got = got.unwrap();
            assert!((got - expected).abs() < 0.02 * expected.max(1.0), "{}: {got} is not {expected}", rule.as_str());
        }
        assert!(scores[..2].iter().all(|score| score.unwrap() > 5.0), "{}: {scores:?}", rule.as_str());
        assert!(mean.iter().all(|value| (0.049..0.061).contains(value)), "{}: {mean:?}", rule.as_str());
        assert_eq!(world.versions().await.len(), 2, "the model moved on");
    }
}

#[tokio::test]
async fn a_rule_in_the_clear_names_the_device_that_compared_the_inputs() {
    // One rule based on sorted coordinates, and one based on distances.
    for rule in [RobustRule::TrimmedMean, RobustRule::Krum] {
        let world = world(rule).await;
        run(&world).await;
        let attempt = world.key(1).attempt(1);
        let read = world.store.read("test", |tx| Box::pin(async move { tx.noised_sum(attempt).await }));
        let row: Result<Option<NoisedSumRow>, store::StoreError> = read.await;
        let work = row.unwrap().unwrap().work.expect("somebody compared them");
        assert!(work.sum_device.starts_with("cpu ("), "{work:?}");
        let asked_for = Some(DeviceReason::AskedFor);
        assert_eq!((work.sum_because, work.unmask_because, &work.device_failure), (asked_for, asked_for, &None));
        assert_eq!((&work.unmask_device, work.unmask_ms, work.keystream_bytes), (&work.sum_device, 0, 0));
    }
}

#[tokio::test]
async fn without_a_rule_two_attackers_turn_the_mean_round_and_nobody_is_scored() {
    let world = World::with(PEOPLE, |spec| spec.rounds.count = 1).await;
    let (mean, scores) = run(&world).await;
    assert!(mean.iter().all(|value| *value < 0.0), "{mean:?}");
    assert_eq!(scores, [None; PEOPLE]);
}

#[tokio::test]
async fn an_input_that_cannot_be_read_any_more_fails_the_round() {
    let world = world(RobustRule::Median).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    for &id in &world.participants[1..] {
        assert!(world.report(id).await);
    }
    let last = world.input(world.participants[0], 1);
    world.blobs.damage(federation::id::Digest(
        ring::digest::digest(&ring::digest::SHA256, &last).as_ref().try_into().unwrap(),
    ));
    assert!(world.upload(world.participants[0], last).await);
    engine.step_all().await.unwrap();
    world.assert_failed(1, federation::round::FailureReason::InputLost).await;
}
