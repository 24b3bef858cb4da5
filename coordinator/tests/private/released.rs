//! Releases: the noise in the ledger, for the participants in the sum.

use coordinator::work::WorkConfig;
use federation::round::RoundState;
use serde_json::json;
use wire::provenance::{SignedProvenance, SpentSoFar};
use wire::route;

use crate::support::private::{Derived, assert_variance, charged_variance, in_the_clear, mechanism};
use crate::support::secure::{Drops, World};

/// Three of ten fall silent at different points: the first two are not in the sum.
const THREE_OF_TEN: [Drops; 10] = [
    Drops::Shares,
    Drops::Input,
    Drops::Input,
    Drops::Never,
    Drops::Never,
    Drops::Never,
    Drops::Never,
    Drops::Never,
    Drops::Never,
    Drops::Never,
];

/// Runs a round under secure aggregation and compares its release with its charge.
async fn released_by(name: &str, drops: &[Drops; 10], own: impl Fn(&Derived, u32) -> f64) -> World {
    let mut world = World::with(10, |spec| mechanism(spec, name)).await;
    let view = world.run(1, drops).await;
    assert_eq!((view.state, view.failure), (RoundState::Completed, None));
    let included = |at: usize| drops[at] > Drops::Input;
    let survivors = u32::try_from((0..10).filter(|&at| included(at)).count()).unwrap();

    let report = world.ledger().await;
    assert_eq!(report.releases.len(), 1);
    let row = &report.releases[0];
    assert_eq!((row.round, row.attempt, row.published, row.participants), (1, 1, true, Some(survivors)));
    assert_eq!(view.epsilon.as_ref(), Some(&row.total), "the round shows what the ledger says");
    let task = world.t.get(&world.t.viewer, &route::fill(route::TASK, &[&world.task])).await.json();
    let across = &task["protection"]["across_rounds"];
    let noise = json!({ "kind": "noise", "epsilon": row.total.cohort_known, "server_epsilon": row.total.server });
    for key in ["kind", "epsilon", "server_epsilon"] {
        assert_eq!(across[key], noise[key], "{across}");
    }
    let path = route::fill(route::MODEL_PROVENANCE, &[&world.task, &1]);
    let record = world.t.get(&world.t.viewer, &path).await.read::<SignedProvenance>().open().unwrap();
    let delta = report.spec.delta.unwrap();
    assert_eq!(
        record.privacy,
        Some(SpentSoFar { epsilon: row.total.published, delta }),
        "so does the version's record"
    );
    assert_eq!((row.total.published, row.total.cohort_known), (report.spent.published, report.spent.cohort_known));

    let place = world.members[9].place.clone().unwrap();
    let derived = Derived::new(&place, place.privacy.as_ref().unwrap());
    let (really, charged) = (own(&derived, survivors), charged_variance(&row.parameters));
    assert_variance(&world.residual(1, included).await, really);
    // Possible colluders' shares are present but excluded from the charge.
    let colluders = if derived.shares.is_some() { report.colluders } else { 0 };
    let counted = really * f64::from(survivors - colluders) / f64::from(survivors);
    let expected = if name == "local" { really / f64::from(survivors) } else { counted };
    assert!((charged / expected - 1.0).abs() < 1e-9, "{charged} charged, {expected} there");
    // And that suffices for the promised noise multiplier.
    let sensitivity = row.parameters["sum"]["sensitivity"].as_f64().unwrap();
    assert!((sensitivity - derived.codec.sensitivity()).abs() < 1e-9);
    assert!(row.noise_multiplier >= 1.0 && charged.sqrt() >= sensitivity, "{row:?}");
    world
}

#[tokio::test]
async fn every_slice_of_a_large_sum_has_noise_of_its_own() {
    let mut world = World::with(4, |spec| {
        in_the_clear(spec, "central_gaussian");
        spec["model"]["tensors"][0]["shape"] = json!([70_000]);
    })
    .await;
    world.t.inner.engine = world.t.inner.engine.with_config(|config| WorkConfig { slice_words: 1, ..config });
    let view = world.run_in_the_clear(1, |_| true, |_| true).await;
    assert_eq!((view.state, view.failure), (RoundState::Completed, None));
    let charged = charged_variance(&world.ledger().await.releases[0].parameters);
    let noise = world.residual(1, |_| true).await;
    let slices: Vec<_> = noise.chunks(1 << 16).collect();
    assert!(slices.len() > 1 && slices[0][..1000] != slices[1][..1000], "other noise in each");
    slices.into_iter().for_each(|slice| assert_variance(slice, charged));
}

