//! Short-lived keys, destroyed when a sum is released; each in a separate file outside the database ([`crate::privacy::secret_store`]).
//!
//! Rows hold sealed data that can unmask a sum or remove its noise. Deleted rows may remain in a database's log, in its free pages and in
//! copies of its file; destroying their key makes them unreadable. A key is created before its first row, and destroyed after the
//! transaction that ends its use. A file without rows is garbage, and rows without a file are lost on purpose.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use federation::id::{Attempt, TaskId};
use listener::PoisonFreeMutex;
use store::Result;
use zeroize::Zeroizing;

use crate::privacy::secret_store::SecretStore;
use crate::random::Random;

/// Bytes of a key and of its file.
const KEY_BYTES: usize = 32;
/// Bytes of a key id, unique within an attempt.
pub(crate) const ID_BYTES: usize = 16;

/// Id of a key within its use.
pub(crate) type KeyId = [u8; ID_BYTES];
pub(crate) type Key = Zeroizing<[u8; KEY_BYTES]>;

/// The use for secrets of a whole task, in place of an attempt.
pub(crate) fn of_the_task(task: TaskId) -> Attempt {
    Attempt { task, round: 0, attempt: 0 }
}

/// The existing keys, by the attempt of their rows or [`of_the_task`]. Keys are read from the store each time: once a process destroys a
/// key, it is gone for all. Every call may wait for a disk or a network.
pub(crate) struct ReleaseKeys {
    secret_store: SecretStore,
    /// The keys used by this process for sealing.
    own: PoisonFreeMutex<HashMap<Attempt, Arc<PoisonFreeMutex<Option<KeyId>>>>>,
    random: Random,
}

impl ReleaseKeys {
    pub(crate) fn new(secret_store: SecretStore, random: &Random) -> Self {
        Self { secret_store, own: PoisonFreeMutex::default(), random: random.clone() }
    }

    /// Returns a durable key for sealing. Each process has its own key for an attempt, so that processes need not wait for each other.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn current(&self, of: Attempt) -> Result<(KeyId, Key)> {
        let own = Arc::clone(self.own.lock().entry(of).or_default());
        let known = *own.lock();
        if let Some(key) = self.known(of, known)? {
            return Ok(key);
        }
        // Held until the key exists: an attempt has one key per process.
        let mut own = own.lock();
        if *own != known
            && let Some(key) = self.known(of, *own)?
        {
            return Ok(key);
        }
        let (id, key): (KeyId, Key) = (self.random.bytes(), Zeroizing::new(self.random.bytes()));
        self.secret_store.create(&file_name(of, &id), &*key)?;
        *own = Some(id);
        Ok((id, key))
    }

    fn known(&self, of: Attempt, id: Option<KeyId>) -> Result<Option<(KeyId, Key)>> {
        let Some(id) = id else { return Ok(None) };
        Ok(self.find(of, &id)?.map(|key| (id, key)))
    }

    /// The key with this id; `None` if destroyed.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn find(&self, of: Attempt, id: &KeyId) -> Result<Option<Key>> {
        let Some(bytes) = self.secret_store.read(&file_name(of, id))? else { return Ok(None) };
        // A partial file comes from a process that died before using the key; zeros mean a key under destruction.
        let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map(Zeroizing::new).ok();
        Ok(key.filter(|key| **key != [0; KEY_BYTES]))
    }

    /// Destroys every key of this use. Returns their number.
    ///
    /// # Errors
    /// Errors of the secret store; some keys may already be destroyed.
    pub(crate) fn destroy(&self, of: Attempt) -> Result<usize> {
        self.own.lock().remove(&of);
        let mut names = self.secret_store.names()?;
        names.retain(|name| parse(name) == Some(of));
        self.secret_store.destroy(&names)?;
        Ok(names.len())
    }

    pub(crate) fn look_for_versions(&self) {
        self.secret_store.look_for_versions();
    }

    /// Whether keys can be created and destroyed, by the last check.
    ///
    /// # Errors
    /// [`SecretStore::destroys`].
    pub(crate) fn can_be_destroyed(&self) -> Result<()> {
        self.secret_store.destroys()
    }

    /// All uses with existing keys.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn uses(&self) -> Result<BTreeSet<Attempt>> {
        Ok(self.secret_store.names()?.iter().filter_map(|name| parse(name)).collect())
    }
}

