//! Who is who: the certificate authority, what it issues, and what is read from a certificate.
//!
//! A participant is an Ed25519 key that our authority vouches for. What the signing request says about its holder is
//! ignored: the name in the certificate is the id that the coordinator gave.

mod authority;
mod peer;

pub use authority::AuthorityError;
pub(crate) use authority::{Authority, CsrError, Issued, ServerKey};
pub use peer::Peer;
