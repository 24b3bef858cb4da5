//! Short-lived keys, destroyed when a sum is released; each in a file of its own outside the database ([`crate::shelf`]).
//!
//! What opens a sum, or takes its noise off, is sealed in rows. Rows that were deleted may stay in a database's log, in its free
//! pages and in copies of its file; once the key they were sealed with is destroyed they are noise. A key comes before the
//! rows that are sealed with it and goes after the transaction that ends their use, so a file without rows is garbage and
//! rows without a file are lost on purpose.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use federation::id::{Attempt, TaskId};
use store::Result;
use zeroize::Zeroizing;

use crate::guarded::Guarded;
use crate::random::Random;
use crate::shelf::Shelf;

/// Bytes of a key, and of the file that holds it.
const KEY_BYTES: usize = 32;
/// Bytes that tell the keys of an attempt from each other.
pub(crate) const ID_BYTES: usize = 16;

/// Which of the keys of one use.
pub(crate) type KeyId = [u8; ID_BYTES];
pub(crate) type Key = Zeroizing<[u8; KEY_BYTES]>;

/// What the secrets of a whole task are sealed for, in place of an attempt.
pub(crate) fn of_the_task(task: TaskId) -> Attempt {
    Attempt { task, round: 0, attempt: 0 }
}

/// The keys not destroyed yet, by the attempt that their rows belong to, or [`of_the_task`]. No process keeps what it read: when
/// one destroys a key, none has it. Every call may wait for a disk or a network.
pub(crate) struct ReleaseKeys {
    shelf: Shelf,
    /// The keys that this process seals with.
    own: Guarded<HashMap<Attempt, Arc<Guarded<Option<KeyId>>>>>,
    random: Random,
}

impl ReleaseKeys {
    pub(crate) fn new(shelf: Shelf, random: &Random) -> Self {
        Self { shelf, own: Guarded::default(), random: random.clone() }
    }

    /// A key to seal with: durable when this returns. Every process that works on an attempt has one of its own, so that none
    /// has to wait for another.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn current(&self, of: Attempt) -> Result<(KeyId, Key)> {
        let own = Arc::clone(self.own.lock().entry(of).or_default());
        let known = *own.lock();
        if let Some(key) = self.known(of, known)? {
            return Ok(key);
        }
        // Held meanwhile: an attempt has one key of a process.
        let mut own = own.lock();
        if *own != known
            && let Some(key) = self.known(of, *own)?
        {
            return Ok(key);
        }
        let (id, key): (KeyId, Key) = (self.random.bytes(), Zeroizing::new(self.random.bytes()));
        self.shelf.create(&file_name(of, &id), &*key)?;
        *own = Some(id);
        Ok((id, key))
    }

    fn known(&self, of: Attempt, id: Option<KeyId>) -> Result<Option<(KeyId, Key)>> {
        let Some(id) = id else { return Ok(None) };
        Ok(self.find(of, &id)?.map(|key| (id, key)))
    }

    /// The key that something was sealed with; none if it was destroyed.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn find(&self, of: Attempt, id: &KeyId) -> Result<Option<Key>> {
        let Some(bytes) = self.shelf.read(&file_name(of, id))? else { return Ok(None) };
        // Half a file is of a process that died before anything was sealed with it; zeros are of a key that is being destroyed.
        let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map(Zeroizing::new).ok();
        Ok(key.filter(|key| **key != [0; KEY_BYTES]))
    }

    /// Destroys every key of this use. Says how many there were.
    ///
    /// # Errors
    /// The shelf's; those that were reached are gone all the same.
    pub(crate) fn destroy(&self, of: Attempt) -> Result<usize> {
        self.own.lock().remove(&of);
        let mut names = self.shelf.names()?;
        names.retain(|name| parse(name) == Some(of));
        self.shelf.destroy(&names)?;
        Ok(names.len())
    }

    /// See [`Shelf::look_for_versions`].
    pub(crate) fn look_for_versions(&self) {
        self.shelf.look_for_versions();
    }

    /// Whether keys can be made and destroyed, as far as was told last.
    ///
    /// # Errors
    /// [`Shelf::destroys`].
    pub(crate) fn can_be_destroyed(&self) -> Result<()> {
        self.shelf.destroys()
    }

    /// All uses that have keys.
    ///
    /// # Errors
    /// The shelf's.
    pub(crate) fn uses(&self) -> Result<BTreeSet<Attempt>> {
        Ok(self.shelf.names()?.iter().filter_map(|name| parse(name)).collect())
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
        let open = |seed| ReleaseKeys::new(Shelf::in_folder(place.clone()), &Random::from_seed(seed));
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
        let keys = ReleaseKeys::new(Shelf::in_folder(folder.path().to_owned()), &Random::from_seed(1));
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
        let keys = ReleaseKeys::new(Shelf::in_memory(), &Random::from_seed(1));
        let (id, key) = keys.current(of(1, 1)).unwrap();
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), Some(key));
        assert_eq!(keys.destroy(of(1, 1)).unwrap(), 1);
        assert_eq!(keys.find(of(1, 1), &id).unwrap(), None);
        assert_eq!(keys.uses().unwrap(), BTreeSet::new());
    }
}
