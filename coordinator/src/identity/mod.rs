//! Identities: the certificate authority, what it issues, and what is read from a certificate.
//!
//! A participant is an Ed25519 key that an authority vouches for: our own, or one elsewhere. What a signing request says about its holder is
//! ignored: the name in the certificate is the id that the coordinator gave. Where an authority elsewhere gives participants
//! their certificates itself, the name is what that authority says, and the coordinator signs nothing.

mod authority;
mod issued;
mod members;
mod peer;
mod signer;

pub use authority::AuthorityError;
pub(crate) use authority::{Authority, Issued, ServerKey};
pub(crate) use issued::{MembersCa, PreIssued};
pub(crate) use members::{Credential, CredentialError, IssueError, Members};
pub use peer::Peer;
pub(crate) use signer::{Signer, SignerError};
