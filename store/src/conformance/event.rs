//! Guarantees of events.

use federation::event::{Actor, EventKind, Fact, Subject};
use federation::id::{Digest, TokenId};
use federation::round::{FailureReason, Round, RoundState};
use federation::task_status::TaskStatus;
use uuid::Uuid;

use super::sample::{NOW, after, digest, model_version, moved, participant, participant_id, round, task, task_id};
use crate::driver::{FromRow, Row};
use crate::entity::event::{ActorFilter, AuditHead, EventFilter, EventSearch, NumberedEvent, Placing, within};
use crate::entity::token::TaskScope;
use crate::{Result, Store, StoreError};

fn ann() -> Actor {
    Actor::Operator { token: TokenId(Uuid::from_u128(7)), name: "ann".to_owned() }
}

/// A position and its hash.
fn placing(id: u64, position: u64) -> Placing {
    Placing { id, position, hash: digest(u8::try_from(position).unwrap()) }
}

/// Gives positions to all events that lack one, as the chaining worker does.
async fn number_all(store: &Store) -> Result<usize> {
    store
        .transact("number", |tx| {
            Box::pin(async move {
                let last = tx.last_event().await?.map_or(0, |(position, _)| position);
                let rows = tx.unnumbered_events(100).await?;
                let placings: Vec<_> = rows.iter().zip(last + 1..).map(|(row, at)| placing(row.id, at)).collect();
                tx.number_events(&placings).await?;
                Ok(placings.len())
            })
        })
        .await
}

async fn numbered(store: &Store, after: u64, filter: &EventFilter, limit: u32) -> Vec<NumberedEvent> {
    let read = store.read("events", |tx| Box::pin(async move { tx.events_after(after, filter, limit).await }));
    let result: Result<_> = read.await;
    result.unwrap()
}

/// The positions on a page of the list of events, newest first.
async fn found(store: &Store, before: Option<u64>, search: EventSearch, limit: u32) -> Vec<u64> {
    let search = &search;
    let read = store.read("found", |tx| Box::pin(async move { tx.events_before(before, search, limit).await }));
    let rows: Result<Vec<NumberedEvent>> = read.await;
    rows.unwrap().iter().map(|row| row.position).collect()
}

/// Every change of state adds an event in the same transaction, with its actor.
pub async fn a_change_is_an_event_of_its_transaction(store: &Store) {
    let open = &round(1, 1, 1);
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.act_for(ann());
                tx.insert_task(&task(1, "one")).await?;
                tx.insert_model_version(&model_version(1, 0)).await?;
                tx.insert_round(open).await?;
                tx.insert_participant(&participant(1)).await?;
                assert!(tx.unnumbered_events(9).await?.is_empty(), "they are written with the commit");
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let undone: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert!(tx.revoke_participant(participant_id(1), after(1)).await?);
                Err(StoreError::fault("no"))
            })
        })
        .await;
    assert!(undone.is_err());
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                let failed =
                    Round { failure: Some(FailureReason::QuorumLost), ..moved(open, RoundState::Failed, after(5)) };
                assert!(tx.transition_round(open, &failed).await?);
                assert!(!tx.transition_round(open, &failed).await?, "nothing changes, and nothing is told");
                assert!(tx.rebase_task(task_id(1), TaskStatus::Active, 3, after(6), "beyond 4").await?);
                let from = [TaskStatus::Active];
                assert!(tx.set_task_status(task_id(1), &from, TaskStatus::Paused, after(7), None).await?);
                assert!(!tx.set_task_status(task_id(1), &from, TaskStatus::Paused, after(8), None).await?);
                assert!(tx.pin_version(task_id(1), 0, true, after(9)).await?);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    assert_eq!(number_all(store).await.unwrap(), 8);
    assert_eq!(number_all(store).await.unwrap(), 0);
    let log = numbered(store, 0, &EventFilter::default(), 100).await;
    let kinds: Vec<_> = log.iter().map(|row| row.event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::TaskCreated,
            EventKind::VersionPublished,
            EventKind::RoundOpened,
            EventKind::ParticipantEnrolled,
            EventKind::RoundFailed,
            EventKind::TaskRebased,
            EventKind::TaskPaused,
            EventKind::VersionPinned,
        ]
    );
    assert!(log[..4].iter().all(|row| row.event.actor == ann()));
    assert!(log[4..].iter().all(|row| row.event.actor == Actor::Coordinator));
    let expected = Subject::Round(open.key).event(
        after(5),
        EventKind::RoundFailed,
        Actor::Coordinator,
        [("reason", Fact::from("quorum_lost"))],
    );
    assert_eq!(log[4], NumberedEvent { position: 5, event: expected, hash: digest(5) });
}

