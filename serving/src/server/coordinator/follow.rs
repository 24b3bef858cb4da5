//! Gets new versions from a coordinator: long poll, ranged download, verification, storage on disk.

use std::sync::Arc;
use std::time::Duration;

use client_sdk::models::Architecture;
use operator_client::failure::{Exit, Failure, Outcome};
use operator_client::provenance::record;
use operator_client::{Server, Transfers, fetch};
use tokio_util::sync::CancellationToken;
use wire::inspect::{ModelView, Page};
use wire::provenance::Origin;
use wire::{TaskId, route};

use crate::server::folder::Record;
use crate::server::meters;
use crate::server::served::Served;

/// Duration of a long poll for a new version.
const WAIT: Duration = Duration::from_secs(20);
/// Initial and maximum pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Number of newest versions kept on disk, in addition to those in use and the previous one.
const KEPT: usize = 3;
/// Maximum number of versions listed to find a restored one, including those published during the listing.
const LISTED: usize = 500;
const MEANWHILE: usize = 50;
/// Maximum size of a table's description in a record, in bytes of JSON. Models with a larger one take tensors alone.
const TABLE_MAX: usize = 1 << 18;

/// Follows a task by the name of its model until `stop`. Logs and retries failures.
pub(in crate::server) async fn follow(
    server: Server,
    served: Arc<Served>,
    transfers: Transfers,
    stop: CancellationToken,
) {
    let followed = async {
        let (mut seen, mut pause) = (None, PAUSE);
        loop {
            match next(&server, &served, &mut seen, &transfers).await {
                Ok(()) => pause = PAUSE,
                Err(failure) => {
                    let reason = match failure.exit {
                        Exit::Io => "disk",
                        Exit::Integrity | Exit::Damaged => "integrity",
                        Exit::Connection | Exit::Unavailable => "away",
                        Exit::Internal
                        | Exit::Usage
                        | Exit::Configuration
                        | Exit::Data
                        | Exit::Denied
                        | Exit::NotFound
                        | Exit::Conflict
                        | Exit::Refused
                        | Exit::Server
                        | Exit::Device
                        | Exit::Round
                        | Exit::Training
                        | Exit::Elsewhere
                        | Exit::Idle
                        | Exit::Promise => "refused",
                    };
                    meters::fetch_failed(&served.name, reason);
                    let name = &served.name;
                    tracing::warn!(
                        model = name,
                        reason,
                        "no new version of {name}: {}: {}",
                        failure.title,
                        failure.detail
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    };
    tokio::select! {
        () = followed => {}
        () = stop.cancelled() => {}
    }
}

/// Waits for a version newer than `seen`, and stores it.
async fn next(server: &Server, served: &Served, seen: &mut Option<(TaskId, u32)>, transfers: &Transfers) -> Outcome {
    let (task, after) = match *seen {
        Some((task, version)) => (task, Some(version)),
        None => (server.task(&served.name).await?, None),
    };
    let newest = newest(server, task, after).await?;
    let Some(model) = newest.filter(|model| after.is_none_or(|after| model.version > after)) else {
        // A new task may have reused the name of a finished one.
        *seen = None;
        if after.is_none() {
            tokio::time::sleep(PAUSE_MAX).await;
        }
        return Ok(());
    };
    let is_of_another_task = model.version > 0 && served.task().is_some_and(|task| task != model.task);
    if is_of_another_task || (served.wants(model.version) && served.lacks(model.version)) {
        let restored = if is_of_another_task { None } else { restored_before(server, served, &model, after).await? };
        // The newest version was trained from the restored one, so the restored one is its stable version.
        let is_lost = restored.as_ref().is_some_and(|restored| restored.removed_at.is_some());
        if let Some(restored) = restored.as_ref().filter(|restored| !is_lost && served.lacks(restored.version)) {
            fetch_one(server, served, restored, false, transfers).await?;
        }
        fetch_one(server, served, &model, is_lost, transfers).await?;
        let unreadable = Failure::because(Exit::Io, "cannot read the folder of a model");
        let newest = served.folder.versions().map_err(unreadable)?;
        let restored = restored.map(|restored| restored.version);
        let kept: Vec<_> = newest.into_iter().take(KEPT).chain(restored).chain(served.needed()).collect();
        served.folder.retain(&kept).map_err(Failure::because(Exit::Io, "cannot remove an old version"))?;
    }
    *seen = Some((task, model.version));
    Ok(())
}

/// The newest version, newer than `after` unless the wait timed out.
async fn newest(server: &Server, task: TaskId, after: Option<u32>) -> Outcome<Option<ModelView>> {
    let mut query = vec![("limit", "1".to_owned())];
    if let Some(after) = after {
        query.push(("after_version", after.to_string()));
        query.push(("wait_ms", WAIT.as_millis().to_string()));
    }
    let path = route::fill(route::MODELS, &[&task]);
    let page: Page<ModelView> = server.get(&path, &query).await?;
    Ok(page.items.into_iter().next().filter(|model| model.removed_at.is_none()))
}

/// The newest version with a restored record, among those older than this one and newer than both the stable one and
/// `after`. `None` if this one is restored itself.
async fn restored_before(
    server: &Server,
    served: &Served,
    newest: &ModelView,
    after: Option<u32>,
) -> Outcome<Option<ModelView>> {
    let Some(stable) = served.at(None) else { return Ok(None) };
    let since = stable.version.max(after.unwrap_or(0));
    let count = usize::try_from(newest.version.saturating_sub(since)).unwrap_or(usize::MAX);
    if count < 2 {
        return Ok(None);
    }
    let (path, most) = (route::fill(route::MODELS, &[&newest.task]), count.saturating_add(MEANWHILE).min(LISTED));
    let listed: Vec<ModelView> = server.list(&path, most).await?;
    let is_between = |model: &ModelView| model.version > since && model.version <= newest.version;
    for model in listed.into_iter().filter(|model| is_between(model) && served.wants(model.version)) {
        let Some(signed) = record(server, &model).await? else { continue };
        // Skips a version without a valid record.
        let opened = signed.open().ok().filter(|opened| served.key().is_none_or(|key| key == opened.coordinator));
        if opened.is_some_and(|opened| opened.origin == Origin::Restored) {
            return Ok(Some(model).filter(|model| model.version < newest.version));
        }
    }
    Ok(None)
}

/// Downloads a version. `follows_restored`: it replaces an earlier restored version that was deleted.
async fn fetch_one(
    server: &Server,
    served: &Served,
    model: &ModelView,
    follows_restored: bool,
    transfers: &Transfers,
) -> Outcome {
    let provenance = record(server, model).await?;
    if let Some(signed) = &provenance {
        let opened = signed.open().map_err(|error| Failure::new(Exit::Integrity, error))?;
        if let Some(key) = served.key().filter(|key| *key != opened.coordinator) {
            let detail = format!("its record is signed by the key {}, not by {key}", opened.coordinator);
            return Err(Failure::new(Exit::Integrity, detail));
        }
        served.trust(opened.coordinator);
    } else if served.key().is_some() {
        let detail = format!("version {} has no signed record, and earlier ones have", model.version);
        return Err(Failure::new(Exit::Integrity, detail));
    }
    let spec = server.task_view(model.task).await?.spec;
    let table = spec.model.table.filter(|table| serde_json::to_vec(table).is_ok_and(|text| text.len() <= TABLE_MAX));
    let architecture: Option<Architecture> = spec.model.architecture.and_then(|told| serde_json::from_value(told).ok());
    let cannot = || Failure::because(Exit::Io, "cannot keep a version");
    let incoming = served.folder.incoming(model.version).map_err(cannot())?;
    fetch(server, model, &incoming, transfers).await?;
    served.begin(model.task).await.map_err(cannot())?;
    let record = Record { task: model.task, sha256: model.sha256, architecture, table, provenance, follows_restored };
    served.folder.keep(model.version, &record).map_err(cannot())?;
    served.stored(model.version);
    Ok(())
}
