//! Encryption at rest of what must not be read from a backup: the answers that open a round's sum.
//!
//! The key lives in a file of its own, outside the database, so a stolen database or a stolen backup of it opens nothing.
//! ChaCha20-Poly1305 (RFC 8439) with a random nonce; what is sealed is bound to its place, so that nobody can move one
//! participant's answer to another's row.

use std::path::{Path, PathBuf};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

use crate::files::write_new;
use crate::random::Random;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

/// Why there is no sealing key.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read or made.
    #[error("the sealing key {path} cannot be read or made: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no key.
    #[error(
        "the sealing key {0} does not hold {KEY_BYTES} bytes; restore it, or remove it and lose the rounds that are being unmasked now"
    )]
    NotAKey(PathBuf),
}

/// What was stored was not sealed with this key for this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is stored was not sealed with this coordinator's key for this place")]
pub struct NotSealed;

/// Seals and opens. The key is never shown.
pub struct Sealer {
    key: LessSafeKey,
    /// Another key, made of the first: one key has one use.
    mac: hmac::Key,
    random: Random,
}

impl Sealer {
    /// With a key that vanishes with the process.
    #[must_use]
    pub fn in_memory(random: &Random) -> Self {
        Self::new(&random.bytes(), random)
    }

    /// With the key in a file; makes it, for its owner's eyes alone, if it is not there.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open(path: &Path, random: &Random) -> Result<Self, SealError> {
        let io = |source| SealError::Io { path: path.to_owned(), source };
        match std::fs::read(path).map(Zeroizing::new) {
            Ok(bytes) => {
                store::private::tighten(path).map_err(io)?;
                let key: &[u8; KEY_BYTES] =
                    bytes.as_slice().try_into().map_err(|_| SealError::NotAKey(path.to_owned()))?;
                Ok(Self::new(key, random))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key: Zeroizing<[u8; KEY_BYTES]> = Zeroizing::new(random.bytes());
                write_new(path, &*key).map_err(io)?;
                Ok(Self::new(&key, random))
            }
            Err(error) => Err(io(error)),
        }
    }

    fn new(key: &[u8; KEY_BYTES], random: &Random) -> Self {
        #[expect(clippy::expect_used, reason = "the length is the algorithm's")]
        let sealing = UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes are a key");
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), b"tributary/seal/mac/1");
        let mac = hmac::Key::new(hmac::HMAC_SHA256, mac.as_ref());
        Self { key: LessSafeKey::new(sealing), mac, random: random.clone() }
    }

    /// HMAC-SHA-256 over `place || text`, where all places are equally long: says that this coordinator wrote it, and hides
    /// nothing.
    #[must_use]
    pub fn mac(&self, place: &[u8], text: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(place);
        context.update(text);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// `nonce || ciphertext || tag`, to be opened for the same `place` only.
    #[must_use]
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let drawn: [u8; 32] = self.random.bytes();
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&drawn[..NONCE_BYTES]);
        let mut sealed = Vec::with_capacity(NONCE_BYTES + plain.len() + CHACHA20_POLY1305.tag_len());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        #[expect(clippy::expect_used, reason = "fails beyond 256 GiB only")]
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(place),
                &mut sealed[NONCE_BYTES..],
            )
            .expect("a message is shorter than 256 GiB");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// What was sealed for this place.
    ///
    /// # Errors
    /// [`NotSealed`].
    pub fn open_sealed(&self, place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, NotSealed> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(NotSealed)?;
        let mut text = Zeroizing::new(rest.to_vec());
        let length = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(place), &mut text)
            .map_err(|_| NotSealed)?
            .len();
        text.truncate(length);
        Ok(text)
    }
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
    fn the_key_is_made_once_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/seal.key");
        // What a process left that died while it made the key.
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
