//! Identities: the certificate authority, its certificates, and the contents of certificates.
//!
//! A participant is an Ed25519 key certified by an authority, our own or an external one. Names in a signing request are ignored: the
//! certificate contains the id assigned by the coordinator. If an external authority issues certificates directly, it chooses the name, and
//! the coordinator signs nothing.

mod authority;
mod issued;
mod members;
mod signer;

pub use authority::AuthorityError;
pub(crate) use authority::{Authority, Issued, ServerKey};
pub(crate) use issued::{MembersCa, PreIssued};
pub use listener::Peer;
pub(crate) use members::{Credential, CredentialError, IssueError, Members};
pub(crate) use signer::{Signer, SignerError};
