//! Encryption at rest of unmasking answers, to keep them unreadable in a backup.
//!
//! The key is in a separate file outside the database, so a stolen database or a stolen backup stays sealed. ChaCha20-Poly1305 (RFC 8439)
//! with a random nonce; sealed data is bound to its context, so a participant's answer cannot be moved to another row. Data that can unmask
//! a sum or remove its noise is also sealed with a second key, destroyed once the sum is released (`release_keys`): copies of the rows are
//! then permanently unreadable.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use federation::id::{Attempt, Digest, TaskId};
use federation::time::Timestamp;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::signature::Ed25519KeyPair;
use store::{Result as Stored, StoreError};
use wire::audit::{AuditKey, ChainEnd, Head};
use wire::contributions::{Contributions, SignedContributions};
use wire::ledger::{LedgerExport, SignedLedger};
use wire::provenance::{Provenance, SignedProvenance, key_of};
use zeroize::Zeroizing;

use crate::privacy::ledger_end::{LedgerEnd, LedgerEnds, StoredEnd};
use crate::privacy::release_keys::{ID_BYTES, Key, KeyId, ReleaseKeys};
use crate::privacy::secret_store::{Bucket, SecretStore};
use crate::process::files::write_new;
use crate::random::Random;
use crate::records::signing;

/// Prefix of data sealed with a release's key.
pub const OF_A_RELEASE: &[u8; 8] = b"\xa7TRBrel\x01";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Hexadecimal digits of a MAC.
const MAC_DIGITS: usize = 64;

/// Reasons for a missing sealing key.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read or created.
    #[error("the sealing key {path} cannot be read or made: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// The file does not hold a key.
    #[error(
        "the sealing key {0} does not hold {KEY_BYTES} bytes; restore it, or remove it and lose the rounds that are being unmasked now"
    )]
    NotAKey(PathBuf),
    /// Coordinators sharing a bucket instead of a folder do not create it: each would create another.
    #[error(
        "there is no sealing key {0}: where identity.seal_url is set, every coordinator is given the same file, 32 random bytes \
         (`head -c 32 /dev/urandom`)"
    )]
    Missing(PathBuf),
}

/// The stored data was not sealed with this key for this context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is stored was not sealed with this coordinator's key for this place")]
pub struct NotSealed;

/// Reasons why data sealed for a release cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    /// Permanent: its key was destroyed, or the data was changed.
    #[error("what is stored does not open: the key of its release is gone, or it was sealed for another place")]
    Gone,
    /// The key is currently unreadable.
    #[error("the key of a release cannot be read: {0}")]
    Store(#[from] StoreError),
}

impl NotOpened {
    /// The store's error for the data stored as `what`.
    pub(crate) fn of(self, what: impl Into<String>) -> StoreError {
        match self {
            Self::Store(error) => error,
            gone @ Self::Gone => StoreError::unreadable(what, gone),
        }
    }
}

/// Seals and opens data, and keeps the key private.
pub struct Sealer {
    key: LessSafeKey,
    /// A key derived from the first: each key has one use.
    mac: hmac::Key,
    /// Derives a key from itself and the key of a release: one of the two files alone is useless.
    releases: hmac::Key,
    /// Signs the end of the audit log, and the provenance of model versions.
    audit: Ed25519KeyPair,
    keys: ReleaseKeys,
    ends: LedgerEnds,
    random: Random,
}

impl Sealer {
    /// Creates a sealer with a key in memory only.
    #[must_use]
    pub fn in_memory(random: &Random) -> Self {
        Self::new(&random.bytes(), [SecretStore::in_memory(), SecretStore::in_memory()], random)
    }

