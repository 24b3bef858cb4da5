//! A coordinator without a socket: its routes, its background work, and rows and blobs in memory.

use std::sync::Arc;

use bytes::Bytes;
use client_sdk::participant::machine;
use coordinator::config::Config;
use coordinator::random::Random;
use coordinator::{Coordinator, Parts};
use federation::time::Clock;
use task_spec::TaskSpec;
use wire::admin::{
    CreateEnrollmentToken, CreateTask, EnrollmentTokenReply, MODEL_FILE_PART_BYTES, ModelFile, ModelFileReply, Role,
};
use wire::certificate::Issuers;
use wire::inspect::TaskView;
use wire::{Digest, TaskId, route};
use zeroize::Zeroizing;

use super::network::Network;
use crate::SimulationError;

/// Requests per second that one peer may make: they are all ours.
const RATE: u32 = 1_000_000;

/// A configuration with everything in memory, and without rate limits.
#[must_use]
pub fn in_memory() -> Config {
    let mut config = Config::default();
    config.database.url = "sqlite::memory:".to_owned();
    config.blobs.url = "memory:".to_owned();
    config.identity.ca_certificate_file = "".into();
    config.identity.ca_key_file = "".into();
    config.aggregation.device = "cpu".to_owned();
    config.http.participant_rate = RATE;
    config.http.operator_rate = RATE;
    config.http.address_rate = RATE;
    config.http.check_ins_per_second = RATE;
    config
}

/// A coordinator, the way to it, and who certifies its participants.
pub struct LocalCoordinator {
    pub coordinator: Coordinator,
    /// The way to its routes, also as its operator.
    pub network: Network,
    /// What its participants trust.
    pub members: Issuers,
}

impl LocalCoordinator {
    /// Starts a coordinator, whose background work is driven only by [`Coordinator::engine`].
    ///
    /// # Errors
    /// [`SimulationError::Coordinator`] if it does not start.
    pub async fn start(config: &Config, clock: Arc<dyn Clock>, random: Random) -> Result<Self, SimulationError> {
        let coordinator = Coordinator::assemble(config, Parts { clock, random }).await.map_err(failed)?;
        let token = coordinator.create_operator_token("operator", Role::Admin).await.map_err(failed)?.token;
        let network = Network::new(coordinator.router.clone(), token);
        let members = Issuers::from_pem(coordinator.ca_pem()).map_err(failed)?;
        Ok(Self { coordinator, network, members })
    }

    /// Creates a task.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] with the reason.
    pub async fn create_task(&self, spec: TaskSpec) -> Result<TaskId, SimulationError> {
        let task: TaskView = self.network.make(route::TASKS, &CreateTask { spec }).await?;
        Ok(task.summary.id)
    }

    /// Stores the file of a model from which a task may start, and returns its digest.
    ///
    /// # Errors
    /// [`SimulationError::Refused`] with the reason.
    pub async fn store_model(&self, file: Bytes) -> Result<Digest, SimulationError> {
        let of = |bytes: Bytes| machine::ModelFile::new(bytes).sha256();
        let parts = (0..file.len()).step_by(MODEL_FILE_PART_BYTES);
        let parts = parts.map(|from| file.slice(from..file.len().min(from + MODEL_FILE_PART_BYTES)));
        let parts: Vec<_> = parts.map(|part| (of(part.clone()), part)).collect();
        let sha256 = of(file.clone());
        let path = route::fill(route::MODEL_FILE, &[&sha256]);
        let content = ModelFile { bytes: file.len() as u64, parts: parts.iter().map(|(part, _)| *part).collect() };
        let ModelFileReply { missing } = self.network.put(&path, &content).await?;
        for (part, bytes) in missing.iter().filter_map(|&number| parts.get(number as usize)) {
            self.network.put_bytes(&route::fill(route::MODEL_FILE_PART, &[part]), bytes.clone()).await?;
        }
        let ModelFileReply { missing } = self.network.put(&path, &content).await?;
        match missing.is_empty() {
            true => Ok(sha256),
            false => Err(SimulationError::Coordinator("it does not keep the parts of a model".to_owned())),
        }
    }

    /// A token with which one participant may enrol, under this name if one is given.
    ///
    /// # Errors
    /// [`SimulationError`] if the coordinator rejects the request.
    pub async fn enrollment_token(&self, name: Option<String>) -> Result<Zeroizing<String>, SimulationError> {
        let body = CreateEnrollmentToken { name, ..CreateEnrollmentToken::default() };
        let reply: EnrollmentTokenReply = self.network.make(route::ENROLLMENT_TOKENS, &body).await?;
        Ok(Zeroizing::new(reply.token))
    }
}

fn failed(error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Coordinator(error.to_string())
}
