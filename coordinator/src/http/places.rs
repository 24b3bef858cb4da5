//! Limits on the number of connections of each kind: in total, and per peer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::Key;

use crate::guarded::Guarded;

/// What happens to a connection above the limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Crowded {
    Refuse,
    /// The oldest connection is closed for it if it is older than this; otherwise the new one is rejected.
    EndOldest(Duration),
}

/// Limits for one kind of connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: (usize, Crowded),
    pub(super) each: (usize, Crowded),
}

/// The slots of one kind. Clones share them.
#[derive(Clone)]
pub(super) struct Places {
    /// Name of the kind in metrics.
    kind: &'static str,
    bounds: Bounds,
    taken: Arc<Guarded<Taken>>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// In order of time.
    all: BTreeMap<u64, (Instant, CancellationToken)>,
    each: HashMap<Key, BTreeSet<u64>>,
}

impl Taken {
    /// Whether there is room after all, possibly by closing the oldest.
    fn makes_room(&self, oldest: Option<u64>, crowded: Crowded, now: Instant) -> bool {
        let oldest = oldest.and_then(|number| self.all.get(&number));
        match (crowded, oldest) {
            (Crowded::EndOldest(age), Some((since, end))) if now.duration_since(*since) >= age => {
                end.cancel();
                true
            }
            (Crowded::Refuse | Crowded::EndOldest(_), _) => false,
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
pub(super) struct Place {
    places: Places,
    number: u64,
    peer: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.with(|taken| {
            taken.remove(self.number, self.peer);
            self.places.show(taken.all.len());
        });
    }
}

impl Places {
    pub(super) fn new(kind: &'static str, bounds: Bounds) -> Self {
        Self { kind, bounds, taken: Arc::default() }
    }

    fn show(&self, taken: usize) {
        metrics::gauge!("tributary_connections", "kind" => self.kind).set(u32::try_from(taken).unwrap_or(u32::MAX));
    }

    /// A slot for another connection of this peer, which `end` closes if it has to make room; `None` if there is no
    /// room.
    pub(super) fn take(&self, peer: Key, end: &CancellationToken, now: Instant) -> Option<Place> {
        let Bounds { all: (all_max, all_crowded), each: (each_max, each_crowded) } = self.bounds;
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
            Some(Place { places: self.clone(), number, peer })
        })
    }

    /// Number of slots in use.
    pub(super) fn taken(&self) -> usize {
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

    fn take(places: &Places, n: u8, now: Instant) -> Option<(Place, CancellationToken)> {
        let end = CancellationToken::new();
        places.take(peer(n), &end, now).map(|place| (place, end))
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_bounded_for_each_peer_and_for_all() {
        let places = Places::new("test", Bounds { all: (3, Crowded::Refuse), each: (2, Crowded::Refuse) });
        let now = Instant::now();
        let held: Vec<_> = (0..5).filter_map(|_| take(&places, 1, now)).collect();
        assert_eq!(held.len(), 2);
        let other = take(&places, 2, now).unwrap();
        assert!(take(&places, 3, now).is_none(), "all are taken");
        drop(held);
        assert_eq!(places.taken(), 1);
        assert!(take(&places, 3, now).is_some());
        drop(other);
        assert!(places.taken.with(|taken| taken.all.is_empty() && taken.each.is_empty()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_for_a_new_one_once_it_has_had_its_time() {
        let second = Duration::from_secs(1);
        let bounds = Bounds { all: (3, Crowded::EndOldest(second)), each: (2, Crowded::EndOldest(Duration::ZERO)) };
        let places = Places::new("test", bounds);
        let now = Instant::now();
        let (first, second_one) = (take(&places, 1, now).unwrap(), take(&places, 1, now).unwrap());
        let third = take(&places, 1, now).unwrap();
        assert!(first.1.is_cancelled() && !second_one.1.is_cancelled(), "its own oldest goes");
        let other = take(&places, 2, now).unwrap();
        assert!(take(&places, 3, now).is_none(), "nobody has been there for long");
        let late = take(&places, 3, now + second).unwrap();
        assert!(second_one.1.is_cancelled() && !third.1.is_cancelled() && !other.1.is_cancelled());
        assert_eq!(places.taken(), 3, "who has to go holds no place");
        drop((first, second_one));
        assert_eq!(places.taken(), 3);
        drop((third, other, late));
        assert!(places.taken.with(|taken| taken.all.is_empty() && taken.each.is_empty()));
    }
}
