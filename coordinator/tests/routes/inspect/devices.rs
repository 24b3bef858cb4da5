//! Devices that worked on sums: listed by name, filtered, and limited to the token's scope.

use std::time::Duration;

use serde_json::{Value, json};
use wire::inspect::{DeviceView, Page, RoundView};
use wire::problem::ProblemType;
use wire::{TaskId, route};

use crate::support::{TestCoordinator, Who, config, input, named, small_task};

async fn list(t: &TestCoordinator, who: &Who, query: &str) -> Page<DeviceView> {
    t.get(who, &format!("{}?{query}", route::DEVICES)).await.read()
}

fn names(page: &Page<DeviceView>) -> Vec<(&str, &str)> {
    page.items.iter().map(|item| (item.device.as_str(), item.coordinator.as_deref().unwrap_or("?"))).collect()
}

#[tokio::test]
async fn a_round_names_the_coordinator_and_the_device_that_summed_it() {
    let mut config = config();
    config.aggregation.device = "cpu".to_owned();
    config.work.name = Some("north".to_owned());
    let t = TestCoordinator::with(&config).await;
    let task = t.create_task(&small_task()).await;
    assert!(list(&t, &t.viewer, "limit=9").await.items.is_empty());
    let people = [t.enroll("a").await, t.enroll("b").await];
    let work = t.assigned(&[people[0].1.clone(), people[1].1.clone()]).await.remove(0);
    for (id, who) in &people {
        assert_eq!(t.send(who, t.upload(&work, *id, &input([1, 2, 3]))).await.status, 200);
    }
    t.work().await;
    let round: RoundView = t.get(&t.viewer, "/v1/tasks/small/rounds/1").await.read();
    let by = round.work.unwrap();
    assert_eq!(by.coordinator.as_deref(), Some("north"));
    let listed = t.get(&t.viewer, route::DEVICES).await.json();
    let device = json!({
        "device": by.sum_device, "coordinator": "north", "sums": 1, "summed_because": { "asked_for": 1 },
        "unmasked_because": { "asked_for": 1 },
        "last": { "task": task, "round": 1, "attempt": 1, "at": t.now().0 },
    });
    assert_eq!(listed, json!({ "items": [device] }));
    let rounds = async |device: &str| {
        let path = format!("/v1/tasks/small/rounds?device={}", device.replace(' ', "%20"));
        let page: Page<RoundView> = t.get(&t.viewer, &path).await.read();
        page.items.iter().map(|round| round.number).collect::<Vec<_>>()
    };
    assert_eq!((rounds(&by.sum_device).await, rounds("cuda:0").await), (vec![1], vec![]));
}

/// The tasks `small` and `other`, each in its first round; only `small` is summed.
async fn two_tasks() -> (TestCoordinator, [TaskId; 2]) {
    let t = TestCoordinator::start().await;
    let tasks = [t.create_task(&small_task()).await, t.create_task(&named("other")).await];
    t.work().await;
    t.sum_by(tasks[0], "north", None).await;
    (t, tasks)
}

#[tokio::test]
async fn devices_are_listed_in_pages_and_narrowed_down() {
    let (t, [small, other]) = two_tasks().await;
    t.advance(Duration::from_secs(1));
    t.sum_by(other, "south", Some("gpu: it gave a wrong answer")).await;

    let all = [("cpu", "north"), ("cpu", "south"), ("gpu", "north")];
    let whole = list(&t, &t.viewer, "limit=3").await;
    assert_eq!((names(&whole), &whole.next_cursor), (all.to_vec(), &None));
    let south = &whole.items[1];
    assert_eq!(south.last_failure.as_deref(), Some("gpu: it gave a wrong answer"));
    assert_eq!(json!(south.unmasked_because), json!({ "chosen_failed": 1 }));
    let first = list(&t, &t.viewer, "limit=2").await;
    assert_eq!(names(&first), all[..2]);
    let last = list(&t, &t.viewer, &format!("limit=2&cursor={}", first.next_cursor.unwrap())).await;
    assert_eq!((names(&last), last.next_cursor.is_none()), (all[2..].to_vec(), true));

    let of_other = format!("task={other}");
    for (query, expected) in [
        ("task=small", [all[0], all[2]].to_vec()),
        (of_other.as_str(), vec![all[1]]),
        ("since=2025-06-15T15:06:41Z", vec![all[1]]),
        ("task=small&since=2025-06-15T15:06:41Z", vec![]),
    ] {
        assert_eq!(names(&list(&t, &t.viewer, query).await), expected, "{query}");
    }
    for (query, problem) in [
        ("task=none", ProblemType::NotFound),
        ("cursor=tasks.6e.6e", ProblemType::InvalidValue),
        ("cursor=devices.cpu", ProblemType::InvalidValue),
        ("limit=0", ProblemType::InvalidValue),
        ("state=ACTIVE", ProblemType::MalformedRequest),
    ] {
        t.get(&t.viewer, &format!("{}?{query}", route::DEVICES)).await.problem(problem);
    }
    t.get(&Who::Nobody, route::DEVICES).await.problem(ProblemType::Unauthenticated);
    t.get(&t.viewer, "/v1/tasks?device=cpu").await.problem(ProblemType::MalformedRequest);
    let shaped: Value = t.get(&t.viewer, "/v1/devices?fields=last&times=rfc3339&task=small&limit=1").await.json();
    let last = json!({ "task": small, "round": 1, "attempt": 1, "at": "2025-06-15T15:06:40Z" });
    assert_eq!(shaped["items"], json!([{ "last": last }]));
}

/// A task-scoped token sees neither the sums of other tasks in a device's counts, nor devices used only for those.
#[tokio::test]
async fn a_token_for_some_tasks_sees_the_work_on_their_sums() {
    let (t, [small, other]) = two_tasks().await;
    t.sum_by(other, "north", None).await;
    each_counts(&list(&t, &t.viewer, "limit=9").await, 2);
    let body = json!({ "name": "ward", "role": "viewer", "tasks": ["small"] });
    let token = t.post(&t.admin, route::OPERATOR_TOKENS, &body).await.json()["token"].as_str().unwrap().to_owned();
    let who = Who::Token(token);
    let within = list(&t, &who, "limit=9").await;
    each_counts(&within, 1);
    assert!(within.items.iter().all(|item| item.last.task == small));
    let detail = t.get(&who, &format!("{}?task={other}", route::DEVICES)).await.problem(ProblemType::NotFound);
    assert_eq!(detail, format!("there is no task {:?}", other.to_string()));
}

fn each_counts(page: &Page<DeviceView>, sums: u64) {
    assert_eq!(names(page), [("cpu", "north"), ("gpu", "north")]);
    assert!(page.items.iter().all(|item| item.sums == sums), "{page:?}");
}
