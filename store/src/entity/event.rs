//! Events: the change, its time and its actor. A row is written in the transaction that makes the change, and gets its
//! position in the log afterwards. Rows are permanent; of a row only `position` and `hash` are set, once.

use std::cmp::Reverse;

use federation::event::{Actor, Event, EventKind, Fact, Subject};
use federation::id::{Digest, TaskId};
use federation::time::Timestamp;

use crate::driver::{Bind, FromRow, Row, Value};
use crate::entity::token::TaskScope;
use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

/// An event with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Counts from 1, without gaps.
    pub position: u64,
    pub event: Event,
    /// Of the chain up to here.
    pub hash: Digest,
}

/// An event without a position yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnnumberedEvent {
    /// Grows in the order of writing, which is not that of commits.
    pub id: u64,
    pub event: Event,
}

/// The place that an event gets in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// Number of the event's row, ascending in time.
    pub id: u64,
    pub position: u64,
    /// Of the chain up to here.
    pub hash: Digest,
}

/// Which numbered events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only those of this task.
    pub task: Option<TaskId>,
    /// Only those of these kinds; empty: of every kind.
    pub kinds: Vec<EventKind>,
    /// Only those that happened then or later.
    pub since: Option<Timestamp>,
    /// Only those visible to the caller.
    pub scope: TaskScope,
}

/// Filters of the list of numbered events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventSearch {
    pub filter: EventFilter,
    /// Only those that happened before this time.
    pub until: Option<Timestamp>,
    /// Only those of one of these; empty: of anybody.
    pub actors: Vec<ActorFilter>,
}

/// Whose events are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActorFilter {
    /// The coordinator's own.
    Coordinator,
    /// Only those of this actor: id of an operator token or participant, or SHA-256 of an identity.
    Id(String),
    /// Those of operator tokens with this name.
    Name(String),
}

/// A signed statement that the log had this hash at this position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditHead {
    pub position: u64,
    pub hash: Digest,
    /// When it was signed.
    pub at: Timestamp,
    /// Ed25519 key, 32 bytes.
    pub public_key: Vec<u8>,
    /// Ed25519 signature, 64 bytes.
    pub signature: Vec<u8>,
}

record!("audit_head", AuditHead { position, hash, at, public_key, signature });

impl EventFilter {
    fn kinds(&self) -> &[EventKind] {
        if self.kinds.is_empty() { &EventKind::ALL } else { &self.kinds }
    }

    /// Whether the event is wanted.
    #[must_use]
    pub fn takes(&self, event: &Event) -> bool {
        self.scope.has(event.task)
            && self.task.is_none_or(|task| event.task == Some(task))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.since.is_none_or(|since| event.at >= since)
    }
}

/// Queries of events for the tasks that may be wanted.
pub(crate) struct EventsSql {
    pub(crate) of_all: &'static str,
    /// By the index of tasks, in its order.
    of_task: &'static str,
    of_tasks: &'static str,
}

/// Queries of the events at some positions, in an order; or of those before a position that meet a condition for the actor `?6`, by an
/// index of actors in its order, if there is one.
macro_rules! events {
    ($position:literal, $order:literal) => {
        EventsSql {
            of_all: events!("", $position, $order),
            of_task: events!("task = ?6 AND ", $position, $order),
            of_tasks: events!("task IN {?6 task:bytes} AND ", $position, $order),
        }
    };
    (by $actor:literal) => {
        EventsSql {
            of_all: events!(concat!($actor, " = ?6 AND "), "position < ?1", " DESC"),
            of_task: events!(concat!($actor, " = ?6 AND task = ?7 AND "), "position < ?1", " DESC"),
            of_tasks: events!(concat!($actor, " = ?6 AND task IN {?7 task:bytes} AND "), "position < ?1", " DESC"),
        }
    };
    ($condition:expr, $position:literal, $order:literal) => {
        concat!(
            "SELECT * FROM event WHERE ",
            $condition,
            $position,
            " AND at >= ?2 AND at < ?5 AND kind IN {?3 kind:text} ORDER BY position",
            $order,
            " LIMIT ?4"
        )
    };
}

impl ActorFilter {
    /// The queries of the actor's events, and the value of `?6` there.
    pub(crate) fn sql(&self) -> (EventsSql, &str) {
        match self {
            Self::Coordinator => (events!(by "{text actor by}"), "coordinator"),
            Self::Id(id) => (
                events!(by "coalesce({text actor token}, {text actor participant}, {text actor subject_sha256})"),
                id.as_str(),
            ),
            Self::Name(name) => (events!(by "{text actor name}"), name.as_str()),
        }
    }
}