/// Pages continue after a position; filters narrow them down.
pub async fn events_are_listed_after_a_position_and_filtered(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 0..3_i64 {
                    for of in 1..=2 {
                        let subject = Subject::Task(task_id(of));
                        let kind = if n == 1 { EventKind::TaskPaused } else { EventKind::TaskResumed };
                        tx.note_event(after(n), kind, subject, [("n", Fact::Number(n))]);
                    }
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    assert_eq!(number_all(store).await.unwrap(), 6);
    let positions = async |after, filter: EventFilter, limit| -> Vec<u64> {
        numbered(store, after, &filter, limit).await.iter().map(|row| row.position).collect()
    };
    let all = EventFilter::default();
    assert_eq!(positions(0, all.clone(), 4).await, [1, 2, 3, 4]);
    assert_eq!(positions(4, all.clone(), 4).await, [5, 6]);
    assert_eq!(positions(6, all.clone(), 4).await, [0; 0]);
    let of_two = EventFilter { task: Some(task_id(2)), ..all.clone() };
    assert_eq!(positions(0, of_two.clone(), 9).await, [2, 4, 6]);
    let paused = EventFilter { kinds: vec![EventKind::TaskPaused, EventKind::TaskCreated], ..all.clone() };
    assert_eq!(positions(0, paused.clone(), 9).await, [3, 4]);
    assert_eq!(positions(0, EventFilter { since: Some(after(1)), ..all }, 9).await, [3, 4, 5, 6]);
    let within = |tasks: &[u128], task: Option<u128>| EventFilter {
        task: task.map(task_id),
        scope: TaskScope::Only(tasks.iter().copied().map(task_id).collect()),
        ..EventFilter::default()
    };
    assert_eq!(positions(0, within(&[2], None), 9).await, [2, 4, 6]);
    assert_eq!(positions(1, within(&[1, 2, 9], None), 3).await, [2, 3, 4]);
    assert_eq!(positions(0, within(&[1, 2], Some(1)), 9).await, [1, 3, 5]);
    assert!(positions(0, within(&[2, 9], Some(1)), 9).await.is_empty(), "a task outside");
    let narrow = EventFilter { since: Some(after(1)), ..of_two };
    let log = numbered(store, 0, &EventFilter::default(), 9).await;
    let taken: Vec<_> = log.iter().filter(|row| narrow.takes(&row.event)).map(|row| row.position).collect();
    assert_eq!(positions(0, narrow, 9).await, taken);
    let before = async |position, filter: EventFilter| {
        found(store, position, EventSearch { filter, ..EventSearch::default() }, 2).await
    };
    assert_eq!(before(None, EventFilter::default()).await, [6, 5]);
    assert_eq!(before(Some(5), EventFilter::default()).await, [4, 3]);
    assert_eq!(before(Some(6), EventFilter { task: Some(task_id(2)), ..EventFilter::default() }).await, [4, 2]);
    let taken: Vec<_> = log.iter().filter(|row| paused.takes(&row.event)).map(|row| row.position).collect();
    assert_eq!(taken, [3, 4]);
}

/// Events are filtered by actor, and by the time before which they happened.
pub async fn events_are_found_by_who_and_when(store: &Store) {
    let participant = Actor::Participant { participant: participant_id(1) };
    let identity = Actor::Identity { issuer: "https://a.example".to_owned(), subject_sha256: digest(9) };
    for (n, actor) in (0_i64..).zip([Actor::Coordinator, ann(), participant, ann(), identity]) {
        let (actor, of) = (&actor, task_id(if n % 2 == 0 { 1 } else { 2 }));
        let result: Result<()> = store
            .transact("test", |tx| {
                Box::pin(async move {
                    tx.act_for(actor.clone());
                    tx.note_event(after(n), EventKind::TaskPaused, Subject::Task(of), []);
                    Ok(())
                })
            })
            .await;
        result.unwrap();
    }
    assert_eq!(number_all(store).await.unwrap(), 5);
    let (coordinator, name) = (ActorFilter::Coordinator, |name: &str| ActorFilter::Name(name.to_owned()));
    let token = ActorFilter::Id(Uuid::from_u128(7).to_string());
    let participant = ActorFilter::Id(participant_id(1).to_string());
    let identity = ActorFilter::Id(digest(9).to_string());
    let anybody = [&coordinator, &token, &participant, &identity, &name("ann")];
    let all = EventFilter::default();
    let of_two = EventFilter { task: Some(task_id(2)), ..all.clone() };
    let both = EventFilter { scope: TaskScope::Only(vec![task_id(1), task_id(2)]), ..all.clone() };
    let none = EventFilter { scope: TaskScope::Only(vec![]), ..all.clone() };
    for (filter, actors, until, positions) in [
        (&all, &[&coordinator][..], None, &[1][..]),
        (&all, &[&name("ann")], None, &[4, 2]),
        (&all, &[&name("an")], None, &[]),
        (&all, &[&name("operator")], None, &[]),
        (&all, &[&token], None, &[4, 2]),
        (&all, &[&participant], None, &[3]),
        (&all, &[&identity], None, &[5]),
        (&all, &[&name("ann"), &participant], None, &[4, 3, 2]),
        (&all, &anybody, None, &[5, 4, 3, 2, 1]),
        (&all, &[], Some(2), &[2, 1]),
        (&all, &[], Some(0), &[]),
        (&all, &[&token], Some(2), &[2]),
        (&of_two, &[&token], None, &[4, 2]),
        (&of_two, &[&participant], None, &[]),
        (&of_two, &[], Some(3), &[2]),
        (&both, &[&participant], None, &[3]),
        (&both, &[], Some(3), &[3, 2, 1]),
        (&none, &[&token], None, &[]),
    ] {
        let actors = actors.iter().copied().cloned().collect();
        let search = EventSearch { filter: filter.clone(), until: until.map(after), actors };
        assert_eq!(found(store, None, search.clone(), 9).await, positions, "{search:?}");
        let first = &positions[..positions.len().min(2)];
        assert_eq!(found(store, None, search.clone(), 2).await, first, "a page of {search:?}");
        let rest = &positions[first.len()..];
        assert_eq!(found(store, first.last().copied(), search.clone(), 9).await, rest, "the rest of {search:?}");
    }
}

/// A line of a query's plan, in the column that the database has for it.
struct PlanLine(String);

impl FromRow for PlanLine {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        row.get("QUERY PLAN").or_else(|_| row.get("detail")).map(Self)
    }
}

