//! The form of a record in a [`super::FileJournal`]: sealed with ChaCha20-Poly1305 (RFC 8439) in pieces of a megabyte,
//! so that an update is sealed without a second copy in memory.
//!
//! `magic (16) || version (u16) || number (u64) || id (32) || id of the generation before (32) || length of the
//! contents (u32) || sealed contents || sealed pieces`, numbers little-endian. The contents list the journal's records
//! and the write of each, so the newest record vouches for all others. The key is unique to this write: HKDF-SHA-256 of
//! the journal's, with the salt `tributary/journal/1` and the id and the record's name as info. The clear part and the
//! name are associated data of every piece. Nonces count pieces and mark the last, so omitted, moved or cut pieces are
//! detected: one byte (0 the contents, 1 a piece, 2 the last piece), three zeros, the piece's number from 0 (u64).

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::generation::Generation;
use super::key::JournalKey;
use super::{JournalError, MAX_RECORD_BYTES};

pub(super) const MAGIC: &[u8; 16] = b"tributary sealed";
/// Prefix of unsealed records of `participant::snapshot`.
const CLEAR_MAGIC: &[u8; 16] = b"tributary record";
const VERSION: u16 = 1;
const PREFIX_BYTES: usize = 16 + 2 + 8 + 32 + 32 + 4;
const TAG_BYTES: usize = 16;
const PIECE_BYTES: usize = 1 << 20;
/// More records than any participant has.
const MAX_CONTENTS_BYTES: usize = 16 << 20;
const MAX_NAME_BYTES: usize = 64;

/// Identifies the write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteId {
    /// Sealed, by the generation that it created.
    Sealed([u8; 32]),
    /// Unsealed, of an older version: SHA-256 of its bytes.
    Clear([u8; 32]),
}

/// The records of a journal.
pub(super) type Contents = BTreeMap<String, WriteId>;

/// The part of a record before its first piece.
pub(super) struct Head {
    pub(super) generation: Generation,
    /// Id of the preceding generation.
    pub(super) follows: [u8; 32],
    pub(super) contents: Contents,
}

/// The kind of a file in the folder.
pub(super) enum FileKind {
    /// An unsealed record of an older version.
    Clear,
    /// A sealed record, and the opener of its pieces.
    Sealed(Box<Head>, Box<Opener>),
}

/// Opens the pieces of one record.
pub(super) struct Opener {
    key: LessSafeKey,
    place: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Piece {
    Contents,
    Middle(u64),
    Last(u64),
}

impl Piece {
    fn at(number: u64, is_last: bool) -> Self {
        if is_last { Self::Last(number) } else { Self::Middle(number) }
    }

