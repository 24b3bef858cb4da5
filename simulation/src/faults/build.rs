//! Makes a world: rows, a disk, coordinators over them, the task, and all devices enrolled. Nothing fails meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::participant::machine::{Action, Input};
use client_sdk::transport::Request;
use coordinator::random::Random;
use coordinator::work::WorkConfig;
use coordinator::{Coordinator, Parts, StartError};
use federation::id::TaskId;
use federation::time::Clock;
use serde_json::json;
use store::{Blobs, Database, Store, StoreConfig};
use task_spec::TaskSpec;
use wire::admin::{CreateEnrollmentToken, CreateTask, EnrollmentTokenReply, Role};
use wire::certificate::Issuers;
use wire::inspect::TaskView;
use wire::route;
use zeroize::Zeroizing;

use super::checks::{Excuses, Facts, NEEDED};
use super::device::{Device, DeviceFault, Next, PARAMETERS, TASK};
use super::disk::DiskView;
use super::process::{ChangeFault, Changes, MachineClock, Process};
use super::schedule::{Operation, Schedule, TaskKind};
use super::world::{Made, Place, Running, Site, Slot, World};
use crate::SimulationError;
use crate::chance::{Purpose, stream};
use crate::clock::{Moment, VirtualClock};
use crate::in_process::{Network, in_memory};

/// How long a worker keeps a lease.
const LEASE_MS: u64 = 10_000;
/// Longest that polls are held open for whoever does not keep time itself; no phase may be shorter.
const POLL_MS: u64 = 5_000;
/// Certificates are not renewed.
const CERTIFICATE_LIFETIME_S: u64 = 366 * 24 * 3600;
/// Inputs that are folded at once.
const FOLD: u32 = 2;

impl Site {
    /// The next process of a coordinator.
    pub(super) fn assemble(&self, coordinator: usize, slot: &mut Slot) -> Result<Running, StartError> {
        slot.lives += 1;
        let process = Arc::new(Process::new(Arc::clone(&slot.changes)));
        let own = Arc::clone(&slot.clock) as Arc<dyn Clock>;
        let blobs = Arc::new(DiskView {
            disk: Arc::clone(&self.disk),
            process: Arc::clone(&process),
            // A disk of its own has its machine's time, a shared one has a server's.
            clock: if self.is_shared { Arc::clone(&self.real) as Arc<dyn Clock> } else { Arc::clone(&own) },
            forgets_to_flush: self.place.flaws.forgets_to_flush.then_some(coordinator),
            trusts_itself: self.place.flaws.trusts_disks,
        });
        let store = self.rows.interrupted(blobs, Arc::clone(&process) as _);
        let random = Random::new(stream(self.seed, Purpose::Coordinator, coordinator as u64, slot.lives));
        let mut coordinator = Coordinator::assemble_on(&self.config, Parts { clock: own, random }, store)?;
        // With three inputs a round, part of them is folded while others still arrive.
        coordinator.engine = coordinator.engine.with_config(|config| WorkConfig { fold_inputs: FOLD, ..config });
        let network = Arc::new(Network::new(coordinator.router.clone(), self.token.clone()));
        let events = coordinator.store.wake().subscribe();
        let (hanging, is_told_to_resume, stalled_at) = (Vec::new(), false, None);
        let (life, step_at, deadline) = (slot.lives, None, None);
        Ok(Running {
            life,
            coordinator,
            network,
            process,
            events,
            hanging,
            is_told_to_resume,
            stalled_at,
            step_at,
            deadline,
        })
    }
}

