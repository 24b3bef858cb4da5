//! Small valid rows, which the tests vary.

use std::collections::BTreeMap;

use federation::id::{Attempt, Digest, ParticipantId, TaskId};
use federation::model_version::ModelVersion;
use federation::round::{Assignment, AssignmentState, PhaseLimits, Round, RoundLimits, RoundState};
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use uuid::Uuid;

use crate::entity::admitted::Admitted;
use crate::entity::assignment::AssignmentChange;
use crate::entity::check_in::CheckInKeys;
use crate::entity::participant::ParticipantRow;
use crate::entity::round_summary::RoundSummary;
use crate::entity::session_message::{MessageKind, SessionMessage};
use crate::entity::task::TaskRow;
use crate::{Result, Store, Transaction};

/// Reads that only tests need.
impl Transaction<'_> {
    /// The newest keys of a check-in that has not been removed.
    pub(super) async fn check_in_keys(
        &mut self,
        task: TaskId,
        participant: ParticipantId,
    ) -> Result<Option<CheckInKeys>> {
        self.find(
            "SELECT task, keys_round AS number, keys_attempt AS attempt, keys FROM check_in
             WHERE task = ?1 AND participant = ?2 AND keys IS NOT NULL",
            (task, participant),
        )
        .await
    }

    /// The states that an assignment entered, oldest first.
    pub(super) async fn assignment_history(
        &mut self,
        attempt: Attempt,
        participant: ParticipantId,
    ) -> Result<Vec<AssignmentChange>> {
        self.list(
            "SELECT state, at, detail FROM assignment_change
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND participant = ?4 ORDER BY sequence",
            (attempt, participant),
        )
        .await
    }
}

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// `NOW` plus this many milliseconds.
pub(super) fn after(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms)
}

pub(super) fn task_id(n: u128) -> TaskId {
    TaskId(Uuid::from_u128(0x7A5C << 64 | n))
}

pub(super) fn participant_id(n: u128) -> ParticipantId {
    ParticipantId(Uuid::from_u128(0xFA27 << 64 | n))
}

pub(super) fn digest(n: u8) -> Digest {
    Digest([n; 32])
}

pub(super) fn labels(region: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("region".to_owned(), region.to_owned())])
}

pub(super) fn task(n: u128, name: &str) -> TaskRow {
    let spec = serde_json::json!({ "name": name, "model": { "tensors": [{ "name": "w", "shape": [10] }] } });
    TaskRow {
        id: task_id(n),
        spec: serde_json::from_value(spec).unwrap(),
        status: TaskStatus::Active,
        parameters: 10,
        created_at: after(i64::try_from(n).unwrap()),
        rounds_completed: 0,
        rounds_forfeited: 0,
        model_version: 0,
        promoted_version: None,
    }
}

pub(super) fn participant(n: u8) -> ParticipantRow {
    ParticipantRow {
        id: participant_id(n.into()),
        name: format!("site-{n}"),
        labels: labels("eu"),
        enrolled_at: NOW,
        certificate_fingerprint: digest(n),
        previous_fingerprint: None,
        certificate_expires_at: after(1_000),
        revoked_at: None,
        last_seen_at: NOW,
    }
}

pub(super) fn round(task: u128, number: u32, attempt: u32) -> Round {
    let limits = PhaseLimits { min: 1, max: 4, deadline_ms: 1_000 };
    Round {
        key: Attempt { task: task_id(task), round: number, attempt },
        state: RoundState::Selecting,
        base_version: number - 1,
        limits: RoundLimits {
            select: limits,
            collect: limits,
            aggregate_deadline_ms: 1_000,
            sampled: None,
            round_trip_ms: None,
            secure: None,
            groups: None,
        },
        cohort: 0,
        state_since: NOW,
        opened_at: NOW,
        failure: None,
    }
}

/// `round` in its next state.
pub(super) fn moved(round: &Round, state: RoundState, at: Timestamp) -> Round {
    Round { state, state_since: at, ..round.clone() }
}

pub(super) fn assignment(round: &Round, participant: u8) -> Assignment {
    Assignment {
        attempt: round.key,
        participant: participant_id(participant.into()),
        state: AssignmentState::Assigned,
        state_since: NOW,
        detail: None,
        dropped_in: None,
        assigned_at: NOW,
        group: None,
    }
}

