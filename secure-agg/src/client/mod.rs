//! A participant's side. Each state consumes itself: `advertise_keys` → [`ShareKeys`] → [`MaskInput`] → [`Masking`] →
//! [`CheckConsistency`] → [`Unmask`] → [`Answered`], or from [`MaskInput`] via [`Challenge`] to [`Complained`].
//!
//! After each step, make [`Transition::persist`] durable, *then* send [`Transition::send`]. A participant killed in between
//! restores the snapshot and sends the same bytes again with [`Client::resend`]; it can never give two answers to one
//! message, because the state for that is gone. A step that fails has sent nothing: the session is over for this
//! participant unless the caller restores the last snapshot and waits for a valid message.

mod advertise_keys;
mod check_consistency;
mod complain;
mod mask_input;
mod session;
mod share_keys;
mod share_pair;
mod snapshot;
mod transition;
mod unmask;

pub use advertise_keys::{Release, Setup, advertise_keys};
pub use check_consistency::CheckConsistency;
pub use complain::{Challenge, Complained};
pub use mask_input::{MaskInput, MaskedUpload, Masking, Received};
pub use share_keys::ShareKeys;
pub(crate) use share_pair::opens;
pub(crate) use snapshot::Reader;
pub use snapshot::{BadSnapshot, Snapshot};
pub use transition::Transition;
pub use unmask::{Answered, Unmask};

use crate::CryptoRng;
use crate::codec::Message as _;
use crate::crypto::signature::Signer;
use crate::messages::{Advertise, RoundId, Sid};
use crate::rejection::Refusal;
use snapshot::{ANSWERED, CHECK_CONSISTENCY, COMPLAINED, MASK_INPUT, SHARE_KEYS, UNMASK};

/// A participant in any state with a snapshot. Because it contains secrets, it cannot be printed or copied.
///
/// ```
/// fn anything<T>() {}
/// anything::<secure_agg::client::Client>();
/// ```
/// ```compile_fail
/// fn printable<T: std::fmt::Debug>() {}
/// printable::<secure_agg::client::Client>();
/// ```
/// ```compile_fail
/// fn copyable<T: Clone>() {}
/// copyable::<secure_agg::client::Client>();
/// ```
pub enum Client {
    /// Waits for the roster.
    ShareKeys(ShareKeys),
    /// Waits for its shares.
    MaskInput(MaskInput),
    /// Waits for the survivors.
    CheckConsistency(CheckConsistency),
    /// Waits for the agreement on the survivors.
    Unmask(Unmask),
    /// Has revealed its shares.
    Answered(Answered),
    /// Has complained instead of sending an input.
    Complained(Complained),
}

impl Client {
    /// Restores the state from a snapshot.
    ///
    /// # Errors
    /// [`BadSnapshot`] if the bytes are not a snapshot of this version.
    pub fn restore(snapshot: &[u8]) -> Result<Self, BadSnapshot> {
        let (state, mut reader) = Reader::new(snapshot)?;
        let client = match state {
            SHARE_KEYS => Self::ShareKeys(ShareKeys::read(&mut reader)?),
            MASK_INPUT => Self::MaskInput(MaskInput::read(&mut reader)?),
            CHECK_CONSISTENCY => Self::CheckConsistency(CheckConsistency::read(&mut reader)?),
            UNMASK => Self::Unmask(Unmask::read(&mut reader)?),
            ANSWERED => Self::Answered(Answered::read(&mut reader)?),
            COMPLAINED => Self::Complained(Complained::read(&mut reader)?),
            _ => return Err(BadSnapshot),
        };
        reader.end()?;
        Ok(client)
    }

    /// Returns the state if it waits for the roster.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] in any other state.
    pub fn waiting_for_roster(self) -> Result<ShareKeys, Refusal> {
        if let Self::ShareKeys(state) = self { Ok(state) } else { Err(Refusal::OutOfOrder) }
    }

