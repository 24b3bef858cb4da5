//! The faults of one run, as data.
//!
//! A seed writes a schedule; running one is free of randomness. Every operation names its target by a key that stays
//! the same when other operations are left out (the fifth request of device 2, the ninth durable change of coordinator
//! 0, a time), and is skipped if its target is missing. So any part of a schedule is a schedule.

use rand::Rng as _;
use rand_chacha::ChaCha20Rng;
use serde::{Deserialize, Serialize};

use simulation::chance::{Purpose, stream};

/// One run of the simulator with faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Keys, masks and draws follow from it; the operations are written out.
    pub seed: u64,
    pub profile: Profile,
    pub task: TaskKind,
    /// Devices enrolled, 3 to 5.
    pub devices: u32,
    /// Coordinators over one database, 1 to 3.
    pub coordinators: u32,
    pub operations: Vec<Operation>,
}

task_spec::named_enum! {
    /// Which faults are frequent.
    pub enum Profile: "profile" {
        /// A few of each.
        Calm = "calm",
        /// Messages are lost, late, repeated and cut off.
        Lossy = "lossy",
        /// Coordinators and devices die, hang, and come back; changes fail.
        Crashy = "crashy",
        /// Clocks disagree and jump, and two coordinators or more hang in the middle of work for longer than a lease lasts.
        Skewed = "skewed",
        /// Much of everything, with operators that interfere.
        Greedy = "greedy",
    }
}

task_spec::named_enum! {
    /// The task that is run.
    pub enum TaskKind: "kind of task" {
        /// Updates in the clear.
        Clear = "clear",
        /// Under secure aggregation.
        Secure = "secure",
        /// In the clear, with devices that train ahead of rounds.
        Buffered = "buffered",
        /// In the clear, with noise of the coordinator and a ledger.
        Private = "private",
    }
}

/// Something that goes wrong, or that an operator does. Times are in milliseconds; `at_ms` counts from the beginning.
/// Requests and durable changes are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A request does not arrive.
    LoseRequest {
        device: u32,
        request: u64,
    },
    /// Its answer does not arrive.
    LoseAnswer {
        device: u32,
        request: u64,
    },
    /// It arrives so much later, after others that were sent later.
    DelayRequest {
        device: u32,
        request: u64,
        by_ms: u64,
    },
    /// It arrives a second time, so much later.
    RepeatRequest {
        device: u32,
        request: u64,
        after_ms: u64,
    },
    /// All messages of these devices are lost.
    Partition {
        devices: Vec<u32>,
        at_ms: u64,
        for_ms: u64,
    },
    /// The coordinator dies at its `change`-th durable change, before or after it took effect, and starts again.
    CrashCoordinator {
        coordinator: u32,
        change: u64,
        takes_effect: bool,
        for_ms: u64,
    },
    /// The coordinator hangs before its `change`-th durable change, and goes on with it later.
    StallCoordinator {
        coordinator: u32,
        change: u64,
        for_ms: u64,
    },
    /// The coordinator hangs before the `change`-th durable change of its background work, in the middle of a step as a rule.
    StallWork {
        coordinator: u32,
        change: u64,
        for_ms: u64,
    },
    /// The `change`-th durable change fails, although it may have taken effect.
    FailChange {
        coordinator: u32,
        change: u64,
        takes_effect: bool,
    },
    /// The device is killed before its `action`-th action, and starts again from its journal.
    CrashDevice {
        device: u32,
        action: u64,
        for_ms: u64,
    },
    /// Before its `action`-th action the device's journal is set back to its state before the `to`-th.
    SetBackDevice {
        device: u32,
        action: u64,
        to: u64,
    },
    /// From here on the coordinator's clock is off by so much.
    SetClock {
        coordinator: u32,
        at_ms: u64,
        offset_ms: i64,
    },
    /// Wake-ups do not reach the coordinator.
    LoseWakes {
        coordinator: u32,
        at_ms: u64,
        for_ms: u64,
    },
    /// The disk changes a bit of the input that this request of the device stored.
    DamageInput {
        device: u32,
        request: u64,
    },
    /// Garbage is collected out of turn.
    CollectGarbage {
        coordinator: u32,
        at_ms: u64,
    },
    /// An operator pauses the task, and resumes it later.
    Pause {
        at_ms: u64,
        for_ms: u64,
    },
    Cancel {
        at_ms: u64,
    },
    Revoke {
        device: u32,
        at_ms: u64,
    },
}

