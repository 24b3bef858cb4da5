//! Noise drawn by OpenDP's measurement: used by a coordinator built with it (feature `opendp`), and rejected by others.

use serde_json::{Value, json};

use crate::support::private::in_the_clear;

/// An unmasked task of one round with OpenDP's noise.
fn by_opendp(spec: &mut Value) {
    in_the_clear(spec, "central_gaussian");
    spec["privacy"]["sampler"] = json!("opendp");
    spec["rounds"]["count"] = json!(1);
}

/// Even where built in, it is only for noise drawn once by the coordinator.
#[tokio::test]
async fn other_mechanisms_are_refused_with_the_reason() {
    use crate::support::TestCoordinator;
    use crate::support::secure::spec;
    let t = TestCoordinator::start().await;
    for (name, says) in [
        ("tree", "drawn again from a seed"),
        ("local", "participants add the noise"),
        ("distributed_discrete_gaussian", "participants add the noise"),
        ("distributed_skellam", "participants add the noise"),
    ] {
        let mut spec = spec(10);
        crate::support::private::mechanism(&mut spec, name);
        spec["privacy"]["sampler"] = json!("opendp");
        if name == "tree" {
            spec["selection"]["require"] = json!({ "max_participations": 1 });
        }
        let reply = t.post(&t.operator, wire::route::TASKS, &json!({ "spec": spec })).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 422, "{name}: {text}");
        assert!(text.contains("privacy.sampler") && text.contains(says), "{name}: {text}");
    }
}

#[cfg(not(feature = "opendp"))]
mod built_without {
    use federation::id::TaskId;
    use federation::round::RoundState;
    use federation::task_status::TaskStatus;
    use store::StoreError;
    use task_spec::PrivacySampler;

    use super::*;
    use crate::support::TestCoordinator;
    use crate::support::secure::{World, spec};

