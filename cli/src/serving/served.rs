//! A model that is served: its versions, from disk to use, and from use to nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inference::rollout::{Rollout, Verdict};
use inference::versions::{Held, NoWayBack, Placed, Versions, Warm};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wire::audit::AuditKey;
use wire::{Digest, TaskId};

use super::engine::{Engine, Lane};
use super::folder::{ModelFolder, State, Unusable};
use super::meters;
use super::model::{Loaded, Unservable};

/// How often the folder is looked at when nobody says that something changed.
const LOOK: Duration = Duration::from_millis(250);
/// How often a version that is tried or drained is looked at.
const WATCH: Duration = Duration::from_millis(20);

/// Why a version does not get ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error(transparent)]
    Unservable(#[from] Unservable),
}

/// Why nothing was rolled back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRolledBack {
    #[error(transparent)]
    NoWayBack(#[from] NoWayBack),
    #[error("version {version} cannot be used again: {why}")]
    Previous { version: u32, why: String },
    #[error("a version is still being drained; try again in a moment")]
    Draining,
}

/// A model by its name.
pub(crate) struct Served {
    pub(crate) name: String,
    /// Its place among the engine's queues.
    pub(crate) index: usize,
    pub(crate) folder: ModelFolder,
    pub(crate) rollout: Rollout,
    batch: usize,
    versions: Mutex<Versions<Arc<Loaded>>>,
    /// Its task, once a record has told it.
    task: Mutex<Option<TaskId>>,
    key: Mutex<Option<AuditKey>>,
    /// Files that were judged unfit, by version: not read again until they change.
    unfit: Mutex<BTreeMap<u32, std::time::SystemTime>>,
    /// One change of versions at a time.
    changing: tokio::sync::Mutex<()>,
    pub(crate) changed: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who answers a request.
pub(crate) struct Chosen {
    pub(crate) lane: Lane,
    pub(crate) sha256: Digest,
}

impl Served {
    pub(crate) fn new(models: &Path, name: &str, index: usize, rollout: Rollout, batch: usize) -> Self {
        let folder = ModelFolder::new(models, name);
        let State { previous, refused, key, .. } = folder.state();
        Self {
            name: name.to_owned(),
            index,
            folder,
            rollout,
            batch,
            versions: Mutex::new(Versions::new(previous, refused)),
            task: Mutex::default(),
            key: Mutex::new(key),
            unfit: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn task(&self) -> Option<TaskId> {
        *locked(&self.task)
    }

    pub(crate) fn key(&self) -> Option<AuditKey> {
        *locked(&self.key)
    }

    /// Notes the key of the first signed record.
    pub(crate) fn trust(&self, key: AuditKey) {
        locked(&self.key).get_or_insert(key);
    }

    /// Numbers of the versions that answer.
    pub(crate) fn answering(&self) -> Vec<u32> {
        locked(&self.versions).answering()
    }

    /// Whether a published version is one to fetch and use.
    pub(crate) fn wants(&self, version: u32) -> bool {
        version > 0 && locked(&self.versions).wants(version)
    }

    /// A version by its number, or the stable one.
    pub(crate) fn at(&self, version: Option<u32>) -> Option<Arc<Loaded>> {
        let versions = locked(&self.versions);
        let held = version.map_or_else(|| versions.stable(), |version| versions.at(version));
        held.map(|held| Arc::clone(&held.model))
    }

    /// Who answers a request: the version that it names, or the one by its draw.
    pub(crate) fn choose(self: &Arc<Self>, version: Option<u32>, draw: u64) -> Option<Chosen> {
        let versions = locked(&self.versions);
        let held = match version {
            Some(version) => versions.at(version),
            None => versions.route(draw, &self.rollout),
        }?;
        let is_canary = versions.canary().is_some_and(|canary| canary.version == held.version);
        let beside = versions.stable().filter(|_| is_canary).map(|stable| {
            let (served, version) = (Arc::clone(self), held.version);
            let tell: super::engine::Compared = Arc::new(move |canary, stable| {
                if let Some(watch) = locked(&served.versions).watch(version) {
                    watch.compare(canary, stable);
                }
            });
            (Arc::clone(&stable.model), tell)
        });
        Some(Chosen { sha256: held.model.sha256, lane: Lane { model: Arc::clone(&held.model), beside } })
    }

    /// Notes what became of a request, for the watch over a canary.
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

    /// Looks once: drains, judges the canary, and uses the newest version that is there and fit.
    pub(crate) async fn look(self: &Arc<Self>, engine: &Engine) {
        let _alone = self.changing.lock().await;
        self.drain();
        self.judge(engine);
        let Ok(found) = self.folder.versions() else { return };
        let at_first = self.answering().is_empty();
        // What was in use comes first after a start: what is newer is tried beside it again.
        let stable = self.folder.state().stable.filter(|stable| at_first && found.contains(stable));
        let others = found.into_iter().filter(|version| Some(*version) != stable);
        for version in stable.into_iter().chain(others).filter(|version| self.wants(*version)).collect::<Vec<_>>() {
            if !self.is_known_unfit(version) {
                if !self.make_room() {
                    return;
                }
                match self.load(version).await {
                    Ok((loaded, warm, at_once)) => {
                        self.place(version, loaded, warm, engine, at_once);
                        return;
                    }
                    Err(error) => self.tell_unfit(version, &error),
                }
            }
        }
    }

    fn drain(&self) {
        let mut versions = locked(&self.versions);
        // The one who holds it last is this.
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
                let kind = reason.as_str();
                tracing::warn!(model = name, version, kind, "version {version} of {name} is taken back: {reason}");
            }
        }
        self.note_state();
    }

