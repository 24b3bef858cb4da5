//! Snapshots: a participant's state as bytes, secrets included. The participant must make it durable before it sends.
//!
//! Each part has a length prefix and the parts must match each other, so a truncated or mixed snapshot does not load. This does not protect
//! against forgery: the caller seals snapshots, since they contain the keys of the session.

use thiserror::Error;
use tls_codec::{DeserializeBytes, Serialize};
use zeroize::Zeroizing;

use crate::codec::Message;
use crate::secret::Secret;

const FORMAT: u8 = 1;
/// The session has batches: they follow its facts.
pub(super) const WITH_BATCHES: u8 = 2;

// Numbers of the states.
pub(super) const SHARE_KEYS: u8 = 1;
pub(super) const MASK_INPUT: u8 = 2;
pub(super) const CHECK_CONSISTENCY: u8 = 3;
pub(super) const UNMASK: u8 = 4;
pub(super) const ANSWERED: u8 = 5;
pub(super) const COMPLAINED: u8 = 6;

/// A serialized state. No `Debug`; erased when dropped.
pub struct Snapshot(Zeroizing<Vec<u8>>);

impl Snapshot {
    /// The bytes, for storage in a sealed journal.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// A state with these parts.
    pub(crate) fn of_parts(state: u8, parts: &[&[u8]]) -> Self {
        parts.iter().fold(Writer::new(state), |writer, part| writer.part(part)).finish()
    }
}

/// The bytes are not a snapshot of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a snapshot of a participant's state in this version")]
pub struct BadSnapshot;

pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    pub(crate) fn new(state: u8) -> Self {
        let mut bytes = Zeroizing::new(Vec::with_capacity(1024));
        bytes.extend([FORMAT, state]);
        Self(bytes)
    }

    /// Marks the state as one of a session with batches.
    pub(super) fn with_batches(mut self) -> Self {
        if let Some(format) = self.0.first_mut() {
            *format = WITH_BATCHES;
        }
        self
    }

    pub(crate) fn part(mut self, bytes: &[u8]) -> Self {
        let len = u32::try_from(bytes.len()).expect("parts of a state are far below 4 GiB");
        self.reserve(4 + bytes.len());
        self.0.extend(len.to_be_bytes());
        self.0.extend(bytes);
        self
    }

    pub(crate) fn message(self, message: &impl Message) -> Self {
        self.part(&Zeroizing::new(message.encode()))
    }

    pub(crate) fn public(self, value: &impl Serialize) -> Self {
        self.part(&value.tls_serialize_detached().expect("parts of a state are bounded"))
    }

    pub(crate) fn finish(self) -> Snapshot {
        Snapshot(self.0)
    }

    /// Grows by moving to a larger buffer and erasing the old one, which `Vec` alone would leave in freed memory.
    fn reserve(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
    }
}

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    pub(crate) has_batches: bool,
}

impl<'a> Reader<'a> {
    /// The state's number and a reader of its parts.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<(u8, Self), BadSnapshot> {
        match bytes {
            [format @ (FORMAT | WITH_BATCHES), state, rest @ ..] => {
                Ok((*state, Self { rest, has_batches: *format == WITH_BATCHES }))
            }
            _ => Err(BadSnapshot),
        }
    }

    pub(crate) fn part(&mut self) -> Result<&'a [u8], BadSnapshot> {
        let (len, rest) = self.rest.split_first_chunk::<4>().ok_or(BadSnapshot)?;
        let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| BadSnapshot)?;
        let (part, rest) = rest.split_at_checked(len).ok_or(BadSnapshot)?;
        self.rest = rest;
        Ok(part)
    }

    pub(crate) fn secret<const N: usize>(&mut self) -> Result<Secret<[u8; N]>, BadSnapshot> {
        let bytes: &[u8; N] = self.part()?.try_into().map_err(|_| BadSnapshot)?;
        Ok(Secret::new(*bytes))
    }

    pub(crate) fn message<M: Message>(&mut self) -> Result<M, BadSnapshot> {
        M::decode(self.part()?).map_err(|_| BadSnapshot)
    }

    pub(crate) fn public<T: DeserializeBytes>(&mut self) -> Result<T, BadSnapshot> {
        T::tls_deserialize_exact_bytes(self.part()?).map_err(|_| BadSnapshot)
    }

    pub(crate) fn end(self) -> Result<(), BadSnapshot> {
        if self.rest.is_empty() { Ok(()) } else { Err(BadSnapshot) }
    }
}
