//! Participations in a banded matrix keep their distance after any failure.

use federation::round::{FailureReason, RoundState};
use serde_json::json;

use super::kept::blobs;
use super::released::run_drawn;
use crate::support::private::{assert_variance, charged_variance, in_the_clear};
use crate::support::secure::{LEASE, World};

/// Nine participants, each in two rounds with a distance of three.
async fn world() -> World {
    World::on_disk(9, |spec| {
        in_the_clear(spec, "banded_matrix");
        spec["privacy"]["participations"] = json!(2);
        spec["privacy"]["separation"] = json!(3);
        spec["rounds"]["count"] = json!(3);
        let require = json!({ "max_participations": 2, "min_gap_rounds": 2 });
        spec["selection"] = json!({ "cohort": { "count": 3 }, "require": require });
    })
    .await
}

/// The participants drawn for a round.
async fn cohort(world: &World, number: u32) -> Vec<usize> {
    let drawn = world.assignments(number).await;
    (0..world.members.len()).filter(|at| drawn.contains_key(&world.members[*at].id)).collect()
}

/// A participant that sent an update to a failed attempt has taken part in its round: it sends no other update in this round, and keeps the
/// same distance as after a completed round.
#[tokio::test]
async fn a_failed_round_that_updates_were_sent_to_is_not_tried_again() {
    for is_opened in [true, false] {
        let mut world = world().await;
        let first = run_drawn(&mut world, 1).await;
        for member in &world.members {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        let failed = cohort(&world, 2).await;
        let sends = if is_opened { &failed[..] } else { &failed[..1] };
        for &at in sends {
            let model = world.model.clone();
            world.members[at].assigned(&world.t).await;
            world.members[at].report(&world.t, &model).await;
        }
        let reason = if is_opened {
            // An accepted input is lost.
            let words = &world.members[failed[0]].words;
            let digest = crate::support::sha256(&secure_agg::packing::pack(words, world.model.modulus)).to_string();
            let path = blobs(&world).into_iter().find(|path| path.contains(&digest));
            std::fs::remove_file(path.expect("it is a blob")).unwrap();
            world.t.work().await;
            FailureReason::InputLost
        } else {
            world.time_out().await;
            FailureReason::TooFewInputs
        };
        world.assert_failed(2, reason).await;
        world.t.advance(LEASE);

        let next = run_drawn(&mut world, 3).await;
        assert_eq!(world.view(3).await.attempt, 1);
        assert!(next.iter().all(|at| !first.contains(at) && !failed.contains(at)), "{first:?} {failed:?} {next:?}");
        let rows = world.ledger().await.releases;
        let places: Vec<_> = rows.iter().map(|row| (row.published, row.parameters["bands"].clone())).collect();
        let of = |after: u32, place: u32| json!({ "bands": 3, "participations": 2, "after": after, "place": place });
        let charged = [(true, of(0, 1)), (false, of(1, 2)), (true, of(2, 3))];
        let skipped = [(true, of(0, 1)), (true, of(1, 3))];
        assert_eq!(places, if is_opened { &charged[..] } else { &skipped[..] });
        let sigma = charged_variance(&rows[0].parameters);
        let matrix = learning::privacy::BandedMatrix::new(3);
        let residual = world.residual(3, |at| next.contains(&at)).await;
        assert_variance(&residual, sigma * matrix.release_variance(3));

        let last = run_drawn(&mut world, 4).await;
        assert_eq!((last, world.status().await.0.as_str()), (first, "COMPLETED"));
        assert_eq!(world.state(2).await, RoundState::Failed);
    }
}
