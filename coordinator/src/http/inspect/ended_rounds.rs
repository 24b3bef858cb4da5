//! Cache of views of ended rounds.

use std::sync::Arc;

use federation::id::Attempt;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use store::entity::round::RoundRow;
use wire::inspect::RoundView;

/// Maximum size of the cache, in bytes of JSON: some thousand rounds of a typical task.
const REMEMBERED_MAX: u64 = 8 << 20;
/// Approximate size of a view.
const TYPICAL: u64 = 2 << 10;

/// Cache of views of ended rounds; evicts the least used. An entry is valid only for the exact row it was made from. The row may still
/// change after the end, when bytes in transit are counted; the rest of a view is final.
pub(crate) struct EndedRounds(Cache<Attempt, Arc<Ended>, Bytes>);

struct Ended {
    row: RoundRow,
    view: RoundView,
    /// Size of the view as JSON.
    bytes: u64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Attempt, Arc<Ended>> for Bytes {
    fn weight(&self, _: &Attempt, ended: &Arc<Ended>) -> u64 {
        ended.bytes
    }
}

impl Default for EndedRounds {
    fn default() -> Self {
        Self::of(REMEMBERED_MAX)
    }
}

impl EndedRounds {
    fn of(bytes: u64) -> Self {
        let entries = usize::try_from(bytes / TYPICAL).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(entries, bytes, Bytes))
    }

    /// The cached view of this round, if it has ended.
    pub(super) fn find(&self, row: &RoundRow) -> Option<RoundView> {
        let ended = self.0.get(&row.round.key)?;
        (ended.row == *row).then(|| ended.view.clone())
    }

    /// Caches the view of a finally ended round.
    pub(super) fn remember(&self, row: RoundRow, view: &RoundView) {
        if !row.round.state.is_terminal() {
            return;
        }
        let Ok(json) = serde_json::to_vec(view) else { return };
        let (key, view, bytes) = (row.round.key, view.clone(), json.len() as u64);
        self.0.insert(key, Arc::new(Ended { row, view, bytes }));
    }
}

#[cfg(test)]
mod tests {
    use federation::id::TaskId;
    use federation::round::{Round, RoundLimits, RoundState};
    use federation::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn row(number: u32, state: RoundState) -> RoundRow {
        let spec = serde_json::json!({ "name": "t", "model": { "tensors": [{ "name": "w", "shape": [3] }] } });
        let round = Round {
            key: Attempt { task: TaskId(Uuid::from_u128(1)), round: number, attempt: 1 },
            state,
            base_version: 0,
            limits: RoundLimits::of(&serde_json::from_value(spec).unwrap()),
            cohort: 10,
            state_since: Timestamp(1),
            opened_at: Timestamp(0),
            failure: None,
        };
        let (metrics, model_version, ended_at) = (Vec::new(), Some(number), Some(Timestamp(1)));
        RoundRow { round, reported: 10, bytes_up: 1, bytes_down: 1, metrics, model_version, ended_at }
    }

    fn view(number: u32) -> RoundView {
        let sample = include_str!("../../../../wire/tests/compat/v1/round_view.json");
        RoundView { number, ..serde_json::from_str(sample).unwrap() }
    }

    #[test]
    fn what_has_ended_is_found_while_its_row_is_the_same() {
        let cache = EndedRounds::default();
        cache.remember(row(1, RoundState::Completed), &view(1));
        cache.remember(row(2, RoundState::Collecting), &view(2));
        assert_eq!(cache.find(&row(1, RoundState::Completed)), Some(view(1)));
        assert_eq!(cache.find(&row(2, RoundState::Collecting)), None, "it goes on");
        let later = RoundRow { bytes_down: 2, ..row(1, RoundState::Completed) };
        assert_eq!(cache.find(&later), None);
        cache.remember(later.clone(), &view(7));
        assert_eq!(cache.find(&later), Some(view(7)), "in the place of the other");
        assert_eq!(cache.0.len(), 1);
    }

    #[test]
    fn what_is_full_makes_room_for_the_next_and_keeps_the_others() {
        const MAX: u64 = 256 << 10;
        let cache = EndedRounds::of(MAX);
        for number in 1..=2000 {
            cache.remember(row(number, RoundState::Completed), &view(number));
            assert!(cache.0.weight() <= MAX, "after {number}: {}", cache.0.weight());
        }
        // At about 1 kB each, at least half of the capacity.
        let found = (1..=2000).filter(|number| cache.find(&row(*number, RoundState::Completed)) == Some(view(*number)));
        assert!(found.count() >= 100, "{}", cache.0.len());
    }
}