pub(super) async fn build<'a>(
    schedule: &Schedule,
    place: Place,
    tell: Option<&'a mut dyn FnMut(&str)>,
) -> Result<World<'a>, SimulationError> {
    std::fs::create_dir_all(&place.authority).map_err(SimulationError::files)?;
    let real = Arc::new(VirtualClock::default());
    let (database, blobs) = (Database::SqliteMemory, Blobs::Memory);
    let rows = Store::open(StoreConfig { database, blobs, connections: 1, clock: Arc::clone(&real) as _ })
        .await
        .map_err(failed)?;
    let mut config = in_memory();
    config.identity.ca_certificate_file = place.authority.join("ca.pem");
    config.identity.ca_key_file = place.authority.join("ca-key.pem");
    if !config.identity.ca_key_file.exists() {
        // Whoever makes the authority draws more than whoever finds it, and all runs are to draw the same.
        let parts = Parts { clock: Arc::clone(&real) as _, random: Random::from_seed(0) };
        Coordinator::assemble_on(&config, parts, rows.clone()).map_err(failed)?;
    }
    config.identity.seal_key_file = Some(place.folder.join("seal.key"));
    config.identity.certificate_lifetime_s = CERTIFICATE_LIFETIME_S;
    config.work.lease_ttl_ms = LEASE_MS;
    config.http.poll_max_ms = POLL_MS;
    let is_shared = schedule.coordinators > 1;
    let (seed, disk, token) = (schedule.seed, Arc::default(), String::new());
    let mut site = Site { seed, config, place, real, rows, disk, token, is_shared };
    let mut slots: Vec<_> = (0..schedule.coordinators).map(|_| slot(&site.real)).collect();
    let mut running = Vec::new();
    for (number, slot) in slots.iter_mut().enumerate() {
        let mut made = site.assemble(number, slot).map_err(failed)?;
        if number == 0 {
            let given = made.coordinator.create_operator_token("operator", Role::Admin).await.map_err(failed)?;
            site.token = given.token.clone();
            made.network = Arc::new(Network::new(made.coordinator.router.clone(), given.token));
        }
        running.push(made);
    }
    let first = &running[0];
    let members = Issuers::from_pem(first.coordinator.ca_pem()).map_err(failed)?;
    let created: TaskView = first.network.make(route::TASKS, &CreateTask { spec: task(schedule)? }).await?;
    let task = created.summary.id;
    let mut devices = Vec::new();
    for index in 0..schedule.devices {
        let is_secure = schedule.task == TaskKind::Secure;
        let at = (&*site.place.folder, site.place.flaws);
        let mut device = Device::new((seed, index), is_secure, members.clone(), device_faults(schedule, index), at);
        enroll(&mut device, &first.network, &site.real).await?;
        devices.push(device);
    }
    for (number, (slot, made)) in slots.iter_mut().zip(running).enumerate() {
        slot.running = Some(made);
        let mut changes = slot.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes = Changes { made: 0, faults: change_faults(schedule, number) };
    }
    let facts = facts(schedule, task, &devices);
    Ok(World::new(Made { schedule: schedule.clone(), site, slots, devices, facts }, tell))
}

fn slot(real: &Arc<VirtualClock>) -> Slot {
    let clock = MachineClock { real: Arc::clone(real), offset_ms: AtomicI64::new(0) };
    Slot {
        changes: Arc::new(Mutex::default()),
        clock: Arc::new(clock),
        lives: 0,
        running: None,
        wakes_lost_until: Moment::default(),
        collected: None,
    }
}

fn facts(schedule: &Schedule, task: TaskId, devices: &[Device]) -> Facts {
    let participants = devices.iter().filter_map(|device| device.peer.map(|peer| peer.participant)).collect();
    let only_messages = schedule.operations.iter().all(|operation| {
        matches!(
            operation,
            Operation::LoseRequest { .. }
                | Operation::LoseAnswer { .. }
                | Operation::DelayRequest { .. }
                | Operation::RepeatRequest { .. }
                | Operation::Partition { .. }
                | Operation::CrashDevice { .. }
        )
    });
    let damages = schedule.operations.iter().any(|operation| matches!(operation, Operation::DamageInput { .. }));
    Facts::new(task, schedule.task, participants, Excuses { wakes: !only_messages, losses: damages })
}

