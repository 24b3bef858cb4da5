//! What coordinators over one database have in common.

use std::fs::File;

use store::{Store, StoreError};

use super::parts::StartError;
use crate::config::Config;
use crate::http::App;
use crate::seal::SealError;

/// While it is held no other coordinator makes files that are missing: of several that start at once one makes them. `None`
/// where this coordinator is alone with its database.
pub(super) fn hold_files(config: &Config, store: &Store) -> Result<Option<File>, StartError> {
    // Where they share no folder they are given all files.
    let are_made = store.is_shared() && config.identity.seal_url.is_none();
    let Some(path) = config.identity.seal_key_file().filter(|_| are_made) else { return Ok(None) };
    let file = crate::files::alone(&path.with_extension("lock"));
    Ok(Some(file.map_err(|source| SealError::Io { path, source })?))
}

/// Refuses to work beside coordinators with other keys: what one seals the others could not open, and who enrols with one would
/// be a stranger to the others.
pub(super) async fn check(store: &Store, app: &App) -> Result<(), StartError> {
    if !store.is_shared() {
        return Ok(());
    }
    let authority = app.members.certificate();
    let ours = [
        ("identity.seal_key_file", app.sealer.fingerprint()),
        ("the certificate of the authority that certifies participants", crate::digest(authority)),
    ];
    let theirs = store
        .transact("fingerprints", |tx| {
            Box::pin(async move {
                let mut theirs = Vec::with_capacity(ours.len());
                for (what, fingerprint) in ours {
                    theirs.push(tx.first_fingerprint(what, fingerprint).await?);
                }
                Ok::<_, StoreError>(theirs)
            })
        })
        .await?;
    match ours.iter().zip(theirs).find(|((_, ours), theirs)| ours != theirs) {
        Some(((what, _), _)) => Err(StartError::Differs(what)),
        None => Ok(()),
    }
}
