//! Rejections, refusals and aborts, with stable codes for logs, metrics and peers.
//!
//! A [`MessageRejection`] is reported to the sender of one message and changes nothing. A [`Refusal`] is a participant's decision to leave,
//! because continuing could expose its input or waste the cohort's work. An [`Abort`] ends the session for all.

use thiserror::Error;

use crate::codec::DecodeError;
use crate::crypto::agreement::BadPublicKey;
use crate::crypto::signature::SignerFault;
use crate::params::InvalidConfig;
use crate::participants::Index;

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PhaseName {
    /// R0: collects keys.
    Advertise,
    /// R1: collects shares.
    Share,
    /// R2: collects masked inputs.
    Mask,
    /// R3: collects signatures on the survivors.
    Consistency,
    /// R4: collects the shares for opening the sum.
    Unmask,
}

/// Reasons the coordinator rejects a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageRejection {
    /// The bytes are not a message of this kind.
    #[error("not a message: {0}")]
    Malformed(#[from] DecodeError),
    /// The keys are for another task, round or attempt.
    #[error("the keys are for another task, round or attempt")]
    WrongRound,
    /// The message belongs to another session.
    #[error("the message belongs to another session")]
    WrongSession,
    /// The certificate does not bind a key to the client id.
    #[error("the certificate does not speak for this client id")]
    Certificate,
    /// The signature does not verify against the sender's key.
    #[error("the signature does not verify")]
    Signature,
    /// The public key is unusable.
    #[error("unusable public key: {0}")]
    PublicKey(#[from] BadPublicKey),
    /// The sender is not in the roster, or dropped out in an earlier phase.
    #[error("participant {sender} is not expected in this phase")]
    NotExpected { sender: Index },
    /// The number of ciphertexts is not one per other participant.
    #[error("expected {expected} sealed shares, got {got}")]
    SealedCount {
        /// n - 1.
        expected: u16,
        got: usize,
    },
    /// The out list does not name k_m others of this roster.
    #[error("the out list must name {expected} others of the roster")]
    OutList { expected: u16 },
    /// The upload has the wrong length.
    #[error("a masked input has {expected} bytes in this session, not {got}")]
    InputBytes {
        /// Length required by the session's shapes.
        expected: u64,
        /// Length in the message.
        got: u64,
    },
    /// The input was masked for other dealers than this session's, or with other neighbours than its sender drew.
    #[error("the input was masked for other dealers or neighbours than those of this session")]
    OtherMasks,
    /// The accused dealt no shares, or is the sender.
    #[error("participant {accused} dealt no shares to complain about")]
    Accused { accused: Index },
    /// The number of shares is not one per dealer.
    #[error("expected {expected} shares, got {got}")]
    ShareCount {
        /// |U2|.
        expected: u16,
        got: usize,
    },
    /// A share is not four field elements in canonical encoding.
    #[error("a share is not in its canonical encoding")]
    ShareEncoding,
    /// The revealed nonce is not the committed one.
    #[error("the nonce is not the one that the offer commits to")]
    Commitment,
    /// The sender already sent a different message in this phase.
    #[error("a different message of this sender was already accepted in this phase")]
    Conflict,
}

impl MessageRejection {
    /// Stable code for logs, metrics and peers.
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
            Self::Commitment => "commitment",
            Self::Conflict => "conflict",
        }
    }
}

