//! The audit log: listed, exported, and verified only with the export.

use serde_json::json;
use wire::audit::{AuditKeyView, EventView, Finding, Line, Verified, Verifier};
use wire::inspect::Page;
use wire::problem::ProblemType;
use wire::route;

use crate::support::{TestCoordinator, small_task};

async fn busy() -> TestCoordinator {
    let t = TestCoordinator::start().await;
    t.create_task(&small_task()).await;
    t.enroll("a").await;
    for action in ["pause", "resume", "cancel"] {
        assert_eq!(t.post(&t.operator, &format!("/v1/tasks/small/{action}"), &json!({})).await.status, 200);
        t.advance(std::time::Duration::from_secs(1));
    }
    t.inner.engine.number_events().await.unwrap();
    t
}

async fn positions(t: &TestCoordinator, query: &str) -> (Vec<u64>, Option<String>) {
    let page: Page<EventView> = t.get(&t.viewer, &format!("{}{query}", route::AUDIT)).await.read();
    (page.items.iter().map(|view| view.entry.position).collect(), page.next_cursor)
}

#[tokio::test]
async fn entries_are_listed_newest_first_and_narrowed_down() {
    let t = busy().await;
    // Three tokens; the task and its version; a token and its participant; three changes.
    let (all, next) = positions(&t, "").await;
    assert_eq!((all, next), ((1..=10).rev().collect(), None));
    let (first, cursor) = positions(&t, "?limit=4").await;
    assert_eq!(first, [10, 9, 8, 7]);
    assert_eq!(positions(&t, &format!("?limit=4&cursor={}", cursor.unwrap())).await.0, [6, 5, 4, 3]);
    assert_eq!(positions(&t, "?task=small").await.0, [10, 9, 8, 5, 4]);
    assert_eq!(positions(&t, "?kind=task_paused,participant_enrolled").await.0, [8, 7]);
    assert_eq!(positions(&t, "?since=1750000002000").await.0, [10]);
    assert_eq!(positions(&t, "?task=small&kind=task_paused&since=1750000000000").await.0, [8]);
    assert_eq!(positions(&t, "?until=2025-06-15T15:06:41Z").await.0, (1..=8).rev().collect::<Vec<_>>());
    assert_eq!(positions(&t, "?since=1750000001000&until=1750000002000").await.0, [9]);
    let people = t.get(&t.viewer, route::PARTICIPANTS).await.json();
    let (participant, tokens) = (&people["items"][0]["id"], t.get(&t.admin, route::OPERATOR_TOKENS).await.json());
    let token = tokens["items"].as_array().unwrap().iter().find(|token| token["name"] == "operator").unwrap();
    for (actor, found) in [
        ("coordinator", &[3, 2, 1][..]),
        ("operator", &[10, 9, 8, 6, 5, 4]),
        (token["id"].as_str().unwrap(), &[10, 9, 8, 6, 5, 4]),
        (participant.as_str().unwrap(), &[7]),
        ("viewer", &[]),
    ] {
        assert_eq!(positions(&t, &format!("?actor={actor}")).await.0, found, "{actor}");
    }
    assert_eq!(positions(&t, "?actor=operator&kind=task_paused,participant_enrolled&until=1750000000001").await.0, [8]);
    let page: Page<EventView> = t.get(&t.viewer, "/v1/audit?kind=participant_enrolled").await.read();
    let text = serde_json::to_string(&page).unwrap();
    assert!(text.contains("\"by\":\"participant\"") && !text.contains("\"a\""), "its name is told by nobody: {text}");
    for (query, problem) in [
        ("?cursor=x", ProblemType::InvalidValue),
        ("?cursor=7", ProblemType::InvalidValue),
        ("?cursor=events.", ProblemType::InvalidValue),
        ("?limit=501", ProblemType::InvalidValue),
        ("?kind=x", ProblemType::InvalidValue),
        ("?task=none", ProblemType::NotFound),
        ("?since=x", ProblemType::MalformedRequest),
        ("?until=x", ProblemType::MalformedRequest),
        ("?who=x", ProblemType::MalformedRequest),
        ("?actor=", ProblemType::InvalidValue),
        ("?actor=a%20b", ProblemType::InvalidValue),
    ] {
        t.get(&t.viewer, &format!("{}{query}", route::AUDIT)).await.problem(problem);
    }
}

fn verify(text: &str, key: &AuditKeyView) -> Result<Verified, Finding> {
    let mut verifier = Verifier::new(Some(key.key), key.head.clone())?;
    text.lines().try_for_each(|line| verifier.line(line))?;
    verifier.finish()
}

#[tokio::test]
async fn an_export_is_checked_with_the_key_and_a_kept_head() {
    let t = TestCoordinator::start().await;
    let empty = t.get(&t.viewer, route::AUDIT_KEY).await.read::<AuditKeyView>();
    assert_eq!(empty.head, None);
    let export = String::from_utf8(t.get(&t.viewer, route::AUDIT_EXPORT).await.body).unwrap();
    assert_eq!(verify(&export, &empty), Err(Finding::NoHead(0)));

    let t = busy().await;
    let key: AuditKeyView = t.get(&t.viewer, route::AUDIT_KEY).await.read();
    let reply = t.get(&t.viewer, route::AUDIT_EXPORT).await;
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    let export = String::from_utf8(reply.body).unwrap();
    let verified = verify(&export, &key).unwrap();
    assert_eq!((verified.entries, verified.key), (10, key.key));
    assert_eq!(verify(&export.replace("task_paused", "task_resumed"), &key), Err(Finding::Unlinked(8)));
    let without: String =
        export.lines().filter(|line| !line.contains("task_paused")).map(|l| l.to_owned() + "\n").collect();
    assert_eq!(verify(&without, &key), Err(Finding::Missing { expected: 8, found: 9 }));
    // Later events are missing from it, and the stored head is still valid.
    t.enrollment_token().await;
    t.inner.engine.number_events().await.unwrap();
    let later = String::from_utf8(t.get(&t.viewer, route::AUDIT_EXPORT).await.body).unwrap();
    assert_eq!(verify(&later, &key).unwrap().entries, 11);
    assert!(later.starts_with(export.lines().next().unwrap()));
    let last: Line = serde_json::from_str(later.lines().last().unwrap()).unwrap();
    let now: AuditKeyView = t.get(&t.viewer, route::AUDIT_KEY).await.read();
    assert_eq!(Some(last), now.head.map(Line::Head));
}
