//! Keys and files belonging to a database: those first used with it.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use federation::id::Digest;
use store::{Store, StoreConfig, StoreError};
use tokio::time::{Instant, sleep};

use super::parts::StartError;
use crate::config::{Config, IdentityConfig};
use crate::http::App;
use crate::privacy::seal::SealError;

/// Name of the sealing key in the table `fingerprint`.
const SEAL_KEY: &str = "identity.seal_key_file";
/// Name of the participants' authority.
const AUTHORITY: &str = "the certificate of the authority that certifies participants";
/// Marks a database with stored fingerprints, so that both keys can be replaced at once by removing their rows.
const KEPT: &str = "fingerprints are stored";

/// Pauses between attempts to reach a database server; each is twice as long as the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Opens the store. Waits for an unreachable database server for up to `database.start_timeout_ms`.
///
/// # Errors
/// The error of the last attempt.
pub(super) async fn open_store(config: &Config, store: &StoreConfig) -> Result<Store, StoreError> {
    let end = Instant::now() + Duration::from_millis(config.database.start_timeout_ms);
    let mut pause = FIRST_PAUSE;
    loop {
        match Store::open(store.clone()).await {
            Err(StoreError::Unreachable(why)) if Instant::now() + pause < end => {
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                tracing::warn!("the database cannot be reached ({why}); waiting for it, for {left} s at most");
                sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Holds a lock for creating missing files, so that only one of several starting coordinators creates them. `None` if this coordinator is
/// alone with its database.
pub(super) fn hold_files(config: &Config, store: &Store) -> Result<Option<File>, StartError> {
    // Without a common folder, all files are provided.
    let are_made = store.is_shared() && config.identity.seal_url.is_none();
    let Some(path) = config.identity.seal_key_file().filter(|_| are_made) else { return Ok(None) };
    let file = crate::process::files::alone(&path.with_extension("lock"));
    Ok(Some(file.map_err(|source| SealError::Io { path, source })?))
}

/// Whether the coordinator's own authority certifies participants.
fn certifies(identity: &IdentityConfig) -> bool {
    identity.members_ca_certificate_file.is_none()
}

/// Fails if the database was used with a key whose file is missing: the file was lost, or not restored. A key is created again after an
/// operator removed its fingerprint.
pub(super) async fn check_missing(config: &Config, store: &Store) -> Result<(), StartError> {
    let identity = &config.identity;
    let authority = Some(&identity.ca_key_file).filter(|_| certifies(identity) && !identity.in_memory()).cloned();
    let files = [(SEAL_KEY, identity.seal_key_file()), (AUTHORITY, authority)];
    let missing = files.into_iter().filter_map(|(what, path)| Some((what, path.filter(|path| !path.exists())?)));
    let missing: Vec<(&'static str, PathBuf)> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (known, is_used) = store
        .read("fingerprints", |tx| {
            Box::pin(async move { Ok::<_, StoreError>((tx.fingerprints().await?, tx.is_used().await?)) })
        })
        .await?;
    // Earlier programs did not store fingerprints in SQLite.
    let is_lost = |what: &str| known.iter().any(|known| known == what) || (known.is_empty() && is_used);
    match missing.into_iter().find(|(what, _)| is_lost(what)) {
        Some((what, path)) => Err(StartError::Lost { what, path }),
        None => Ok(()),
    }
}

/// Fails if the keys differ from the database's keys. Another key cannot open sealed data, and another authority rejects the participants'
/// certificates.
pub(super) async fn check(config: &Config, store: &Store, app: &App) -> Result<(), StartError> {
    let is_own_in_memory = certifies(&config.identity) && config.identity.in_memory();
    let seal_key = (SEAL_KEY, app.sealer.fingerprint());
    let authority = (AUTHORITY, crate::digest(app.members.certificate()));
    // Keys in memory change with each start.
    let ours: Vec<(&'static str, Digest)> = [
        Some(seal_key).filter(|_| store.is_shared() || config.identity.seal_key_file().is_some()),
        Some(authority).filter(|_| store.is_shared() || !is_own_in_memory),
    ]
    .into_iter()
    .flatten()
    .collect();
    let kept = &ours;
    let theirs = store
        .transact("fingerprints", |tx| {
            Box::pin(async move {
                let mut theirs = Vec::with_capacity(kept.len());
                for (what, fingerprint) in kept {
                    theirs.push(tx.first_fingerprint(what, *fingerprint).await?);
                }
                tx.first_fingerprint(KEPT, Digest([0; 32])).await?;
                Ok::<_, StoreError>(theirs)
            })
        })
        .await?;
    match ours.iter().zip(theirs).find(|((_, ours), theirs)| ours != theirs) {
        Some(((what, _), _)) => Err(StartError::Differs(what)),
        None => Ok(()),
    }
}
