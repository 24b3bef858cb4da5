//! A restored backup including the ends of ledgers: later releases are repeated with different noise.

use serde_json::json;

use super::released::run_drawn;
use crate::support::private::{assert_variance, charged_variance, in_the_clear};
use crate::support::secure::World;

/// Nine participants, three in each of three rounds.
async fn world(name: &str) -> World {
    World::on_disk(9, |spec| {
        in_the_clear(spec, name);
        spec["rounds"]["count"] = json!(3);
        spec["selection"] = json!({ "cohort": { "count": 3 }, "seed": 1, "require": { "max_participations": 1 } });
        if name == "banded_matrix" {
            spec["privacy"]["participations"] = json!(1);
            spec["privacy"]["separation"] = json!(3);
        }
    })
    .await
}

/// Runs a round of the drawn participants; returns the noise of its release.
async fn round(world: &mut World, number: u32) -> Vec<i64> {
    let cohort = run_drawn(world, number).await;
    world.residual(number, |at| cohort.contains(&at)).await
}

#[tokio::test]
async fn what_is_released_again_has_other_noise() {
    for name in ["central_gaussian", "tree", "banded_matrix"] {
        let mut world = world(name).await;
        round(&mut world, 1).await;
        let folder = world.folder.as_ref().unwrap().path().to_owned();
        let end = folder.join("seal.ledgers").join(world.task.0.simple().to_string());
        let rows = rusqlite::Connection::open(folder.join("rows.db")).unwrap();
        rows.execute_batch(&format!("VACUUM INTO '{}'", folder.join("copy.db").display())).unwrap();
        drop(rows);
        let kept = std::fs::read(&end).unwrap();
        let before = round(&mut world, 2).await;
        assert_eq!(world.rows().await.len(), 2);

        world.config.database.url = format!("sqlite:{}", folder.join("copy.db").display());
        std::fs::write(&end, kept).unwrap();
        world.restart().await;
        world.t.inner.engine.check_ledgers().await.unwrap();
        assert_eq!(world.rows().await.len(), 1, "it is as it was");
        let again = round(&mut world, 2).await;
        let row = &world.ledger().await.releases[1];
        // The noise of earlier releases cancels out; the noise of two draws remains.
        let apart: Vec<i64> = before.iter().zip(&again).map(|(before, again)| before - again).collect();
        assert_variance(&apart, 2.0 * charged_variance(&row.parameters));
        // The rest of the task continues from its stored state.
        round(&mut world, 3).await;
        assert_eq!(world.status().await.0, "COMPLETED");
    }
}
