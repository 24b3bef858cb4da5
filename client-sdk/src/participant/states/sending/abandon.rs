//! Notifies the coordinator that this participant has left the round. Best effort: after a few attempts the round's deadline has
//! the same effect.

use wire::Attempt;
use wire::participant::RefusalCode;

use super::exchange::once_more;
use crate::clock::Now;
use crate::participant::api::event::Outcome;
use crate::participant::checks::refused_tasks::is_settled;
use crate::participant::journal::round_end::AbandonCause;
use crate::participant::states::action::Action;
use crate::participant::states::attempts::Attempts;
use crate::participant::states::core::Core;
use crate::participant::states::state::{Abandon, CheckIn, State};
use crate::transport::{Abandonment, Request, TransportError};

/// Maximum number of attempts.
const MOST_ATTEMPTS: u32 = 3;

impl Abandon {
    pub(in crate::participant) fn new(place: Attempt, why: AbandonCause) -> Self {
        Self { place, why, attempts: Attempts::default() }
    }

    pub(in crate::participant) fn action(&self, core: &Core, now: Now) -> Action {
        if let Some(wait) = self.attempts.wait(now) {
            return wait;
        }
        let (place, AbandonCause { reason, refusal }) = (self.place, self.why);
        core.send(|participant| Request::Abandon(Abandonment { place, participant, reason, refusal }))
    }

    pub(in crate::participant) fn abandoned(
        self,
        core: &mut Core,
        result: Result<(), TransportError>,
        now: Now,
    ) -> State {
        match once_more(core, result, self.attempts, MOST_ATTEMPTS, "give up the round", now) {
            Ok(Some(attempts)) => State::Abandon(Self { attempts, ..self }),
            Ok(None) if core.stopping => State::Finished(Ok(Outcome::Stopped)),
            Ok(None) => State::CheckIn(CheckIn { attempts: after_giving_up(core, self.place, self.why, now) }),
            Err(end) => State::Finished(Err(end)),
        }
    }
}

/// Time of the next check-in after an assignment was abandoned: at once if check-ins newly report the refusal. If the coordinator ignores
/// the report, or the app declines, the pause grows with each refusal until the participant takes part again.
fn after_giving_up(core: &mut Core, place: Attempt, AbandonCause { refusal, .. }: AbandonCause, now: Now) -> Attempts {
    let goes_on = match refusal {
        Some(reason) if is_settled(reason) => core.report_refusal(place.task, reason, now),
        reason => reason != Some(RefusalCode::App),
    };
    if goes_on {
        return Attempts::default();
    }
    core.refused_in_a_row = core.refused_in_a_row.saturating_add(1);
    let retry = &core.settings.retry;
    let pause = retry.delay(core.refused_in_a_row, retry.most_in_vain, None, &mut core.rng);
    Attempts::not_before(now.elapsed.saturating_add(pause))
}
