//! A participant in this process: the SDK's own [`Machine`] on a journal in memory. It is made when its device is switched on
//! and made again from the journal after the device went away.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use client_sdk::clock::Now;
use client_sdk::conditions::Readiness;
use client_sdk::entropy::Secrets;
use client_sdk::identity::{Identity, IdentityError, SigningKey};
use client_sdk::participant::machine::{Action, Input, Machine, Record, Saved, Settings};
use client_sdk::participant::{Event, ParticipantError};
use coordinator::identity::Peer;
use rand::Rng;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

/// An Ed25519 key in PKCS #8, version 1 (RFC 8410 §7), up to its 32 random bytes.
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A participant and what it remembers.
#[derive(Default)]
pub struct Participant {
    /// `None` while the device is off.
    machine: Option<Machine>,
    journal: Journal,
    /// Who it was last, and what the coordinator knows of a connection on which that was shown.
    identified: Option<(Arc<Identity>, Option<Peer>)>,
}

/// What a participant wants to do next.
pub struct Advance {
    /// An action except keeping or loading a record: those are done on the way.
    pub action: Action,
    /// Its events so far.
    pub events: Vec<Event>,
    /// Whether it used its journal on the way.
    pub journaled: bool,
}

impl Participant {
    /// Starts it, anew or from its journal. Everything that it draws comes from `entropy`, `secrets` and `fresh_key`.
    ///
    /// # Errors
    /// [`ParticipantError`] if the journal or the settings cannot be used.
    pub fn start(
        &mut self,
        settings: Settings,
        token: Option<Zeroizing<String>>,
        fresh_key: impl FnMut() -> Result<SigningKey, IdentityError> + Send + 'static,
        entropy: [u8; 32],
        secrets: Secrets,
    ) -> Result<(), ParticipantError> {
        let Ok(saved) = Saved::load(|name| Ok::<_, Infallible>(self.journal.load(name)));
        self.machine = Some(Machine::new(settings, token, &saved, fresh_key, entropy, secrets)?);
        Ok(())
    }

    /// Switches it off: what is not in the journal is lost.
    pub fn stop(&mut self) {
        self.machine = None;
    }

    /// Passes it the result, and stores and loads its records, until it returns another action. `None` if it is off.
    pub fn advance(&mut self, mut input: Input, now: Now, readiness: Readiness) -> Option<Advance> {
        let Self { machine, journal, .. } = self;
        let machine = machine.as_mut()?;
        let mut journaled = false;
        loop {
            machine.set_readiness(readiness);
            input = match machine.poll(input, now) {
                Action::Persist(records) => {
                    journal.save(&records);
                    Input::Persisted(Ok(()))
                }
                Action::Load(name) => Input::Loaded(Ok(journal.load(&name))),
                action => return Some(Advance { action, events: machine.take_events(), journaled }),
            };
            journaled = true;
        }
    }

    /// Its machine, while it is on.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// The same, to tell it of its device.
    pub fn machine_mut(&mut self) -> Option<&mut Machine> {
        self.machine.as_mut()
    }

    /// The coordinator's view of a connection on which its certificate is shown; `None` before it has one.
    pub fn peer(&mut self) -> Option<Peer> {
        if let Some(identity) = self.machine.as_ref().and_then(Machine::identity)
            && self.identified.as_ref().is_none_or(|(known, _)| !Arc::ptr_eq(known, identity))
        {
            let certificate = CertificateDer::from_pem_slice(identity.certified.certificate_pem.as_bytes()).ok();
            let peer = certificate.and_then(|certificate| Peer::from_certificate(&certificate));
            self.identified = Some((Arc::clone(identity), peer));
        }
        self.identified.as_ref().and_then(|(_, peer)| *peer)
    }
}

/// An Ed25519 key of the next 32 bytes that are drawn, so that a run can be repeated. Real keys need a secret source.
///
/// # Errors
/// [`IdentityError`] if the bytes are not a key.
pub fn signing_key(rng: &mut impl Rng) -> Result<SigningKey, IdentityError> {
    let mut pkcs8 = Zeroizing::new([0; 48]);
    pkcs8[..16].copy_from_slice(&PKCS8_ED25519);
    rng.fill_bytes(&mut pkcs8[16..]);
    SigningKey::from_pkcs8(&*pkcs8)
}

/// Records as the participant gave them, without a copy.
#[derive(Default)]
struct Journal(HashMap<String, (Arc<[Record]>, usize)>);

impl Journal {
    fn save(&mut self, records: &Arc<[Record]>) {
        for (index, record) in records.iter().enumerate() {
            self.0.insert(record.name.clone(), (Arc::clone(records), index));
        }
    }

    fn load(&self, name: &str) -> Option<Zeroizing<Vec<u8>>> {
        let (records, index) = self.0.get(name)?;
        records.get(*index).map(Record::content)
    }
}
