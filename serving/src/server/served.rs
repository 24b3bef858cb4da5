//! A served model: the life of its versions from disk to use and removal.

mod back;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use client_sdk::train::Device;
use inference::Moment;
use inference::rollout::{Rollout, Verdict};
use inference::versions::{LoadedVersion, Placed, Versions, Warm};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wire::audit::AuditKey;
use wire::inspect::RefusedBecause;
use wire::{Digest, TaskId};

use super::engine::{Engine, ModelPair};
use super::folder::{ModelFolder, State, Unusable};
use super::meters::{self, AnswerMeters};
use super::model::{Loaded, Unservable};
use super::standing::{Refusals, ServingStatus};
use super::traffic::Traffic;
pub(super) use back::NotRolledBack;

/// Interval at which the folder is read without a notification.
const LOOK: Duration = Duration::from_millis(250);
/// Interval at which a canary or a draining version is checked.
const WATCH: Duration = Duration::from_millis(20);
/// Pause before a version that could not be read is read again.
const AGAIN: Duration = Duration::from_secs(5);

/// Why a version is not ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error(transparent)]
    Unservable(#[from] Unservable),
}

/// The state of a version's file. A file with another stamp is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    /// Two writes within one tick of the file system's clock have the same time.
    bytes: u64,
}

/// A version that failed to load.
#[derive(Clone, Copy, Debug)]
struct Unready {
    file: Option<Stamp>,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It could not be read, and may be retried from this time on.
    Passing(Instant),
    /// It does not match its record, or its record is invalid. It may be downloaded again.
    Damaged,
    /// It matches its record, but is not a usable model.
    Unfit,
}

impl NotReady {
    fn fault(&self, now: Instant) -> Fault {
        match self {
            Self::Unusable(Unusable::Read { .. }) => Fault::Passing(now + AGAIN),
            Self::Unusable(
                Unusable::Name(_) | Unusable::Record(..) | Unusable::Digest { .. } | Unusable::Provenance(_),
            ) => Fault::Damaged,
            Self::Unservable(_) => Fault::Unfit,
        }
    }
}

/// A version for immediate use, loaded before there was room for it.
struct Ready {
    version: u32,
    file: Option<Stamp>,
    loaded: Arc<Loaded>,
    warm: Warm,
}

/// A model by its name.
pub(crate) struct Served {
    pub(crate) name: String,
    /// Its index among the engine's queues.
    pub(crate) index: usize,
    pub(crate) folder: ModelFolder,
    pub(crate) rollout: Rollout,
    batch: usize,
    /// The device that computes its versions.
    device: Device,
    versions: Mutex<Versions<Arc<Loaded>>>,
    /// The stable version of the previous run, which is loaded first.
    last: Mutex<Option<u32>>,
    /// Its task, once a record has named it.
    task: Mutex<Option<TaskId>>,
    key: Mutex<Option<AuditKey>>,
    /// Versions that failed to load; not read again until their file changes or their pause ends.
    unready: Mutex<BTreeMap<u32, Unready>>,
    /// The version that a canary must make room for.
    ready: Mutex<Option<Ready>>,
    /// The last attempt to read the folder failed.
    is_unreadable: AtomicBool,
    /// Why versions are not used, for reports.
    refusals: Refusals,
    /// Serializes changes of versions.
    changing: tokio::sync::Mutex<()>,
    changed: Notify,
    pub(crate) traffic: Traffic,
    pub(super) meters: AnswerMeters,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version that answers a request.
pub(crate) struct Chosen {
    pub(crate) target: ModelPair,
    pub(crate) sha256: Digest,
}

impl Served {
    /// A model whose versions are in this folder.
    ///
    /// # Errors
    /// The state of the last run cannot be read.
    pub(crate) fn new(
        models: &Path,
        name: &str,
        index: usize,
        rollout: Rollout,
        batch: usize,
    ) -> Result<Self, Unusable> {
        let folder = ModelFolder::new(models, name)?;
        let State { stable, previous, refused, key, task } = folder.state()?;
        Ok(Self {
            name: name.to_owned(),
            index,
            folder,
            rollout,
            batch,
            device: Device::Cpu,
            refusals: Refusals::before(&refused),
            versions: Mutex::new(Versions::new(previous, refused)),
            last: Mutex::new(stable),
            task: Mutex::new(task),
            key: Mutex::new(key),
            unready: Mutex::default(),
            ready: Mutex::default(),
            is_unreadable: AtomicBool::new(false),
            changing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            traffic: Traffic::default(),
            meters: AnswerMeters::of(name),
        })
    }

