//! Backup, restore and check of a configuration's data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{Database, StoreConfig};

use super::choice::{bucket_apart, locks_to_replace, sealer, store_config};
use super::parts::Parts;
use crate::backup::{self, BackupError, BackupReport, OnProgress, Places, RestoreReport, Trusted};
use crate::config::Config;
use crate::maintenance::fsck::{self, FsckReport, Repair};
use crate::privacy::seal::{Sealer, backup_key, ledgers_beside};

/// Backs up the data into `folder`, also while a coordinator runs. With `link`, blobs on the same disk are hard-linked instead of copied.
/// Blocks the thread.
///
/// # Errors
/// [`BackupError`]; the folder then keeps its earlier backup.
pub async fn back_up(
    config: &Config,
    parts: &Parts,
    folder: &Path,
    link: bool,
    on_progress: OnProgress<'_>,
) -> Result<BackupReport, BackupError> {
    let places = places(&store_config(config, parts)?)?;
    let key = match config.identity.seal_key_file() {
        Some(path) => Some(backup_key(&path)?.ok_or(BackupError::NoKey(path))?),
        None => None,
    };
    backup::take(&places, folder, link, key.as_ref(), on_progress).await
}

/// How a backup is restored.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    /// Keeps an existing database under another name, and replaces it.
    pub replace: bool,
    /// Also restores an unauthenticated backup.
    pub unauthenticated: bool,
}

/// Restores the backup in `folder` for a stopped coordinator. Blocks the thread.
///
/// # Errors
/// [`BackupError`].
pub async fn restore(
    config: &Config,
    parts: &Parts,
    folder: &Path,
    RestoreOptions { replace, unauthenticated }: RestoreOptions,
    on_progress: OnProgress<'_>,
) -> Result<RestoreReport, BackupError> {
    let store = store_config(config, parts)?;
    let places = places(&store)?;
    let _locks = locks_to_replace(&store, parts)?;
    let sealer = known_sealer(config, parts).await?;
    let key = config.identity.seal_key_file().map(|path| backup_key(&path)).transpose()?.flatten();
    let trusted = if unauthenticated { Trusted::Any } else { Trusted::Authenticated(key.as_ref()) };
    backup::restore(&places, folder, replace, trusted, sealer.as_ref(), on_progress).await
}

/// Checks for damage, also while a coordinator runs, and repairs it where possible. Blocks the thread.
///
/// # Errors
/// [`BackupError`] if the check cannot continue.
pub async fn check(
    config: &Config,
    parts: &Parts,
    repair: Repair<'_>,
    on_progress: OnProgress<'_>,
) -> Result<FsckReport, BackupError> {
    let sealer = known_sealer(config, parts).await?;
    fsck::check(&store_config(config, parts)?, sealer.as_ref(), repair, on_progress).await
}

/// A required file excluded from backups.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ApartFile {
    pub path: PathBuf,
    /// Purpose of the file.
    pub why: &'static str,
}

/// The files to be kept separately from backups.
#[must_use]
pub fn files_apart(config: &Config) -> Vec<ApartFile> {
    let (identity, http) = (&config.identity, &config.http);
    let own =
        |path: &PathBuf| Some(path.clone()).filter(|path| config.needs_authority() && !path.as_os_str().is_empty());
    let seal_key = identity.seal_key_file();
    let signer = identity.signer.as_ref();
    let client = config.oidc.as_ref().and_then(|oidc| oidc.client.as_ref());
    [
        (own(&identity.ca_key_file), "whoever has it can be any participant"),
        (own(&identity.ca_certificate_file), "participants trust it"),
        (seal_key.clone(), "checks privacy ledgers, and opens what is being unmasked"),
        (
            seal_key.as_deref().filter(|_| identity.seal_url.is_none()).map(ledgers_beside),
            "where privacy ledgers ended: always the newest, never one as old as a backup",
        ),
        (http.certificate_file.clone(), "the server's certificate"),
        (http.key_file.clone(), "the server's key"),
        (identity.members_ca_certificate_file.clone(), "certifies participants"),
        (signer.map(|signer| signer.ca_certificate_file.clone()), "vouches for the authority's hook"),
        (signer.and_then(|signer| signer.token_file.clone()), "opens the authority's hook"),
        (client.and_then(|client| client.client_secret_file.clone()), "says to the identity provider who this is"),
    ]
    .into_iter()
    .filter_map(|(path, why)| path.map(|path| ApartFile { path, why }))
    .collect()
}

fn places(store: &StoreConfig) -> Result<Places, BackupError> {
    let (blobs, clock) = (store.blobs.clone(), Arc::clone(&store.clock));
    match &store.database {
        Database::SqliteFile(database) => Ok(Places { database: database.clone(), blobs, clock }),
        Database::SqliteMemory => Err(BackupError::InMemory("database.url")),
        Database::Postgres(_) => Err(BackupError::OtherTools),
    }
}

/// The sealing key, if it exists; a check never creates one.
async fn known_sealer(config: &Config, parts: &Parts) -> Result<Option<Arc<Sealer>>, BackupError> {
    if !config.identity.seal_key_file().is_some_and(|path| path.exists()) {
        return Ok(None);
    }
    let apart = bucket_apart(config, parts).await?;
    Ok(Some(Arc::new(sealer(config, parts, apart.as_ref())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_in_a_server_are_left_to_its_own_tools() {
        let mut config = Config::default();
        config.database.url = "postgres://tributary@db.example/tributary".to_owned();
        let (parts, folder) = (Parts::system().unwrap(), tempfile::tempdir().unwrap());
        let told = [
            back_up(&config, &parts, folder.path(), true, &mut |_| {}).await.unwrap_err(),
            restore(&config, &parts, folder.path(), RestoreOptions::default(), &mut |_| {}).await.unwrap_err(),
        ];
        for error in told {
            assert!(matches!(error, BackupError::OtherTools), "{error}");
            assert!(
                ["pg_dump", "pg_basebackup", "bucket"].iter().all(|tool| error.to_string().contains(tool)),
                "{error}"
            );
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made");
    }
}
