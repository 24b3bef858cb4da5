//! Waiting check-ins: waiting participants, written check-ins, and return times.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use federation::cohort::CoarseLoss;
use federation::id::{Digest, ParticipantId, TaskId};
use federation::time::Timestamp;
use federation::training::Claim;
use listener::PoisonFreeMutex;
use store::entity::check_in::{CheckIn, CheckInKeys};
use store::{Store, WakeEvent};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::random::Random;

/// How long a participant stays checked in after its return time.
const GRACE: Duration = Duration::from_secs(10);
/// A written check-in is renewed when less than this would be left of the grace period.
const SLACK: Duration = Duration::from_secs(5);
/// Below this number of participants, spreading is unnecessary, and would slow down a demo.
const FEW: usize = 100;
/// Longest pause with few participants.
const FEW_PAUSE_MS: u64 = 50;
/// The pause is at least one in this many parts of the cycle in which all known participants check in once. It conveys their number to
/// participants, and so how far to spread their retries while the coordinator is unavailable.
const LEAST_PAUSE: u64 = 10;
/// Maximum number of cached check-ins.
const WRITTEN_MAX: usize = 200_000;

/// The waiting participants and their written check-ins. Clones share them.
#[derive(Clone)]
pub(crate) struct CheckIns(Arc<Shared>);

struct Shared {
    waiting: PoisonFreeMutex<HashMap<ParticipantId, Arc<Notify>>>,
    /// By participant; one entry per task of its check-ins.
    written: PoisonFreeMutex<HashMap<ParticipantId, Vec<CheckIn>>>,
    check_ins_per_second: u32,
}

/// A participant's offer for one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Number of training examples.
    pub(crate) examples: u64,
    pub(crate) loss: Option<CoarseLoss>,
    /// Its report on its training ahead of rounds.
    pub(crate) training: Option<Claim>,
    /// See [`CheckIn::round_trip_ms`].
    pub(crate) round_trip_ms: Option<u32>,
    /// See [`CheckIn::sent_round`].
    pub(crate) sent_round: Option<u32>,
    /// Code of the participant's reason to refuse the task ([`CheckIn::refusal`]).
    pub(crate) refusal: Option<&'static str>,
    pub(crate) batch: Option<Digest>,
}

impl Offer {
    /// The contents of a check-in.
    fn of(check_in: &CheckIn) -> Self {
        let &CheckIn { examples, loss, training, round_trip_ms, sent_round, refusal, batch, .. } = check_in;
        Self { examples, loss, training, round_trip_ms, sent_round, refusal, batch }
    }
}

/// The change in a due check-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckInChange {
    /// New information.
    New,
    /// Only an extension of the written check-in.
    Extension,
}

/// A participant waiting for work.
pub(crate) struct WaitingParticipant {
    check_ins: CheckIns,
    participant: ParticipantId,
    notify: Arc<Notify>,
}

