//! Why a message is refused, why a participant leaves, why a session ends: stable codes for logs, metrics and peers.
//!
//! [`Rejection`] is told to the sender of one message and changes nothing. [`Refusal`] is a participant's decision to take no
//! further part, since going on could expose its input or waste everybody's work. [`Abort`] ends the session for all.

use thiserror::Error;

use crate::codec::DecodeError;
use crate::crypto::agreement::BadPublicKey;
use crate::crypto::signature::SignerFault;
use crate::params::InvalidConfig;
use crate::participants::Index;

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PhaseName {
    /// R0: keys are collected.
    Advertise,
    /// R1: shares are collected.
    Share,
    /// R2: masked inputs are collected.
    Mask,
    /// R3: signatures on the survivors are collected.
    Consistency,
    /// R4: shares that open the sum are collected.
    Unmask,
}

/// Why the coordinator does not take a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Rejection {
    /// The bytes are no message of the kind.
    #[error("not a message: {0}")]
    Malformed(#[from] DecodeError),
    /// Keys for another task, round or attempt.
    #[error("the keys are for another task, round or attempt")]
    WrongRound,
    /// A message of another session.
    #[error("the message belongs to another session")]
    WrongSession,
    /// The certificate does not bind a key to the client id.
    #[error("the certificate does not speak for this client id")]
    Certificate,
    /// The signature is not the sender's.
    #[error("the signature does not verify")]
    Signature,
    /// A public key no session may contain.
    #[error("unusable public key: {0}")]
    PublicKey(#[from] BadPublicKey),
    /// The sender is not in the roster, or dropped out in an earlier phase.
    #[error("participant {sender} is not expected in this phase")]
    NotExpected {
        /// Who sent.
        sender: Index,
    },
    /// Not one ciphertext for every other participant.
    #[error("{expected} sealed shares were expected, {got} came")]
    SealedCount {
        /// n - 1.
        expected: u16,
        /// What came.
        got: usize,
    },
    /// The out list is not k_m others of this roster.
    #[error("the out list must name {expected} others of the roster")]
    OutList {
        /// k_m.
        expected: u16,
    },
    /// The upload has the wrong length.
    #[error("a masked input has {expected} bytes in this session, {got} came")]
    InputBytes {
        /// What the session's shapes require.
        expected: u64,
        /// What the message says.
        got: u64,
    },
    /// The input was masked for other dealers than this session's, or with other neighbours than its sender drew.
    #[error("the input was masked for other dealers or neighbours than those of this session")]
    OtherMasks,
    /// The accused dealt nothing, or is the sender.
    #[error("participant {accused} dealt nothing that could be complained about")]
    Accused {
        /// The accused.
        accused: Index,
    },
    /// Not one share for every dealer.
    #[error("{expected} shares were expected, {got} came")]
    ShareCount {
        /// |U2|.
        expected: u16,
        /// What came.
        got: usize,
    },
    /// A share is not four field elements in their one encoding.
    #[error("a share is not in its canonical encoding")]
    ShareEncoding,
    /// The sender already said something else in this phase.
    #[error("a different message of this sender was already accepted in this phase")]
    Conflict,
}

impl Rejection {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::WrongRound => "wrong_round",
            Self::WrongSession => "wrong_session",
            Self::Certificate => "certificate",
            Self::Signature => "signature",
            Self::PublicKey(_) => "public_key",
            Self::NotExpected { .. } => "not_expected",
            Self::SealedCount { .. } => "sealed_count",
            Self::OutList { .. } => "out_list",
            Self::InputBytes { .. } => "input_bytes",
            Self::OtherMasks => "other_masks",
            Self::Accused { .. } => "accused",
            Self::ShareCount { .. } => "share_count",
            Self::ShareEncoding => "share_encoding",
            Self::Conflict => "conflict",
        }
    }
}

