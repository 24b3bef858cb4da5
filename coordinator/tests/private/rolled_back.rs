//! A backup that is put back, the ends of ledgers with it: what was released after it is released once more, and not with the
//! same noise.

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

/// Runs a round of those who are drawn; the noise that its release has.
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
        // What earlier releases had is in both and goes away; what is left is the noise of two draws.
        let apart: Vec<i64> = before.iter().zip(&again).map(|(before, again)| before - again).collect();
        assert_variance(&apart, 2.0 * charged_variance(&row.parameters));
        // The rest of the task goes on with what it has.
        round(&mut world, 3).await;
        assert_eq!(world.status().await.0, "COMPLETED");
    }
}
