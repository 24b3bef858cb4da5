//! Proof that a session was never opened and never will be, so that its participants may give an input anew.
//!
//! Opening takes the answers of t distinct members (README, "What is promised"). Whoever leaves a session without having answered
//! destroys what it could answer with, and only then signs that it did: an [`AbortStatement`]. Of a such statements at least a − n_c are
//! true, so at most n − (a − n_c) members can ever answer. With a ≥ t these are fewer than t: n + n_c − t < t, since 2t > n + n_c. So t
//! statements by distinct members of one roster, shown to somebody who accepted that very roster (an [`Unopened`]), prove
//! it, under the assumption everything else rests on: at most floor(γn) of that roster collude.
//!
//! No statement is taken back, and each is good for its own session alone.

use thiserror::Error;
use tls_codec::{TlsDeserializeBytes, TlsSerialize, TlsSize, TlsVecU32};

use crate::codec::{DecodeError, Message, bound};
use crate::crypto::signature::{IdentityVerifier, Signature, Signer, SignerFault};
use crate::messages::{Body, InSession, Roster, Sid, Signed};
use crate::params::InvalidConfig;
use crate::participants::{Index, MAX_COHORT};
use crate::rejection::Rejection;
use crate::server::Facts;

const COHORT: usize = MAX_COHORT as usize;

/// From whoever leaves a session for good: it has revealed no share in it, holds none any more, and never will.
pub type AbortStatement = Signed<AbortStatementBody>;

/// What [`AbortStatement`] says.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct AbortStatementBody {
    /// The session.
    pub sid: Sid,
    /// Who left.
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

/// What a participant can say of a session that it has dealt in and not answered, once it has left it. Nothing in here is secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    pub(crate) sid: Sid,
    pub(crate) me: Index,
}

impl Departure {
    /// Says it. Call this with the state of the session about to be overwritten, and send the statement only once it is: the statement
    /// must not leave as long as anything could still answer.
    ///
    /// # Errors
    /// [`SignerFault`] when the signer cannot sign.
    pub fn state(self, signer: &dyn Signer) -> Result<AbortStatement, SignerFault> {
        Signed::sign(AbortStatementBody { sid: self.sid, sender: self.me }, signer)
    }
}

/// To whoever gave an input in a session: enough [`AbortStatement`]s, with the roster that the session's id stands for.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Unopened {
    /// As it was shown to everybody in the session.
    pub roster: Roster,
    /// Strictly ascending by sender.
    pub statements: TlsVecU32<Statement>,
}

/// One [`AbortStatement`] without the session, which is the roster's.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct Statement {
    /// Who left.
    pub sender: Index,
    /// The statement's signature.
    pub signature: Signature,
}

impl Message for Unopened {
    const KIND: u8 = 12;
    const MAX_BYTES: usize = Roster::MAX_BYTES + 4 + COHORT * (2 + 64);

    fn check(&self) -> Result<(), DecodeError> {
        self.roster.check()?;
        bound(self.statements.len() <= COHORT, "statements")
    }
}

/// Why it is not proven that a session was never opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unproven {
    /// The roster makes no session.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// A certificate in the roster names no key.
    #[error("the certificate of entry {entry} binds no key")]
    Certificate {
        /// Its position in the roster, from 1.
        entry: usize,
    },
    /// The statements are about another session than the one that was taken part in.
    #[error("the statements are about another session")]
    Session,
    /// One that its sender did not sign, or one sender twice.
    #[error("statement {position} is not its sender's, or out of order")]
    Statement {
        /// Its position among the statements, from 0.
        position: usize,
    },
    /// Too few members have left.
    #[error("{got} members have left without an answer; from {needed} on nobody can open the sum")]
    TooFew {
        /// t.
        needed: u16,
        /// How many statements there are.
        got: u16,
    },
}

/// A session that ended without a sum, as its roster tells.
#[derive(Debug)]
pub struct Ended(Facts);

impl Ended {
    /// Computes the session. `verifier` says which key a certificate of the roster binds; whether the certificate still holds is no
    /// matter, since the roster was accepted when it did.
    ///
    /// # Errors
    /// [`Unproven::Certificate`], [`Unproven::Config`].
    pub fn new(roster: Roster, verifier: &dyn IdentityVerifier) -> Result<Self, Unproven> {
        let mut identities = Vec::with_capacity(roster.entries.len());
        for (entry, member) in (1..).zip(roster.entries.iter()) {
            let identity = verifier.verify(member.client_id.as_slice(), member.certificate.as_slice());
            identities.push(identity.map_err(|_| Unproven::Certificate { entry })?);
        }
        Ok(Self(Facts::new(roster, identities)?))
    }

    /// The session's id.
    #[must_use]
    pub const fn sid(&self) -> &Sid {
        &self.0.sid
    }

    /// How many statements prove that no sum of it is ever opened: t.
    #[must_use]
    pub const fn needed(&self) -> u16 {
        self.0.params.threshold()
    }

    /// Whether a statement is a member's, about this session.
    ///
    /// # Errors
    /// [`Rejection::WrongSession`], [`Rejection::NotExpected`], [`Rejection::Signature`].
    pub fn admit(&self, statement: &AbortStatement) -> Result<(), Rejection> {
        self.0.check_frame(statement, &self.0.everybody())
    }
}

impl Unopened {
    /// Of statements that [`Ended::admit`] let in; those of one sender count once.
    #[must_use]
    pub fn of(roster: Roster, statements: impl IntoIterator<Item = AbortStatement>) -> Self {
        let of = |Signed { body, signature }: AbortStatement| Statement { sender: body.sender, signature };
        let mut statements: Vec<_> = statements.into_iter().map(of).collect();
        statements.sort_unstable_by_key(|statement| statement.sender);
        statements.dedup_by_key(|statement| statement.sender);
        Self { roster, statements: statements.into() }
    }

    /// Whether this proves that the session with this id, whose roster the caller accepted, was never opened and never will be.
    ///
    /// # Errors
    /// [`Unproven`].
    pub fn prove(self, sid: &Sid, verifier: &dyn IdentityVerifier) -> Result<(), Unproven> {
        let Self { roster, statements } = self;
        let ended = Ended::new(roster, verifier)?;
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
