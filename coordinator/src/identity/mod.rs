//! Who is who: the certificate authority, what it issues, and what is read from a certificate.
//!
//! A participant is an Ed25519 key that an authority vouches for: our own, or one elsewhere. What the signing request says about its holder is
//! ignored: the name in the certificate is the id that the coordinator gave.

mod authority;
mod members;
mod peer;
mod signer;

pub use authority::AuthorityError;
pub(crate) use authority::{Authority, CsrError, Issued, ServerKey};
pub(crate) use members::{CheckedRequest, IssueError, Members};
pub use peer::Peer;
pub(crate) use signer::{Signer, SignerError};
