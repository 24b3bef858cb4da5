//! The identity that a participant starts with, from its journal and the app's files.

use std::sync::Arc;

use wire::Digest;
use zeroize::Zeroizing;

use super::replaced::is_of_another_authority;
use crate::identity::{Identity, IdentityError, SigningKey};
use crate::participant::api::error::ParticipantError;
use crate::participant::api::event::Event;
use crate::participant::journal::settings::{Saved, Settings};
use crate::participant::journal::snapshot::IdentityRecord;
use crate::participant::states::core::is_unused;
use crate::participant::states::state::Renew;
use crate::pre_issued::UsableCertificate;

/// The identity at the start. The fields are those of [`Core`](crate::participant::states::core::Core), except the last two.
pub(in crate::participant) struct Origin {
    pub(in crate::participant) key: Arc<SigningKey>,
    pub(in crate::participant) next_key: Option<Arc<SigningKey>>,
    pub(in crate::participant) token_sha256: Option<Digest>,
    pub(in crate::participant) identity: Option<Arc<Identity>>,
    pub(in crate::participant) replaced: Option<Arc<Identity>>,
    pub(in crate::participant) pre_issued_certificate: Option<UsableCertificate>,
    /// The report on an external certificate that cannot be used.
    pub(in crate::participant) bad: Option<Event>,
    /// Whether the journal lacks the key.
    pub(in crate::participant) is_new: bool,
}

impl Origin {
    /// # Errors
    /// Those of [`Machine::new`](crate::participant::machine::Machine::new).
    pub(in crate::participant) fn find(
        settings: &Settings,
        token: Option<&Zeroizing<String>>,
        saved: &Saved,
        fresh_key: &mut impl FnMut() -> Result<SigningKey, IdentityError>,
    ) -> Result<Self, ParticipantError> {
        let record = saved.identity.as_ref().map(|record| IdentityRecord::decode(record)).transpose()?;
        let is_new = record.is_none();
        let (key, certified, token_sha256) = match record {
            Some(record) => (record.key, record.certified, record.token_sha256),
            None if token.is_some() => (Arc::new(fresh_key()?), None, None),
            None => return Err(ParticipantError::NotEnrolled),
        };
        let identity = certified.map(|certified| Arc::new(Identity { key: Arc::clone(&key), certified }));
        let found = settings.certificates.other_than(identity.as_deref(), &settings.members);
        let (identity, replaced): (Option<Arc<Identity>>, _) = match identity {
            Some(identity) if is_of_another_authority(&identity, &settings.members) => (None, Some(identity)),
            identity => (identity, None),
        };
        let (pre_issued_certificate, bad) = match found {
            Ok(given) => (given, None),
            // The app's files may be incomplete. The identity in the journal is valid without them.
            Err(error) if identity.is_some() => (None, Some(Renew::bad(&error))),
            Err(error) => return Err(ParticipantError::PreIssuedCertificate(error)),
        };
        if let Some(Identity { certified, .. }) = replaced.as_deref() {
            let lacks_certificate = settings.certificates.are_pre_issued() && pre_issued_certificate.is_none();
            if lacks_certificate || !is_unused(token, token_sha256) {
                return Err(ParticipantError::AuthorityReplaced { participant: certified.participant });
            }
        }
        let next = saved.next_key.as_ref().map(|record| IdentityRecord::decode(record)).transpose()?;
        let is_other = |next: &Arc<SigningKey>| next.expose_pkcs8() != key.expose_pkcs8();
        let next_key = next.map(|record| record.key).filter(is_other);
        Ok(Self { key, next_key, token_sha256, identity, replaced, pre_issued_certificate, bad, is_new })
    }
}
