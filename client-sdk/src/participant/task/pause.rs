//! The pause request of a training, and its grace period.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// The pause request of the present run. Its lock is free during a journal write, so a request does not wait for the
/// disk.
#[derive(Default)]
pub(in crate::participant) struct Pause(Mutex<Wish>);

#[derive(Default)]
struct Wish {
    /// The grace period after a pause request, and its clock; `None` without a grace period.
    grace: Option<(Arc<dyn Clock>, Duration)>,
    told: Option<PauseRequest>,
    /// The time ran out before the run saved anything. This is final for the run.
    ran_out: bool,
}

/// A request to pause, and the training's reaction since.
struct PauseRequest {
    /// The time of the request, by the clock of the grace period; `None` if the request was withdrawn, which lifts the
    /// time limit.
    at: Option<Duration>,
    /// The training has seen the request, and may act on it.
    is_known: bool,
    has_saved: bool,
}

impl PauseRequest {
    fn at(moment: Duration) -> Self {
        Self { at: Some(moment), is_known: false, has_saved: false }
    }
}

impl Wish {
    fn now(&self) -> Duration {
        self.grace.as_ref().map_or(Duration::ZERO, |(clock, _)| clock.now().elapsed)
    }

    /// Whether the run has time left: before a pause request, or within the grace period. False without a grace period.
    fn has_time(&self) -> bool {
        let Some((_, grace)) = &self.grace else { return false };
        let told_at = self.told.as_ref().and_then(|told| told.at);
        told_at.is_none_or(|at| self.now().saturating_sub(at) < *grace)
    }
}

impl Pause {
    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run, without a pause request.
    pub(in crate::participant) fn begin(&self, grace: Option<(Arc<dyn Clock>, Duration)>) {
        *self.wish() = Wish { grace, told: None, ran_out: false };
    }

    /// Ends the run and its time.
    pub(in crate::participant) fn end(&self) {
        self.wish().grace = None;
    }

    /// Requests a pause of the run. A repeated request does not extend the grace period.
    pub(in crate::participant) fn tell(&self) {
        let mut wish = self.wish();
        let now = wish.now();
        wish.told.get_or_insert_with(|| PauseRequest::at(now)).at.get_or_insert(now);
    }

    /// Withdraws the request. A training that has seen it may still pause, without a time limit.
    pub(in crate::participant) fn take_back(&self) {
        let mut wish = self.wish();
        let known = wish.told.take().filter(|told| told.is_known);
        wish.told = known.map(|told| PauseRequest { at: None, ..told });
    }

    /// Whether the training should pause. Called by the training, which knows of the request from then on.
    pub(super) fn is_heard(&self) -> bool {
        let mut wish = self.wish();
        if let Some(told) = &mut wish.told {
            told.is_known = true;
        }
        wish.told.is_some()
    }

    /// The training has saved a checkpoint.
    pub(in crate::participant) fn saved(&self) {
        if let Some(told) = &mut self.wish().told {
            told.has_saved = true;
        }
    }

    /// Begins the next training of the round, before its first checkpoint. A standing request applies to it, with its full time; if a
    /// training has returned before, the run pauses instead. A withdrawn request does not apply.
    pub(in crate::participant) fn anew(&self) {
        let mut wish = self.wish();
        let now = wish.now();
        let is_to_pause = wish.told.take().is_some_and(|told| told.at.is_some());
        wish.told = is_to_pause.then(|| PauseRequest::at(now));
    }

    pub(in crate::participant) fn is_told(&self) -> bool {
        self.wish().told.is_some()
    }

    /// Whether the run gets time to pause.
    pub(super) fn has_grace(&self) -> bool {
        self.wish().grace.is_some()
    }

    /// Whether the run has time left.
    pub(in crate::participant) fn has_time(&self) -> bool {
        self.wish().has_time()
    }

