//! Bounded binary encoding: two header bytes, then a `tls_codec` structure (RFC 8446 §3 presentation language).
//!
//! A message has exactly one form. Its length is compared with the kind's bound before anything is read; vectors are read
//! from the slice, so nothing is allocated beyond the bytes that are there; leftover bytes and second encodings of the same
//! value are errors.

use thiserror::Error;
use tls_codec::{DeserializeBytes, Serialize};
use zeroize::Zeroizing;

/// First byte of every message: the version of the encoding.
pub const VERSION: u8 = 1;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Longer than any message of this kind.
    #[error("a message of this kind has at most {limit} bytes, {got} were given")]
    TooLong {
        /// Most bytes of this kind.
        limit: usize,
        /// What was given.
        got: usize,
    },
    /// The header names another version or kind.
    #[error("expected version {VERSION} and kind {kind}")]
    Header {
        /// The kind that was expected.
        kind: u8,
    },
    /// Not the one encoding of a structure of this kind: cut short, leftover bytes, or a second spelling.
    #[error("the bytes are not the encoding of such a message")]
    Malformed,
    /// A field lies outside its bounds.
    #[error("{field} is out of bounds")]
    Bounds {
        /// The field.
        field: &'static str,
    },
}

/// A structure with a kind, a bound and one encoding.
pub trait Message: Serialize + DeserializeBytes + Sized {
    /// Second byte of the encoding.
    const KIND: u8;
    /// Most bytes of an encoding, header included.
    const MAX_BYTES: usize;

    /// Checks what the structure alone cannot say: counts, lengths, ranges that need no session to judge.
    ///
    /// # Errors
    /// [`DecodeError::Bounds`] naming the field.
    fn check(&self) -> Result<(), DecodeError>;

    /// The encoding.
    ///
    /// # Panics
    /// When a vector is longer than its length field can say, which [`check`](Self::check) excludes.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 + self.tls_serialized_len());
        bytes.extend([VERSION, Self::KIND]);
        self.tls_serialize(&mut bytes).expect("bounded fields always fit their length prefixes");
        bytes
    }

    /// Reads one message that takes all of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`], see its variants.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(DecodeError::TooLong { limit: Self::MAX_BYTES, got: bytes.len() });
        }
        let body = match bytes {
            [VERSION, kind, body @ ..] if *kind == Self::KIND => body,
            _ => return Err(DecodeError::Header { kind: Self::KIND }),
        };
        let message = Self::tls_deserialize_exact_bytes(body).map_err(|_| DecodeError::Malformed)?;
        message.check()?;
        // A vector's last element may overrun the length before it; only one spelling of a value is accepted.
        if message.tls_serialized_len() == body.len() && Zeroizing::new(message.encode())[2..] == *body {
            Ok(message)
        } else {
            Err(DecodeError::Malformed)
        }
    }
}

/// `Err` naming the field unless `holds`.
pub(crate) fn bound(holds: bool, field: &'static str) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Bounds { field }) }
}