/// An index finds the few events of one actor in a long log, once the database has statistics of its rows.
pub async fn events_of_an_actor_are_found_by_an_index(store: &Store) {
    const EVENTS: u32 = 2_000;
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 0..EVENTS {
                    tx.act_for(if n % 50 == 0 { ann() } else { Actor::Coordinator });
                    tx.note_event(after(n.into()), EventKind::TaskPaused, Subject::Task(task_id(1)), []);
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let result: Result<()> = store
        .transact("number", |tx| {
            Box::pin(async move {
                let rows = tx.unnumbered_events(EVENTS).await?;
                let placings = rows.iter().zip(1_u64..);
                let placings = placings.map(|(row, position)| Placing { id: row.id, position, hash: digest(1) });
                tx.number_events(&placings.collect::<Vec<_>>()).await
            })
        })
        .await;
    result.unwrap();
    for (actor, index) in [
        (ActorFilter::Id(Uuid::from_u128(7).to_string()), "event_actor "),
        (ActorFilter::Name("ann".to_owned()), "event_actor_name "),
    ] {
        let (sql, named) = actor.sql();
        let explained: &'static str = Box::leak(format!("{} {}", store.rows.explain(), sql.of_all).into_boxed_str());
        let filter = &EventFilter::default();
        // In one transaction: an open connection of SQLite does not see the statistics that another one gathered.
        let result: Result<Vec<PlanLine>> = store
            .transact("test", |tx| {
                Box::pin(async move {
                    tx.change_all("ANALYZE event", ()).await?;
                    tx.list(explained, (within(filter, None, i64::MAX.unsigned_abs(), 50), named)).await
                })
            })
            .await;
        let plan: Vec<_> = result.unwrap().into_iter().map(|PlanLine(line)| line).collect();
        assert!(plan.iter().any(|line| line.contains(index)), "{plan:#?}");
    }
}

/// An event gets one position, and a position one event, with any number of writers.
pub async fn an_event_gets_one_position(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                for n in 0..3 {
                    tx.note_event(after(n), EventKind::TaskPaused, Subject::Task(task_id(1)), []);
                }
                Ok(())
            })
        })
        .await;
    result.unwrap();
    let result: Result<Vec<_>> =
        store.read("test", |tx| Box::pin(async move { tx.unnumbered_events(100).await })).await;
    let ids: Vec<_> = result.unwrap().iter().map(|row| row.id).collect();
    assert!(ids.is_sorted());
    let (first, second) = (placing(ids[0], 1), placing(ids[1], 1));
    let give = async |placing: Placing| -> Result<()> {
        store.transact("test", |tx| Box::pin(async move { tx.number_events(&[placing]).await })).await
    };
    give(first).await.unwrap();
    assert!(matches!(give(first).await, Err(StoreError::Conflict(_))), "it has one");
    assert!(matches!(give(placing(ids[0], 2)).await, Err(StoreError::Conflict(_))), "it has another");
    assert!(matches!(give(second).await, Err(StoreError::Conflict(_))), "the position is taken");
    // Two independent workers run concurrently: all rows have positions in the end, without gaps.
    let (one, other) = tokio::join!(number_all(store), number_all(store));
    for numbering in [one, other] {
        assert!(matches!(numbering, Ok(_) | Err(StoreError::Busy | StoreError::Conflict(_))), "{numbering:?}");
    }
    number_all(store).await.unwrap();
    let log = numbered(store, 0, &EventFilter::default(), 9).await;
    assert_eq!(log.iter().map(|row| row.position).collect::<Vec<_>>(), [1, 2, 3]);
    let result: Result<Option<(u64, Digest)>> =
        store.read("test", |tx| Box::pin(async move { tx.last_event().await })).await;
    assert_eq!(result.unwrap(), Some((3, digest(3))));
}

