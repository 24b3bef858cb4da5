//! New entries of the audit log, read and serialized as server-sent events once for all listeners of this process.
//!
//! Without listeners, the feed reads nothing. A listener reads earlier and missed entries itself. Each batch costs every listener a
//! wake-up, a TLS record and a packet, so events within a short time are batched. For listeners with gzip, a batch is also compressed once.

pub(crate) mod gzip;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use store::entity::event::EventFilter;
use store::{Store, StoreError, WakeEvent, WakeSubscription};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::audit::{Entry, EventView};

use crate::records::audit::entry;
use gzip::Piece;
use listener::PoisonFreeMutex;

/// Entries read at once.
const BATCH: u32 = 500;
/// Batches a slow listener may be behind before it reads by itself.
const BEHIND_MAX: usize = 16;
/// Minimum interval between batches, per listener and overall: an event after silence is sent at once, later ones within this time
/// together. A batch takes about 30 µs of the processor per listener, so all streams with a common filter take about a hundredth of a core,
/// however fast events arrive. Compressing a full batch for a unique filter takes about a millisecond.
const REST_EACH: Duration = Duration::from_micros(2_500);
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);
/// Maximum compressed texts kept by a batch, one for each filter; a stream with a further filter compresses by itself. Viewers choose
/// filters, and slow listeners keep batches in memory: without a limit they could fill it.
const COMPRESSED_MAX: usize = 16;
/// Interval between reads of the log without a wake-up.
const POLL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Batch(Arc<EventBatch>);

#[derive(Debug)]
struct EventBatch {
    after: u64,
    /// Each with the end of its text.
    entries: Vec<(Entry, usize)>,
    /// The concatenated events of all entries.
    text: Bytes,
    /// Requested compressed parts of the text, by range; at most [`COMPRESSED_MAX`].
    compressed: PoisonFreeMutex<HashMap<Runs, Arc<OnceLock<Piece>>>>,
}

/// Ordered byte ranges of a text, separated by gaps.
type Runs = Vec<Range<usize>>;

impl Batch {
    pub(crate) fn new(after: u64, entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut text = String::new();
        let entries = entries.into_iter().map(|entry| {
            write(&mut text, entry.clone());
            (entry, text.len())
        });
        let entries = entries.collect();
        Self(Arc::new(EventBatch { after, entries, text: text.into(), compressed: PoisonFreeMutex::default() }))
    }

    /// The position before the first entry.
    pub(crate) fn after(&self) -> u64 {
        self.0.after
    }

    /// The position of the last entry, or [`Self::after`] if empty.
    pub(crate) fn last(&self) -> u64 {
        self.0.entries.last().map_or(self.0.after, |(entry, _)| entry.position)
    }

    /// The entries after a position.
    pub(crate) fn entries_after(&self, position: u64) -> impl Iterator<Item = &Entry> {
        self.0.entries.iter().map(|(entry, _)| entry).filter(move |entry| entry.position > position)
    }

    /// Selects the entries for a stream.
    pub(crate) fn choose(&self, is_wanted: impl Fn(&Entry) -> bool) -> Chosen {
        let mut runs = Runs::new();
        let mut start = 0;
        for (entry, end) in &self.0.entries {
            if is_wanted(entry) {
                match runs.last_mut().filter(|run| run.end == start) {
                    Some(run) => run.end = *end,
                    None => runs.push(start..*end),
                }
            }
            start = *end;
        }
        Chosen { batch: self.clone(), runs }
    }
}

/// The entries of a batch selected for a stream.
#[derive(Debug)]
pub(crate) struct Chosen {
    batch: Batch,
    /// Their ranges in the batch's text.
    runs: Runs,
}

impl Chosen {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Their text; copied only if other entries lie between them.
    pub(crate) fn text(&self) -> Bytes {
        let text = &self.batch.0.text;
        match self.runs.as_slice() {
            [] => Bytes::new(),
            [run] => text.slice(run.clone()),
            runs => {
                let mut wanted = BytesMut::with_capacity(runs.iter().map(ExactSizeIterator::len).sum());
                runs.iter().for_each(|run| wanted.extend_from_slice(&text[run.clone()]));
                wanted.freeze()
            }
        }
    }

