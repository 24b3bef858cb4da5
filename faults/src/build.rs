//! Makes a world: rows with all devices enrolled, a disk, coordinators over them, and the task. Faults begin
//! afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coordinator::random::Random;
use coordinator::work::WorkConfig;
use coordinator::{Coordinator, Parts, StartError};
use federation::id::TaskId;
use federation::time::Clock;
use serde_json::json;
use task_spec::TaskSpec;
use wire::admin::CreateTask;
use wire::inspect::TaskView;
use wire::route;

use super::base::Base;
use super::checks::{Excuses, Facts, NEEDED};
use super::device::{Device, DeviceFault, PARAMETERS, TASK};
use super::disk::DiskView;
use super::private::{Draws, PrivateSums};
use super::process::{ChangeFault, Changes, MachineClock, Process};
use super::schedule::{LEASE_MS, Operation, Schedule, TaskKind};
use super::world::{Made, Place, Running, Site, Slot, World};
use crate::SetupError;
use simulation::chance::{Purpose, stream};
use simulation::clock::{Moment, VirtualClock};
use simulation::in_process::Network;

/// Maximum duration of polls of clients that do not keep time; all phases are at least that long.
const POLL_MS: u64 = 5_000;
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
        let drawn = stream(self.seed, Purpose::Coordinator, coordinator as u64, slot.lives);
        let random = Random::new(self.draws.noting(drawn));
        let mut coordinator = Coordinator::assemble_on(&self.config, Parts { clock: own, random }, store)?;
        // With three inputs a round, part of them is folded while others still arrive.
        let simulated = |config| WorkConfig { fold_inputs: FOLD, renews_leases: false, ..config };
        coordinator.engine = coordinator.engine.with_config(simulated);
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
    base: &Base,
    place: Place,
    tell: Option<&'a mut dyn FnMut(&str)>,
) -> Result<World<'a>, SetupError> {
    let real = Arc::new(VirtualClock::default());
    let rows = base.rows().await?;
    let mut config = base.config.clone();
    config.identity.seal_key_file = Some(place.folder.join("seal.key"));
    config.work.lease_ttl_ms = LEASE_MS;
    config.http.poll_max_ms = POLL_MS;
    let is_shared = schedule.coordinators > 1;
    let (seed, disk, token) = (schedule.seed, Arc::default(), base.token.clone());
    let draws = Draws::default();
    let site = Site { seed, config, place, real, rows, disk, draws, token, is_shared };
    let mut slots: Vec<_> = (0..schedule.coordinators).map(|_| slot(&site.real)).collect();
    let mut running = Vec::new();
    for (number, slot) in slots.iter_mut().enumerate() {
        running.push(site.assemble(number, slot).map_err(failed)?);
    }
    let created: TaskView = running[0].network.make(route::TASKS, &CreateTask { spec: task(schedule)? }).await?;
    let task = created.summary.id;
    let mut devices = Vec::new();
    for (index, enrolled) in (0..).zip(&base.devices) {
        let is_secure = schedule.task == TaskKind::Secure;
        let (members, faults) = (base.members.clone(), device_faults(schedule, index));
        let at = (&*site.place.folder, site.place.flaws);
        let mut device = Device::new((seed, index), is_secure, members, faults, at);
        device.take_over(enrolled).map_err(SetupError::files)?;
        devices.push(device);
    }
    for (number, (slot, made)) in slots.iter_mut().zip(running).enumerate() {
        slot.running = Some(made);
        let mut changes = slot.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes = Changes::with(change_faults(schedule, number), work_stalls(schedule, number));
    }
    let private = PrivateSums::of(&created.spec, site.draws.clone());
    if private.is_none() && schedule.task == TaskKind::Private {
        return Err(SetupError::Task("the sums of the private task cannot be checked".to_owned()));
    }
    let facts = facts(schedule, task, &devices, private);
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

fn facts(schedule: &Schedule, task: TaskId, devices: &[Device], private: Option<PrivateSums>) -> Facts {
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
    let excuses = Excuses { wakes: !only_messages, losses: damages };
    Facts::new((task, schedule.task), participants, excuses, private)
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

fn work_stalls(schedule: &Schedule, number: usize) -> BTreeMap<u64, Duration> {
    let of = |operation: &Operation| match *operation {
        Operation::StallWork { coordinator, change, for_ms } if coordinator as usize == number => {
            Some((change, Duration::from_millis(for_ms)))
        }
        _ => None,
    };
    schedule.operations.iter().filter_map(of).collect()
}

/// The task that a schedule names. All members of a cohort have equal weight, so that a model reveals its members.
fn task(schedule: &Schedule) -> Result<TaskSpec, SetupError> {
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
                "enabled": true, "min_cohort": 3, "max_corrupt_fraction": 0.0, "max_dropout_fraction": 0.3,
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
    serde_json::from_value(spec).map_err(|error| SetupError::Task(error.to_string()))
}

fn failed(error: impl std::fmt::Display) -> SetupError {
    SetupError::Coordinator(error.to_string())
}