/// Reasons a participant leaves a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The bytes are not a message of this kind.
    #[error("not a message: {0}")]
    Malformed(#[from] DecodeError),
    /// The snapshot's state does not expect this message.
    #[error("the session is not at this point")]
    OutOfOrder,
    /// The configuration is invalid.
    #[error("the configuration is invalid: {0}")]
    Config(#[from] InvalidConfig),
    /// The configuration is below the participant's own requirements.
    #[error("{limit} is {offered}, and this participant takes part from {floor} on")]
    BelowPolicy {
        limit: &'static str,
        /// The session's value; fractions in millionths.
        offered: u32,
        floor: u32,
    },
    /// The coordinator announced another configuration, round or model than this participant accepted.
    #[error("the session has another {what} than this participant accepted")]
    Different { what: &'static str },
    /// The coordinator's parameter does not follow from the configuration.
    #[error("{name} must be {expected}, the coordinator says {got}")]
    Parameter {
        /// `t`, `k_m` or `t_m`.
        name: &'static str,
        expected: u16,
        got: u16,
    },
    /// The roster does not contain this participant's advertisement exactly once, byte for byte.
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
    /// A signature does not verify.
    #[error("the signature of participant {signer} does not verify")]
    Signature {
        /// Position of the signer.
        signer: Index,
    },
    /// A fixed batch is only partly in the roster, or only partly among the survivors.
    #[error("the batch of entry {entry} is not whole: its members take part together or not at all")]
    BatchNotWhole {
        /// Position of one of its members.
        entry: Index,
    },
    /// An entry of the roster states no batch, or one smaller than the session's terms require.
    #[error("entry {entry} of the roster is in no batch of at least {min} participants")]
    NotInBatch { entry: Index, min: u16 },
    /// A public key in the roster cannot be used.
    #[error("the key of entry {entry} is unusable: {reason}")]
    PublicKey {
        /// Position of the entry.
        entry: Index,
        reason: BadPublicKey,
    },
    /// The message belongs to another session.
    #[error("the message belongs to another session")]
    WrongSession,
    /// The message is for another participant, or excludes this one.
    #[error("the message excludes this participant")]
    LeftOut,
    /// Sets do not nest, or a list does not match them.
    #[error("{what} is inconsistent with earlier messages")]
    Inconsistent { what: &'static str },
    /// Fewer participants than needed.
    #[error("{what}: {needed} are needed, but there are {got}")]
    TooFew { what: &'static str, needed: u16, got: u16 },
    /// The caller's input does not have the session's shape.
    #[error("the input has {got} {what}, the session has {expected}")]
    InputShape { what: &'static str, expected: u64, got: usize },
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
    /// The attempt number does not increase.
    #[error("attempt {attempt} is not later than the one before")]
    StaleAttempt { attempt: u32 },
    /// The signer failed; the last snapshot remains valid.
    #[error(transparent)]
    Signer(#[from] SignerFault),
}

impl Refusal {
    /// Stable code for logs, metrics and peers.
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
            Self::BatchNotWhole { .. } => "batch_not_whole",
            Self::NotInBatch { .. } => "not_in_batch",
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

/// Reasons a session ends without a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Abort {
    /// The configuration is invalid for this number of participants.
    #[error("the configuration is invalid: {0}")]
    Config(#[from] InvalidConfig),
    /// A phase closed with too few participants.
    #[error("phase {phase:?} closed with {got} participants, but {needed} are needed")]
    TooFew { phase: PhaseName, needed: u16, got: u16 },
    /// More participants than a session allows: close with at most `limit`.
    #[error("{got} participants advertised keys; a session takes at most {limit}")]
    TooMany { limit: u16, got: usize },
    /// Two participants advertised one key.
    #[error("entries {first} and {second} of the roster share a key")]
    RepeatedKey {
        /// Position of the one.
        first: Index,
        /// The entry to leave out: the one that advertised the other's signing key, or the later of two with the same
        /// agreement key. Agreement keys are secret until the roster is published, so one party made both.
        second: Index,
    },
    /// A complaint was upheld or refuted before any input was unmasked; the next attempt has fresh keys.
    #[error("participant {reporter} and dealer {accused} disagree about a sealed share")]
    Complaint {
        reporter: Index,
        accused: Index,
        /// The party at fault, to the coordinator's knowledge.
        blamed: Index,
    },
    /// A survivor has too few drawn neighbours in the sum for other participants to agree to open it.
    #[error("participant {participant} has {got} drawn neighbours in the sum, but {needed} are needed")]
    Isolated {
        participant: Index,
        /// t_m.
        needed: u16,
        /// Drawn neighbours in the sum.
        got: u16,
    },
    /// The shares of a dealer do not open to its commitment, whichever holders are left out.
    #[error("the shares of dealer {dealer} do not open to its commitment, even with error correction")]
    InconsistentShares { dealer: Index },
    /// A mask key is unusable; an admitted roster rules this out.
    #[error("the pair key of participants {first} and {second} is unusable")]
    PairKey { first: Index, second: Index },
}

impl Abort {
    /// Stable code for logs, metrics and peers.
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
