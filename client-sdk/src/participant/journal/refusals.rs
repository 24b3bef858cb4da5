//! The participant's refusals and their reasons, in the journal.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wire::participant::RefusalCode;
use wire::{Attempt, Timestamp};

use crate::participant::api::event::Event;

/// Maximum number of reasons remembered: the latest.
const MOST: usize = 50;
/// Maximum length of a reason in bytes: it may quote the coordinator.
const REASON_MAX: usize = 1000;

/// Refusals of attempts, or departures from them, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Refusal {
    /// The attempt that was refused last.
    pub place: Attempt,
    /// The code sent to the coordinator; `None` if the participant had promised nothing, so that a message was
    /// unnecessary.
    pub code: Option<RefusalCode>,
    /// The reason in words, which stay on the device; at most 1000 bytes.
    pub reason: String,
    /// When it was refused last, by the device's calendar.
    pub at: Timestamp,
    /// How often the task was refused for this reason.
    pub times: u64,
}

impl Refusal {
    /// Its fields as a JSON object: `at_ms` are milliseconds since 1970.
    #[must_use]
    pub fn data(&self) -> Value {
        let Self { place: Attempt { task, round, attempt }, code, reason, at, times } = self;
        json!({
            "task": task, "round": round, "attempt": attempt,
            "code": code, "reason": reason, "at_ms": at.0, "times": times,
        })
    }
}

/// All of them, the latest at the end, and whether the journal lacks some.
#[derive(Default)]
pub(in crate::participant) struct Refusals {
    pub(in crate::participant) list: Vec<Refusal>,
    pub(in crate::participant) unsaved: bool,
}

impl Refusals {
    /// Records the refusals of one step. An abandoned attempt causes two events: the reason, then the code sent to the coordinator.
    pub(in crate::participant) fn note(&mut self, events: &[Event], at: Timestamp) {
        for (number, event) in events.iter().enumerate() {
            if let Event::Abandoned { place, refusal: Some(code), .. } = event {
                let reason = events[..number].iter().rev().find_map(|event| reason_at(*place, event));
                self.add(*place, Some(*code), reason.map_or_else(|| code.to_string(), str::to_owned), at);
            } else if let Event::Refused { place, reason } = event {
                let is_told = events[number..].iter().any(|event| is_given_up(*place, event));
                if !is_told {
                    self.add(*place, None, reason.clone(), at);
                }
            }
        }
    }

    fn add(&mut self, place: Attempt, code: Option<RefusalCode>, mut reason: String, at: Timestamp) {
        reason.truncate(reason.floor_char_boundary(REASON_MAX));
        let is_same = |kept: &Refusal| (kept.place.task, kept.code) == (place.task, code) && kept.reason == reason;
        let before = self.list.iter().position(is_same).map_or(0, |number| self.list.remove(number).times);
        self.list.push(Refusal { place, code, reason, at, times: before.saturating_add(1) });
        self.list.drain(..self.list.len().saturating_sub(MOST));
        self.unsaved = true;
    }
}

/// The reason that this event gives for the end of an attempt.
fn reason_at(of: Attempt, event: &Event) -> Option<&str> {
    if let Event::Refused { place, reason: words } | Event::TrainingFailed { place, error: words } = event {
        return (*place == of).then_some(words.as_str());
    }
    None
}

fn is_given_up(of: Attempt, event: &Event) -> bool {
    matches!(event, Event::Abandoned { place, refusal: Some(_), .. } if *place == of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::participant::AbandonReason;

    fn place(task: u8, round: u32) -> Attempt {
        Attempt { task: format!("00000000-0000-0000-0000-0000000000{task:02}").parse().unwrap(), round, attempt: 1 }
    }

    fn refused(place: Attempt, reason: &str) -> Event {
        Event::Refused { place, reason: reason.to_owned() }
    }

    fn abandoned(place: Attempt, refusal: Option<RefusalCode>) -> Event {
        let reason = if refusal.is_some() { AbandonReason::Refused } else { AbandonReason::TrainingFailed };
        Event::Abandoned { place, reason, refusal }
    }

    /// Code, reason and number of each.
    fn told(refusals: &Refusals) -> Vec<(Option<RefusalCode>, &str, u64)> {
        refusals.list.iter().map(|one| (one.code, one.reason.as_str(), one.times)).collect()
    }

    #[test]
    fn a_reason_and_what_was_told_are_one_refusal() {
        let mut refusals = Refusals::default();
        let here = place(1, 2);
        let failed = Event::TrainingFailed { place: here, error: "no such model".to_owned() };
        refusals.note(&[refused(here, "too few"), abandoned(here, Some(RefusalCode::Policy))], Timestamp(1));
        refusals.note(&[failed.clone(), abandoned(here, Some(RefusalCode::Assignment))], Timestamp(2));
        refusals.note(&[abandoned(here, Some(RefusalCode::Model))], Timestamp(3));
        refusals.note(&[refused(here, "given before")], Timestamp(4));
        // A failure is not a refusal, and the reason for another attempt does not apply to this one.
        refusals.note(&[failed, abandoned(here, None)], Timestamp(5));
        refusals.note(&[refused(place(1, 3), "other"), abandoned(here, Some(RefusalCode::Keys))], Timestamp(6));
        assert_eq!(
            told(&refusals),
            [
                (Some(RefusalCode::Policy), "too few", 1),
                (Some(RefusalCode::Assignment), "no such model", 1),
                (Some(RefusalCode::Model), "the model did not come as its digest says", 1),
                (None, "given before", 1),
                (None, "other", 1),
                (Some(RefusalCode::Keys), "it has no keys or no certificate for this session", 1),
            ]
        );
    }

    #[test]
    fn the_same_reason_is_counted_and_the_latest_stay() {
        let mut refusals = Refusals::default();
        refusals.note(&[refused(place(1, 1), "first")], Timestamp(1));
        refusals.note(&[refused(place(2, 1), "first")], Timestamp(2));
        refusals.note(&[refused(place(1, 7), "first")], Timestamp(3));
        assert_eq!(told(&refusals), [(None, "first", 1), (None, "first", 2)]);
        let last = &refusals.list[1];
        assert_eq!((last.place, last.at), (place(1, 7), Timestamp(3)));
        for number in 0..MOST {
            refusals.note(&[refused(place(3, 1), &number.to_string())], Timestamp(4));
        }
        assert_eq!((refusals.list.len(), refusals.list[0].reason.as_str()), (MOST, "0"));
        // 3 bytes each: the 1000th is within one.
        refusals.note(&[refused(place(4, 1), &"…".repeat(400))], Timestamp(5));
        assert_eq!(refusals.list[MOST - 1].reason, "…".repeat(333));
    }

    #[test]
    fn they_come_back_from_their_record() {
        let mut refusals = Refusals::default();
        refusals.note(&[refused(place(1, 1), "first")], Timestamp(1));
        let record = refusals.encode().unwrap();
        let back = Refusals::restore(Some(&record)).unwrap();
        assert_eq!((back.list, back.unsaved), (refusals.list.clone(), false));
        assert!(Refusals::restore(None).unwrap().list.is_empty());
        assert!(Refusals::restore(Some(&record[..record.len() - 1])).is_err());
        let data = refusals.list[0].data();
        assert_eq!((&data["round"], &data["code"], &data["at_ms"]), (&1.into(), &Value::Null, &1.into()));
    }
}
