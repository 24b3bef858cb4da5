//! Cache of views of rounds that have ended.

use std::collections::HashMap;

use federation::id::Attempt;
use store::entity::round::RoundRow;
use wire::inspect::RoundView;

use crate::guarded::Guarded;

/// Maximum size of the cache, in bytes of JSON: some thousand rounds of a typical task.
const REMEMBERED_MAX: usize = 8 << 20;

/// Cache of views of rounds that have ended. An entry is valid only for the exact row it was made from, which may still
/// change when bytes in transit are counted after the end; everything else in a view is final.
#[derive(Default)]
pub(crate) struct EndedRounds(Guarded<CachedViews>);

#[derive(Default)]
struct CachedViews {
    views: HashMap<Attempt, (RoundRow, RoundView)>,
    /// Of all views as JSON.
    bytes: usize,
}

impl EndedRounds {
    /// The cached view of this round, if it has ended.
    pub(super) fn find(&self, row: &RoundRow) -> Option<RoundView> {
        self.0.with(|cached| {
            let (of, view) = cached.views.get(&row.round.key)?;
            (of == row).then(|| view.clone())
        })
    }

    /// Caches the view of a round that has ended for good.
    pub(super) fn remember(&self, row: RoundRow, view: &RoundView) {
        // The participants that gave an update from the base are counted each time.
        if !row.round.state.is_terminal() || row.round.lacks_participants() {
            return;
        }
        let Ok(json) = serde_json::to_vec(view) else { return };
        self.0.with(|cached| {
            if cached.bytes + json.len() > REMEMBERED_MAX {
                *cached = CachedViews::default();
            }
            cached.bytes += json.len();
            cached.views.insert(row.round.key, (row, view.clone()));
        });
    }
}