    /// Opens the key in a file, or creates it with access only for its owner. Release keys and the ends of privacy
    /// ledgers are in folders next to it, named like the file with the extensions `releases` and `ledgers`.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open(path: &Path, random: &Random) -> Result<Self, SealError> {
        let stores = [releases_beside(path), SecretStore::in_folder(ledgers_beside(path))];
        match read(path)? {
            Some(key) => Ok(Self::new(&key, stores, random)),
            None => {
                let key: Zeroizing<[u8; KEY_BYTES]> = Zeroizing::new(random.bytes());
                write_new(path, &*key).map_err(|source| SealError::Io { path: path.to_owned(), source })?;
                Ok(Self::new(&key, stores, random))
            }
        }
    }

    /// Opens the key in a file, with the other secrets in a bucket under `releases/` and `ledgers/`.
    ///
    /// # Errors
    /// [`SealError`], also without a key file.
    pub(crate) fn open_beside(path: &Path, bucket: &Bucket, random: &Random) -> Result<Self, SealError> {
        let key = read(path)?.ok_or_else(|| SealError::Missing(path.to_owned()))?;
        let stores = [SecretStore::Bucket(bucket.folder("releases")), SecretStore::Bucket(bucket.folder("ledgers"))];
        Ok(Self::new(&key, stores, random))
    }

    fn new(key: &[u8; KEY_BYTES], [releases, ledgers]: [SecretStore; 2], random: &Random) -> Self {
        Self {
            key: aead(key),
            mac: derived(key, b"tributary/seal/mac/1"),
            releases: derived(key, b"tributary/seal/release/1"),
            audit: signing::pair(key),
            ends: LedgerEnds::new(ledgers),
            keys: ReleaseKeys::new(releases, random),
            random: random.clone(),
        }
    }

    /// Identifies this key without revealing it.
    #[must_use]
    pub(crate) fn fingerprint(&self) -> Digest {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(hmac::sign(&self.mac, b"tributary seal.key fingerprint 1\0").as_ref());
        Digest(fingerprint)
    }

    /// The public key for the heads of the audit log and the records of model versions.
    pub(crate) fn audit_key(&self) -> AuditKey {
        key_of(&self.audit)
    }

    /// Signs the end of the audit log.
    pub(crate) fn sign_head(&self, end: ChainEnd, at: Timestamp) -> Head {
        Head::sign(end, at, &self.audit)
    }

    /// Signs the provenance of a model version with the same key.
    pub(crate) fn sign_provenance(&self, record: &Provenance) -> SignedProvenance {
        record.sign(&self.audit)
    }

    /// Signs a statement about a participant's contributions with the same key.
    pub(crate) fn sign_contributions(&self, statement: &Contributions) -> SignedContributions {
        statement.sign(&self.audit)
    }

    /// Signs an exported privacy ledger with the same key.
    pub(crate) fn sign_ledger(&self, ledger: &LedgerExport) -> SignedLedger {
        ledger.sign(&self.audit)
    }

    /// HMAC-SHA-256 over `place
    /// text`, where all places have the same length: authenticates the coordinator as author, without encryption.
    #[must_use]
    pub fn mac(&self, place: &[u8], text: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(place);
        context.update(text);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// Verifies [`Self::mac`] in constant time.
    #[must_use]
    pub(crate) fn is_mac(&self, place: &[u8], text: &[u8], tag: &[u8]) -> bool {
        hmac::verify(&self.mac, &[place, text].concat(), tag).is_ok()
    }

    /// Returns `nonce
    /// ciphertext
    /// tag`, to be opened only for the same `place`.
    #[must_use]
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        self.seal_with(&self.key, place, plain)
    }

    /// Returns [`OF_A_RELEASE`] `|| id of the key
    /// nonce
    /// ciphertext
    /// tag`, readable until the keys of this use are destroyed. Waits for the secret store.
    ///
    /// # Errors
    /// The key cannot be read, or made durable.
    pub(crate) fn seal_for_release(&self, of: Attempt, place: &[u8], plain: &[u8]) -> Stored<Vec<u8>> {
        let (id, key) = self.keys.current(of)?;
        let mut sealed = OF_A_RELEASE.to_vec();
        sealed.extend_from_slice(&id);
        sealed.extend(self.seal_with(&self.of_release(&*key), place, plain));
        Ok(sealed)
    }

    /// Opens data sealed for this use and place, including data from before release keys existed.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(crate) fn open_for_release(
        &self,
        of: Attempt,
        place: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
        self.opener(of).open(place, sealed)
    }

    /// Opens several pieces of data for one use; reads each key once.
    pub(crate) fn opener(&self, of: Attempt) -> Opener<'_> {
        Opener { sealer: self, of, keys: HashMap::new() }
    }

    /// Destroys the keys of this use, which makes all copies of its sealed data unreadable. Returns their number; waits for the secret
    /// store.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn destroy_keys(&self, of: Attempt) -> Stored<usize> {
        self.keys.destroy(of)
    }

    /// All uses with existing keys. First checks again whether the store really deletes.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn uses(&self) -> Stored<std::collections::BTreeSet<Attempt>> {
        self.keys.look_for_versions();
        self.keys.uses()
    }

    /// The stored end of a task's ledger; waits for the secret store.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn ledger_end(&self, task: TaskId) -> Stored<StoredEnd> {
        Ok(self.read_end(task, self.ends.read(task)?.as_ref().map(|bytes| bytes.as_slice())))
    }

    fn read_end(&self, task: TaskId, bytes: Option<&[u8]>) -> StoredEnd {
        let Some(bytes) = bytes else { return StoredEnd::Nothing(self.ends.place(task)) };
        let read = bytes.split_first_chunk::<MAC_DIGITS>().and_then(|(mac, text)| {
            let fits = hex::encode(self.mac_of_end(task, text)).as_bytes() == mac;
            fits.then(|| serde_json::from_slice(text).ok()).flatten()
        });
        read.map_or_else(|| StoredEnd::Foreign(self.ends.place(task)), StoredEnd::End)
    }

    /// Stores the result of `judge` on the stored end of a task's ledger, if any; waits for the secret store. The replacement is atomic:
    /// after a concurrent one, `judge` is called again.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn keep_ledger_end(&self, task: TaskId, judge: impl Fn(StoredEnd) -> Option<LedgerEnd>) -> Stored<()> {
        self.ends.replace(task, |stored| {
            let Some(end) = judge(self.read_end(task, stored)) else { return Ok(None) };
            let text = serde_json::to_vec(&end).map_err(StoreError::fault)?;
            let mut bytes = hex::encode(self.mac_of_end(task, &text)).into_bytes();
            bytes.extend(text);
            Ok(Some(bytes))
        })
    }

    /// Checks that the secret store is usable now; waits for it.
    ///
    /// # Errors
    /// Errors of the secret store.
    pub(crate) fn try_secret_store(&self) -> Stored<()> {
        self.keys.can_be_destroyed()?;
        self.ends.try_to_read()
    }

    fn mac_of_end(&self, task: TaskId, text: &[u8]) -> [u8; 32] {
        // The same key seals rows, with another prefix.
        self.mac(task.0.as_bytes(), &[b"tributary privacy ledger end 1\0", text].concat())
    }

    fn of_release(&self, key: &[u8]) -> LessSafeKey {
        let mut made = Zeroizing::new([0; KEY_BYTES]);
        made.copy_from_slice(hmac::sign(&self.releases, key).as_ref());
        aead(&made)
    }

    fn seal_with(&self, key: &LessSafeKey, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let drawn: [u8; 32] = self.random.bytes();
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&drawn[..NONCE_BYTES]);
        let mut sealed = Vec::with_capacity(NONCE_BYTES + plain.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        #[expect(clippy::expect_used, reason = "fails beyond 256 GiB only")]
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place),
                &mut sealed[NONCE_BYTES..],
            )
            .expect("a message is shorter than 256 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens data sealed for this place.
    ///
    /// # Errors
    /// [`NotSealed`].
    pub fn open_sealed(&self, place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotSealed> {
        open_with(&self.key, place, sealed)
    }
}

/// Opens data sealed for one use. It keeps keys in memory: use it for one step only.
pub(crate) struct Opener<'a> {
    sealer: &'a Sealer,
    of: Attempt,
    keys: HashMap<KeyId, Key>,
}