fn share_variance(derived: &Derived) -> f64 {
    use learning::privacy::NoiseLaw;
    match derived.shares.expect("participants add noise").share {
        NoiseLaw::DiscreteGaussian(sigma) => sigma.value().powi(2),
        NoiseLaw::Skellam(variance) => variance.value(),
    }
}

#[tokio::test]
async fn central_noise_under_secure_aggregation_is_what_the_ledger_says() {
    let world =
        released_by("central_gaussian", &THREE_OF_TEN, |derived, _| derived.codec.sigma().value().powi(2)).await;
    let spent = world.ledger().await.spent;
    assert_eq!((spent.server, spent.server_reason.as_deref()), (None, Some("server_trusted")));
}

#[tokio::test]
async fn shares_of_the_survivors_make_up_the_noise_that_the_ledger_says() {
    for name in ["distributed_discrete_gaussian", "distributed_skellam"] {
        let few = released_by(name, &THREE_OF_TEN, |derived, n| share_variance(derived) * f64::from(n)).await;
        let all = released_by(name, &[Drops::Never; 10], |derived, n| share_variance(derived) * f64::from(n)).await;
        let (few, all) = (few.ledger().await, all.ledger().await);
        assert!(few.smallest_cohort == 7 && few.colluders == 0 || few.colluders > 0, "{few:?}");
        assert_eq!(few.spent.server, Some(few.spent.cohort_known), "the coordinator sees the noise as well");
        assert!(all.spent.cohort_known < few.spent.cohort_known, "more shares, more noise, less spent");
    }
}

#[tokio::test]
async fn fewer_than_the_noise_counts_on_release_nothing_and_are_not_charged() {
    let mut world = World::with(10, |spec| mechanism(spec, "distributed_skellam")).await;
    let smallest = world.ledger().await.smallest_cohort;
    assert_eq!(smallest, 7);
    let drops: Vec<_> = (0..10).map(|at| if at < 4 { Drops::Input } else { Drops::Never }).collect();
    let view = world.run(1, &drops).await;
    assert_eq!(view.state, RoundState::Failed);
    assert_eq!(world.released(1).await, None);
    assert_eq!(world.rows().await, []);
}

#[tokio::test]
async fn local_noise_is_all_that_each_needs() {
    let local = |derived: &Derived, n: u32| share_variance(derived) * f64::from(n);
    released_by("local", &[Drops::Never; 10], local).await;
    // Also unmasked, since local noise suffices.
    let mut world = World::with(4, |spec| in_the_clear(spec, "local")).await;
    let view = world.run_in_the_clear(1, |_| true, |_| true).await;
    assert_eq!(view.state, RoundState::Completed);
    let place = world.members[0].place.clone().unwrap();
    let derived = Derived::new(&place, place.privacy.as_ref().unwrap());
    let row = &world.ledger().await.releases[0];
    assert_eq!(charged_variance(&row.parameters), share_variance(&derived));
    assert_variance(&world.residual(1, |_| true).await, 4.0 * share_variance(&derived));
}

#[tokio::test]
async fn central_noise_in_the_clear_is_drawn_once_for_each_round() {
    let mut world = World::with(4, |spec| in_the_clear(spec, "central_gaussian")).await;
    let mut residuals = Vec::new();
    for number in 1..=2 {
        let view = world.run_in_the_clear(number, |_| true, |_| true).await;
        assert_eq!((view.state, view.failure), (RoundState::Completed, None));
        let row = world.ledger().await.releases.remove(number as usize - 1);
        let residual = world.residual(number, |_| true).await;
        assert_variance(&residual, charged_variance(&row.parameters));
        residuals.push(residual);
    }
    let both: Vec<_> = residuals[0].iter().zip(&residuals[1]).map(|(a, b)| a - b).collect();
    let row = &world.ledger().await.releases[0];
    assert_variance(&both, 2.0 * charged_variance(&row.parameters));
}

