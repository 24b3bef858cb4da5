//! The start of every run: an authority, an operator, and devices that are enrolled. Enrolling costs more than most of
//! a run, so it is done once for each number of devices, and the rows are set back to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use client_sdk::participant::machine::{Action, Input};
use client_sdk::transport::Request;
use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use store::{BlobStore, Blobs, SavedRows, Store};
use wire::admin::{CreateEnrollmentToken, EnrollmentTokenReply, Role};
use wire::certificate::Issuers;
use zeroize::Zeroizing;

use super::device::{Device, Enrolled, Next};
use super::outcome::Flaws;
use crate::SetupError;
use simulation::clock::VirtualClock;
use simulation::in_process::{Network, in_memory};

/// The authority of all runs, whose key is public: a new one would draw its key from the system.
const AUTHORITY: &str = include_str!("authority/ca.pem");
const AUTHORITY_KEY: &str = include_str!("authority/ca-key.pem");
/// Certificates are not renewed.
const CERTIFICATE_LIFETIME_S: u64 = 366 * 24 * 3600;
/// Of the keys of authority, operator and devices, which are the same in all runs.
const SEED: u64 = 0;

/// A federation before its first task.
pub(super) struct Base {
    rows: SavedRows,
    blobs: Arc<dyn BlobStore>,
    /// With the authority's files, and without a run's own.
    pub(super) config: Config,
    /// The operator's bearer token.
    pub(super) token: String,
    pub(super) members: Issuers,
    pub(super) devices: Vec<Enrolled>,
}

impl Base {
    /// Enrols so many devices over the routes. `folder` will hold the authority's certificate and key.
    pub(super) async fn make(devices: u32, folder: &Path) -> Result<Self, SetupError> {
        std::fs::create_dir_all(folder).map_err(SetupError::files)?;
        let mut config = in_memory();
        config.identity.ca_certificate_file = folder.join("ca.pem");
        config.identity.ca_key_file = folder.join("ca-key.pem");
        std::fs::write(&config.identity.ca_certificate_file, AUTHORITY).map_err(SetupError::files)?;
        std::fs::write(&config.identity.ca_key_file, AUTHORITY_KEY).map_err(SetupError::files)?;
        config.identity.seal_key_file = Some(folder.join("seal.key"));
        config.identity.certificate_lifetime_s = CERTIFICATE_LIFETIME_S;
        let clock = Arc::new(VirtualClock::default());
        let rows = SavedRows::in_memory().map_err(failed)?;
        let parts = Parts { clock: Arc::clone(&clock) as _, random: Random::from_seed(SEED) };
        let blobs = Blobs::Memory.open(Arc::clone(&clock) as _).await.map_err(failed)?;
        let store = rows.store(Arc::clone(&blobs));
        let coordinator = Coordinator::assemble_on(&config, parts, store).map_err(failed)?;
        let token = coordinator.create_operator_token("operator", Role::Admin).await.map_err(failed)?.token;
        let network = Network::new(coordinator.router.clone(), token.clone());
        let members = Issuers::from_pem(coordinator.ca_pem()).map_err(failed)?;
        let mut enrolled = Vec::new();
        for index in 0..devices {
            let device =
                Device::new((SEED, index), false, members.clone(), BTreeMap::new(), (folder, Flaws::default()));
            enrolled.push(enroll(device, &network, &clock).await?);
        }
        coordinator.stop().await;
        rows.save().await.map_err(failed)?;
        Ok(Self { rows, blobs, config, token, members, devices: enrolled })
    }

    /// Its rows, as they were when the last device was enrolled.
    pub(super) async fn rows(&self) -> Result<Store, SetupError> {
        self.rows.restore().await.map_err(failed)?;
        Ok(self.rows.store(Arc::clone(&self.blobs)))
    }
}

/// Enrols a device over the routes.
async fn enroll(mut device: Device, network: &Network, clock: &VirtualClock) -> Result<Enrolled, SetupError> {
    let name = device.name();
    let body = CreateEnrollmentToken { name: Some(name.clone()), ..CreateEnrollmentToken::default() };
    let reply: EnrollmentTokenReply = network.make(wire::admin::route::ENROLLMENT_TOKENS, &body).await?;
    device.start(Some(Zeroizing::new(reply.token)));
    let mut input = Input::Tick;
    while let Next::Do(action) = device.advance(input, clock.participant_now())
        && let Action::Send(request @ Request::Enroll(_)) = *action
    {
        input = Input::Response(network.ask(None, request).await.response);
    }
    let refused = || SetupError::NotEnrolled(name);
    device.enrolled().ok_or_else(refused)
}

fn failed(error: impl std::fmt::Display) -> SetupError {
    SetupError::Coordinator(error.to_string())
}