impl Opener<'_> {
    /// Opens data sealed for this use and place, including data from before release keys existed. Waits for the secret store.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(crate) fn open(&mut self, place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotOpened> {
        let sealer = self.sealer;
        let Some(rest) = sealed.strip_prefix(OF_A_RELEASE) else {
            return sealer.open_sealed(place, sealed).map_err(|NotSealed| NotOpened::Gone);
        };
        let (id, rest): (&KeyId, _) = rest.split_first_chunk::<ID_BYTES>().ok_or(NotOpened::Gone)?;
        let key = match self.keys.entry(*id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(sealer.keys.find(self.of, id)?.ok_or(NotOpened::Gone)?),
        };
        open_with(&sealer.of_release(&**key), place, rest).map_err(|NotSealed| NotOpened::Gone)
    }
}

/// The store of release keys next to a sealing key.
fn releases_beside(seal_key: &Path) -> SecretStore {
    SecretStore::in_folder(seal_key.with_extension("releases"))
}

/// The folder with the ends of privacy ledgers, next to a sealing key.
pub(crate) fn ledgers_beside(seal_key: &Path) -> PathBuf {
    seal_key.with_extension("ledgers")
}

/// Derives a separate key for each purpose.
fn derived(key: &[u8; KEY_BYTES], purpose: &[u8]) -> hmac::Key {
    let made = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), purpose);
    hmac::Key::new(hmac::HMAC_SHA256, made.as_ref())
}

/// The key for authenticating backups, derived from a sealing key file; `None` without the file.
///
/// # Errors
/// [`SealError`].
pub(crate) fn backup_key(path: &Path) -> Result<Option<hmac::Key>, SealError> {
    Ok(read(path)?.map(|key| derived(&key, b"tributary/seal/backup/1")))
}

/// The sealing key; `None` without the file.
fn read(path: &Path) -> Result<Option<Zeroizing<[u8; KEY_BYTES]>>, SealError> {
    let io = |source| SealError::Io { path: path.to_owned(), source };
    let bytes = match std::fs::read(path).map(Zeroizing::new) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    store::private::tighten(path).map_err(io)?;
    let key: &[u8; KEY_BYTES] = bytes.as_slice().try_into().map_err(|_| SealError::NotAKey(path.to_owned()))?;
    Ok(Some(Zeroizing::new(*key)))
}

