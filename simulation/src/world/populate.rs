//! Creates a world: a coordinator with its task, and all devices enrolled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client_sdk::conditions::Readiness;
use client_sdk::participant::machine::{Action, Input};
use client_sdk::transport::Request;
use coordinator::random::Random;
use task_spec::InitialModel;

use super::{Training, World, ended, run_region};
use crate::chance::{Purpose, stream};
use crate::clock::VirtualClock;
use crate::device::{Device, DeviceSettings};
use crate::in_process::{LocalCoordinator, in_memory};
use crate::operation::Operation;
use crate::profile::Profile;
use crate::queue::Queue;
use crate::regional::{Origin, RegionalWork};
use crate::rounds::Rounds;
use crate::training::TrainingPool;
use crate::{Experiment, Progress, SimulationError};

/// Maximum lifetime of certificates: renewal is not simulated.
const CERTIFICATE_LIFETIME_S: u64 = 366 * 24 * 3600;
/// How long participants let a poll be held open. Polls of half a minute would give the same results, only more often.
const POLL: Duration = Duration::from_secs(3600);
/// Devices available at the beginning arrive within this time.
const ARRIVAL: Duration = Duration::from_secs(10);
/// Devices enrolled between two reports of progress.
const ENROLLED: u32 = 250;

impl World {
    /// A world with its coordinator, its task and all devices enrolled.
    pub(crate) async fn new(
        experiment: &Experiment,
        origin: Origin,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Self, SimulationError> {
        check(experiment)?;
        let clock = Arc::new(VirtualClock::default());
        clock.advance(origin.start);
        let random = Random::new(stream(experiment.seed, Purpose::Coordinator, 0, 0));
        let mut config = in_memory();
        config.identity.certificate_lifetime_s = CERTIFICATE_LIFETIME_S;
        let local = LocalCoordinator::start(&config, Arc::clone(&clock) as _, random).await?;
        let events = local.coordinator.store.wake().subscribe();
        let regions = experiment.regions.as_ref();
        let mut spec = regions.map_or(&experiment.task, |regions| &regions.task).clone();
        let is_region = origin.model.is_some();
        if let Some(model) = origin.model {
            spec.model.initial = Some(InitialModel::Stored(local.store_model(model.into()).await?));
        }
        let task = local.create_task(spec.clone()).await?;
        let secure = spec.secure_aggregation.enabled;
        let links = regions.map_or(experiment.devices, |regions| regions.links);
        let population = regions.map_or(experiment.population, |regions| regions.count);
        let common = DeviceSettings {
            seed: experiment.seed,
            task: spec.name.clone(),
            secure,
            model: links,
            wait: POLL,
            members: local.members.clone(),
        };
        let mut world = Self {
            clock,
            queue: Queue::default(),
            local,
            events,
            pool: TrainingPool::new(experiment.threads)?,
            common,
            training: match RegionalWork::of(experiment, run_region) {
                Some(regions) => Training::InRegions(Arc::new(regions)),
                None => Training::OnDevices(Arc::clone(&experiment.data)),
            },
            devices: Vec::with_capacity(population as usize),
            by_id: HashMap::new(),
            idle: BTreeSet::new(),
            listening: BTreeSet::new(),
            step_at: None,
            deadline: None,
            rounds: Rounds::new(experiment, &spec, task, origin.start, is_region)?,
            start: origin.start,
            limit: origin.start.plus(experiment.limit),
        };
        for index in 0..population {
            let profile = Profile::draw(&links, origin.profiles, origin.first + index);
            world.enroll(index, profile).await?;
            if (index + 1).is_multiple_of(ENROLLED) || index + 1 == population {
                progress(Progress::Enrolled(index + 1));
            }
        }
        Ok(world)
    }

    /// Enrols a device over the coordinator's routes, before time begins, and plans its first arrival.
    async fn enroll(&mut self, index: u32, profile: Profile) -> Result<(), SimulationError> {
        let mut device = Device::new(index, profile, self.training.examples(index));
        let token = self.local.enrollment_token(Some(device.name())).await?;
        device.start(&self.common, Some(token)).map_err(|error| ended(&device, error))?;
        let mut input = Input::Tick;
        while let Some(advance) = device.advance(input, self.clock.participant_now(), Readiness::Ready) {
            input = match advance.action {
                Action::Send(request @ Request::Enroll(_)) => {
                    Input::Response(self.local.network.ask(None, request).await.response)
                }
                Action::Finished(Err(error)) => return Err(ended(&device, error)),
                _ => break,
            };
        }
        device.identify();
        let Some(peer) = device.peer else { return Err(ended(&device, "its certificate cannot be read")) };
        self.by_id.insert(peer.participant, index);
        device.stop();
        let early = Duration::from_nanos(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) % nanos(ARRIVAL));
        let first = match profile.habits.available_until(self.start) {
            Some(_) => early,
            None => profile.habits.until_available(self.start),
        };
        self.queue.plan(self.start.plus(first), Operation::Return { device: index });
        self.devices.push(device);
        Ok(())
    }
}

fn check(experiment: &Experiment) -> Result<(), SimulationError> {
    experiment.devices.check()?;
    if let Some(regions) = &experiment.regions {
        regions.links.check()?;
        if !(1..=experiment.population).contains(&regions.count) {
            let detail = format!("{} regions of {} devices: each needs one", regions.count, experiment.population);
            return Err(SimulationError::Invalid(detail));
        }
    }
    if experiment.population == 0 {
        return Err(SimulationError::Invalid("nobody can take part: the population is 0".to_owned()));
    }
    if experiment.evaluate_every == 0 {
        return Err(SimulationError::Invalid("models are scored every 0 rounds; 1 would score each".to_owned()));
    }
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