/// The database itself rejects every statement that changes or removes an event.
pub async fn an_event_is_never_changed(store: &Store) {
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                tx.note_event(NOW, EventKind::TaskPaused, Subject::Task(task_id(1)), []);
                Ok(())
            })
        })
        .await;
    result.unwrap();
    for is_numbered in [false, true] {
        if is_numbered {
            assert_eq!(number_all(store).await.unwrap(), 1);
        }
        refused!(store, |tx| tx.change("UPDATE event SET at = at + 1", ()));
        refused!(store, |tx| tx.change("UPDATE event SET body = '[]'", ()));
        refused!(store, |tx| tx.change("DELETE FROM event", ()));
    }
    refused!(store, |tx| tx.change("UPDATE event SET position = 2", ()));
    refused!(store, |tx| tx.change("UPDATE event SET position = NULL, hash = NULL", ()));
    assert_eq!(numbered(store, 0, &EventFilter::default(), 9).await.len(), 1);
}

/// Heads are kept, one for a position.
pub async fn heads_are_kept(store: &Store) {
    let head = |position: u64| AuditHead {
        position,
        hash: digest(1),
        at: NOW,
        public_key: vec![2; 32],
        signature: vec![3; 64],
    };
    let (first, second) = (&head(3), &head(300));
    let result: Result<()> = store
        .transact("test", |tx| {
            Box::pin(async move {
                assert_eq!(tx.last_audit_head().await?, None);
                tx.insert_audit_head(second).await?;
                tx.insert_audit_head(first).await?;
                assert_eq!(tx.last_audit_head().await?.as_ref(), Some(second));
                assert_eq!(tx.audit_heads(0, 9).await?, [first.clone(), second.clone()]);
                assert_eq!(tx.audit_heads(3, 9).await?, std::slice::from_ref(second));
                Ok(())
            })
        })
        .await;
    result.unwrap();
    refused!(store, |tx| tx.insert_audit_head(first));
    let bad = &AuditHead { signature: vec![3; 63], ..head(4) };
    refused!(store, |tx| tx.insert_audit_head(bad));
}