    /// Whether the run must end: a pause was requested, and the run has saved since or used up its grace period.
    pub(in crate::participant) fn is_due(&self) -> bool {
        let mut wish = self.wish();
        let Some(has_saved) = wish.told.as_ref().map(|told| told.has_saved) else { return false };
        let has_time = wish.has_time();
        wish.ran_out |= !has_saved && !has_time;
        has_saved || !has_time
    }

    /// Whether the present or last run used up its time without saving.
    pub(in crate::participant) fn ran_out(&self) -> bool {
        self.wish().ran_out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use wire::Timestamp;

    use super::*;
    use crate::clock::Now;

    /// A clock that the test sets, in seconds.
    #[derive(Default)]
    struct Seconds(AtomicU64);

    impl Clock for Seconds {
        fn now(&self) -> Now {
            Now { elapsed: Duration::from_secs(self.0.load(Ordering::Relaxed)), wall: Timestamp(0) }
        }
    }

    /// A run with a grace period of ten seconds, and its clock.
    fn begun() -> (Pause, Arc<Seconds>) {
        let (pause, clock) = (Pause::default(), Arc::<Seconds>::default());
        pause.begin(Some((Arc::clone(&clock) as Arc<dyn Clock>, Duration::from_secs(10))));
        (pause, clock)
    }

    #[test]
    fn who_saves_is_due_at_once_and_who_does_not_once_its_time_is_over() {
        let (pause, clock) = begun();
        clock.0.store(100, Ordering::Relaxed);
        pause.saved();
        assert_eq!((pause.is_told(), pause.has_time(), pause.is_due()), (false, true, false), "nobody told it");
        pause.tell();
        assert_eq!((pause.is_told(), pause.has_time(), pause.is_due()), (true, true, false), "what it saved before");
        clock.0.store(109, Ordering::Relaxed);
        pause.tell();
        assert_eq!((pause.has_time(), pause.is_due()), (true, false));
        clock.0.store(110, Ordering::Relaxed);
        assert!(!pause.ran_out());
        assert_eq!((pause.has_time(), pause.is_due()), (false, true), "told twice, it has no more time");
        pause.take_back();
        pause.end();
        assert!(pause.ran_out() && !pause.is_told(), "it has ended by then, whatever is so now");
        pause.begin(None);
        assert!(!pause.ran_out());

        let (pause, _) = begun();
        pause.tell();
        pause.saved();
        assert_eq!((pause.has_time(), pause.is_due(), pause.ran_out()), (true, true, false));
        pause.anew();
        assert!(pause.is_told() && !pause.is_due(), "of the next training nothing is saved");
        pause.take_back();
        assert!(!pause.is_told() && !pause.is_due());
    }

    #[test]
    fn a_training_that_knows_may_pause_in_its_own_time_when_it_need_not_any_more() {
        let (pause, clock) = begun();
        pause.tell();
        assert!(pause.is_heard());
        pause.take_back();
        clock.0.store(1000, Ordering::Relaxed);
        assert_eq!((pause.is_heard(), pause.has_time(), pause.is_due()), (true, true, false));
        pause.tell();
        assert_eq!((pause.has_time(), pause.is_due()), (true, false), "told again, it has its time again");
        clock.0.store(1010, Ordering::Relaxed);
        assert_eq!((pause.has_time(), pause.is_due()), (false, true));

        let (pause, _) = begun();
        pause.tell();
        assert!(pause.is_heard());
        pause.take_back();
        pause.anew();
        assert!(!pause.is_told(), "the next training of the round need not pause");
    }

    #[test]
    fn without_a_grace_there_is_no_time_and_a_new_run_was_told_nothing() {
        let pause = Pause::default();
        pause.begin(None);
        assert!(!pause.has_grace() && !pause.has_time() && !pause.is_due());
        pause.tell();
        assert!(pause.is_told() && !pause.has_time() && pause.is_due());
        let (pause, _) = begun();
        pause.tell();
        pause.end();
        assert!(!pause.has_grace() && !pause.has_time(), "it has ended");
        pause.begin(None);
        assert!(!pause.is_told());
    }
}
