//! Views of rounds that have ended, made once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use federation::id::Attempt;
use store::entity::round::RoundRow;
use wire::inspect::RoundView;

/// Most that is remembered, as bytes of JSON: some thousand rounds of a usual task.
const REMEMBERED_MAX: usize = 8 << 20;

/// Views of rounds that have ended. A cache: each is good for the very row that it was made for, which still changes when bytes that
/// were on their way are counted after the end; all else that a view tells of is over by then.
#[derive(Default)]
pub(crate) struct EndedRounds(Mutex<Known>);

#[derive(Default)]
struct Known {
    views: HashMap<Attempt, (RoundRow, RoundView)>,
    /// Of all views as JSON.
    bytes: usize,
}

impl EndedRounds {
    fn with<T>(&self, act: impl FnOnce(&mut Known) -> T) -> T {
        // Whatever a panic leaves behind is still views that were made for their rows.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The view of this round, if it has ended and was looked at.
    pub(super) fn find(&self, row: &RoundRow) -> Option<RoundView> {
        self.with(|known| {
            let (of, view) = known.views.get(&row.round.key)?;
            (of == row).then(|| view.clone())
        })
    }

    /// Remembers the view of a round, if it has ended for good.
    pub(super) fn remember(&self, row: RoundRow, view: &RoundView) {
        // Who gave an update from the base before is counted anew each time.
        if !row.round.state.is_terminal() || row.round.lacks_participants() {
            return;
        }
        let Ok(json) = serde_json::to_vec(view) else { return };
        self.with(|known| {
            if known.bytes + json.len() > REMEMBERED_MAX {
                *known = Known::default();
            }
            known.bytes += json.len();
            known.views.insert(row.round.key, (row, view.clone()));
        });
    }
}