impl Operation {
    /// When it happens, in milliseconds from the beginning; `None` if it waits for a request, a durable change or an action.
    pub(super) fn at_ms(&self) -> Option<u64> {
        match *self {
            Self::Partition { at_ms, .. }
            | Self::SetClock { at_ms, .. }
            | Self::LoseWakes { at_ms, .. }
            | Self::CollectGarbage { at_ms, .. }
            | Self::Pause { at_ms, .. }
            | Self::Cancel { at_ms }
            | Self::Revoke { at_ms, .. } => Some(at_ms),
            Self::LoseRequest { .. }
            | Self::LoseAnswer { .. }
            | Self::DelayRequest { .. }
            | Self::RepeatRequest { .. }
            | Self::CrashCoordinator { .. }
            | Self::StallCoordinator { .. }
            | Self::StallWork { .. }
            | Self::FailChange { .. }
            | Self::CrashDevice { .. }
            | Self::SetBackDevice { .. }
            | Self::DamageInput { .. } => None,
        }
    }
}

/// How often each kind of operation is drawn, in the order of [`draw`].
const fn weights(profile: Profile) -> [u64; 18] {
    match profile {
        //            lost lost late twice cut | crash stall stall fail | killed back | clock wakes | damage garbage | operators
        Profile::Calm => [2, 2, 2, 2, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 0],
        Profile::Lossy => [8, 8, 8, 8, 4, 1, 1, 0, 1, 1, 1, 0, 4, 0, 1, 0, 0, 0],
        Profile::Crashy => [1, 1, 1, 2, 0, 9, 4, 0, 5, 6, 1, 0, 1, 1, 2, 0, 0, 0],
        Profile::Skewed => [1, 1, 2, 2, 1, 2, 3, 18, 1, 1, 0, 8, 2, 0, 1, 0, 0, 0],
        Profile::Greedy => [4, 4, 4, 4, 2, 5, 4, 4, 3, 3, 4, 2, 2, 3, 2, 2, 1, 1],
    }
}

/// Faults happen within this time.
pub(super) const HORIZON_MS: u64 = 30_000;
/// Keys are drawn below these.
const REQUESTS: u64 = 60;
const CHANGES: u64 = 160;
const WORK_CHANGES: u64 = 24;
const ACTIONS: u64 = 120;
/// How many actions at most a journal is set back whose device is in the middle of the same round as a rule.
const RECENT: u64 = 10;
/// How long a worker keeps a lease.
pub(super) const LEASE_MS: u64 = 10_000;
/// Maximum duration of an outage, except for processes that hang for longer than a lease.
const AWAY_MS: u64 = 15_000;
/// Farthest that clocks are off: less than half of the time for which young blobs are spared.
const OFFSET_MS: u64 = 24_000;

impl Schedule {
    /// The schedule of a seed. Without a profile the seed draws one.
    #[must_use]
    pub fn draw(seed: u64, profile: Option<Profile>) -> Self {
        let rng = &mut stream(seed, Purpose::Schedule, 0, 0);
        let drawn = Profile::ALL[index(rng, Profile::ALL.len())];
        let profile = profile.unwrap_or(drawn);
        let task =
            [TaskKind::Clear, TaskKind::Secure, TaskKind::Secure, TaskKind::Buffered, TaskKind::Private][index(rng, 5)];
        let devices = 3 + number(rng, 3);
        let coordinators = match profile {
            Profile::Skewed => [2, 2, 2, 2, 3],
            Profile::Calm | Profile::Lossy | Profile::Crashy | Profile::Greedy => [1, 1, 2, 2, 3],
        }[index(rng, 5)];
        let count = match profile {
            Profile::Calm => below(rng, 6),
            Profile::Lossy | Profile::Crashy | Profile::Skewed => 4 + below(rng, 20),
            Profile::Greedy => 12 + below(rng, 30),
        };
        let operations = (0..count).map(|_| draw(rng, profile, devices, coordinators)).collect();
        Self { seed, profile, task, devices, coordinators, operations }
    }
}