fn aead(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    #[expect(clippy::expect_used, reason = "the length is the algorithm's")]
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes are a key");
    LessSafeKey::new(key)
}

fn open_with(key: &LessSafeKey, place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotSealed> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(NotSealed)?;
    let mut text = Zeroizing::new(rest.to_vec());
    let length = key
        .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(place), &mut text)
        .map_err(|_| NotSealed)?
        .len();
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_only() {
        let random = Random::from_seed(1);
        let sealer = Sealer::in_memory(&random);
        let sealed = sealer.seal(b"here", b"secret");
        assert_ne!(sealed, sealer.seal(b"here", b"secret"), "another nonce");
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(sealer.open_sealed(b"here", &sealed).map(|plain| plain.to_vec()), Ok(b"secret".to_vec()));
        assert_eq!(sealer.open_sealed(b"there", &sealed), Err(NotSealed));
        let other = Sealer::in_memory(&random);
        assert_eq!(other.open_sealed(b"here", &sealed), Err(NotSealed));
        for position in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[position] ^= 1;
            assert_eq!(sealer.open_sealed(b"here", &bent), Err(NotSealed), "bit flipped at {position}");
            assert_eq!(sealer.open_sealed(b"here", &sealed[..position]), Err(NotSealed), "cut at {position}");
        }
    }

    #[test]
    fn all_who_share_the_key_sign_heads_alike() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, seed| Sealer::open(&folder.path().join(name), &Random::from_seed(seed)).unwrap();
        let (end, at) = (ChainEnd::default(), Timestamp(5));
        let head = open("one", 1).sign_head(end, at);
        assert_eq!(head, open("one", 2).sign_head(end, at));
        assert!(head.is_signed() && head.key == open("one", 3).audit_key() && head.key != open("other", 2).audit_key());
    }

    #[test]
    fn what_is_sealed_for_a_release_opens_until_its_keys_are_destroyed_and_never_with_the_sealing_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |seed| Sealer::open(&folder.path().join("seal.key"), &Random::from_seed(seed)).unwrap();
        let task = federation::id::TaskId(uuid::Uuid::from_u128(1));
        let of = |round| Attempt { task, round, attempt: 1 };
        let sealer = open(1);
        let sealed = sealer.seal_for_release(of(1), b"here", b"secret").unwrap();
        assert!(sealed.starts_with(OF_A_RELEASE) && !sealed.windows(6).any(|window| window == b"secret"));
        let plain = |sealer: &Sealer, of, place: &[u8], sealed: &[u8]| {
            sealer.open_for_release(of, place, sealed).ok().map(|plain| plain.to_vec())
        };
        let (again, secret) = (open(2), Some(b"secret".to_vec()));
        assert_eq!(plain(&again, of(1), b"here", &sealed), secret, "after a restart");
        assert_eq!(plain(&again, of(1), b"there", &sealed), None);
        assert_eq!(plain(&again, of(2), b"here", &sealed), None);
        for cut in 0..sealed.len() {
            assert_eq!(plain(&again, of(1), b"here", &sealed[..cut]), None, "cut at {cut}");
        }
        let before = sealer.seal(b"here", b"secret");
        assert_eq!(
            plain(&again, of(1), b"here", &before),
            secret,
            "sealed by a release of the program without such keys"
        );

        assert_eq!(again.uses().unwrap().into_iter().collect::<Vec<_>>(), [of(1)]);
        assert_eq!(again.destroy_keys(of(1)).unwrap(), 1);
        assert_eq!(plain(&again, of(1), b"here", &sealed), None);
        assert_eq!(plain(&open(3), of(1), b"here", &sealed), None);
        for start in 0..sealed.len() {
            assert_eq!(open(4).open_sealed(b"here", &sealed[start..]), Err(NotSealed), "with seal.key from {start}");
        }
    }

    #[test]
    fn the_key_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/seal.key");
        // The leftover of a process that died while creating the key.
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path.with_file_name("seal.key.draft"), "half").unwrap();
        let sealed = Sealer::open(&path, &Random::from_seed(1)).unwrap().seal(b"", b"x");
        let again = Sealer::open(&path, &Random::from_seed(2)).unwrap();
        assert_eq!(again.open_sealed(b"", &sealed).map(|plain| plain.to_vec()), Ok(b"x".to_vec()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        std::fs::write(&path, b"short").unwrap();
        assert!(matches!(Sealer::open(&path, &Random::from_seed(3)), Err(SealError::NotAKey(_))));
    }
}
