//! Every version has a signed provenance record from its publishing transaction; participants get it with the version, and older versions
//! get one at the next start.

use federation::model_version::ModelVersion;
use serde_json::json;
use wire::audit::AuditKeyView;
use wire::headers::RECORD_BELOW;
use wire::inspect::ModelView;
use wire::problem::ProblemType;
use wire::provenance::{BaseVersion, MadeIn, Origin, Provenance, SignedProvenance};
use wire::route;
use wire::{Digest, TaskId};

use crate::support::{TestCoordinator, Who, input, small_task};

async fn shown(t: &TestCoordinator, task: TaskId, version: u32) -> Provenance {
    let path = route::fill(route::MODEL_PROVENANCE, &[&task, &version]);
    let record = t.get(&t.viewer, &path).await.read::<SignedProvenance>().open().unwrap();
    let key: AuditKeyView = t.get(&t.viewer, route::AUDIT_KEY).await.read();
    let view: ModelView = t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &version])).await.read();
    assert_eq!(
        (record.coordinator, record.task, record.version, record.sha256, record.bytes, record.published_at),
        (key.key, task, version, view.sha256, view.bytes, view.created_at)
    );
    record
}

#[tokio::test]
async fn a_version_is_published_with_its_record_and_handed_out_with_it() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let first = shown(&t, task, 0).await;
    assert_eq!((first.origin, first.base, first.round, first.updates), (Origin::Initial, None, None, None));
    assert_eq!((first.roster, first.privacy, first.signed_at), (None, None, first.published_at));
    assert_eq!(first.program, format!("tributary {}", coordinator::version()));

    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    assert_eq!(work.provenance.as_ref().unwrap().open().unwrap(), first);
    assert_eq!(recipe::AssignmentTerms::from(&work).in_every_round(), first.task_sha256, "a participant derives it");
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.post(&t.operator, &route::fill(route::TASK_PAUSE, &[&task]), &json!({})).await;
    t.work().await;
    let second = shown(&t, task, 1).await;
    assert_eq!(second.origin, Origin::Trained);
    assert_eq!(second.base, Some(BaseVersion { version: 0, sha256: first.sha256 }));
    assert_eq!(second.round, Some(MadeIn { round: 1, attempt: work.attempt }));
    assert_eq!((second.updates, second.roster), (Some(2), None), "nobody is told a roster in the clear");
    assert_eq!(second.task_sha256, first.task_sha256);

    let restore = route::fill(route::MODEL_RESTORE, &[&task, &0]);
    assert_eq!(t.post(&t.operator, &restore, &json!({})).await.status, 200);
    let third = shown(&t, task, 2).await;
    assert_eq!((third.origin, third.round, third.updates), (Origin::Restored, None, None));
    assert_eq!((third.base.unwrap().version, third.sha256), (0, first.sha256));

    let path = |version: u32| route::fill(route::MODEL_PROVENANCE, &[&task, &version]);
    t.get(&t.viewer, &path(3)).await.problem(ProblemType::NotFound);
    t.get(&Who::Nobody, &path(0)).await.problem(ProblemType::Unauthenticated);
}

#[tokio::test]
async fn what_an_older_program_published_is_signed_at_the_start_as_far_as_participants_are_given_it() {
    let t = TestCoordinator::start().await;
    let (task, over) = (t.create_task(&small_task()).await, {
        let mut spec = small_task();
        spec["name"] = json!("over");
        t.create_task(&spec).await
    });
    t.post(&t.operator, &route::fill(route::TASK_CANCEL, &[&over]), &json!({})).await;
    let before: ModelView = t.get(&t.viewer, &route::fill(route::MODEL, &[&task, &0])).await.read();
    // As published by an older program: rows without a record.
    for task in [task, over] {
        let version = |number: u32| ModelVersion {
            task,
            version: number,
            sha256: before.sha256,
            bytes: before.bytes,
            round: Some(number),
            parent: Some(number - 1),
            clip: None,
            optimizer_state: None,
            created_at: before.created_at,
        };
        let versions = &[version(1), version(2)];
        let stored: store::Result<()> = t
            .inner
            .store
            .transact("test", |tx| {
                Box::pin(async move {
                    for version in versions {
                        tx.insert_model_version(version).await?;
                    }
                    Ok(())
                })
            })
            .await;
        stored.unwrap();
    }
    let missing = async |task: TaskId, version: u32| {
        let path = route::fill(route::MODEL_PROVENANCE, &[&task, &version]);
        t.get(&t.viewer, &path).await.problem(ProblemType::NotFound)
    };
    assert!(missing(task, 2).await.contains("before records were kept"));
    t.advance(std::time::Duration::from_secs(9));
    t.inner.sign_versions().await.unwrap();
    let record = shown(&t, task, 2).await;
    assert!(record.signed_at == t.now() && record.published_at == before.created_at);
    assert_eq!((record.round, record.updates), (None, None), "no row says that a round made it");
    missing(task, 1).await;
    missing(over, 2).await;
    // After signing, a start leaves the records unchanged.
    t.advance(std::time::Duration::from_secs(9));
    t.inner.sign_versions().await.unwrap();
    assert_eq!(shown(&t, task, 2).await, record);
}

#[tokio::test]
async fn another_key_signs_anew_what_participants_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = crate::support::config();
    config.database.url = format!("sqlite:{}", folder.path().join("rows.db").display());
    config.blobs.url = format!("file:{}", folder.path().join("blobs").display());
    config.identity.seal_key_file = Some(folder.path().join("seal.key"));
    let mut t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    let before = shown(&t, task, 0).await;
    // Replaces the key as in docs/operations/rotation.md.
    let another = folder.path().join("another.key");
    std::fs::write(&another, [7; 32]).unwrap();
    let rows = rusqlite::Connection::open(folder.path().join("rows.db")).unwrap();
    rows.execute("DELETE FROM fingerprint WHERE what = 'identity.seal_key_file'", ()).unwrap();
    config.identity.seal_key_file = Some(another);
    t.restart(&config, 2).await;
    let path = route::fill(route::MODEL_PROVENANCE, &[&task, &0]);
    let stale = t.get(&t.viewer, &path).await.read::<SignedProvenance>().open().unwrap();
    assert_eq!(stale, before, "it was not signed by a start yet");
    t.inner.sign_versions().await.unwrap();
    let after = shown(&t, task, 0).await;
    assert_ne!(after.coordinator, before.coordinator);
    let same = Provenance { coordinator: before.coordinator, signed_at: before.signed_at, ..after };
    assert_eq!(same, before, "all else is as it was");
}

#[tokio::test]
async fn a_record_names_the_records_below_in_order_as_they_were_first_sent() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b) = (t.enroll("a").await, t.enroll("b").await);
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    // The last one is sent again with another digest.
    for ((id, who), below) in [(&a, 9), (&b, 7), (&b, 5)] {
        let mut request = t.upload(&work, *id, &input([1, 2, 3]));
        request.headers_mut().insert(RECORD_BELOW, Digest([below; 32]).to_string().parse().unwrap());
        assert_eq!(t.send(who, request).await.status, 200);
    }
    t.post(&t.operator, &route::fill(route::TASK_PAUSE, &[&task]), &json!({})).await;
    t.work().await;
    assert_eq!(shown(&t, task, 1).await.below, [Digest([7; 32]), Digest([9; 32])]);
}