pub(super) fn admitted(round: &Round, participant: u8) -> Admitted {
    Admitted {
        attempt: round.key,
        participant: participant_id(participant.into()),
        sha256: digest(100 + participant),
        bytes: 40,
        accepted_at: after(participant.into()),
        folded: false,
    }
}

/// A message whose length and bytes are the participant's number.
pub(super) fn message(round: &Round, kind: MessageKind, participant: u8) -> SessionMessage {
    SessionMessage {
        attempt: round.key,
        kind,
        participant: participant_id(participant.into()),
        sha256: digest(participant),
        bytes: participant.into(),
        received_at: after(participant.into()),
        message: Some(vec![participant; participant.into()].into()),
    }
}

pub(super) fn model_version(task: u128, version: u32) -> ModelVersion {
    ModelVersion {
        task: task_id(task),
        version,
        sha256: digest(200 + u8::try_from(version).unwrap()),
        bytes: 40,
        round: (version > 0).then_some(version),
        parent: version.checked_sub(1),
        clip: (version > 0).then(|| 0.1 * f64::from(version)),
        optimizer_state: (version > 0).then(|| digest(220 + u8::try_from(version).unwrap())),
        created_at: after(version.into()),
    }
}

/// Task 1, `participants` participants from 1 on, and its first round, collecting from all of them.
pub(super) async fn collecting(store: &Store, participants: u8) -> Round {
    drawn(store, participants, RoundState::Collecting).await
}

/// The same with secure aggregation: the round has a session and is sharing.
pub(super) async fn sharing(store: &Store, participants: u8) -> Round {
    let round = drawn(store, participants, RoundState::Sharing).await;
    let open = &round;
    let result: Result<()> = store
        .transact("sharing", |tx| Box::pin(async move { tx.put_session(open.key, b"phase", after(1)).await }))
        .await;
    result.unwrap();
    round
}

async fn drawn(store: &Store, participants: u8, state: RoundState) -> Round {
    let selecting = round(1, 1, 1);
    let drawn = Round { cohort: participants.into(), ..moved(&selecting, state, after(1)) };
    let result: Result<()> = store
        .transact("drawn", |tx| {
            let (before, after) = (&selecting, &drawn);
            Box::pin(async move {
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_round(before).await?;
                for n in 1..=participants {
                    tx.insert_participant(&participant(n)).await?;
                }
                assert!(tx.transition_round(before, after).await?);
                let cohort: Vec<_> = (1..=participants).map(|n| assignment(after, n)).collect();
                tx.insert_assignments(&cohort).await
            })
        })
        .await;
    result.unwrap();
    drawn
}

/// Moves `round` to its next state.
pub(super) async fn advance(
    tx: &mut Transaction<'_>,
    round: &mut Round,
    state: RoundState,
    at: Timestamp,
) -> Result<()> {
    let next = moved(round, state, at);
    assert!(tx.transition_round(round, &next).await?);
    *round = next;
    Ok(())
}

/// These participants send their message.
pub(super) async fn send(
    tx: &mut Transaction<'_>,
    round: &Round,
    kind: MessageKind,
    participants: &[u8],
) -> Result<()> {
    for &participant in participants {
        tx.insert_message(&message(round, kind, participant)).await?;
    }
    Ok(())
}

/// These participants' inputs are accepted.
pub(super) async fn report(tx: &mut Transaction<'_>, round: &Round, participants: &[u8]) -> Result<()> {
    let (from, to) = ([AssignmentState::Assigned, AssignmentState::Working], AssignmentState::Reported);
    for &n in participants {
        let id = participant_id(n.into());
        assert!(tx.set_assignment_state(round.key, id, &from, to, after(n.into()), None).await?);
        tx.insert_admitted(&[admitted(round, n)]).await?;
    }
    Ok(())
}

/// The counts of one attempt.
pub(super) async fn summary(tx: &mut Transaction<'_>, key: Attempt) -> Result<RoundSummary> {
    let mut found = tx.round_summaries(key.task, &[(key.round, key.attempt)]).await?;
    assert_eq!(found.len(), 1);
    Ok(found.remove(0))
}