    fn nonce(self) -> Nonce {
        let (kind, number) = match self {
            Self::Contents => (0, 0),
            Self::Middle(number) => (1, number),
            Self::Last(number) => (2, number),
        };
        let mut nonce = [0; NONCE_LEN];
        nonce[0] = kind;
        nonce[4..].copy_from_slice(&number.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

pub(super) fn write(
    out: &mut impl Write,
    key: &JournalKey,
    name: &str,
    head: &Head,
    parts: [&[u8]; 2],
) -> io::Result<()> {
    let mut contents = encode(&head.contents)?;
    let length = u32::try_from(contents.len()).map_err(io::Error::other)?;
    let (number, version) = (head.generation.number.to_le_bytes(), VERSION.to_le_bytes());
    let prefix = [&MAGIC[..], &version, &number, &head.generation.id, &head.follows, &length.to_le_bytes()].concat();
    let opener = Opener::new(key, name, &prefix, &head.generation.id);
    out.write_all(&prefix)?;
    opener.seal(Piece::Contents, &mut contents)?;
    out.write_all(&contents)?;
    let mut left: usize = parts.iter().map(|part| part.len()).sum();
    let mut source = parts[0].chain(parts[1]);
    let mut piece = Zeroizing::new(Vec::with_capacity(left.min(PIECE_BYTES) + TAG_BYTES));
    for number in 0.. {
        let take = left.min(PIECE_BYTES);
        left -= take;
        piece.resize(take, 0);
        source.read_exact(&mut piece)?;
        opener.seal(Piece::at(number, left == 0), &mut piece)?;
        out.write_all(&piece)?;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads a file up to its first piece.
pub(super) fn read_head(file: &mut impl Read, key: &JournalKey, name: &str) -> Result<FileKind, JournalError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => JournalError::corrupt(name, "it is cut off"),
        _ => JournalError::io(format!("read the record {name}"), error),
    };
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).map_err(failed)?;
    if magic == *CLEAR_MAGIC {
        return Ok(FileKind::Clear);
    }
    let mut prefix = [0; PREFIX_BYTES];
    let (before, rest) = prefix.split_at_mut(MAGIC.len());
    before.copy_from_slice(&magic);
    if magic != *MAGIC {
        return Err(JournalError::corrupt(name, "it does not begin like a record"));
    }
    file.read_exact(rest).map_err(failed)?;
    let mut fields = &*rest;
    let version = u16::from_le_bytes(take(&mut fields));
    if version > VERSION {
        return Err(JournalError::TooNew { name: name.to_owned(), version, newest: VERSION });
    }
    let number = u64::from_le_bytes(take(&mut fields));
    let generation = Generation { number, id: take(&mut fields) };
    let follows = take(&mut fields);
    let length = u32::from_le_bytes(take(&mut fields)) as usize;
    if length > MAX_CONTENTS_BYTES {
        return Err(JournalError::corrupt(name, "its contents are too long"));
    }
    let mut sealed = vec![0; length + TAG_BYTES];
    file.read_exact(&mut sealed).map_err(failed)?;
    let opener = Opener::new(key, name, &prefix, &generation.id);
    let not_ours = || JournalError::Sealed {
        name: name.to_owned(),
        detail: "it was sealed with another key, or damaged".to_owned(),
    };
    let contents = opener.open(Piece::Contents, &mut sealed).ok_or_else(not_ours)?;
    let contents = decode(contents).ok_or_else(|| JournalError::corrupt(name, "its contents make no sense"))?;
    Ok(FileKind::Sealed(Box::new(Head { generation, follows, contents }), Box::new(opener)))
}

/// Reads the pieces after the head, which have `left` bytes.
pub(super) fn read_pieces(
    file: &mut impl Read,
    opener: &Opener,
    mut left: u64,
    name: &str,
) -> Result<Zeroizing<Vec<u8>>, JournalError> {
    if left > MAX_RECORD_BYTES {
        return Err(JournalError::corrupt(name, format!("it has {left} bytes, more than any record")));
    }
    let failed = |error| JournalError::io(format!("read the record {name}"), error);
    // Allocated once: a vector that grows leaves copies behind.
    let mut record = Zeroizing::new(Vec::with_capacity(usize::try_from(left).unwrap_or_default()));
    let mut piece = Zeroizing::new(Vec::new());
    for number in 0.. {
        let length = left.min((PIECE_BYTES + TAG_BYTES) as u64);
        left -= length;
        piece.resize(usize::try_from(length).unwrap_or_default(), 0);
        file.read_exact(&mut piece).map_err(failed)?;
        let damaged = || JournalError::corrupt(name, "its bytes are not those that were written");
        record.extend_from_slice(opener.open(Piece::at(number, left == 0), &mut piece).ok_or_else(damaged)?);
        if left == 0 {
            break;
        }
    }
    Ok(record)
}

impl Opener {
    fn new(key: &JournalKey, name: &str, prefix: &[u8], id: &[u8; 32]) -> Self {
        #[expect(clippy::expect_used, reason = "the length is the algorithm's")]
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*key.derive(name, id)).expect("32 bytes are a key");
        Self { key: LessSafeKey::new(key), place: [prefix, name.as_bytes()].concat() }
    }

    fn seal(&self, piece: Piece, text: &mut Vec<u8>) -> io::Result<()> {
        let sealed = self.key.seal_in_place_append_tag(piece.nonce(), Aad::from(&self.place), text);
        sealed.map_err(|_| io::Error::other("a piece cannot be sealed"))
    }

    fn open<'a>(&self, piece: Piece, sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        self.key.open_in_place(piece.nonce(), Aad::from(&self.place), sealed).ok().map(|text| &*text)
    }
}

/// For each record: the length of its name (one byte), its name, 0 if sealed or 1 if not, 32 bytes.
fn encode(contents: &Contents) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (name, writing) in contents {
        let (kind, id) = match writing {
            WriteId::Sealed(id) => (0, id),
            WriteId::Clear(digest) => (1, digest),
        };
        bytes.push(u8::try_from(name.len()).map_err(io::Error::other)?);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(id);
    }
    if bytes.len() > MAX_CONTENTS_BYTES { Err(io::Error::other("the journal has too many records")) } else { Ok(bytes) }
}