    /// Whether there is memory for another version; waits for what is drained by looking again.
    fn make_room(&self) -> bool {
        locked(&self.versions).make_room()
    }

    async fn load(self: &Arc<Self>, version: u32) -> Result<(Loaded, Warm, bool), NotReady> {
        let served = Arc::clone(self);
        let loaded = tokio::task::spawn_blocking(move || {
            let read = served.folder.read(version, served.key())?;
            let architecture = read.architecture.as_ref();
            let loaded = Loaded::read(version, read.sha256, &read.file, architecture, served.batch)?;
            let warm = loaded.warm()?;
            if read.task.is_some() {
                *locked(&served.task) = read.task;
            }
            Ok((loaded, warm, read.is_restored))
        });
        loaded.await.unwrap_or_else(|error| Err(Unservable::Unreadable(error.to_string()).into()))
    }

    fn place(&self, version: u32, loaded: Loaded, warm: Warm, engine: &Engine, at_once: bool) {
        let (name, held) = (&self.name, Held { version, model: Arc::new(loaded) });
        let placed = locked(&self.versions).place(held, warm, engine.now(), &self.rollout, at_once);
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

    /// Writes what is in use. Where the disk does not take it, serving goes on.
    fn note_state(&self) {
        let state = {
            let versions = locked(&self.versions);
            let stable = versions.stable().map(|held| held.version);
            meters::versions(&self.name, stable, versions.canary().map(|held| held.version));
            State { stable, previous: versions.previous(), refused: versions.refused().clone(), key: self.key() }
        };
        if let Err(error) = self.folder.write_state(&state) {
            meters::fetch_failed(&self.name, "disk");
            tracing::error!(
                model = self.name,
                "what is in use cannot be written, and a restart may not know it: {error}"
            );
        }
    }

    /// Numbers of the versions that must stay on disk.
    pub(crate) fn needed(&self) -> Vec<u32> {
        let versions = locked(&self.versions);
        versions.answering().into_iter().chain(versions.previous()).collect()
    }

    fn is_known_unfit(&self, version: u32) -> bool {
        let modified = self.modified(version);
        locked(&self.unfit).get(&version).is_some_and(|known| modified.as_ref() == Some(known))
    }

    fn modified(&self, version: u32) -> Option<std::time::SystemTime> {
        std::fs::metadata(self.folder.file(version)).and_then(|file| file.modified()).ok()
    }

    fn tell_unfit(&self, version: u32, error: &NotReady) {
        if let Some(modified) = self.modified(version) {
            locked(&self.unfit).insert(version, modified);
        }
        meters::swapped(&self.name, "unfit");
        tracing::error!(model = self.name, version, "version {version} of {} is not used: {error}", self.name);
    }

    /// Goes back to the version before, or takes a canary back. The version that answers then.
    ///
    /// # Errors
    /// [`NotRolledBack`]: nothing changed.
    pub(crate) async fn roll_back(self: &Arc<Self>) -> Result<u32, NotRolledBack> {
        let _alone = self.changing.lock().await;
        self.drain();
        if locked(&self.versions).draining().is_some() {
            return Err(NotRolledBack::Draining);
        }
        let mut others = self.folder.versions().unwrap_or_default();
        // What nobody has trained is not served.
        others.retain(|version| *version > 0);
        let back = locked(&self.versions).roll_back(&others)?;
        if let Some(version) = back {
            let loaded = self.load(version).await;
            let (loaded, warm, _) =
                loaded.map_err(|error| NotRolledBack::Previous { version, why: error.to_string() })?;
            locked(&self.versions).go_back(Held { version, model: Arc::new(loaded) }, warm);
        }
        meters::swapped(&self.name, "rolled_back");
        self.note_state();
        let stable = self.at(None).map(|model| model.version).ok_or(NoWayBack::None)?;
        tracing::warn!(model = self.name, version = stable, "{} was rolled back to version {stable}", self.name);
        Ok(stable)
    }
}