fn draw(rng: &mut ChaCha20Rng, profile: Profile, devices: u32, coordinators: u32) -> Operation {
    let weights = weights(profile);
    let mut left = below(rng, weights.iter().sum());
    let kind = weights.iter().position(|weight| {
        let here = left < *weight;
        left = left.saturating_sub(*weight);
        here
    });
    let device = number(rng, devices);
    let coordinator = number(rng, coordinators);
    let (request, change, action) = (1 + below(rng, REQUESTS), 1 + below(rng, CHANGES), 1 + below(rng, ACTIONS));
    let (at_ms, for_ms) = (below(rng, HORIZON_MS), 10 + below(rng, AWAY_MS));
    let takes_effect = below(rng, 2) == 0;
    match kind.unwrap_or(0) {
        0 => Operation::LoseRequest { device, request },
        1 => Operation::LoseAnswer { device, request },
        2 => Operation::DelayRequest { device, request, by_ms: for_ms / 4 },
        3 => Operation::RepeatRequest { device, request, after_ms: for_ms / 2 },
        4 => Operation::Partition {
            devices: (0..devices).filter(|other| (change >> other) & 1 == 0 || *other == device).collect(),
            at_ms,
            for_ms,
        },
        5 => Operation::CrashCoordinator { coordinator, change, takes_effect, for_ms },
        6 => Operation::StallCoordinator { coordinator, change, for_ms },
        7 => {
            // Half of them outlast a lease; the others do if clocks disagree.
            let for_ms = if takes_effect { LEASE_MS + for_ms } else { for_ms * LEASE_MS / AWAY_MS };
            Operation::StallWork { coordinator, change: 1 + below(rng, WORK_CHANGES), for_ms }
        }
        8 => Operation::FailChange { coordinator, change, takes_effect },
        9 => Operation::CrashDevice { device, action, for_ms },
        10 => {
            let most = if takes_effect { action } else { action.min(RECENT) };
            Operation::SetBackDevice { device, action, to: action - below(rng, most) }
        }
        11 => {
            let offset = i64::try_from(below(rng, 2 * OFFSET_MS)).unwrap_or_default();
            let most = i64::try_from(OFFSET_MS).unwrap_or_default();
            // Half of them early: a clock that is right until the task is over has no effect.
            let at_ms = if takes_effect { at_ms } else { at_ms / 10 };
            Operation::SetClock { coordinator, at_ms, offset_ms: offset - most }
        }
        12 => Operation::LoseWakes { coordinator, at_ms, for_ms },
        13 => Operation::DamageInput { device, request },
        14 => Operation::CollectGarbage { coordinator, at_ms },
        15 => Operation::Pause { at_ms, for_ms },
        16 => Operation::Cancel { at_ms },
        _ => Operation::Revoke { device, at_ms },
    }
}

fn below(rng: &mut ChaCha20Rng, bound: u64) -> u64 {
    rng.next_u64() % bound.max(1)
}

fn number(rng: &mut ChaCha20Rng, bound: u32) -> u32 {
    u32::try_from(below(rng, bound.into())).unwrap_or_default()
}

fn index(rng: &mut ChaCha20Rng, bound: usize) -> usize {
    usize::try_from(below(rng, bound as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_writes_one_schedule_which_survives_a_file() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..500 {
            let schedule = Schedule::draw(seed, None);
            assert_eq!(schedule, Schedule::draw(seed, None));
            let json = serde_json::to_string(&schedule).unwrap();
            assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
            assert!((3..=5).contains(&schedule.devices) && (1..=3).contains(&schedule.coordinators));
            for operation in &schedule.operations {
                kinds.insert(serde_json::to_value(operation).unwrap()["operation"].to_string());
            }
        }
        assert_eq!(kinds.len(), weights(Profile::Greedy).len(), "every kind is drawn: {kinds:?}");
    }

    #[test]
    fn the_profile_that_is_asked_for_is_taken() {
        for profile in Profile::ALL {
            assert_eq!(Schedule::draw(7, Some(profile)).profile, profile);
        }
    }
}
