//! Training ahead of rounds by participants open to any task.

use std::time::Duration;

use federation::id::{ParticipantId, TaskId};
use serde_json::{Value, json};
use wire::participant::{CheckInReply, DiscardReason};
use wire::route;

use crate::support::{TestCoordinator, Who, input, small_task};

/// A participant whose journal holds one update.
struct Device {
    id: ParticipantId,
    who: Who,
    held: Option<(TaskId, u32)>,
    /// Its finished trainings, and its aggregated updates.
    trained: Vec<TaskId>,
    sent: Vec<TaskId>,
}

impl Device {
    async fn new(t: &TestCoordinator, name: &str) -> Self {
        let (id, who) = t.enroll(name).await;
        Self { id, who, held: None, trained: Vec::new(), sent: Vec::new() }
    }

    async fn check_in(&self, t: &TestCoordinator) -> CheckInReply {
        let training = self.held.map(|(task, serial)| json!({ "task": task, "serial": serial, "ready": true }));
        let body = json!({ "examples": 10, "wait_ms": 0, "training": training });
        t.post(&self.who, route::CHECK_IN, &body).await.read()
    }

    /// Checks in once and follows the reply.
    async fn go(&mut self, t: &TestCoordinator) {
        match self.check_in(t).await {
            CheckInReply::Train(assignment) => {
                self.trained.push(assignment.task);
                self.held = Some((assignment.task, assignment.attempt));
            }
            CheckInReply::Assigned(assignment) => {
                let update = assignment.update.expect("it was trained ahead");
                assert_eq!(self.held.take(), Some((assignment.task, update.serial)), "it holds what the round wants");
                let reply = t.send(&self.who, t.upload(&assignment, self.id, &input([1, 2, 3]))).await;
                assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
                self.sent.push(assignment.task);
            }
            CheckInReply::Discard { task, serial, .. } => assert_eq!(self.held.take(), Some((task, serial))),
            CheckInReply::ComeBack { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A buffer of two.
fn buffered(name: &str) -> Value {
    let mut spec = small_task();
    spec["name"] = json!(name);
    spec["schedule"] = json!({ "mode": "buffered", "concurrency": 2 });
    spec["rounds"]["count"] = json!(1);
    spec
}

async fn set_status(t: &TestCoordinator, name: &str, action: &str) {
    let reply = t.post(&t.operator, &format!("/v1/tasks/{name}/{action}"), &json!({})).await;
    assert!(reply.status.is_success(), "{}", String::from_utf8_lossy(&reply.body));
}

#[tokio::test]
async fn of_two_buffers_both_are_filled_by_devices_that_hold_one_update_at_a_time() {
    let t = TestCoordinator::start().await;
    let one = t.create_task(&buffered("one")).await;
    t.advance(Duration::from_secs(1));
    let tasks = [one, t.create_task(&buffered("two")).await];
    let (mut quick, mut slow) = (Device::new(&t, "quick").await, Device::new(&t, "slow").await);
    for turn in 0..60 {
        t.work().await;
        quick.go(&t).await;
        // It is still training while the other waits with a finished update.
        if turn % 4 == 3 {
            slow.go(&t).await;
        }
    }
    for device in [&quick, &slow] {
        assert_eq!(
            (device.trained.len(), device.sent.len()),
            (2, 2),
            "nothing is trained in vain: {:?}",
            device.trained
        );
        assert!(tasks.iter().all(|task| device.sent.contains(task)), "{:?}", device.sent);
    }
}

#[tokio::test]
async fn a_task_says_how_many_updates_it_lacks_and_when_a_round_of_a_period_opens() {
    let t = TestCoordinator::start().await;
    t.create_task(&buffered("one")).await;
    let waiting_for =
        async |task: &str| t.get(&t.viewer, &format!("/v1/tasks/{task}")).await.json()["waiting_for"].clone();
    t.work().await;
    assert_eq!(waiting_for("one").await, json!({ "kind": "updates", "round": 1, "more": 2 }), "nobody is enrolled");
    let mut device = Device::new(&t, "a").await;
    for _ in 0..2 {
        device.go(&t).await;
        t.work().await;
    }
    assert!(device.held.is_some());
    device.go(&t).await;
    assert_eq!(waiting_for("one").await, json!({ "kind": "updates", "round": 1, "more": 1 }));
    set_status(&t, "one", "pause").await;
    assert_eq!(waiting_for("one").await["kind"], "operator");

    let mut spec = buffered("two");
    spec["schedule"] = json!({ "mode": "semi_sync", "period_ms": 60_000, "concurrency": 2 });
    t.create_task(&spec).await;
    let at = t.now().plus(Duration::from_secs(60));
    assert_eq!(waiting_for("two").await, json!({ "kind": "round", "round": 1, "at": at }));
    t.advance(Duration::from_secs(60));
    assert_eq!(waiting_for("two").await, json!({ "kind": "updates", "round": 1, "more": 2 }));
}

#[tokio::test]
async fn of_two_buffers_that_lack_an_update_each_the_older_tasks_is_filled_first() {
    let t = TestCoordinator::start().await;
    let one = t.create_task(&buffered("one")).await;
    set_status(&t, "one", "pause").await;
    t.advance(Duration::from_secs(1));
    let two = t.create_task(&buffered("two")).await;
    let mut devices = [Device::new(&t, "a").await, Device::new(&t, "b").await];
    for (device, task, other) in [(0, two, "two"), (1, one, "one")] {
        for _ in 0..3 {
            devices[device].go(&t).await;
            t.work().await;
        }
        assert_eq!(devices[device].held, Some((task, 1)));
        set_status(&t, other, "pause").await;
        set_status(&t, if other == "two" { "one" } else { "two" }, "resume").await;
    }
    set_status(&t, "one", "resume").await;
    for minutes in [0, 11] {
        t.advance(Duration::from_secs(60 * minutes));
        for _ in 0..12 {
            for device in &mut devices {
                device.go(&t).await;
            }
            t.work().await;
        }
        let sent = devices.each_ref().map(|device| device.sent.clone());
        let expected = if minutes == 0 { vec![] } else { vec![one, two] };
        assert_eq!(sent, [expected.clone(), expected], "after {minutes} minutes");
    }
}

#[tokio::test]
async fn an_update_of_a_task_that_is_over_is_thrown_away() {
    let t = TestCoordinator::start().await;
    let one = t.create_task(&buffered("one")).await;
    let mut device = Device::new(&t, "a").await;
    device.go(&t).await;
    t.work().await;
    device.go(&t).await;
    assert_eq!(device.held, Some((one, 1)));
    set_status(&t, "one", "cancel").await;
    let discard = CheckInReply::Discard { task: one, serial: 1, reason: DiscardReason::Unknown };
    assert_eq!(device.check_in(&t).await, discard);
    // The task is unknown.
    device.held = Some((TaskId(uuid::Uuid::from_u128(7)), 1));
    assert!(matches!(device.check_in(&t).await, CheckInReply::Discard { reason: DiscardReason::Unknown, .. }));
}

#[tokio::test]
async fn an_update_of_a_task_that_rests_keeps_nobody_from_another() {
    let t = TestCoordinator::start().await;
    let one = t.create_task(&buffered("one")).await;
    let mut device = Device::new(&t, "a").await;
    device.go(&t).await;
    t.work().await;
    device.go(&t).await;
    let two = t.create_task(&buffered("two")).await;
    device.go(&t).await;
    t.work().await;
    device.go(&t).await;
    assert_eq!(device.held, Some((one, 1)), "it waits for a round of the first");
    set_status(&t, "one", "pause").await;
    device.go(&t).await;
    t.work().await;
    device.go(&t).await;
    assert_eq!(device.held, Some((two, 1)));
}
