//! The listener's interface to the coordinator: participants by certificate.

use federation::id::ParticipantId;

use crate::peer::Peer;

/// Why a certificate is not accepted as a participant's.
#[derive(Debug)]
pub struct NotMember {
    /// Whether the certificate is invalid; otherwise its participant could not be looked up.
    pub is_certain: bool,
    /// The reason in words, for the log.
    pub reason: String,
}

/// Finds participants by their certificates.
pub trait Members: Send + Sync + 'static {
    /// The participant whose valid certificate this is.
    ///
    /// # Errors
    /// [`NotMember`].
    fn find(&self, peer: Peer) -> impl Future<Output = Result<ParticipantId, NotMember>> + Send;
}
