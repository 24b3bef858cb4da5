//! Analyses: the same rounds, engine and sums, with a state in place of a model.

use federation::round::{FailureReason, RoundState};
use federation::task_status::TaskStatus;
use learning::ExactSum;
use learning::analytics::{AnalyticsState, Table};
use serde_json::json;
use store::BlobStore as _;
use task_spec::TaskSpec;

use crate::world::World;

fn analysis(spec: &mut TaskSpec) {
    let analytics = json!({
        "kind": "statistics",
        "max_rows": 100,
        "quantile_rounds": 3,
        "columns": [{ "type": "real", "name": "x", "low": 0.0, "high": 8.0, "edges": [2.0], "quantiles": [0.5] }],
    });
    spec.analytics = Some(serde_json::from_value(analytics).unwrap());
    spec.model = Default::default();
}

/// The data of the participant with this number.
fn table(number: usize) -> Table {
    Table::new(1, (0..5).map(|row| (number + row) as f64 / 2.0).collect()).unwrap()
}

/// The words of all participants for the open round.
async fn report(world: &World, state: &AnalyticsState) -> Vec<u32> {
    let analysis = world.model.tensors.analysis.as_ref().unwrap();
    let mut sum = vec![0; analysis.codec().len()];
    for (number, participant) in world.participants.iter().enumerate() {
        let words = analysis.codec().encode(&analysis.contribution(state, &table(number)).unwrap()).unwrap();
        secure_agg::modular::add_assign(&mut sum, &words);
        let input = secure_agg::packing::pack(&words, world.model.modulus);
        assert!(world.upload(*participant, input.into()).await);
    }
    sum
}

#[tokio::test]
async fn rounds_lead_from_state_to_state_until_the_result() {
    let world = World::with(4, analysis).await;
    let analysis = world.model.tensors.analysis.as_ref().unwrap();
    let mut state = analysis.initial();
    for number in 1..=3 {
        // Another engine each time: all state is in rows and blobs.
        let engine = world.engine(number);
        world.start_round(&engine).await;
        let sum = report(&world, &state).await;
        engine.step_all().await.unwrap();
        let sum = ExactSum::new(sum, world.model.modulus.bits(), 4).unwrap().release_without_noise();
        state = analysis.advance(&state, &sum).unwrap().state;
        let version = world.versions().await.pop().unwrap();
        assert_eq!(world.blobs.get(version.sha256).await.unwrap(), state.to_bytes().unwrap());
        let row = world.round(u32::try_from(number).unwrap()).await;
        assert_eq!(row.round.state, RoundState::Completed);
        let told: Vec<_> =
            row.metrics.iter().map(|metric| (metric.name.as_str(), metric.value, metric.count)).collect();
        assert_eq!(told, [("rows_per_participant", 5.0, 4)]);
    }
    assert_eq!(world.task_row().await.status, TaskStatus::Completed);
    let AnalyticsState::Statistics(result) = state else { panic!("statistics") };
    assert_eq!((result.rows, result.participants), (20, 4));
}

#[tokio::test]
async fn a_sum_that_nobody_can_have_contributed_to_is_garbage() {
    let world = World::with(3, analysis).await;
    let engine = world.engine(1);
    world.start_round(&engine).await;
    for participant in &world.participants {
        let words = vec![0x1fff_ffff_u32; world.model.codec.len()];
        let input = secure_agg::packing::pack(&words, world.model.modulus);
        assert!(world.upload(*participant, input.into()).await);
    }
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::GarbageSum).await;
    assert_eq!(world.versions().await.len(), 1);
}
