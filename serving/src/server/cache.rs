//! A cache of predictions, keyed by digests of the model file and of the inputs. It does not store inputs.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ring::digest::{Context, SHA256};
use wire::Digest;

use super::input::{Input, Prediction};

/// Approximate size of an entry without its prediction: two digests and the list node.
const ENTRY: u64 = 160;

/// Digests of a model's file and of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    model: Digest,
    input: Digest,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<Prediction>> for Bytes {
    fn weight(&self, _: &Key, said: &Arc<Prediction>) -> u64 {
        ENTRY + said.bytes() as u64
    }
}

/// The most recently used predictions, up to a number of bytes.
pub(super) struct Predictions(Cache<Key, Arc<Prediction>, Bytes>);

impl Predictions {
    pub(super) fn new(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / (2 * ENTRY)).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        Self(Cache::with_weighter(entries, bytes, Bytes))
    }

    pub(super) fn key(&self, model: Digest, asked: &Input) -> Key {
        let mut context = Context::new(&SHA256);
        asked.bytes(|bytes| context.update(bytes));
        let mut input = Digest([0; 32]);
        input.0.copy_from_slice(context.finish().as_ref());
        Key { model, input }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Prediction>> {
        self.0.get(key)
    }

    pub(super) fn put(&self, key: Key, said: Arc<Prediction>) {
        self.0.insert(key, said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_found_by_model_and_inputs_within_its_bytes() {
        let cache = Predictions::new(100_000);
        let row = |value: f32| Input::Rows { values: vec![value], width: 1 };
        let said = Arc::new(Prediction { scores: vec![1.0; 10], classes: vec![0], others: vec![] });
        let key = |model: u8, value| cache.key(Digest([model; 32]), &row(value));
        cache.put(key(1, 0.5), Arc::clone(&said));
        assert_eq!(cache.get(&key(1, 0.5)), Some(Arc::clone(&said)));
        assert!(cache.get(&key(2, 0.5)).is_none() && cache.get(&key(1, 0.25)).is_none());
        (0..10_000_u16).for_each(|number| cache.put(key(1, f32::from(number)), Arc::clone(&said)));
        assert!(cache.0.weight() <= 100_000, "{}", cache.0.weight());
    }
}