    /// Returns the state if it waits for its shares.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] in any other state.
    pub fn waiting_for_delivery(self) -> Result<MaskInput, Refusal> {
        if let Self::MaskInput(state) = self { Ok(state) } else { Err(Refusal::OutOfOrder) }
    }

    /// Returns the state if it waits for the survivors.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] in any other state.
    pub fn waiting_for_survivors(self) -> Result<CheckConsistency, Refusal> {
        if let Self::CheckConsistency(state) = self { Ok(state) } else { Err(Refusal::OutOfOrder) }
    }

    /// Returns the state if it waits for the signatures of the others.
    ///
    /// # Errors
    /// [`Refusal::OutOfOrder`] in any other state.
    pub fn waiting_for_agreement(self) -> Result<Unmask, Refusal> {
        if let Self::Unmask(state) = self { Ok(state) } else { Err(Refusal::OutOfOrder) }
    }

    /// The last message, encoded, byte for byte as sent. For a masked input this is the signed digest; the caller keeps the masked vectors,
    /// which need no protection.
    #[must_use]
    pub fn resend(&self) -> Vec<u8> {
        match self {
            Self::ShareKeys(state) => state.sent.encode(),
            Self::MaskInput(state) => state.sent.encode(),
            Self::CheckConsistency(state) => state.sent.encode(),
            Self::Unmask(state) => state.sent.encode(),
            Self::Answered(state) => state.sent.encode(),
            Self::Complained(state) => state.sent.encode(),
        }
    }

    #[must_use]
    pub const fn round(&self) -> &RoundId {
        match self {
            Self::ShareKeys(state) => &state.sent.body.round,
            Self::MaskInput(state) => &state.session.facts.round,
            Self::CheckConsistency(state) => &state.session.facts.round,
            Self::Unmask(state) => &state.session.facts.round,
            Self::Answered(state) => &state.round,
            Self::Complained(state) => &state.round,
        }
    }

    /// The session id; `None` before the roster arrives.
    #[must_use]
    pub const fn sid(&self) -> Option<&Sid> {
        match self {
            Self::ShareKeys(_) => None,
            Self::MaskInput(state) => Some(state.session.sid()),
            Self::CheckConsistency(state) => Some(state.session.sid()),
            Self::Unmask(state) => Some(state.session.sid()),
            Self::Answered(state) => Some(&state.sent.body.sid),
            Self::Complained(state) => Some(&state.sent.body.sid),
        }
    }

    /// Whether a masked input of this attempt may have reached the coordinator.
    #[must_use]
    pub const fn has_sent_input(&self) -> bool {
        matches!(self, Self::CheckConsistency(_) | Self::Unmask(_) | Self::Answered(_))
    }

    /// Gives up this attempt and advertises fresh keys for a later one at the same round.
    ///
    /// The sum of a later attempt is a second release of the same update: the difference of two sums with different
    /// survivors is one participant's input. So once an input may have been sent, only [`Release::FreshNoisePaid`] is
    /// accepted.
    ///
    /// # Errors
    /// [`Refusal::SecondRelease`], [`Refusal::StaleAttempt`], [`Refusal::Different`] if `setup` names another round;
    /// and those of [`advertise_keys`]. This attempt is over in any case.
    pub fn retry(
        self,
        setup: Setup,
        release: Release,
        signer: &dyn Signer,
        rng: &mut dyn CryptoRng,
    ) -> Result<Transition<ShareKeys, Advertise>, Refusal> {
        let before = self.round();
        if (&before.task_id, before.round) != (&setup.round.task_id, setup.round.round) {
            return Err(Refusal::Different { what: "round" });
        }
        if setup.round.attempt <= before.attempt {
            return Err(Refusal::StaleAttempt { attempt: setup.round.attempt });
        }
        if self.has_sent_input() && release != Release::FreshNoisePaid {
            return Err(Refusal::SecondRelease);
        }
        advertise_keys(setup, signer, rng)
    }
}
