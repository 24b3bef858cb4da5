//! Bounded binary encoding: two header bytes, then a `tls_codec` structure (RFC 8446 §3 presentation language).
//!
//! Each message has exactly one encoding. Its length is compared with the kind's bound before anything is read; vectors are read from the
//! slice, so allocations are bounded by the number of bytes; leftover bytes and second encodings of the same value are errors.

use thiserror::Error;
use tls_codec::{DeserializeBytes, Serialize};
use zeroize::Zeroizing;

/// First byte of every message: the version of the encoding.
pub const VERSION: u8 = 1;

/// Reasons bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The message exceeds the bound of its kind.
    #[error("a message of this kind has at most {limit} bytes, {got} were given")]
    TooLong { limit: usize, got: usize },
    /// The header names another version or kind.
    #[error("expected version {VERSION} and kind {kind}")]
    Header {
        /// The expected kind.
        kind: u8,
    },
    /// Not the canonical encoding of this kind: truncated, followed by extra bytes, or a second encoding of the same
    /// value.
    #[error("the bytes are not the encoding of such a message")]
    Malformed,
    /// A field lies outside its bounds.
    #[error("{field} is out of bounds")]
    Bounds { field: &'static str },
}

/// A structure with a kind, a bound and one encoding.
pub trait Message: Serialize + DeserializeBytes + Sized {
    /// Second byte of the encoding.
    const KIND: u8;
    /// Most bytes of an encoding, header included.
    const MAX_BYTES: usize;

    /// Checks counts, lengths and ranges beyond the structure, without a session.
    ///
    /// # Errors
    /// [`DecodeError::Bounds`] naming the field.
    fn check(&self) -> Result<(), DecodeError>;

    /// The encoding.
    ///
    /// # Panics
    /// If a vector exceeds its length field, which [`check`](Self::check) rules out.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 + self.tls_serialized_len());
        bytes.extend([VERSION, Self::KIND]);
        self.tls_serialize(&mut bytes).expect("bounded fields always fit their length prefixes");
        bytes
    }

    /// Decodes one message occupying all of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`].
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
        // A vector's last element may overrun the length before it; only one encoding of a value is accepted.
        if message.tls_serialized_len() == body.len() && Zeroizing::new(message.encode())[2..] == *body {
            Ok(message)
        } else {
            Err(DecodeError::Malformed)
        }
    }
}

/// `Err` with the field's name unless `holds`.
pub(crate) fn bound(holds: bool, field: &'static str) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Bounds { field }) }
}
