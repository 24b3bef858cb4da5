//! Slots for event streams: limits each bearer, and reserves some for administrators.

use std::collections::HashMap;
use std::sync::Arc;

use listener::{Key, PoisonFreeMutex};
use wire::admin::Role;

use super::reply::problem::{Error, Result};

/// One in this many slots is reserved for administrators.
const RESERVED: u32 = 8;

pub(crate) struct EventStreams {
    /// Maximum of all bearers together.
    max: u32,
    /// Maximum of one token or identity.
    each: u32,
    open: Arc<PoisonFreeMutex<HashMap<Key, u32>>>,
}

/// A slot; freed when dropped.
pub(super) struct StreamPlace {
    key: Key,
    open: Arc<PoisonFreeMutex<HashMap<Key, u32>>>,
}

impl EventStreams {
    pub(crate) fn new(max: u32, each: u32) -> Self {
        metrics::describe_gauge!("tributary_event_streams", "Streams of events that are open now");
        Self { max, each, open: Arc::default() }
    }

    /// Takes a slot for the bearer with this `key`.
    ///
    /// # Errors
    /// [`Error::TooManyStreams`].
    pub(super) fn take(&self, key: Key, role: Role) -> Result<StreamPlace> {
        let room = match role {
            Role::Admin => self.max,
            Role::Predictor | Role::Viewer | Role::Operator => self.max - self.max / RESERVED,
        };
        self.open.with(|open| {
            let own = open.get(&key).copied().unwrap_or_default();
            if own >= self.each {
                return Err(Error::TooManyStreams("of this token or identity", "event_streams_per_token"));
            }
            if open.values().sum::<u32>() >= room {
                return Err(Error::TooManyStreams("of all operators", "event_streams_max"));
            }
            open.insert(key, own + 1);
            Ok(())
        })?;
        metrics::gauge!("tributary_event_streams").increment(1);
        Ok(StreamPlace { key, open: Arc::clone(&self.open) })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        metrics::gauge!("tributary_event_streams").decrement(1);
        self.open.with(|open| {
            let own = open.remove(&self.key).unwrap_or_default();
            if own > 1 {
                open.insert(self.key, own - 1);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use federation::id::TokenId;

    use super::*;

    fn token(n: u128) -> Key {
        Key::Operator(TokenId(uuid::Uuid::from_u128(n)))
    }

    #[test]
    fn one_token_has_its_bound_and_frees_its_places() {
        let streams = EventStreams::new(16, 2);
        let first = streams.take(token(1), Role::Viewer).ok().unwrap();
        let _second = streams.take(token(1), Role::Viewer).ok().unwrap();
        assert!(matches!(
            streams.take(token(1), Role::Viewer),
            Err(Error::TooManyStreams(_, "event_streams_per_token"))
        ));
        assert!(matches!(
            streams.take(token(1), Role::Admin),
            Err(Error::TooManyStreams(_, "event_streams_per_token"))
        ));
        assert!(streams.take(token(2), Role::Viewer).is_ok());
        drop(first);
        assert!(streams.take(token(1), Role::Viewer).is_ok());
    }

    #[test]
    fn administrators_keep_an_eighth_of_all_places() {
        let streams = EventStreams::new(16, 16);
        let taken: Vec<_> = (0..14).map(|n| streams.take(token(n), Role::Operator).ok().unwrap()).collect();
        assert!(matches!(streams.take(token(20), Role::Viewer), Err(Error::TooManyStreams(_, "event_streams_max"))));
        let of_admin: Vec<_> = (0..2).map(|_| streams.take(token(21), Role::Admin).ok().unwrap()).collect();
        assert!(matches!(streams.take(token(21), Role::Admin), Err(Error::TooManyStreams(_, "event_streams_max"))));
        drop((taken, of_admin));
        assert!(streams.open.lock().is_empty());
    }
}