/// Why a participant takes no further part in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The bytes are no message of the kind.
    #[error("not a message: {0}")]
    Malformed(#[from] DecodeError),
    /// The snapshot is not of a state that answers this.
    #[error("the session is not at this point")]
    OutOfOrder,
    /// The configuration cannot work.
    #[error("the configuration is invalid: {0}")]
    Config(#[from] InvalidConfig),
    /// The configuration is below the participant's own floors.
    #[error("{limit} is {offered}, and this participant takes part from {floor} on")]
    BelowPolicy {
        /// Which floor.
        limit: &'static str,
        /// What the session has; fractions in millionths.
        offered: u32,
        /// What it must have at least.
        floor: u32,
    },
    /// The coordinator shows another configuration, round or model than this participant accepted.
    #[error("the session has another {what} than this participant accepted")]
    Different {
        /// What differs.
        what: &'static str,
    },
    /// The coordinator's threshold or graph parameter is not the one that follows from the configuration.
    #[error("{name} must be {expected}, the coordinator says {got}")]
    Parameter {
        /// `t`, `k_m` or `t_m`.
        name: &'static str,
        /// What this participant computed.
        expected: u16,
        /// What the coordinator says.
        got: u16,
    },
    /// The roster does not hold this participant's advertisement exactly once, word for word.
    #[error("the roster does not hold this participant's own advertisement exactly once")]
    OwnEntry,
    /// The roster is not strictly ascending by client id.
    #[error("entry {entry} of the roster is out of order or a repetition")]
    RosterOrder {
        /// Position of the entry.
        entry: Index,
    },
    /// Two entries use one key.
    #[error("entry {entry} of the roster repeats a key of another entry")]
    RepeatedKey {
        /// Position of the later entry.
        entry: Index,
    },
    /// A certificate in the roster is not valid.
    #[error("the certificate of entry {entry} does not speak for its client id")]
    Certificate {
        /// Position of the entry.
        entry: Index,
    },
    /// A signature is not its sender's.
    #[error("the signature of participant {signer} does not verify")]
    Signature {
        /// Position of the signer.
        signer: Index,
    },
    /// A public key in the roster cannot be used.
    #[error("the key of entry {entry} is unusable: {reason}")]
    PublicKey {
        /// Position of the entry.
        entry: Index,
        /// Why.
        reason: BadPublicKey,
    },
    /// A message of another session.
    #[error("the message belongs to another session")]
    WrongSession,
    /// A message for another participant, or one that leaves this participant out.
    #[error("this participant is left out")]
    LeftOut,
    /// Sets that do not nest, or a list that does not match them.
    #[error("{what} is inconsistent with what was said before")]
    Inconsistent {
        /// What.
        what: &'static str,
    },
    /// Fewer participants than needed.
    #[error("{what}: {needed} are needed, there are {got}")]
    TooFew {
        /// What of.
        what: &'static str,
        /// How many are needed.
        needed: u16,
        /// How many there are.
        got: u16,
    },
    /// The caller's input does not have the session's shape.
    #[error("the input has {got} {what}, the session has {expected}")]
    InputShape {
        /// Which vector.
        what: &'static str,
        /// Words in the session.
        expected: u64,
        /// Words of the input.
        got: usize,
    },
    /// A word of the caller's input is larger than the session allows.
    #[error("word {position} of the input exceeds the bound of {bound}")]
    InputBound {
        /// Position within its vector.
        position: usize,
        /// Largest magnitude.
        bound: u64,
    },
    /// A second attempt would release the same update twice.
    #[error("this round's masked input was already sent; another attempt needs fresh noise and a second charge")]
    SecondRelease,
    /// The attempt is not later than the one before.
    #[error("attempt {attempt} is not later than the one before")]
    StaleAttempt {
        /// What was asked for.
        attempt: u32,
    },
    /// The signer failed; the last snapshot is still good.
    #[error(transparent)]
    Signer(#[from] SignerFault),
}

impl Refusal {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::OutOfOrder => "out_of_order",
            Self::Config(_) => "config",
            Self::BelowPolicy { .. } => "below_policy",
            Self::Different { .. } => "different",
            Self::Parameter { .. } => "parameter",
            Self::OwnEntry => "own_entry",
            Self::RosterOrder { .. } => "roster_order",
            Self::RepeatedKey { .. } => "repeated_key",
            Self::Certificate { .. } => "certificate",
            Self::Signature { .. } => "signature",
            Self::PublicKey { .. } => "public_key",
            Self::WrongSession => "wrong_session",
            Self::LeftOut => "left_out",
            Self::Inconsistent { .. } => "inconsistent",
            Self::TooFew { .. } => "too_few",
            Self::InputShape { .. } => "input_shape",
            Self::InputBound { .. } => "input_bound",
            Self::SecondRelease => "second_release",
            Self::StaleAttempt { .. } => "stale_attempt",
            Self::Signer(_) => "signer",
        }
    }
}

/// Why a session ends without a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Abort {
    /// The configuration cannot work for those who came.
    #[error("the configuration is invalid: {0}")]
    Config(#[from] InvalidConfig),
    /// A phase closed with too few.
    #[error("phase {phase:?} closed with {got} participants, {needed} are needed")]
    TooFew {
        /// Which phase.
        phase: PhaseName,
        /// How many are needed.
        needed: u16,
        /// How many there were.
        got: u16,
    },
    /// More came than a session takes: close with at most so many.
    #[error("{got} participants came, a session takes at most {limit}")]
    TooMany {
        /// The most.
        limit: u16,
        /// How many came.
        got: usize,
    },
    /// Two participants advertised one key.
    #[error("entries {first} and {second} of the roster share a key")]
    RepeatedKey {
        /// Position of the one.
        first: Index,
        /// Position of the one to leave out: who advertised the other's signing key, or the later of two with one agreement key. Those
        /// are secret until the roster is out, so both come from one hand.
        second: Index,
    },
    /// A complaint was upheld or refuted before any input was unmasked; the next attempt has fresh keys.
    #[error("participant {reporter} and dealer {accused} disagree about a sealed share")]
    Complaint {
        /// Who complained.
        reporter: Index,
        /// Who was accused.
        accused: Index,
        /// Who is at fault, as far as the coordinator can tell.
        blamed: Index,
    },
    /// So few of the neighbours that a survivor drew are in the sum that nobody would agree to open it.
    #[error("of the neighbours that participant {participant} drew {got} are in the sum, {needed} are needed")]
    Isolated {
        /// The survivor.
        participant: Index,
        /// t_m.
        needed: u16,
        /// How many are left.
        got: u16,
    },
    /// The shares of a dealer do not open to what it committed to, whoever of its holders is left out.
    #[error("the shares of dealer {dealer} do not open to its commitment, and no correction makes them")]
    InconsistentShares {
        /// The dealer.
        dealer: Index,
    },
    /// A mask key could not be used, which an admitted roster excludes.
    #[error("the pair key of participants {first} and {second} is unusable")]
    PairKey {
        /// The one.
        first: Index,
        /// The other.
        second: Index,
    },
}

impl Abort {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::TooFew { .. } => "too_few",
            Self::TooMany { .. } => "too_many",
            Self::RepeatedKey { .. } => "repeated_key",
            Self::Complaint { .. } => "complaint",
            Self::Isolated { .. } => "isolated",
            Self::InconsistentShares { .. } => "inconsistent_shares",
            Self::PairKey { .. } => "pair_key",
        }
    }
}
