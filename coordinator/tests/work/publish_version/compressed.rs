//! Compressed updates: the published version is the codec's decoding of their sum, in any order of arrival.

use federation::round::{FailureReason, RoundState};
use learning::{ExactSum, checkpoint, optimizer};
use store::BlobStore as _;
use task_spec::{CODEC_METRICS, Compression};

use recipe::UpdateCodec;

use crate::world::World;

/// All codecs, for the world's 45 parameters.
const CODECS: [Compression; 7] = [
    Compression::Rotated { bits: 2, keep: 1.0 },
    Compression::Rotated { bits: 1, keep: 0.5 },
    Compression::RandomK { k: 9, bits: 12, error_feedback: false },
    Compression::LowRank { rank: 2, bits: 10, error_feedback: false },
    Compression::LowRank { rank: 2, bits: 10, error_feedback: true },
    Compression::TopK { k: 5, error_feedback: true },
    Compression::Int8 {},
];

async fn world(compression: Compression) -> World {
    World::with(5, |spec| {
        spec.compression = Some(compression);
        spec.aggregation.clip_norm = Some(3.0);
    })
    .await
}

#[tokio::test]
async fn the_version_is_what_the_codec_decodes_of_the_sum() {
    for compression in CODECS {
        let world = world(compression).await;
        let UpdateCodec::Plain(codec) = &world.model.codec else { panic!("no privacy") };
        world.run_round(&world.engine(1)).await;
        let versions = world.versions().await;
        let read = |bytes: &[u8]| checkpoint::read(bytes, &world.model.tensors.shared).unwrap();
        let mut expected = read(&world.blobs.get(versions[0].sha256).await.unwrap());
        let published = read(&world.blobs.get(versions[1].sha256).await.unwrap());

        let mut sum = vec![0_u32; codec.len()];
        for participant in &world.participants {
            let input = world.input(*participant, 1);
            assert_eq!(input.len() as u64, world.model.packed_len(), "{compression:?}");
            let words = match codec.is_summable() {
                true => secure_agg::packing::unpack(&input, codec.len(), world.model.modulus).unwrap(),
                false => codec.expand(&input).unwrap(),
            };
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum = world.model.modulus.reduce(sum.wrapping_add(word)));
        }
        let sum = ExactSum::new(sum, codec.modulus_bits(), 5).unwrap().release_without_noise();
        let decoded = codec.decode(&sum, &world.codec_seed(1)).unwrap();
        optimizer::step(&world.model.optimizer, Default::default(), &mut expected, &decoded.mean).unwrap();
        assert_eq!(published, expected, "{compression:?}");

        let row = world.round(1).await;
        let distortion = decoded.distortion.unwrap();
        let told = |name: &str| row.metrics.iter().find(|metric| metric.name == name).unwrap().value;
        assert_eq!(CODEC_METRICS.map(told), [distortion.norm, distortion.added_error], "{compression:?}");
        assert_eq!(row.metrics.len(), 4, "the task's own as well");
    }
}

#[tokio::test]
async fn order_of_arrival_does_not_change_the_published_version() {
    for compression in CODECS {
        let mut digests = Vec::new();
        for order in 0..3_usize {
            let mut world = world(compression).await;
            world.config.fold_inputs = 1 + u32::try_from(order).unwrap();
            let engine = world.engine(1);
            let mut cohort = world.start_round(&engine).await;
            cohort.rotate_left(2 * order);
            for participant in cohort {
                assert!(world.report(participant).await);
                engine.step_all().await.unwrap();
            }
            assert_eq!(world.round(1).await.round.state, RoundState::Completed);
            digests.push(world.digests().await[1]);
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{compression:?}");
    }
}

#[tokio::test]
async fn a_stored_upload_that_is_none_costs_the_round_not_the_model() {
    let world = world(Compression::TopK { k: 5, error_feedback: true }).await;
    let engine = world.engine(1);
    let cohort = world.start_round(&engine).await;
    for participant in &cohort[1..] {
        assert!(world.report(*participant).await);
    }
    // As long as an upload, but without admission.
    let garbage = vec![7; usize::try_from(world.model.packed_len()).unwrap()];
    assert!(world.upload(cohort[0], garbage.into()).await);
    engine.step_all().await.unwrap();
    world.assert_failed(1, FailureReason::InputLost).await;
    assert_eq!(world.versions().await.len(), 1);
}