fn decode(mut bytes: &[u8]) -> Option<Contents> {
    let mut contents = Contents::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (name, rest) =
            rest.split_at_checked(usize::from(*length)).filter(|(name, _)| name.len() <= MAX_NAME_BYTES)?;
        let (kind, rest) = rest.split_first()?;
        let (id, rest) = rest.split_first_chunk()?;
        let writing = match kind {
            0 => WriteId::Sealed(*id),
            1 => WriteId::Clear(*id),
            _ => return None,
        };
        contents.insert(std::str::from_utf8(name).ok()?.to_owned(), writing);
        bytes = rest;
    }
    Some(contents)
}

/// Takes the next fixed-length field.
fn take<const N: usize>(fields: &mut &[u8]) -> [u8; N] {
    let (field, rest) = fields.split_first_chunk().unwrap_or((&[0; N], &[]));
    *fields = rest;
    *field
}

#[cfg(test)]
mod tests {
    use recipe::digest::sha256;

    use super::*;

    /// SHA-256 of a record of three pieces. Made by `client-sdk/tests/golden/sealed.py` from the description above.
    const OF_THREE_PIECES: &str = "927690c418fe4b1db7fb0925a43510b6a9b5c7ce5ba185f14600f87864a594a0";

    fn head() -> Head {
        let contents = [("round", WriteId::Sealed([3; 32])), ("identity", WriteId::Clear([4; 32]))];
        Head {
            generation: Generation { number: 7, id: [3; 32] },
            follows: [2; 32],
            contents: contents.map(|(name, writing)| (name.to_owned(), writing)).into(),
        }
    }

    fn key(byte: u8) -> JournalKey {
        JournalKey::new(Zeroizing::new([byte; 32]))
    }

    fn sealed(parts: [&[u8]; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, &key(1), "round", &head(), parts).unwrap();
        out
    }

    fn open(mut file: &[u8], key: &JournalKey, name: &str) -> Result<(Head, Zeroizing<Vec<u8>>), JournalError> {
        let FileKind::Sealed(head, opener) = read_head(&mut file, key, name)? else { panic!("it is not clear") };
        let left = file.len() as u64;
        Ok((*head, read_pieces(&mut file, &opener, left, name)?))
    }

    #[test]
    fn records_of_any_length_come_back_and_show_nothing() {
        let long = vec![7; 2 * PIECE_BYTES];
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES] {
            for first in [0, length / 3, length] {
                let (head, found) = open(&sealed([&long[..first], &long[first..length]]), &key(1), "round").unwrap();
                assert_eq!(*found, long[..length]);
                assert_eq!(
                    (head.generation, head.follows, head.contents),
                    (self::head().generation, [2; 32], self::head().contents)
                );
            }
        }
        assert!(!sealed([b"a secret", b""]).windows(8).any(|window| window == b"a secret"));
    }

    #[test]
    fn a_record_is_sealed_as_it_is_described() {
        let written = sealed([&vec![7; 2 * PIECE_BYTES], b"end"]);
        assert_eq!(sha256(&written).to_string(), OF_THREE_PIECES);
    }

    #[test]
    fn what_was_bent_cut_moved_or_sealed_otherwise_does_not_open() {
        let file = sealed([b"a secret", b""]);
        assert!(open(&file, &key(2), "round").is_err());
        assert!(open(&file, &key(1), "identity").is_err());
        for position in 0..file.len() {
            let mut bent = file.clone();
            bent[position] ^= 1;
            assert!(open(&bent, &key(1), "round").is_err(), "bit flipped at {position}");
            assert!(open(&file[..position], &key(1), "round").is_err(), "cut at {position}");
        }
        let pieces = sealed([&vec![7; 2 * PIECE_BYTES], b"end"]);
        let begin = pieces.len() - (2 * (PIECE_BYTES + TAG_BYTES) + 3 + TAG_BYTES);
        let piece = PIECE_BYTES + TAG_BYTES;
        for cut in [begin + piece, begin + 2 * piece] {
            assert!(open(&pieces[..cut], &key(1), "round").is_err(), "a piece is missing");
        }
        let (first, second) = (&pieces[begin..begin + piece], &pieces[begin + piece..begin + 2 * piece]);
        let moved = [&pieces[..begin], second, first, &pieces[begin + 2 * piece..]].concat();
        assert!(open(&moved, &key(1), "round").is_err(), "pieces change places");
    }
}
