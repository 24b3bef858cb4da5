//! Limits on the number of connections of each kind: in total, and per peer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::key::Key;

use crate::process::poison_free_mutex::PoisonFreeMutex;

/// What happens to a connection above the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WhenFull {
    Refuse,
    /// The oldest connection is closed for it if it is older than this; otherwise the new one is rejected.
    CloseOldest(Duration),
}

/// Limits for one kind of connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLimits {
    pub(crate) all: (usize, WhenFull),
    pub(crate) each: (usize, WhenFull),
}

/// The slots of one kind. Clones share them.
#[derive(Clone)]
pub(crate) struct Slots {
    /// Name of the kind in metrics.
    kind: &'static str,
    bounds: SlotLimits,
    taken: Arc<PoisonFreeMutex<Occupied>>,
}

#[derive(Default)]
struct Occupied {
    next: u64,
    /// In order of time.
    all: BTreeMap<u64, (Instant, CancellationToken)>,
    each: HashMap<Key, BTreeSet<u64>>,
}

impl Occupied {
    /// Whether there is room after all, possibly by closing the oldest.
    fn makes_room(&self, oldest: Option<u64>, crowded: WhenFull, now: Instant) -> bool {
        let oldest = oldest.and_then(|number| self.all.get(&number));
        match (crowded, oldest) {
            (WhenFull::CloseOldest(age), Some((since, end))) if now.duration_since(*since) >= age => {
                end.cancel();
                true
            }
            (WhenFull::Refuse | WhenFull::CloseOldest(_), _) => false,
        }
    }

    fn remove(&mut self, number: u64, peer: Key) {
        self.all.remove(&number);
        if let Some(numbers) = self.each.get_mut(&peer) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.each.remove(&peer);
            }
        }
    }
}

/// A slot; released when dropped.
pub(crate) struct Slot {
    slots: Slots,
    number: u64,
    peer: Key,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.with(|taken| {
            taken.remove(self.number, self.peer);
            self.slots.show(taken.all.len());
        });
    }
}

impl Slots {
    pub(crate) fn new(kind: &'static str, bounds: SlotLimits) -> Self {
        Self { kind, bounds, taken: Arc::default() }
    }

    /// Name of the kind in metrics.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    fn show(&self, taken: usize) {
        metrics::gauge!("tributary_connections", "kind" => self.kind).set(u32::try_from(taken).unwrap_or(u32::MAX));
    }

    /// A slot for another connection of this peer, which `end` closes if it has to make room; `None` if all slots are
    /// taken.
    pub(crate) fn take(&self, peer: Key, end: &CancellationToken, now: Instant) -> Option<Slot> {
        let SlotLimits { all: (all_max, all_crowded), each: (each_max, each_crowded) } = self.bounds;
        self.taken.with(|taken| {
            // A connection that is being closed is removed at once, so that it is not closed for another one too.
            if let Some(numbers) = taken.each.get(&peer)
                && numbers.len() >= each_max
            {
                let oldest = numbers.first().copied();
                if !taken.makes_room(oldest, each_crowded, now) {
                    return None;
                }
                oldest.into_iter().for_each(|number| taken.remove(number, peer));
            }
            if taken.all.len() >= all_max {
                let oldest = taken.all.first_key_value().map(|(number, _)| *number);
                if !taken.makes_room(oldest, all_crowded, now) {
                    return None;
                }
                oldest.into_iter().for_each(|number| {
                    taken.all.remove(&number);
                });
            }
            taken.next += 1;
            let number = taken.next;
            taken.all.insert(number, (now, end.clone()));
            taken.each.entry(peer).or_default().insert(number);
            self.show(taken.all.len());
            Some(Slot { slots: self.clone(), number, peer })
        })
    }

    /// Number of slots in use.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().all.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(n: u8) -> Key {
        Key::Address(Ipv4Addr::new(10, 0, 0, n).into())
    }

    fn take(slots: &Slots, n: u8, now: Instant) -> Option<(Slot, CancellationToken)> {
        let end = CancellationToken::new();
        slots.take(peer(n), &end, now).map(|slot| (slot, end))
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_bounded_for_each_peer_and_for_all() {
        let slots = Slots::new("test", SlotLimits { all: (3, WhenFull::Refuse), each: (2, WhenFull::Refuse) });
        let now = Instant::now();
        let held: Vec<_> = (0..5).filter_map(|_| take(&slots, 1, now)).collect();
        assert_eq!(held.len(), 2);
        let other = take(&slots, 2, now).unwrap();
        assert!(take(&slots, 3, now).is_none(), "all are taken");
        drop(held);
        assert_eq!(slots.taken(), 1);
        assert!(take(&slots, 3, now).is_some());
        drop(other);
        assert!(slots.taken.with(|taken| taken.all.is_empty() && taken.each.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_for_a_new_one_once_it_has_had_its_time() {
        let second = Duration::from_secs(1);
        let bounds =
            SlotLimits { all: (3, WhenFull::CloseOldest(second)), each: (2, WhenFull::CloseOldest(Duration::ZERO)) };
        let slots = Slots::new("test", bounds);
        let now = Instant::now();
        let (first, second_one) = (take(&slots, 1, now).unwrap(), take(&slots, 1, now).unwrap());
        let third = take(&slots, 1, now).unwrap();
        assert!(first.1.is_cancelled() && !second_one.1.is_cancelled(), "its own oldest goes");
        let other = take(&slots, 2, now).unwrap();
        assert!(take(&slots, 3, now).is_none(), "nobody has been there for long");
        let late = take(&slots, 3, now + second).unwrap();
        assert!(second_one.1.is_cancelled() && !third.1.is_cancelled() && !other.1.is_cancelled());
        assert_eq!(slots.taken(), 3, "who has to go holds no place");
        drop((first, second_one));
        assert_eq!(slots.taken(), 3);
        drop((third, other, late));
        assert!(slots.taken.with(|taken| taken.all.is_empty() && taken.each.is_empty()));
    }
}