impl Transaction<'_> {
    /// Sets the actor of this transaction's changes. Default: the coordinator.
    pub fn act_for(&mut self, actor: Actor) {
        self.actor = actor;
    }

    /// Notes an event, which is written when the transaction commits.
    pub fn note_event(
        &mut self,
        at: Timestamp,
        kind: EventKind,
        subject: Subject,
        facts: impl IntoIterator<Item = (&'static str, Fact)>,
    ) {
        self.events.push(subject.event(at, kind, self.actor.clone(), facts));
    }

    /// How many events this transaction has noted so far.
    #[must_use]
    pub fn noted_events(&self) -> usize {
        self.events.len()
    }

    /// Writes the noted events in one statement; returns whether there were any.
    pub(crate) async fn write_events(&mut self) -> Result<bool> {
        let rows: Vec<_> =
            std::mem::take(&mut self.events).into_iter().zip(0_u32..).map(|(e, n)| NewRow(n, e)).collect();
        if rows.is_empty() {
            return Ok(false);
        }
        self.change_of(
            rows.len(),
            "INSERT INTO event (at, kind, task, number, attempt, actor, body)
             SELECT at, kind, task, number, attempt, actor, body
             FROM {?1 place:integer at:integer kind:text task:bytes number:integer attempt:integer actor:text body:text}
                  AS noted
             ORDER BY place",
            &rows,
        )
        .await?;
        Ok(true)
    }

    /// Events without a position, in the order of writing.
    pub async fn unnumbered_events(&mut self, limit: u32) -> Result<Vec<UnnumberedEvent>> {
        self.list("SELECT * FROM event WHERE position IS NULL ORDER BY id LIMIT ?1", limit).await
    }

    /// Gives events their positions.
    ///
    /// # Errors
    /// `Conflict` if one has a position already, or another event has that position.
    pub async fn number_events(&mut self, placings: &[Placing]) -> Result<()> {
        let changed = self
            .change_of(
                placings.len(),
                "UPDATE event SET position = given.position, hash = given.hash
                 FROM {?1 id:integer position:integer hash:bytes} AS given
                 WHERE event.id = given.id AND event.position IS NULL",
                placings,
            )
            .await?;
        match usize::try_from(changed) {
            Ok(changed) if changed == placings.len() => Ok(()),
            _ => Err(StoreError::Conflict(format!("{changed} of {} events had no position", placings.len()))),
        }
    }

    /// The end of the log: its last position, and the hash there. `None` if the log is empty.
    pub async fn last_event(&mut self) -> Result<Option<(u64, Digest)>> {
        self.find("SELECT position, hash FROM event WHERE position IS NOT NULL ORDER BY position DESC LIMIT 1", ())
            .await
    }

    /// Events after a position, in order.
    pub async fn events_after(
        &mut self,
        position: u64,
        filter: &EventFilter,
        limit: u32,
    ) -> Result<Vec<NumberedEvent>> {
        self.events(filter, events!("position > ?1", ""), within(filter, None, position, limit)).await
    }

    /// Events before a position, or the newest ones, newest first.
    pub async fn events_before(
        &mut self,
        position: Option<u64>,
        search: &EventSearch,
        limit: u32,
    ) -> Result<Vec<NumberedEvent>> {
        let EventSearch { filter, until, actors } = search;
        let within = within(filter, *until, position.unwrap_or(i64::MAX.unsigned_abs()), limit);
        if actors.is_empty() {
            return self.events(filter, events!("position < ?1", " DESC"), within).await;
        }
        let mut found: Vec<NumberedEvent> = Vec::new();
        for actor in actors {
            let (sql, named) = actor.sql();
            found.extend(self.events(filter, sql, (within, named)).await?);
        }
        found.sort_by_key(|row| Reverse(row.position));
        found.dedup_by_key(|row| row.position);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Those of a filter's tasks; `wanted` are the arguments before the tasks.
    async fn events(&mut self, filter: &EventFilter, sql: EventsSql, wanted: impl Bind) -> Result<Vec<NumberedEvent>> {
        match filter.scope.tasks(filter.task).as_deref() {
            Some([]) => Ok(Vec::new()),
            None => self.list(sql.of_all, wanted).await,
            Some([task]) => self.list(sql.of_task, (wanted, *task)).await,
            Some(tasks) => self.list(sql.of_tasks, (wanted, tasks)).await,
        }
    }

    /// Stores a signed head.
    ///
    /// # Errors
    /// `Conflict` if there is one of this position.
    pub async fn insert_audit_head(&mut self, head: &AuditHead) -> Result<()> {
        self.insert(head).await
    }

    /// The newest signed head.
    pub async fn last_audit_head(&mut self) -> Result<Option<AuditHead>> {
        self.find("SELECT * FROM audit_head ORDER BY position DESC LIMIT 1", ()).await
    }

    /// Signed heads after a position, in order.
    pub async fn audit_heads(&mut self, after: u64, limit: u32) -> Result<Vec<AuditHead>> {
        self.list("SELECT * FROM audit_head WHERE position > ?1 ORDER BY position LIMIT ?2", (after, limit)).await
    }
}

/// The values of `?1` to `?5` in a query of events.
pub(crate) type Within<'f> = (u64, Timestamp, &'f [EventKind], u32, Timestamp);

pub(crate) fn within(filter: &EventFilter, until: Option<Timestamp>, position: u64, limit: u32) -> Within<'_> {
    let since = filter.since.unwrap_or(Timestamp(i64::MIN));
    (position, since, filter.kinds(), limit, until.unwrap_or(Timestamp(i64::MAX)))
}

/// An event to be written, with its place among those of its transaction.
struct NewRow(u32, Event);

impl Bind for NewRow {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        let Self(place, Event { at, kind, task, round, attempt, actor, body }) = self;
        place.bind(to)?;
        at.bind(to)?;
        kind.bind(to)?;
        task.bind(to)?;
        round.bind(to)?;
        attempt.bind(to)?;
        actor.bind(to)?;
        body.bind(to)
    }
}

impl Bind for Placing {
    fn bind<'q>(&'q self, to: &mut Vec<Value<'q>>) -> Result<()> {
        self.id.bind(to)?;
        self.position.bind(to)?;
        self.hash.bind(to)
    }
}

impl FromRow for UnnumberedEvent {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self { id: row.get("id")?, event: event(row)? })
    }
}

impl FromRow for NumberedEvent {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self { position: row.get("position")?, event: event(row)?, hash: row.get("hash")? })
    }
}

fn event(row: &Row<'_>) -> Result<Event> {
    Ok(Event {
        at: row.get("at")?,
        kind: row.get("kind")?,
        task: row.get("task")?,
        round: row.get("number")?,
        attempt: row.get("attempt")?,
        actor: row.get("actor")?,
        body: row.get("body")?,
    })
}