    /// Their text, compressed once for all streams with the same entries.
    pub(crate) fn compressed(&self) -> Piece {
        let compress = || Piece::compressed(&self.text());
        // Compresses outside the lock, so that streams with other filters do not wait.
        let place = self.batch.0.compressed.with(|known| {
            let has_place = known.len() < COMPRESSED_MAX || known.contains_key(&self.runs);
            has_place.then(|| Arc::clone(known.entry(self.runs.clone()).or_default()))
        });
        place.map_or_else(compress, |place| place.get_or_init(compress).clone())
    }
}

/// Interval between two batches.
fn rest_of(listeners: usize) -> Duration {
    REST_EACH.saturating_mul(u32::try_from(listeners).unwrap_or(u32::MAX)).clamp(REST_MIN, REST_MAX)
}

/// Writes an entry as a server-sent event.
fn write(text: &mut String, entry: Entry) {
    let (id, kind) = (entry.position, entry.event.kind);
    // Ids, numbers and text always serialize. JSON contains no line ends of its own.
    let data = serde_json::to_string(&EventView::from(entry)).unwrap_or_default();
    // Writing to memory always succeeds.
    let _ = write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n");
}

/// Feed of new audit log entries. Clones share it.
#[derive(Clone)]
pub(crate) struct EventFeed {
    batches: broadcast::Sender<Batch>,
    joined: Arc<Notify>,
}

impl EventFeed {
    /// Follows the log until `stopped`.
    pub(crate) fn start(store: &Store, stopped: CancellationToken, tasks: &TaskTracker) -> Self {
        let feed = Self { batches: broadcast::Sender::new(BEHIND_MAX), joined: Arc::default() };
        let (follower, store) = (feed.clone(), store.clone());
        tasks.spawn(async move { stopped.run_until_cancelled(follower.follow(&store)).await });
        feed
    }

