//! Events on their way between processes: JSON of limited length.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::WakeEvent;

/// PostgreSQL carries less than 8,000 bytes at once.
pub(crate) const MESSAGE_MAX: usize = 7_500;
/// Participants in one event; 40 bytes each.
const PARTICIPANTS_MAX: usize = 150;

#[derive(Serialize, Deserialize)]
struct Message<E> {
    /// The process that sent it, which has heard the events already.
    from: Uuid,
    events: Vec<E>,
}

/// Events as messages, in order, of at most [`MESSAGE_MAX`] bytes each.
pub(super) fn encode(from: Uuid, events: Vec<WakeEvent>) -> Vec<String> {
    let mut messages = Vec::new();
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for event in events.into_iter().flat_map(parts) {
        // An event is made of ids and numbers, which always become JSON.
        let Ok(event) = serde_json::to_value(event) else { continue };
        let more = event.to_string().len() + 1;
        if bytes + more > MESSAGE_MAX - ENVELOPE {
            messages.extend(message(from, std::mem::take(&mut waiting)));
            bytes = 0;
        }
        waiting.push(event);
        bytes += more;
    }
    messages.extend(message(from, waiting));
    messages
}

/// Bytes of a message without events, and some to spare.
const ENVELOPE: usize = 100;

fn message(from: Uuid, events: Vec<serde_json::Value>) -> Option<String> {
    if events.is_empty() { None } else { serde_json::to_string(&Message { from, events }).ok() }
}

/// An event for many participants as several for few.
fn parts(event: WakeEvent) -> Vec<WakeEvent> {
    match event {
        WakeEvent::Assigned(participants) if participants.len() > PARTICIPANTS_MAX => {
            participants.chunks(PARTICIPANTS_MAX).map(|few| WakeEvent::Assigned(few.into())).collect()
        }
        event @ (WakeEvent::Work
        | WakeEvent::Assigned(_)
        | WakeEvent::Round(_)
        | WakeEvent::Task(_)
        | WakeEvent::Opened(_)
        | WakeEvent::Recorded
        | WakeEvent::Numbered
        | WakeEvent::Lost) => vec![event],
    }
}

/// The events of a message that another process than `to` sent. An unreadable event, perhaps of a newer program, is
/// [`WakeEvent::Lost`].
pub(super) fn decode(to: Uuid, message: &str) -> Vec<WakeEvent> {
    let Ok(Message { from, events }) = serde_json::from_str::<Message<serde_json::Value>>(message) else {
        return vec![WakeEvent::Lost];
    };
    if from == to {
        return Vec::new();
    }
    events.into_iter().map(|event| serde_json::from_value(event).unwrap_or(WakeEvent::Lost)).collect()
}

/// Lists of ids behind an `Arc`.
pub(super) mod ids {
    use std::sync::Arc;

    use federation::id::ParticipantId;
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(ids: &Arc<[ParticipantId]>, to: S) -> Result<S::Ok, S::Error> {
        ids[..].serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[ParticipantId]>, D::Error> {
        Vec::deserialize(from).map(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use federation::id::{ParticipantId, RoundKey, TaskId};

    use super::*;

    const US: Uuid = Uuid::from_u128(1);
    const THEM: Uuid = Uuid::from_u128(2);

    fn assigned(count: u128) -> WakeEvent {
        WakeEvent::Assigned((0..count).map(|n| ParticipantId(Uuid::from_u128(u128::MAX - n))).collect())
    }

    #[test]
    fn events_arrive_as_they_were_sent_in_messages_that_fit() {
        let task = TaskId(Uuid::from_u128(u128::MAX));
        let round = RoundKey { task, number: u32::MAX };
        let mut sent = vec![WakeEvent::Work, WakeEvent::Round(round), WakeEvent::Task(task), WakeEvent::Opened(task)];
        sent.extend((0..200).map(|_| WakeEvent::Round(round)));
        sent.push(assigned(7));
        let messages = encode(US, sent.clone());
        assert!(messages.len() > 1 && messages.iter().all(|message| message.len() <= MESSAGE_MAX));
        let heard: Vec<_> = messages.iter().flat_map(|message| decode(THEM, message)).collect();
        assert_eq!(heard, sent);
        assert_eq!(messages.iter().flat_map(|message| decode(US, message)).count(), 0, "not by who sent it");
        assert!(encode(US, Vec::new()).is_empty());
    }

    #[test]
    fn many_participants_are_told_in_several_events() {
        let messages = encode(US, vec![assigned(1000)]);
        assert!(messages.iter().all(|message| message.len() <= MESSAGE_MAX));
        let heard = messages.iter().flat_map(|message| decode(THEM, message)).flat_map(|event| match event {
            WakeEvent::Assigned(participants) => participants.to_vec(),
            other => panic!("{other:?}"),
        });
        let WakeEvent::Assigned(sent) = assigned(1000) else { unreachable!("it is what it is") };
        assert!(heard.eq(sent.iter().copied()));
    }

    #[test]
    fn what_nobody_here_understands_may_have_changed_anything() {
        let newer = format!(r#"{{"from":"{US}","events":[{{"unheard_of":1}},"work"]}}"#);
        assert_eq!(decode(THEM, &newer), [WakeEvent::Lost, WakeEvent::Work]);
        assert_eq!(decode(THEM, "hello"), [WakeEvent::Lost]);
    }
}