#[tokio::test]
async fn residuals_of_a_tree_cancel_along_prefixes() {
    let participants = 12;
    let mut world = World::with(participants, |spec| {
        in_the_clear(spec, "tree");
        spec["rounds"]["count"] = json!(4);
        spec["selection"] = json!({ "cohort": { "count": 3 }, "require": { "max_participations": 1 } });
    })
    .await;
    let mut prefix: Vec<i64> = Vec::new();
    let mut sigma = 0.0;
    for number in 1..=4_u32 {
        for member in &mut world.members {
            member.place = None;
        }
        world.t.work().await;
        for member in &world.members {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        let mut cohort = Vec::new();
        for at in 0..participants {
            let drawn = world.assignments(number).await.contains_key(&world.members[at].id);
            if drawn {
                world.members[at].assigned(&world.t).await;
                let model = world.model.clone();
                world.members[at].report(&world.t, &model).await;
                cohort.push(at);
            }
        }
        world.t.work().await;
        assert_eq!(world.state(number).await, RoundState::Completed);
        assert_eq!(cohort.len(), 3);
        let residual = world.residual(number, |at| cohort.contains(&at)).await;
        prefix = if prefix.is_empty() { residual } else { prefix.iter().zip(&residual).map(|(a, b)| a + b).collect() };
        let row = world.ledger().await.releases.remove(number as usize - 1);
        assert_eq!(row.parameters["tree_release"], json!(number));
        sigma = charged_variance(&row.parameters);
        // As many nodes as the number has ones.
        assert_variance(&prefix, sigma * f64::from(number.count_ones()));
    }
    let spent = world.ledger().await.spent;
    assert!(sigma > 0.0 && spent.server.is_none());
    assert_eq!(world.status().await.0, "COMPLETED");
}

/// A round of a task with participation distance: all drawn participants report. Returns them.
pub(super) async fn run_drawn(world: &mut World, number: u32) -> Vec<usize> {
    for member in &mut world.members {
        member.place = None;
    }
    world.t.work().await;
    for member in &world.members {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    let mut cohort = Vec::new();
    for at in 0..world.members.len() {
        if world.assignments(number).await.contains_key(&world.members[at].id) {
            world.members[at].assigned(&world.t).await;
            let model = world.model.clone();
            world.members[at].report(&world.t, &model).await;
            cohort.push(at);
        }
    }
    world.t.work().await;
    assert_eq!(world.state(number).await, RoundState::Completed);
    cohort
}

/// Two participations each with a distance of three rounds, and a restart in between: later noise still cancels earlier noise.
#[tokio::test]
async fn residuals_of_a_banded_matrix_are_correlated_as_planned_across_a_restart() {
    const ROUNDS: u32 = 6;
    let mut world = World::on_disk(9, |spec| {
        in_the_clear(spec, "banded_matrix");
        spec["privacy"]["participations"] = json!(2);
        spec["privacy"]["separation"] = json!(3);
        spec["rounds"]["count"] = json!(ROUNDS);
        let require = json!({ "max_participations": 2, "min_gap_rounds": 2 });
        spec["selection"] = json!({ "cohort": { "count": 3 }, "require": require });
    })
    .await;
    let matrix = learning::privacy::BandedMatrix::new(3);
    let planned: Vec<f64> = matrix.prefix_variances(ROUNDS).collect();
    let (mut prefix, mut last) = (vec![0; world.model.codec.len()], Vec::<i64>::new());
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); 9];
    let mut square = 0.0_f64;
    for number in 1..=ROUNDS {
        if number == 3 || number == 5 {
            world.restart().await;
        }
        let cohort = run_drawn(&mut world, number).await;
        assert_eq!(cohort.len(), 3);
        cohort.iter().for_each(|&at| seen[at].push(number));
        let residual = world.residual(number, |at| cohort.contains(&at)).await;
        prefix.iter_mut().zip(&residual).for_each(|(sum, noise)| *sum += noise);
        let row = world.ledger().await.releases.remove(number as usize - 1);
        let bands = json!({ "bands": 3, "participations": 2, "after": number - 1, "place": number });
        assert_eq!(row.parameters["bands"], bands);
        let sigma = charged_variance(&row.parameters);
        assert_variance(&residual, sigma * matrix.release_variance(number));
        assert_variance(&prefix, sigma * planned[number as usize - 1]);
        if number > 1 {
            // The next release cancels half of a release's own noise.
            let together: f64 = last.iter().zip(&residual).map(|(&a, &b)| a as f64 * b as f64).sum();
            let expected = -0.5 * sigma * residual.len() as f64;
            assert!(together < 0.7 * expected && together > 1.3 * expected, "{number}: {together} {expected}");
        }
        last = residual;
        // The first coefficients, squared, repeatedly: the spent budget is the cost for participants in as many rounds as allowed.
        square += [1.0, 0.25, 0.140_625][(number as usize - 1) % 3];
        let z = row.noise_multiplier / square.sqrt();
        let exact = learning::privacy::accountant::Gaussians::new(1.0, z, 1).epsilon(1e-5).unwrap();
        let spent = row.total.published;
        assert!(spent >= exact * 0.999 && spent < exact * 1.02, "{number}: {spent} {exact}");
        assert_eq!((row.total.cohort_known, row.total.server), (spent, None));
    }
    for rounds in &seen {
        assert!(rounds.len() == 2 && rounds[1] - rounds[0] >= 3, "{seen:?}");
    }
    assert_eq!(world.status().await.0, "COMPLETED");
}