/// Enrols a device over the routes.
async fn enroll(device: &mut Device, network: &Network, clock: &VirtualClock) -> Result<(), SimulationError> {
    let body = CreateEnrollmentToken { name: Some(device.name()), ..CreateEnrollmentToken::default() };
    let reply: EnrollmentTokenReply = network.make(wire::admin::route::ENROLLMENT_TOKENS, &body).await?;
    let faults = std::mem::take(&mut device.faults);
    device.start(Some(Zeroizing::new(reply.token)));
    let mut input = Input::Tick;
    while let Next::Do(Action::Send(request @ Request::Enroll(_))) = device.advance(input, clock.participant_now()) {
        input = Input::Response(network.ask(None, request).await.response);
    }
    device.kill();
    device.take_events();
    (device.actions, device.faults) = (0, faults);
    let name = device.name();
    let refused = || SimulationError::Participant { name, error: "it was not enrolled".to_owned() };
    device.peer.map(drop).ok_or_else(refused)
}

fn device_faults(schedule: &Schedule, index: u32) -> BTreeMap<u64, DeviceFault> {
    let of = |operation: &Operation| match *operation {
        Operation::CrashDevice { device, action, for_ms } if device == index => {
            Some((action, DeviceFault::Crash { away: Duration::from_millis(for_ms) }))
        }
        Operation::SetBackDevice { device, action, to } if device == index => {
            Some((action, DeviceFault::SetBack { to }))
        }
        _ => None,
    };
    schedule.operations.iter().filter_map(of).collect()
}

fn change_faults(schedule: &Schedule, number: usize) -> BTreeMap<u64, ChangeFault> {
    let of = |operation: &Operation| {
        let (coordinator, change, fault) = match *operation {
            Operation::CrashCoordinator { coordinator, change, takes_effect, for_ms } => {
                (coordinator, change, ChangeFault::Crash { takes_effect, away: Duration::from_millis(for_ms) })
            }
            Operation::StallCoordinator { coordinator, change, for_ms } => {
                (coordinator, change, ChangeFault::Stall { away: Duration::from_millis(for_ms) })
            }
            Operation::FailChange { coordinator, change, takes_effect } => {
                (coordinator, change, ChangeFault::Fail { takes_effect })
            }
            _ => return None,
        };
        (coordinator as usize == number).then_some((change, fault))
    };
    schedule.operations.iter().filter_map(of).collect()
}

/// The task that a schedule names. Every member of a cohort counts for the same, so that a model tells who is in it.
fn task(schedule: &Schedule) -> Result<TaskSpec, SimulationError> {
    let devices = schedule.devices;
    let mut spec = json!({
        "name": TASK,
        "model": { "tensors": [{ "name": "w", "shape": [PARAMETERS] }], "seed": 7 },
        "training": { "batch_size": 1, "learning_rate": 0.1 },
        "rounds": {
            "count": 8, "select_min": NEEDED, "select_max": devices, "collect_min": 2, "collect_max": devices,
            "select_deadline_ms": 10_000, "collect_deadline_ms": 10_000, "aggregate_deadline_ms": 30_000,
        },
        "selection": { "cohort": { "count": devices }, "over_selection": 0.0, "seed": schedule.seed },
        "aggregation": { "clip_range": 1.0 },
        "secure_aggregation": { "enabled": false },
    });
    match schedule.task {
        TaskKind::Clear => {}
        TaskKind::Secure => {
            spec["secure_aggregation"] = json!({
                "enabled": true, "min_cohort": 3, "max_corrupt_fraction": 0.0, "max_dropout_fraction": 0.34,
                "share_deadline_ms": 8000, "confirm_deadline_ms": 8000, "unmask_deadline_ms": 8000,
            });
        }
        TaskKind::Buffered => {
            spec["schedule"] = json!({
                "mode": "buffered", "concurrency": devices, "max_staleness": 0, "training_deadline_ms": 10_000,
            });
        }
        TaskKind::Private => {
            spec["privacy"] = json!({
                "mechanism": "central_gaussian", "noise_multiplier": 1.0, "delta": 1e-5, "clip": { "fixed": 1.0 }, "rounds": 40,
            });
        }
    }
    serde_json::from_value(spec).map_err(|error| SimulationError::Invalid(error.to_string()))
}

fn failed(error: impl std::fmt::Display) -> SimulationError {
    SimulationError::Coordinator(error.to_string())
}