    /// All batches from now on. The first contains only the end of the log, without entries.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Batch> {
        let batches = self.batches.subscribe();
        self.joined.notify_one();
        batches
    }

    async fn follow(&self, store: &Store) {
        loop {
            // Created before checking for listeners; otherwise one joining in between would miss a wake-up.
            let joined = self.joined.notified();
            if self.batches.receiver_count() == 0 {
                joined.await;
                continue;
            }
            let wakes = store.wake().subscribe();
            if let Err(error) = self.tell(store, wakes).await {
                tracing::warn!(%error, "the log of events cannot be read; trying again: {error}");
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Publishes new entries while there are listeners.
    async fn tell(&self, store: &Store, mut wakes: WakeSubscription) -> Result<(), StoreError> {
        let end = store.read("end of events", |tx| Box::pin(async move { tx.last_event().await })).await?;
        let mut after = end.map_or(0, |(position, _)| position);
        // Earlier listeners may lack entries up to here.
        let (mut batch, mut rest) = (Batch::new(after, []), Duration::ZERO);
        while self.batches.send(batch).is_ok() {
            tokio::time::sleep(rest).await;
            let entries = loop {
                // The next read covers all pending wake-ups.
                while wakes.next().now_or_never().flatten().is_some() {}
                let rows = store.read("new events", |tx| {
                    Box::pin(async move { tx.events_after(after, &EventFilter::default(), BATCH).await })
                });
                let rows = rows.await?;
                if !rows.is_empty() || self.batches.receiver_count() == 0 {
                    break rows;
                }
                tokio::select! {
                    () = wakes.until(|event| *event == WakeEvent::Numbered) => {}
                    () = tokio::time::sleep(POLL) => {}
                }
            };
            // After a full batch, more entries are probably waiting.
            rest = if entries.len() < BATCH as usize { rest_of(self.batches.receiver_count()) } else { Duration::ZERO };
            batch = Batch::new(after, entries.into_iter().map(entry));
            after = batch.last();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read as _;

    use federation::event::{Actor, EventKind, Subject};
    use federation::id::{Digest, TaskId};
    use federation::time::Timestamp;
    use flate2::read::GzDecoder;
    use uuid::Uuid;

    use super::gzip::GzipStream;
    use super::*;

    fn entry(position: u64) -> Entry {
        let task = TaskId(Uuid::from_u128(u128::from(position % 2)));
        let event = Subject::Task(task).event(Timestamp(0), EventKind::TaskPaused, Actor::Coordinator, []);
        Entry { position, event, hash: Digest([7; 32]) }
    }

    fn alone(position: u64) -> String {
        let mut text = String::new();
        write(&mut text, entry(position));
        text
    }

    fn text_of(batch: &Batch, is_wanted: impl Fn(&Entry) -> bool) -> Bytes {
        batch.choose(is_wanted).text()
    }

    #[test]
    fn the_more_listen_the_more_is_told_at_once() {
        let rests = [0, 1, 20, 21, 100, 400, 401, usize::MAX].map(|listeners| rest_of(listeners).as_micros());
        assert_eq!(rests, [50_000, 50_000, 50_000, 52_500, 250_000, 1_000_000, 1_000_000, 1_000_000]);
    }

    #[test]
    fn a_listener_is_told_what_it_wants_of_a_batch_and_nothing_is_copied_without_need() {
        let batch = Batch::new(3, (4..=8).map(entry));
        assert_eq!((batch.after(), batch.last()), (3, 8));
        assert!(batch.entries_after(6).map(|entry| entry.position).eq([7, 8]));
        let all = text_of(&batch, |_| true);
        assert_eq!(all, (4..=8).map(alone).collect::<String>());
        assert!(alone(4).starts_with("id: 4\nevent: task_paused\ndata: {") && alone(4).ends_with("}\n\n"));
        assert_eq!(all.as_ptr(), text_of(&batch, |_| true).as_ptr(), "one text for all");
        let rest = text_of(&batch, |entry| entry.position > 6);
        assert_eq!(rest, alone(7) + &alone(8));
        assert_eq!(rest.as_ptr_range().end, all.as_ptr_range().end);
        let of_one_task = text_of(&batch, |entry| entry.position.is_multiple_of(2));
        assert_eq!(of_one_task, alone(4) + &alone(6) + &alone(8));
        assert!(text_of(&batch, |_| false).is_empty());
        let nothing = Batch::new(9, []);
        assert_eq!((nothing.after(), nothing.last(), nothing.choose(|_| true).is_empty()), (9, 9, true));
    }

    #[test]
    fn what_several_listeners_want_is_compressed_once() {
        let batch = Batch::new(3, (4..=80).map(entry));
        let even = |entry: &Entry| entry.position.is_multiple_of(2);
        let wanted = [batch.choose(|_| true), batch.choose(even), batch.choose(|entry| entry.position > 6)];
        let sent = wanted.each_ref().map(|chosen| {
            [(), ()].map(|()| {
                let mut stream = GzipStream::default();
                // A piece in the middle of a stream is sent unchanged.
                [stream.push(&Piece::stored(b"id: 3\n\n")), stream.push(&chosen.compressed()), stream.end()]
            })
        });
        for (chosen, [one, other]) in wanted.iter().zip(&sent) {
            assert_eq!((one[1].as_ptr(), one[1].len()), (other[1].as_ptr(), other[1].len()), "one piece for both");
            assert!(one[1].len() * 2 < chosen.text().len());
            let mut told = Vec::new();
            GzDecoder::new(&one.concat()[..]).read_to_end(&mut told).unwrap();
            assert_eq!(told, [b"id: 3\n\n", &chosen.text()[..]].concat());
        }
        let places: HashSet<_> = sent.iter().map(|[one, _]| one[1].as_ptr()).collect();
        assert_eq!(places.len(), wanted.len());
    }

    #[test]
    fn of_a_batch_the_texts_of_a_few_filters_are_kept() {
        let batch = Batch::new(0, (1..=80).map(entry));
        let from = |first: u64| batch.choose(move |entry| entry.position >= first);
        let sent = |chosen: &Chosen| {
            let mut stream = GzipStream::default();
            // A piece in the middle of a stream is sent unchanged.
            let [_, piece] = [stream.push(&Piece::stored(b":\n\n")), stream.push(&chosen.compressed())];
            piece
        };
        for first in 1..=40 {
            let chosen = from(first);
            let (one, other) = (sent(&chosen), sent(&chosen));
            assert_eq!(one, other, "from {first}");
            assert_eq!(one.as_ptr() == other.as_ptr(), first <= COMPRESSED_MAX as u64, "from {first}");
        }
        assert_eq!(batch.0.compressed.lock().len(), COMPRESSED_MAX);
    }
}
