//! Proof that a session was never opened and never will be, so that its participants may contribute their input again.
//!
//! Opening takes the answers of t distinct members (README, "What is promised"). A member that leaves a session without
//! having answered destroys its means to answer, and only then signs an [`AbortStatement`]. Of a such statements at
//! least a − n_c are true, so at most n − (a − n_c) members can ever answer. With a ≥ t these are fewer than t: n + n_c
//! − t < t, since 2t > n + n_c. So t statements by distinct members of one roster, shown to somebody who accepted that
//! roster (an [`AbortProof`]), prove it under the protocol's general assumption: at most floor(γn) of the roster collude.
//!
//! Statements cannot be revoked, and each is valid for its own session only.

use thiserror::Error;
use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use crate::codec::{DecodeError, Message, bound};
use crate::crypto::signature::{IdentityVerifier, Signature, Signer, SignerFault};
use crate::messages::{Body, InSession, Roster, Sid, Signed};
use crate::params::InvalidConfig;
use crate::participants::{Index, MAX_COHORT};
use crate::rejection::MessageRejection;
use crate::server::ServerFacts;

const COHORT: usize = MAX_COHORT as usize;

/// Sent by a member that leaves a session for good: it has revealed no share, holds none any more, and never will.
pub type AbortStatement = Signed<AbortStatementBody>;

/// The signed part of an [`AbortStatement`].
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AbortStatementBody {
    pub sid: Sid,
    pub sender: Index,
}

impl Body for AbortStatementBody {
    const PHASE: &'static str = "abort";
    const KIND: u8 = 11;
    const MAX_BYTES: usize = 2 + 32 + 2 + 64;

    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn binding(&self) -> Vec<u8> {
        self.sid.to_vec()
    }
}

impl InSession for AbortStatementBody {
    fn sid(&self) -> &Sid {
        &self.sid
    }

    fn sender(&self) -> Index {
        self.sender
    }
}

/// The data for an [`AbortStatement`]: available while a participant has dealt shares but not answered. Nothing in here
/// is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    pub(crate) sid: Sid,
    pub(crate) me: Index,
}

impl Departure {
    /// Signs the statement. Call this while the session's state is about to be overwritten, and send the statement only
    /// afterwards: it must not leave while an answer is still possible.
    ///
    /// # Errors
    /// [`SignerFault`] if the signer cannot sign.
    pub fn state(self, signer: &dyn Signer) -> Result<AbortStatement, SignerFault> {
        Signed::sign(AbortStatementBody { sid: self.sid, sender: self.me }, signer)
    }
}

/// Shown to a participant that contributed an input to a session: enough [`AbortStatement`]s, and the roster that the
/// session id covers.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AbortProof {
    /// The roster as published in the session.
    pub roster: Roster,
    /// Strictly ascending by sender.
    pub statements: TlsVecU32<Statement>,
}

/// An [`AbortStatement`] without the session, which follows from the roster.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Statement {
    pub sender: Index,
    pub signature: Signature,
}

impl Message for AbortProof {
    const KIND: u8 = 12;
    const MAX_BYTES: usize = Roster::MAX_BYTES + 4 + COHORT * (2 + 64);

    fn check(&self) -> Result<(), DecodeError> {
        self.roster.check()?;
        bound(self.statements.len() <= COHORT, "statements")
    }
}

/// Reasons it is not proven that a session was never opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unproven {
    /// The roster does not form a valid session.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// A certificate in the roster binds no key.
    #[error("the certificate of entry {entry} binds no key")]
    Certificate {
        /// Its position in the roster, from 1.
        entry: usize,
    },
    /// The statements are about another session than the participant's.
    #[error("the statements are about another session")]
    Session,
    /// A statement is not signed by its sender, or repeats a sender.
    #[error("statement {position} is not signed by its sender, or out of order")]
    Statement {
        /// Its position among the statements, from 0.
        position: usize,
    },
    /// Too few members have left.
    #[error("{got} members have left without an answer; only with {needed} can nobody open the sum")]
    TooFew { needed: u16, got: u16 },
}

/// A session that ended without a sum, identified by its roster.
#[derive(Debug)]
pub struct EndedSession(ServerFacts);

impl EndedSession {
    /// Computes the session. `verifier` returns the key that a certificate of the roster binds. Whether the certificate
    /// is still valid does not matter, since it was when the roster was accepted.
    ///
    /// # Errors
    /// [`Unproven::Certificate`], [`Unproven::Config`].
    pub fn new(roster: Roster, verifier: &dyn IdentityVerifier) -> Result<Self, Unproven> {
        let mut identities = Vec::with_capacity(roster.entries.len());
        for (entry, member) in (1..).zip(roster.entries.iter()) {
            let identity = verifier.verify(member.client_id.as_slice(), member.certificate.as_slice());
            identities.push(identity.map_err(|_| Unproven::Certificate { entry })?);
        }
        Ok(Self(ServerFacts::new(roster, identities)?))
    }

    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.0.sid
    }

    /// t: the number of statements that prove that no sum is ever opened.
    #[must_use]
    pub const fn needed(&self) -> u16 {
        self.0.params.threshold()
    }

    /// Checks that a statement is signed by a member and about this session.
    ///
    /// # Errors
    /// [`MessageRejection::WrongSession`], [`MessageRejection::NotExpected`], [`MessageRejection::Signature`].
    pub fn admit(&self, statement: &AbortStatement) -> Result<(), MessageRejection> {
        self.0.check_frame(statement, &self.0.everybody())
    }
}

impl AbortProof {
    /// Collects statements that [`EndedSession::admit`] accepted; several of one sender count once.
    #[must_use]
    pub fn of(roster: Roster, statements: impl IntoIterator<Item = AbortStatement>) -> Self {
        let of = |Signed { body, signature }: AbortStatement| Statement { sender: body.sender, signature };
        let mut statements: Vec<_> = statements.into_iter().map(of).collect();
        statements.sort_unstable_by_key(|statement| statement.sender);
        statements.dedup_by_key(|statement| statement.sender);
        Self { roster, statements: statements.into() }
    }

    /// Proves that the session with this id, whose roster the caller accepted, was never opened and never will be.
    ///
    /// # Errors
    /// [`Unproven`].
    pub fn prove(self, sid: &Sid, verifier: &dyn IdentityVerifier) -> Result<(), Unproven> {
        let Self { roster, statements } = self;
        let ended = EndedSession::new(roster, verifier)?;
        if ended.sid() != sid {
            return Err(Unproven::Session);
        }
        let mut before = 0;
        for (position, Statement { sender, signature }) in statements.iter().enumerate() {
            let statement = Signed { body: AbortStatementBody { sid: *sid, sender: *sender }, signature: *signature };
            if *sender <= before || ended.admit(&statement).is_err() {
                return Err(Unproven::Statement { position });
            }
            before = *sender;
        }
        let (needed, got) = (ended.needed(), u16::try_from(statements.len()).unwrap_or(u16::MAX));
        if got < needed { Err(Unproven::TooFew { needed, got }) } else { Ok(()) }
    }
}