/// `TASK.NUMBER.ATTEMPT.ID`, where `TASK` and `ID` are 32 hexadecimal digits.
fn file_name(Attempt { task, round, attempt }: Attempt, id: &KeyId) -> String {
    format!("{}.{round}.{attempt}.{}", task.0.simple(), uuid::Uuid::from_bytes(*id).simple())
}

/// The use of a key file, from its name; `None` for other files.
fn parse(name: &str) -> Option<Attempt> {
    let mut parts = name.split('.');
    let mut next = || parts.next();
    let (task, round, attempt, id) = (next()?, next()?, next()?, next()?);
    let is_whole = next().is_none() && uuid::Uuid::try_parse(id).is_ok();
    let task = TaskId(uuid::Uuid::try_parse(task).ok()?);
    is_whole.then_some(Attempt { task, round: round.parse().ok()?, attempt: attempt.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn of(round: u32, attempt: u32) -> Attempt {
        Attempt { task: TaskId(uuid::Uuid::from_u128(7)), round, attempt }
    }

    #[test]
    fn a_key_outlives_its_process_and_nothing_of_it_outlives_its_destruction() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("keys");
        let open = |seed| ReleaseKeys::new(SecretStore::in_folder(place.clone()), &Random::from_seed(seed));
        let keys = open(1);
        assert_eq!(keys.destroy(of(1, 1)).unwrap(), 0, "there is not even a folder");
        let (id, key) = keys.current(of(1, 1)).unwrap();
        assert_eq!(keys.current(of(1, 1)).unwrap(), (id, key.clone()), "one for an attempt");
        let (second, _) = keys.current(of(2, 1)).unwrap();
        let again = open(2);
        assert_eq!(again.find(of(1, 1), &id).unwrap(), Some(key.clone()));
        assert_eq!(again.find(of(2, 1), &id).unwrap(), None, "of another round");
        let (own, _) = open(3).current(of(1, 1)).unwrap();
        assert_ne!(own, id, "every process has its own");
        assert_eq!(again.uses().unwrap(), BTreeSet::from([of(1, 1), of(2, 1)]));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&place), 0o700);
            assert_eq!(mode(&place.join(file_name(of(1, 1), &id))), 0o600);
        }

        assert_eq!(again.destroy(of(1, 1)).unwrap(), 2);
        assert_eq!(again.find(of(1, 1), &id).unwrap(), None);
        assert_eq!(open(4).find(of(1, 1), &id).unwrap(), None);
        assert_eq!(open(4).uses().unwrap(), BTreeSet::from([of(2, 1)]), "and no other key");
        assert!(open(4).find(of(2, 1), &second).unwrap().is_some());
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), None, "whoever made it has it no longer");
        assert_ne!(keys.current(of(1, 1)).unwrap().0, id, "and seals nothing with it");
    }

    #[test]
    fn a_key_has_the_file_it_always_had() {
        let name = "00000000000000000000000000000007.258.3.09090909090909090909090909090909";
        assert_eq!(file_name(of(258, 3), &[9; ID_BYTES]), name);
        assert_eq!(parse(name), Some(of(258, 3)));
    }

    #[test]
    fn half_a_key_is_none_and_foreign_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let keys = ReleaseKeys::new(SecretStore::in_folder(folder.path().to_owned()), &Random::from_seed(1));
        let id = [9; ID_BYTES];
        fs::write(folder.path().join(file_name(of(1, 1), &id)), "half").unwrap();
        fs::write(folder.path().join("notes.txt"), "kept").unwrap();
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), None);
        fs::write(folder.path().join(file_name(of(1, 1), &id)), [0; KEY_BYTES]).unwrap();
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), None, "it is being destroyed");
        assert_eq!(keys.uses().unwrap(), BTreeSet::from([of(1, 1)]));
        assert_eq!(keys.destroy(of(1, 1)).unwrap(), 1);
        assert_eq!(keys.uses().unwrap(), BTreeSet::new());
        assert_eq!(fs::read(folder.path().join("notes.txt")).unwrap(), b"kept");
    }

    #[test]
    fn in_memory_they_go_as_well() {
        let keys = ReleaseKeys::new(SecretStore::in_memory(), &Random::from_seed(1));
        let (id, key) = keys.current(of(1, 1)).unwrap();
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), Some(key));
        assert_eq!(keys.destroy(of(1, 1)).unwrap(), 1);
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), None);
        assert_eq!(keys.uses().unwrap(), BTreeSet::new());
    }
}