impl WaitingParticipant {
    /// Resolves when this participant may have work after this was created.
    pub(crate) fn called(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl WaitingParticipant {
    /// Whether this is the participant's only waiting request.
    pub(crate) fn is_only_one(&self) -> bool {
        // The two owners are the map and this value.
        self.check_ins.0.waiting.with(|_| Arc::strong_count(&self.notify) == 2)
    }
}

impl Drop for WaitingParticipant {
    fn drop(&mut self) {
        self.check_ins.0.waiting.with(|waiting| {
            if Arc::strong_count(&self.notify) == 2 {
                waiting.remove(&self.participant);
            }
        });
    }
}

impl CheckIns {
    /// Starts the task that receives wake-ups and wakes the affected participants.
    #[must_use]
    pub(crate) fn start(
        store: &Store,
        check_ins_per_second: u32,
        shutdown: CancellationToken,
        tasks: &TaskTracker,
    ) -> Self {
        let check_ins = Self(Arc::new(Shared {
            waiting: PoisonFreeMutex::default(),
            written: PoisonFreeMutex::default(),
            check_ins_per_second: check_ins_per_second.max(1),
        }));
        let mut events = store.wake().subscribe();
        let caller = check_ins.clone();
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(event) => caller.hear(&event),
                        None => return,
                    },
                    () = shutdown.cancelled() => return,
                }
            }
        });
        check_ins
    }

    fn hear(&self, event: &WakeEvent) {
        match event {
            WakeEvent::Assigned(participants) => {
                // A drawn participant is no longer checked in, so its next check-in must be written again.
                for participant in participants.iter() {
                    self.forget(*participant);
                }
                self.0.waiting.with(|waiting| {
                    participants
                        .iter()
                        .filter_map(|participant| waiting.get(participant))
                        .for_each(|n| n.notify_waiters());
                });
            }
            // A task's start or end affects all participants, and is rare.
            WakeEvent::Task(_) => self.call_everybody(),
            WakeEvent::Opened(task) => self.call_those_ready_for(*task),
            WakeEvent::Lost => {
                // Unknown participants may have been drawn in between, and are no longer checked in.
                self.0.written.lock().clear();
                self.call_everybody();
            }
            WakeEvent::Work | WakeEvent::Round(_) | WakeEvent::Recorded | WakeEvent::Numbered => {}
        }
    }

    /// Wakes the participants checked in for this task, and unknown ones.
    fn call_those_ready_for(&self, task: TaskId) {
        let elsewhere: HashSet<_> = self.0.written.with(|written| {
            let elsewhere =
                written.iter().filter(|(_, check_ins)| check_ins.iter().all(|check_in| check_in.task != task));
            elsewhere.map(|(participant, _)| *participant).collect()
        });
        self.0.waiting.with(|waiting| {
            let ready = waiting.iter().filter(|(participant, _)| !elsewhere.contains(participant));
            ready.for_each(|(_, notify)| notify.notify_waiters());
        });
    }

    fn call_everybody(&self) {
        self.0.waiting.with(|waiting| waiting.values().for_each(|notify| notify.notify_waiters()));
    }

    /// Starts waiting. Create [`WaitingParticipant::called`] before reading facts, or a wake-up may be missed.
    #[must_use]
    pub(crate) fn wait(&self, participant: ParticipantId) -> WaitingParticipant {
        let notify = self.0.waiting.with(|waiting| Arc::clone(waiting.entry(participant).or_default()));
        WaitingParticipant { check_ins: self.clone(), participant, notify }
    }

    /// The check-in to write for a participant expected back within `away`, and whether it only renews a valid one; `None` if the written
    /// one is the same and valid for long enough.
    #[must_use]
    pub(crate) fn due(
        &self,
        participant: ParticipantId,
        task: TaskId,
        offer: Offer,
        keys: Option<CheckInKeys>,
        away: Duration,
        now: Timestamp,
    ) -> Option<(CheckIn, CheckInChange)> {
        let needed = now.plus(away + SLACK);
        let until = self.0.written.with(|written| {
            let mut same = written.get(&participant).into_iter().flatten().filter(|check_in| {
                check_in.task == task
                    && Offer::of(check_in) == offer
                    && (keys.is_none() || check_in.keys == keys)
                    && check_in.checked_in_at <= now
            });
            same.next().map(|check_in| check_in.expires_at)
        });
        let change = match until {
            Some(until) if until >= needed => return None,
            // The row is still valid, so counting candidates again is unnecessary.
            Some(until) if until > now => CheckInChange::Extension,
            Some(_) | None => CheckInChange::New,
        };
        let expires_at = now.plus(away + GRACE);
        let Offer { examples, loss, training, round_trip_ms, sent_round, refusal, batch } = offer;
        let check_in = CheckIn {
            loss,
            keys,
            training,
            round_trip_ms,
            sent_round,
            refusal,
            batch,
            ..CheckIn::new(participant, task, examples, now, expires_at)
        };
        Some((check_in, change))
    }

    /// Caches a written check-in.
    pub(crate) fn remember(&self, check_in: CheckIn, now: Timestamp) {
        self.0.written.with(|written| {
            if written.len() >= WRITTEN_MAX {
                written.retain(|_, check_ins| check_ins.iter().any(|check_in| check_in.expires_at > now));
            }
            if written.len() < WRITTEN_MAX {
                let check_ins = written.entry(check_in.participant).or_default();
                check_ins.retain(|other| other.task != check_in.task && other.expires_at > now);
                check_ins.push(check_in);
            }
        });
    }

    /// Forgets a withdrawn check-in and returns it as written; `None` if unknown.
    #[must_use]
    pub(crate) fn withdraw(&self, participant: ParticipantId, task: TaskId) -> Option<CheckIn> {
        self.0.written.with(|written| {
            let check_ins = written.get_mut(&participant)?;
            let index = check_ins.iter().position(|check_in| check_in.task == task)?;
            Some(check_ins.swap_remove(index))
        })
    }

    /// Forgets a participant's written check-ins, which may have been removed.
    pub(crate) fn forget(&self, participant: ParticipantId) {
        self.0.written.lock().remove(&participant);
    }

    /// The pause of a participant that waited `waited`, chosen so that all known participants, spread evenly, stay below the configured
    /// rate of check-ins.
    #[must_use]
    pub(crate) fn come_back(&self, waited: Duration, random: &Random) -> Duration {
        let known = self.0.written.lock().len();
        if known < FEW {
            return Duration::from_millis(1 + random.up_to(FEW_PAUSE_MS.min(known as u64).saturating_sub(1)));
        }
        let cycle_ms = known as u64 * 1000 / u64::from(self.0.check_ins_per_second);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let pause_ms = cycle_ms.saturating_sub(waited_ms).max(cycle_ms / LEAST_PAUSE).max(FEW_PAUSE_MS);
        // Between half and one and a half of it: the mean is unchanged, and simultaneous participants separate.
        Duration::from_millis(pause_ms / 2 + random.up_to(pause_ms))
    }

    /// The longest current result of [`CheckIns::come_back`].
    #[must_use]
    pub(crate) fn away_max(&self) -> Duration {
        let known = self.0.written.lock().len() as u64;
        let cycle_ms = known * 1000 / u64::from(self.0.check_ins_per_second);
        Duration::from_millis(cycle_ms.max(FEW_PAUSE_MS) * 3 / 2)
    }
}