#[tokio::test]
async fn an_adaptive_clip_moves_and_both_sides_use_it() {
    // All updates are far longer than the clip, so it grows; or far shorter, so it shrinks.
    for (initial, grows) in [(5.0_f64, true), (80.0, false)] {
        let mut world = World::with(10, |spec| {
            mechanism(spec, "central_gaussian");
            spec["privacy"]["clip"] = json!({ "adaptive": { "initial": initial } });
            spec["privacy"]["noise_multiplier"] = json!(0.2);
        })
        .await;
        world.complete(1).await;
        let first = clip_told(&world);
        assert_eq!(first.to_bits(), initial.to_bits());
        let published: Vec<f64> = clips(&world).await;
        assert_eq!((published.len(), published[0].to_bits()), (2, initial.to_bits()));
        assert_eq!(published[1] > initial, grows, "{published:?}");
        world.complete(2).await;
        let second = clip_told(&world);
        assert_eq!(second.to_bits(), published[1].to_bits(), "what the coordinator keeps is what everybody is told");
        // The result decoded with the new clip is the mean of the updates clipped to it, plus noise.
        let row = world.ledger().await.releases.remove(1);
        assert_variance(&world.residual(2, |_| true).await, charged_variance(&row.parameters));
    }
}

fn clip_told(world: &World) -> f64 {
    let told: Vec<_> =
        world.members.iter().map(|member| member.place.as_ref().unwrap().privacy.as_ref().unwrap().clip).collect();
    assert!(told.windows(2).all(|pair| pair[0].to_bits() == pair[1].to_bits()), "{told:?}");
    told[0]
}

async fn clips(world: &World) -> Vec<f64> {
    let task = world.task;
    let read = world.t.inner.store.read("test", |tx| Box::pin(async move { tx.model_versions(task, None, 10).await }));
    let mut versions = read.await.unwrap();
    versions.sort_by_key(|version| version.version);
    versions.iter().map(|version| version.clip.expect("a private task's versions have one")).collect()
}

#[tokio::test]
async fn the_mean_is_over_a_fixed_number_whoever_came() {
    // Very little noise: the version must be the base plus the sum over ten, although only seven reported.
    let mut world = World::with(10, |spec| {
        mechanism(spec, "central_gaussian");
        spec["privacy"]["noise_multiplier"] = json!(0.01);
        spec["privacy"]["clip"] = json!({ "fixed": 20.0 });
    })
    .await;
    let base = parameters(&world, 0).await;
    assert_eq!(world.run(1, &THREE_OF_TEN).await.state, RoundState::Completed);
    let next = parameters(&world, 1).await;
    let ids: Vec<_> = world.members[3..].iter().map(|member| member.id).collect();
    let updates: Vec<_> = ids.iter().map(|id| crate::support::private::update(base.len(), *id, 1).delta).collect();
    let error = |denominator: f64| {
        (0..base.len())
            .map(|at| {
                let sum: f64 = updates.iter().map(|update| f64::from(update[at])).sum();
                (f64::from(next[at]) - f64::from(base[at]) - sum / denominator).powi(2)
            })
            .sum::<f64>()
            .sqrt()
    };
    // Noise on the mean: 0.01 * 20 / 10 in each coordinate, and a little more for rounding.
    let noise = 0.02 * (base.len() as f64).sqrt();
    assert!(error(10.0) < 1.1 * noise, "{} where {noise} is noise", error(10.0));
    assert!(error(7.0) > 1.5 * noise, "{} over those who came", error(7.0));
}

async fn parameters(world: &World, version: u64) -> Vec<f32> {
    let task = world.task;
    let read = world
        .t
        .inner
        .store
        .read("test", |tx| Box::pin(async move { tx.model_version(task, version.try_into().unwrap()).await }));
    let row = read.await.unwrap().unwrap();
    let blob = world.t.inner.store.blobs().get(row.sha256).await.unwrap();
    learning::checkpoint::read(&blob, &world.model.tensors.shared).unwrap().values().to_vec()
}

#[tokio::test]
async fn no_more_are_drawn_than_the_grid_has_room_for() {
    // Six check in at once, but three suffice, and noise and grid were planned for three.
    let world = World::with(6, |spec| {
        in_the_clear(spec, "central_gaussian");
        spec["rounds"]["select_min"] = json!(3);
    })
    .await;
    world.t.work().await;
    for member in &world.members {
        member.check_in(&world.t).await;
    }
    world.t.work().await;
    let view = world.view(1).await;
    assert_eq!((view.state, view.cohort), (RoundState::Collecting, 3));
}