    /// The same model, computed on this device.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        *locked(&self.task)
    }

    /// The task whose tokens are accepted: that of the active version, which may belong to a former task until the new
    /// one has a version.
    pub(crate) fn audience(&self) -> Option<TaskId> {
        let answering = locked(&self.versions).stable().and_then(|held| held.model.task);
        answering.or_else(|| self.task())
    }

    pub(crate) fn key(&self) -> Option<AuditKey> {
        *locked(&self.key)
    }

    /// Pins the key of the first signed record.
    pub(crate) fn trust(&self, key: AuditKey) {
        locked(&self.key).get_or_insert(key);
    }

    /// Numbers of the active versions.
    pub(crate) fn answering(&self) -> Vec<u32> {
        locked(&self.versions).answering()
    }

    /// Whether a published version should be downloaded and used.
    pub(crate) fn wants(&self, version: u32) -> bool {
        version > 0 && locked(&self.versions).wants(version)
    }

    /// Whether a version must be downloaded, because it is missing or does not match.
    pub(crate) fn lacks(&self, version: u32) -> bool {
        !self.folder.file(version).exists() || self.unready(version) == Some(Fault::Damaged)
    }

    /// Loads a version that was stored in the folder, even if it failed to load before.
    pub(crate) fn stored(&self, version: u32) {
        locked(&self.unready).remove(&version);
        self.changed.notify_one();
    }

    /// The state of the versions, for reports.
    pub(crate) fn standing(&self, now: Moment) -> ServingStatus {
        ServingStatus::of(&locked(&self.versions), &self.rollout, now, &self.refusals)
    }

    /// A version by its number, or the stable one.
    pub(crate) fn at(&self, version: Option<u32>) -> Option<Arc<Loaded>> {
        let versions = locked(&self.versions);
        let held = version.map_or_else(|| versions.stable(), |version| versions.at(version));
        held.map(|held| Arc::clone(&held.model))
    }

    /// The version that answers a request: the named one, or one chosen by the draw, which only matters during a
    /// canary.
    pub(crate) fn choose(self: &Arc<Self>, version: Option<u32>, draw: impl FnOnce() -> u64) -> Option<Chosen> {
        let versions = locked(&self.versions);
        let held = match version {
            Some(version) => versions.at(version),
            None if versions.canary().is_some() => versions.route(draw(), &self.rollout),
            None => versions.stable(),
        }?;
        let is_canary = versions.canary().is_some_and(|canary| canary.version == held.version);
        let comparison = versions.stable().filter(|_| is_canary).map(|stable| {
            let (served, version) = (Arc::clone(self), held.version);
            let tell: super::engine::Compared = Arc::new(move |canary, stable| {
                if let Some(watch) = locked(&served.versions).watch(version) {
                    watch.compare(canary, stable);
                }
            });
            (Arc::clone(&stable.model), tell)
        });
        Some(Chosen {
            sha256: held.model.sha256,
            target: ModelPair { model: Arc::clone(&held.model), comparison, length: 0 },
        })
    }

    /// Records the outcome of a request for the verdict on a canary.
    pub(crate) fn note(&self, version: u32, took: Duration, failed: bool) {
        if let Some(watch) = locked(&self.versions).watch(version) {
            watch.note(took, failed);
        }
    }

