//! Message bodies signed by their senders.

use tls_codec::{DeserializeBytes, Error, Serialize, Size};

use super::session::Sid;
use crate::codec::{DecodeError, Message};
use crate::crypto::signature::{IdentityKey, Signature, Signer, SignerFault};
use crate::crypto::suite::PROTOCOL;
use crate::crypto::transcript::sha256;
use crate::participants::Index;

/// The signed part of a message.
pub trait Body: Serialize + DeserializeBytes {
    /// Name of the phase in the signed text.
    const PHASE: &'static str;
    const KIND: u8;
    const MAX_BYTES: usize;

    /// See [`Message::check`].
    ///
    /// # Errors
    /// [`DecodeError::Bounds`] naming the field.
    fn check(&self) -> Result<(), DecodeError>;

    /// The signature's binding: the session id or, for keys that precede a session, the round.
    fn binding(&self) -> Vec<u8>;

    /// `P || phase || binding || SHA-256(body)`.
    fn signed_text(&self) -> Vec<u8> {
        let body = self.tls_serialize_detached().expect("bounded fields always fit their length prefixes");
        [PROTOCOL, Self::PHASE.as_bytes(), &self.binding(), &sha256(&body)].concat()
    }
}

/// A body with its sender's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed<B> {
    pub body: B,
    /// Ed25519 over [`Body::signed_text`].
    pub signature: Signature,
}

impl<B: Body> Signed<B> {
    /// Signs a body.
    ///
    /// # Errors
    /// [`SignerFault`] when the signer cannot sign.
    pub fn sign(body: B, signer: &dyn Signer) -> Result<Self, SignerFault> {
        let signature = signer.sign(&body.signed_text())?;
        Ok(Self { body, signature })
    }

    /// Whether `identity` signed the body.
    #[must_use]
    pub fn is_signed_by(&self, identity: &IdentityKey) -> bool {
        identity.verifies(&self.body.signed_text(), &self.signature)
    }
}

impl<B: Body> Size for Signed<B> {
    fn tls_serialized_len(&self) -> usize {
        self.body.tls_serialized_len() + self.signature.len()
    }
}

impl<B: Body> Serialize for Signed<B> {
    fn tls_serialize<W: std::io::Write>(&self, writer: &mut W) -> Result<usize, Error> {
        Ok(self.body.tls_serialize(writer)? + self.signature.tls_serialize(writer)?)
    }
}

impl<B: Body> DeserializeBytes for Signed<B> {
    fn tls_deserialize_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (body, rest) = B::tls_deserialize_bytes(bytes)?;
        let (signature, rest) = Signature::tls_deserialize_bytes(rest)?;
        Ok((Self { body, signature }, rest))
    }
}

impl<B: Body> Message for Signed<B> {
    const KIND: u8 = B::KIND;
    const MAX_BYTES: usize = B::MAX_BYTES;

    fn check(&self) -> Result<(), DecodeError> {
        self.body.check()
    }
}

/// A body naming a session and its sender.
pub trait InSession: Body {
    fn sid(&self) -> &Sid;
    fn sender(&self) -> Index;
}

/// A body with fields `sid` and `sender`.
macro_rules! in_session {
    ($body:ty) => {
        impl InSession for $body {
            fn sid(&self) -> &Sid {
                &self.sid
            }

            fn sender(&self) -> Index {
                self.sender
            }
        }
    };
}
pub(super) use in_session;