#[cfg(test)]
mod tests {
    use federation::id::Attempt;

    use super::*;

    fn check_ins() -> CheckIns {
        CheckIns(Arc::new(Shared {
            waiting: PoisonFreeMutex::default(),
            written: PoisonFreeMutex::default(),
            check_ins_per_second: 1000,
        }))
    }

    fn who(n: u128) -> ParticipantId {
        ParticipantId(uuid::Uuid::from_u128(n))
    }

    fn offer(examples: u64) -> Offer {
        Offer {
            examples,
            loss: None,
            training: None,
            round_trip_ms: None,
            sent_round: None,
            refusal: None,
            batch: None,
        }
    }

    const TASK: TaskId = TaskId(uuid::Uuid::from_u128(1));
    const NOW: Timestamp = Timestamp(1_000_000);

    fn check_in(check_ins: &CheckIns, n: u128) {
        let (check_in, _) = check_ins.due(who(n), TASK, offer(5), None, Duration::ZERO, NOW).unwrap();
        check_ins.remember(check_in, NOW);
    }

    #[test]
    fn a_check_in_is_written_once_until_it_is_about_to_expire() {
        let check_ins = check_ins();
        let due = |now: i64, examples| {
            check_ins.due(who(1), TASK, offer(examples), None, Duration::from_secs(30), Timestamp(now))
        };
        let (first, change) = due(1_000_000, 5).unwrap();
        assert_eq!(change, CheckInChange::New);
        assert_eq!(first.expires_at, Timestamp(1_040_000));
        check_ins.remember(first, NOW);
        let keys = CheckInKeys {
            attempt: Attempt { task: TASK, round: 1, attempt: 1 },
            advertisement: bytes::Bytes::from_static(b"keys"),
        };
        let with_keys = || check_ins.due(who(1), TASK, offer(5), Some(keys.clone()), Duration::from_secs(30), NOW);
        check_ins.remember(with_keys().expect("keys must be written").0, NOW);
        assert_eq!(with_keys(), None, "once");
        assert_eq!(due(1_005_000, 5), None);
        assert_eq!(due(1_005_001, 5).map(|(_, change)| change), Some(CheckInChange::Extension));
        assert_eq!(due(1_039_999, 5).map(|(_, change)| change), Some(CheckInChange::Extension));
        assert_eq!(due(1_040_000, 5).map(|(_, change)| change), Some(CheckInChange::New), "it counts no more");
        assert_eq!(due(1_000_000, 6).map(|(_, change)| change), Some(CheckInChange::New), "other content");
        let told = Offer { loss: CoarseLoss::of(1.0), ..offer(5) };
        assert!(check_ins.due(who(1), TASK, told, None, Duration::from_secs(30), NOW).is_some(), "it tells a loss now");
        assert!(due(999_999, 5).is_some(), "the clock was set back");
        let ready = Offer { training: Some(Claim { serial: 1, is_ready: true }), ..offer(5) };
        assert!(
            check_ins.due(who(1), TASK, ready, None, Duration::from_secs(30), NOW).is_some(),
            "it holds an update now"
        );
        check_ins.hear(&WakeEvent::Assigned([who(1)].into()));
        assert!(due(1_000_000, 5).is_some(), "it was drawn");
    }

