//! What operators may change.

pub(super) mod create_task;
pub(super) mod enrollment_tokens;
pub(super) mod excuse;
pub(super) mod operator_tokens;
pub(super) mod revoke_participant;
pub(super) mod task_status;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::random::Random;

/// A new secret of 256 random bits, as 43 characters. Only its SHA-256 is stored.
pub(crate) fn secret(random: &Random) -> String {
    URL_SAFE_NO_PAD.encode(random.bytes::<32>())
}