    #[tokio::test]
    async fn such_a_task_is_refused_with_how_to_build_it() {
        let t = TestCoordinator::start().await;
        let mut spec = spec(4);
        by_opendp(&mut spec);
        let reply = t.post(&t.operator, wire::route::TASKS, &json!({ "spec": spec })).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 422, "{text}");
        reply.problem(wire::problem::ProblemType::InvalidTask);
        assert!(text.contains("privacy.sampler") && text.contains("--features opendp"), "{text}");
        assert_eq!(t.get(&t.viewer, "/v1/tasks").await.json()["items"], json!([]));
    }

    /// Copies the world's task into the database as a coordinator with OpenDP would, and ends the original.
    async fn as_built_with(world: &World) -> TaskId {
        let (from, to) = (world.task, TaskId(uuid::Uuid::from_u128(77)));
        let copied = world.t.inner.store.transact("test", |tx| {
            Box::pin(async move {
                let mut row = tx.task(from).await?.unwrap();
                let mut version = tx.model_version(from, 0).await?.unwrap();
                let now = row.created_at;
                assert!(tx.set_task_status(from, &[TaskStatus::Active], TaskStatus::Cancelled, now, None).await?);
                (row.id, version.task) = (to, to);
                row.spec.privacy.sampler = PrivacySampler::OpenDp;
                tx.insert_task(&row).await?;
                tx.insert_model_version(&version).await?;
                Ok::<_, StoreError>(())
            })
        });
        copied.await.unwrap();
        world.copy_end(from, to, |end| end["task"]["privacy"]["sampler"] = json!("opendp"));
        to
    }

    #[tokio::test]
    async fn such_a_task_in_its_database_is_paused_and_no_other_sampler_takes_its_place() {
        for by_start in [true, false] {
            let mut world = World::on_disk(4, |spec| {
                by_opendp(spec);
                spec["privacy"].as_object_mut().unwrap().remove("sampler");
            })
            .await;
            world.task = as_built_with(&world).await;
            if by_start {
                world.t.inner.engine.check_ledgers().await.unwrap();
            } else {
                world.t.work().await;
            }
            for again in [false, true] {
                let (status, why) = world.status().await;
                assert_eq!(status, "PAUSED", "{why}");
                assert!(why.contains("privacy.sampler") && why.contains("--features opendp"), "{why}");
                // The task view shows it, and resuming the task fails in the same way.
                assert_eq!(world.privacy().await.status, 200);
                assert_eq!(world.t.get(&world.t.viewer, "/v1/tasks/secure/rounds/1").await.status, 404);
                if !again {
                    let reply = world.t.post(&world.t.operator, "/v1/tasks/secure/resume", &json!({})).await;
                    let told = String::from_utf8_lossy(&reply.body).into_owned();
                    assert!(reply.status == 409 && told.contains("--features opendp"), "{told}");
                    world.t.work().await;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_round_that_is_under_way_releases_nothing() {
        let mut world = World::on_disk(4, |spec| {
            by_opendp(spec);
            spec["privacy"].as_object_mut().unwrap().remove("sampler");
        })
        .await;
        world.t.work().await;
        for member in &world.members {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        for member in &mut world.members {
            member.assigned(&world.t).await;
            member.report(&world.t, &world.model).await;
        }
        assert_eq!(world.state(1).await, RoundState::Collecting);
        // A coordinator without OpenDP replaces this one, and finds the sum complete.
        let folder = world.folder.as_ref().unwrap().path().to_owned();
        let rows = rusqlite::Connection::open(folder.join("rows.db")).unwrap();
        let sql = "UPDATE task SET spec = json_set(spec, '$.privacy.sampler', 'opendp')";
        assert_eq!(rows.execute(sql, ()).unwrap(), 1);
        drop(rows);
        world.change_end(world.task, |end| end["task"]["privacy"]["sampler"] = json!("opendp"));
        world.restart().await;
        world.t.inner.engine.check_ledgers().await.unwrap();
        let blobs = |world: &World| world.files().iter().filter(|(_, file)| file.starts_with(b"TSUM")).count();
        for _ in 0..3 {
            let _ = world.t.inner.engine.step_all().await;
            world.t.advance(crate::support::secure::LEASE);
        }
        assert_eq!((world.released(1).await, blobs(&world)), (None, 0));
        assert_eq!(world.status().await.0, "PAUSED");
    }
}

#[cfg(feature = "opendp")]
mod built_with {
    use std::sync::Arc;

    use coordinator::work::{NoFailPoint, StepError};
    use federation::id::RoundKey;
    use federation::round::RoundState;
    use learning::privacy::audit::{NoiseVariance, noise_power};
    use store::StoreError;

    use super::*;
    use crate::support::die_at::DieAt;
    use crate::support::private::{PARAMETERS, charged_variance, mechanism};
    use crate::support::secure::{LEASE, World};

    /// The noise comes from the system, so a test of a correct sampler fails once in a billion runs.
    const CONFIDENCE: f64 = 1.0 - 1e-9;

    async fn assert_as_charged(world: &World, number: u32) {
        let residual: Vec<_> = world.residual(number, |_| true).await.iter().map(|&noise| noise as f64).collect();
        let row = &world.ledger().await.releases[number as usize - 1];
        let sigma = charged_variance(&row.parameters).sqrt();
        let seen = NoiseVariance::of(&residual, sigma, CONFIDENCE).unwrap();
        assert!(seen.is_as_charged(), "{seen:?}");
        let coordinates = u32::try_from(residual.len()).unwrap();
        assert!(noise_power(coordinates, 0.5, CONFIDENCE).unwrap() > 0.999, "half the noise would be noticed");
        // The row was charged by OpenDP's map.
        let sensitivity = row.parameters["sum"]["sensitivity"].as_f64().unwrap();
        assert!((row.rho.unwrap() / (0.5 * (sensitivity / sigma).powi(2)) - 1.0).abs() < 1e-12);
    }

    #[tokio::test]
    async fn releases_have_the_noise_that_the_ledger_says() {
        let mut world = World::with(4, |spec| {
            by_opendp(spec);
            spec["rounds"]["count"] = json!(2);
        })
        .await;
        for number in 1..=2 {
            let view = world.run_in_the_clear(number, |_| true, |_| true).await;
            assert_eq!((view.state, view.failure), (RoundState::Completed, None));
            assert_as_charged(&world, number).await;
        }
        assert_ne!(world.residual(1, |_| true).await, world.residual(2, |_| true).await);
        let mut masked = World::with(4, |spec| {
            mechanism(spec, "central_gaussian");
            spec["privacy"]["sampler"] = json!("opendp");
        })
        .await;
        masked.complete(1).await;
        assert_as_charged(&masked, 1).await;
    }

    #[tokio::test]
    async fn a_model_whose_draw_would_take_too_long_is_refused() {
        let t = crate::support::TestCoordinator::start().await;
        let mut spec = crate::support::secure::spec(4);
        by_opendp(&mut spec);
        spec["model"]["tensors"][0]["shape"] = json!([(1 << 20) + 1]);
        let reply = t.post(&t.operator, wire::route::TASKS, &json!({ "spec": spec })).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 422, "{text}");
        assert!(text.contains("privacy.sampler") && text.contains("at most 1048576 words"), "{text}");
    }

    /// The first stored piece of the draw of the first attempt of round 1.
    async fn kept(world: &World) -> Option<Vec<u8>> {
        let key = RoundKey { task: world.task, number: 1 };
        let read = world
            .t
            .inner
            .store
            .read("test", |tx| Box::pin(async move { tx.secret(key.attempt(1), "noised sum 0").await }));
        read.await.unwrap()
    }

    /// The plain noised sums in the data folder.
    fn sums(world: &World) -> Vec<Vec<u8>> {
        let is_sum = |file: &Vec<u8>| file.starts_with(b"TSUM");
        world.files().into_iter().map(|(_, file)| file).filter(is_sum).collect()
    }

    async fn up_to_its_release() -> World {
        let mut world = World::on_disk(4, by_opendp).await;
        world.t.work().await;
        for member in &world.members {
            member.check_in(&world.t).await;
        }
        world.t.work().await;
        for member in &mut world.members {
            member.assigned(&world.t).await;
            member.report(&world.t, &world.model).await;
        }
        world
    }

    async fn die_at(world: &mut World, point: &'static str, life: u64) {
        let died = world.engine(DieAt::named(point), 10 + life).step_all().await;
        assert!(matches!(died, Err(StepError::Stopped(_))), "{point}: {died:?}");
        world.restart().await;
        world.t.advance(LEASE);
    }

    #[tokio::test]
    async fn killed_wherever_it_is_one_draw_can_be_seen_by_anybody() {
        for point in ["after the blob", "before the draw", "after the draw", "before the blob", "after the rows"] {
            let point: &'static str = format!("release_sum: {point}").leak();
            let mut world = up_to_its_release().await;
            // Three lives end there, each with its own draw of noise.
            for life in 0..3 {
                if life > 0 && point.ends_with("the rows") {
                    continue;
                }
                die_at(&mut world, point, life).await;
                let is_before = point.ends_with("before the draw");
                assert!(sums(&world).len() <= 1, "{point}: two noised sums of one exact sum lie on the disk");
                assert!(!is_before || sums(&world).is_empty(), "a draw that was not kept was shown");
                assert_eq!(kept(&world).await.is_none(), is_before || point.ends_with("the rows"), "{point}");
            }
            let seen = sums(&world);
            world.engine(Arc::new(NoFailPoint), 2).step_all().await.unwrap();
            assert_eq!(world.state(1).await, RoundState::Completed);
            assert_as_charged(&world, 1).await;
            let released = sums(&world);
            assert_eq!(released.len(), 1, "{point}");
            assert!(seen.is_empty() || seen == released, "{point}: what lay there is what was released");
            assert_eq!((kept(&world).await, world.rows().await.len()), (None, 1));
        }
    }

    #[tokio::test]
    async fn what_is_kept_is_sealed_and_gone_with_its_key() {
        let mut world = up_to_its_release().await;
        die_at(&mut world, "release_sum: after the draw", 0).await;
        let piece = kept(&world).await.unwrap();
        assert!(piece.starts_with(coordinator::seal::OF_A_RELEASE) && piece.len() <= 4096);
        let lies = |world: &World, bytes: &[u8]| {
            world.files().iter().any(|(_, file)| file.windows(bytes.len()).any(|window| window == bytes))
        };
        assert!(lies(&world, &piece[24..56]), "the search finds what is there");
        world.t.work().await;
        assert_eq!(world.state(1).await, RoundState::Completed);
        assert!(!lies(&world, &piece[24..56]) && !lies(&world, &piece[..8]));
        assert_eq!(world.released(1).await.unwrap().len(), PARAMETERS);
        let files = world.files();
        assert!(!files.iter().any(|(path, _)| path.parent().unwrap().ends_with("seal.releases")));
    }

    /// A worker that loses its lease while drawing uses the other's draw, or none.
    #[tokio::test]
    async fn the_first_draw_that_is_kept_is_everybodys() {
        let mut world = up_to_its_release().await;
        die_at(&mut world, "release_sum: after the draw", 0).await;
        let first = kept(&world).await.unwrap();
        die_at(&mut world, "release_sum: after the draw", 1).await;
        assert_eq!(kept(&world).await.unwrap(), first);
        let (key, task) = (RoundKey { task: world.task, number: 1 }, world.task);
        // A missing or foreign piece makes the round fail with a charge.
        let read = world.t.inner.store.transact("test", |tx| {
            Box::pin(async move {
                assert!(tx.forget_secret(key.attempt(1), "noised sum 1").await?);
                let other = tx.secret(key.attempt(1), "noised sum 0").await?.unwrap();
                tx.put_secret_if_absent(key.attempt(1), "noised sum 1", &other).await?;
                Ok::<_, StoreError>(())
            })
        });
        read.await.unwrap();
        world.t.work().await;
        let view = world.view(1).await;
        assert_eq!((view.state, view.failure), (RoundState::Failed, Some(federation::round::FailureReason::InputLost)));
        let count = world.t.inner.store.read("test", |tx| Box::pin(async move { tx.privacy_count(task).await }));
        assert_eq!((count.await.unwrap(), sums(&world).len()), (1, 0));
        assert_eq!(kept(&world).await, None);
    }
}
