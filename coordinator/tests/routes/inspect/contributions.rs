//! A signed statement about the sums that contain updates of a participant.

use serde_json::json;
use wire::audit::AuditKeyView;
use wire::contributions::{ContributedRound, Contributions, OpenRound, SignedContributions};
use wire::problem::ProblemType;
use wire::{ParticipantId, route};

use crate::support::{TestCoordinator, Who, input, small_task};

async fn stated(t: &TestCoordinator, participant: ParticipantId) -> Contributions {
    let path = route::fill(route::PARTICIPANT_CONTRIBUTIONS, &[&participant]);
    let statement = t.get(&t.viewer, &path).await.read::<SignedContributions>().open().unwrap();
    let key: AuditKeyView = t.get(&t.viewer, route::AUDIT_KEY).await.read();
    assert_eq!((statement.coordinator, statement.participant), (key.key, participant));
    statement
}

#[tokio::test]
async fn completed_rounds_of_a_participant_are_stated() {
    let t = TestCoordinator::start().await;
    let task = t.create_task(&small_task()).await;
    let (a, b, c) = (t.enroll("a").await, t.enroll("b").await, t.enroll("c").await);
    assert_eq!(stated(&t, a.0).await.tasks, Vec::new());
    let work = t.assigned(&[a.1.clone(), b.1.clone()]).await.remove(0);
    for (id, who) in [&a, &b] {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    // An accepted update is in no version before the round has completed.
    let before = stated(&t, a.0).await.tasks.remove(0);
    let open = OpenRound { round: 1, attempt: work.attempt };
    assert_eq!((&before.rounds[..], &before.open_rounds[..]), (&[][..], &[open][..]));
    assert_eq!((before.version_before, before.newest_version, before.version_before_is_kept), (0, 0, true));
    t.post(&t.operator, &route::fill(route::TASK_PAUSE, &[&task]), &json!({})).await;
    t.work().await;
    let revoke = route::fill(route::PARTICIPANT_REVOKE, &[&a.0]);
    assert_eq!(t.post(&t.operator, &revoke, &json!({})).await.status, 200);
    let statement = stated(&t, a.0).await;
    assert!(statement.revoked_at.is_some());
    let of_task = &statement.tasks[0];
    let contributed = ContributedRound { round: 1, attempt: work.attempt, version: 1 };
    assert_eq!((statement.tasks.len(), of_task.task, &of_task.rounds[..]), (1, task, &[contributed][..]));
    assert_eq!((of_task.version_before, of_task.newest_version, &of_task.privacy), (0, 1, &None));
    assert!(of_task.open_rounds.is_empty() && of_task.version_before_is_kept);
    assert_eq!(stated(&t, b.0).await.revoked_at, None);
    assert_eq!(stated(&t, c.0).await.tasks, Vec::new(), "c was not drawn");

    let unknown = route::fill(route::PARTICIPANT_CONTRIBUTIONS, &[&"00000000-0000-4000-8000-000000000009"]);
    t.get(&t.viewer, &unknown).await.problem(ProblemType::NotFound);
    t.get(&Who::Nobody, &unknown).await.problem(ProblemType::Unauthenticated);
}