    /// Keeps the versions in use up to date with the folder until `stop`.
    pub(crate) async fn keep(self: Arc<Self>, engine: Arc<Engine>, stop: CancellationToken) {
        loop {
            self.look(&engine).await;
            let is_busy = {
                let versions = locked(&self.versions);
                versions.canary().is_some() || versions.draining().is_some()
            };
            let pause = if is_busy { WATCH } else { LOOK };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One pass: drains versions, judges the canary, and loads the newest usable version.
    pub(crate) async fn look(self: &Arc<Self>, engine: &Engine) {
        let _alone = self.changing.lock().await;
        self.drain();
        self.judge(engine);
        if locked(&self.versions).draining().is_some() {
            // There is no room for another version.
            return;
        }
        let Some(found) = self.found() else { return };
        let at_first = self.answering().is_empty();
        // The previously active version is loaded first; newer ones become canaries again.
        let stable = locked(&self.last).filter(|stable| at_first && found.contains(stable));
        let is_due = |version: &u32| self.wants(*version) && !self.is_put_off(*version);
        let others = found.into_iter().filter(|version| Some(*version) != stable && is_due(version));
        // A restored version is activated immediately; its successors become canaries.
        let (restored, others): (Vec<_>, Vec<_>) =
            others.partition(|version| self.folder.is_restored(*version, self.key()));
        let is_trying = locked(&self.versions).canary().is_some();
        let others = others.into_iter().filter(|_| !is_trying);
        let mut ready = locked(&self.ready).take();
        for version in stable.filter(is_due).into_iter().chain(restored).chain(others) {
            let file = self.stamp(version);
            if let Some(Ready { loaded, warm, .. }) =
                ready.take_if(|ready| (ready.version, ready.file) == (version, file) && !is_trying)
            {
                self.place(version, loaded, warm, engine, true);
                return;
            }
            match self.load(version).await {
                // The version is usable and waits for room.
                Ok((loaded, warm, _)) if is_trying => {
                    *locked(&self.ready) = Some(Ready { version, file, loaded: Arc::new(loaded), warm });
                    locked(&self.versions).overtake();
                    return;
                }
                Ok((loaded, warm, at_once)) => {
                    self.place(version, Arc::new(loaded), warm, engine, at_once);
                    return;
                }
                Err(error) => self.tell_unready(version, file, &error),
            }
        }
    }

    /// The existing versions, newest first; `None` if the folder cannot be read, which is logged once.
    fn found(&self) -> Option<Vec<u32>> {
        let name = &self.name;
        match self.folder.versions() {
            Ok(found) => {
                if self.is_unreadable.swap(false, Ordering::Relaxed) {
                    tracing::info!(model = name, "the folder of {name} can be read again");
                }
                Some(found)
            }
            Err(error) => {
                if !self.is_unreadable.swap(true, Ordering::Relaxed) {
                    meters::fetch_failed(name, "disk");
                    tracing::error!(
                        model = name,
                        "the folder of {name} cannot be read, and no new version used: {error}"
                    );
                }
                None
            }
        }
    }

    /// Prepares for versions of this task. Moves versions of a former task with the same name; its newest version
    /// answers until this task has one.
    ///
    /// # Errors
    /// If the versions cannot be moved.
    pub(crate) async fn begin(&self, task: TaskId) -> std::io::Result<()> {
        let _alone = self.changing.lock().await;
        let Some(former) = self.task().filter(|former| *former != task) else { return Ok(()) };
        let place = self.folder.set_aside(former)?;
        locked(&self.versions).begin_anew();
        (*locked(&self.task), *locked(&self.last)) = (Some(task), None);
        locked(&self.unready).clear();
        locked(&self.ready).take();
        self.refusals.clear();
        let (name, place) = (&self.name, place.display());
        tracing::warn!(model = name, %task, %former, "{name} is another task now: versions of the former one lie in {place}");
        self.note_state();
        Ok(())
    }

    fn drain(&self) {
        let mut versions = locked(&self.versions);
        // This is the last owner.
        if versions.draining().is_some_and(|held| Arc::strong_count(&held.model) == 1)
            && let Some(held) = versions.drained()
        {
            tracing::info!(model = self.name, version = held.version, "version {} left memory", held.version);
        }
    }

    fn judge(&self, engine: &Engine) {
        let judged = locked(&self.versions).judge(engine.now(), &self.rollout);
        let name = &self.name;
        match judged {
            None | Some((_, Verdict::Hold(_))) => return,
            Some((version, Verdict::Promote)) => {
                meters::swapped(name, "promoted");
                tracing::info!(model = name, version, "version {version} of {name} is the stable one now");
            }
            Some((version, Verdict::TakeBack(reason))) => {
                meters::swapped(name, "taken_back");
                self.refusals.note_taken_back(version, reason);
                let kind = reason.as_str();
                tracing::warn!(model = name, version, kind, "version {version} of {name} is taken back: {reason}");
            }
        }
        self.note_state();
    }

    async fn load(self: &Arc<Self>, version: u32) -> Result<(Loaded, Warm, bool), NotReady> {
        let served = Arc::clone(self);
        let loaded = tokio::task::spawn_blocking(move || {
            let read = served.folder.read(version, served.key())?;
            let architecture = read.architecture.as_ref();
            let loaded = Loaded::read(version, read.sha256, &read.file, architecture, served.batch)?;
            let loaded = loaded.of(read.task, read.table).on(served.device.clone());
            let warm = loaded.warm()?;
            if read.task.is_some() {
                *locked(&served.task) = read.task;
            }
            Ok((loaded, warm, read.is_restored))
        });
        loaded.await.unwrap_or_else(|error| Err(Unservable::Unreadable(error.to_string()).into()))
    }

    fn place(&self, version: u32, model: Arc<Loaded>, warm: Warm, engine: &Engine, at_once: bool) {
        let (name, held) = (&self.name, LoadedVersion { version, model });
        let placed = locked(&self.versions).place(held, warm, engine.now(), &self.rollout, at_once);
        self.refusals.forget(version);
        match placed {
            Placed::Stable { before } => {
                meters::swapped(name, "used");
                tracing::info!(model = name, version, ?before, "version {version} of {name} answers");
            }
            Placed::Canary => {
                meters::swapped(name, "tried");
                tracing::info!(model = name, version, "version {version} of {name} is tried");
            }
        }
        self.note_state();
    }

    /// Writes the state, then counts it. Serving continues if writing fails.
    fn note_state(&self) {
        let (state, stable, canary) = {
            let versions = locked(&self.versions);
            let stable = versions.stable().map(|held| held.version);
            let state = State {
                stable: stable.filter(|_| !versions.is_former()),
                previous: versions.previous(),
                refused: versions.refused().clone(),
                key: self.key(),
                task: self.task(),
            };
            (state, stable, versions.canary().map(|held| held.version))
        };
        if let Err(error) = self.folder.write_state(&state) {
            meters::fetch_failed(&self.name, "disk");
            tracing::error!(
                model = self.name,
                "what is in use cannot be written, and a restart may not know it: {error}"
            );
        }
        meters::versions(&self.name, stable, canary);
    }

    /// Numbers of the versions that must stay on disk.
    pub(crate) fn needed(&self) -> Vec<u32> {
        let versions = locked(&self.versions);
        versions.answering().into_iter().chain(versions.previous()).collect()
    }

    /// Why a version is not read now.
    fn unready(&self, version: u32) -> Option<Fault> {
        let Unready { file, fault } = locked(&self.unready).get(&version).copied()?;
        let is_over = matches!(fault, Fault::Passing(again) if again <= Instant::now());
        (!is_over && file == self.stamp(version)).then_some(fault)
    }

    fn is_put_off(&self, version: u32) -> bool {
        self.unready(version).is_some()
    }

    fn stamp(&self, version: u32) -> Option<Stamp> {
        let file = std::fs::metadata(self.folder.file(version)).ok()?;
        Some(Stamp { modified: file.modified().ok()?, bytes: file.len() })
    }

    /// Records why a version cannot be used. `file` is the stamp from before the attempt to load it.
    fn tell_unready(&self, version: u32, file: Option<Stamp>, error: &NotReady) {
        let fault = error.fault(Instant::now());
        locked(&self.unready).insert(version, Unready { file, fault });
        let name = &self.name;
        let because = match fault {
            Fault::Passing(_) => None,
            Fault::Damaged => Some(RefusedBecause::Damaged),
            Fault::Unfit => Some(RefusedBecause::Unfit),
        };
        meters::swapped(name, if because.is_some() { "unfit" } else { "unreadable" });
        if let Some(because) = because {
            self.refusals.note(version, because);
        }
        tracing::error!(model = name, version, "version {version} of {name} is not used: {error}");
    }
}

#[cfg(test)]
mod tests;
