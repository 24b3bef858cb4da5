//! Reports the served versions of a model to the coordinator: on each change, and otherwise every 30 seconds. Serving
//! does not wait for it.

use std::sync::Arc;
use std::time::Duration;

use operator_client::Server;
use operator_client::failure::{Exit, Failure};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::inspect::{ServerReport, is_in_server_name};
use wire::route;

use crate::server::served::Served;
use crate::server::shared::Serving;
use crate::server::standing::ServingStatus;

/// Interval at which changes are detected.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of unchanged reports. The coordinator lists a report for two minutes.
const EVERY: Duration = Duration::from_secs(30);
/// Pause after a coordinator rejects reports, for example because it is an older release.
const REFUSED: Duration = Duration::from_secs(600);
/// Timeout of a report, and of the last one at shutdown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const LEAVING: Duration = Duration::from_secs(2);
/// Maximum number of letters of the host name in a server's name.
const HOST_MAX: usize = 120;

/// Reports one model until `stop`, and then its end. `name`: the name of this server.
pub(in crate::server) async fn tell(
    server: Server,
    serving: Arc<Serving>,
    served: Arc<Served>,
    name: String,
    stop: CancellationToken,
) {
    let (mut since, mut due) = (Instant::now(), Instant::now());
    // The last report and where it may be listed, and whether the last report was rejected.
    let mut told: Option<ServingStatus> = None;
    let mut place: Option<String> = None;
    let mut is_failing = false;
    while stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        let (now, standing) = (Instant::now(), served.standing(serving.engine.now()));
        let is_news = !is_failing && told.as_ref().is_some_and(|told| !told.is_like(&standing));
        if now < due && !is_news {
            continue;
        }
        let counted = served.traffic.counted();
        let report = ServerReport {
            version: standing.version,
            canary: standing.canary,
            refused: standing.refused.clone(),
            over_ms: millis(now - since),
            requests: counted.requests,
            errors: counted.errors,
            p99_ms: counted.p99().map(millis),
            queue: serving.engine.waiting(served.index) as u64,
            desired_replicas: serving.desired(),
        };
        let path: &str = place.insert(path(&served, &name));
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, server.put(path, &report));
        let Some(answer) = stop.run_until_cancelled(sent).await else { break };
        let late = |_| Err(Failure::new(Exit::Connection, format!("no answer within {} s", REQUEST_TIMEOUT.as_secs())));
        match answer.unwrap_or_else(late) {
            Ok(()) => {
                served.traffic.told(&counted);
                (since, due, told, is_failing) = (now, now + EVERY, Some(standing), false);
            }
            Err(failure) => {
                if !is_failing {
                    let (model, why) = (&served.name, &failure.detail);
                    tracing::debug!(model, "the coordinator is not told that {model} is served here: {why}");
                }
                due = now + pause(failure.more.status, served.task().is_some());
                is_failing = true;
            }
        }
    }
    if let Some(path) = place.filter(|_| !is_failing) {
        let _ = tokio::time::timeout(LEAVING, server.delete(&path)).await;
    }
}

/// Uses the id of the task, once a record has named it, because another task may reuse the name.
fn path(served: &Served, name: &str) -> String {
    match served.task() {
        Some(task) => route::fill(route::TASK_SERVER, &[&task, &name]),
        None => route::fill(route::TASK_SERVER, &[&served.name, &name]),
    }
}

/// When to retry after an answer with this status, or without one.
fn pause(status: Option<u16>, is_task_known: bool) -> Duration {
    match status {
        // A task may be created, a place may become free, and a rate limit ends.
        Some(404) if !is_task_known => EVERY,
        Some(408 | 409 | 429) => EVERY,
        Some(400..=499) => REFUSED,
        Some(_) | None => EVERY,
    }
}

/// The default name of a server: host name, as Linux reports it, and port.
pub(in crate::server) fn default_name(port: u16) -> String {
    name_of(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(), port)
}

fn name_of(host: &str, port: u16) -> String {
    let host: String = host.chars().filter(|letter| is_in_server_name(*letter)).take(HOST_MAX).collect();
    if host.is_empty() { format!("models:{port}") } else { format!("{host}:{port}") }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use wire::inspect::is_server_name;

    use super::*;

    #[test]
    fn a_coordinator_that_does_not_know_of_servers_is_left_alone() {
        for (status, is_task_known, expected) in [
            (Some(404), true, REFUSED),
            (Some(405), true, REFUSED),
            (Some(400), false, REFUSED),
            (Some(401), true, REFUSED),
            (Some(404), false, EVERY),
            (Some(409), true, EVERY),
            (Some(429), true, EVERY),
            (Some(500), true, EVERY),
            (Some(503), true, EVERY),
            (None, true, EVERY),
        ] {
            assert_eq!(pause(status, is_task_known), expected, "{status:?}");
        }
    }

    #[test]
    fn a_server_is_called_as_its_machine_and_its_port() {
        assert_eq!(name_of("models-1.example.org\n", 8500), "models-1.example.org:8500");
        assert_eq!(name_of("", 1), "models:1");
        let long = name_of(&"x".repeat(400), 65_535);
        assert!(is_server_name(&long) && long.ends_with("x:65535"), "{long}");
    }
}