    #[test]
    fn few_participants_are_never_slowed() {
        let (check_ins, random) = (check_ins(), Random::from_seed(1));
        (0..99).for_each(|n| check_in(&check_ins, n));
        for _ in 0..1000 {
            assert!(check_ins.come_back(Duration::ZERO, &random) <= Duration::from_millis(50));
        }
    }

    #[test]
    fn many_are_spread_to_stay_below_the_rate() {
        let (check_ins, random) = (check_ins(), Random::from_seed(1));
        (0..20_000).for_each(|n| check_in(&check_ins, n));
        let pauses: Vec<_> =
            (0..1000).map(|_| check_ins.come_back(Duration::from_secs(4), &random).as_millis()).collect();
        assert!(pauses.iter().all(|pause| (8_000..=24_000).contains(pause)));
        let mean = pauses.iter().sum::<u128>() / 1000;
        assert!((15_000..17_000).contains(&mean), "{mean}");
        assert!(check_ins.away_max() >= Duration::from_millis(24_000));
    }

    #[test]
    fn a_task_that_changes_neither_forgets_who_is_known_nor_has_them_written_again() {
        let (check_ins, random) = (check_ins(), Random::from_seed(1));
        (0..20_000).for_each(|n| check_in(&check_ins, n));
        check_ins.hear(&WakeEvent::Task(TASK));
        assert_eq!(check_ins.due(who(7), TASK, offer(5), None, Duration::ZERO, NOW), None);
        assert!(check_ins.come_back(Duration::ZERO, &random) >= Duration::from_secs(10));
        check_ins.hear(&WakeEvent::Lost);
        assert!(check_ins.due(who(7), TASK, offer(5), None, Duration::ZERO, NOW).is_some());
    }

    #[test]
    fn the_pause_tells_how_many_they_are_even_where_the_wait_spreads_them() {
        let wait = Duration::from_secs(25);
        for (known, pauses) in [(100, 25..=75), (5000, 250..=750), (25_000, 1250..=3750), (50_000, 12_500..=37_500)] {
            let (check_ins, random) = (check_ins(), Random::from_seed(1));
            (0..known).for_each(|n| check_in(&check_ins, n));
            for _ in 0..1000 {
                let pause = check_ins.come_back(wait, &random);
                assert!(pauses.contains(&pause.as_millis()), "{known}: {pause:?}");
            }
        }
    }

    #[tokio::test]
    async fn only_those_who_are_meant_are_called() {
        let check_ins = check_ins();
        let (a, b) = (check_ins.wait(who(1)), check_ins.wait(who(2)));
        let (called_a, called_b) = (a.called(), b.called());
        tokio::pin!(called_a, called_b);
        called_a.as_mut().enable();
        called_b.as_mut().enable();
        check_ins.hear(&WakeEvent::Assigned([who(2)].into()));
        called_b.await;
        assert!(!called_a.as_mut().enable());
    }
}
