//! Request bodies, with limits on size, time and total memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use wire::problem::ProblemType;

use super::problem::Refusal;

/// Timeout of a body.
const BODY: Duration = Duration::from_secs(30);
/// A longer body does not arrive with the head: the client gets 100 Continue when there is room for the request.
const WITH_HEAD: u64 = 64 << 10;
/// Maximum wait for the memory of a body.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a discarded body.
const UNWANTED: Duration = Duration::from_secs(1);
/// Maximum bytes of bodies in memory, or this many bodies of maximum size if that is more.
const AT_ONCE: usize = 256 << 20;
const LARGEST_AT_ONCE: usize = 4;

/// Memory budget of the bodies being read.
pub(in crate::server) struct Bodies {
    /// Maximum size of a body.
    most: usize,
    free: Semaphore,
}

/// A body and its reserved memory.
#[derive(Debug, Default)]
pub(super) struct Whole<'a> {
    pub(super) bytes: Bytes,
    memory: Option<SemaphorePermit<'a>>,
}

/// Why reading a body failed.
enum Stopped {
    TooLong,
    CutOff,
    NoMemory,
}

/// Result of a non-blocking read.
type Look<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

impl Bodies {
    /// `most`: maximum size of a body.
    pub(in crate::server) fn new(most: usize) -> Self {
        Self::within(most, most.saturating_mul(LARGEST_AT_ONCE).max(AT_ONCE))
    }

    fn within(most: usize, at_once: usize) -> Self {
        Self { most, free: Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)) }
    }

    /// Reads the body of an authorized request. If the body did not arrive with the head, calls `begins` first and
    /// keeps its result during the read.
    ///
    /// # Errors
    /// The body is too long, too slow or truncated, there is no memory, or `begins` fails.
    pub(super) async fn read<B, A>(
        &self,
        mut body: B,
        begins: impl FnOnce() -> Result<A, Refusal>,
    ) -> Result<(Whole<'_>, Option<A>), Refusal>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let is_too_long = usize::try_from(body.size_hint().lower()).map_or(true, |length| length > self.most);
        let first = if body.size_hint().lower() > WITH_HEAD {
            Poll::Pending
        } else {
            poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await
        };
        let begun = if first.is_ready() && body.is_end_stream() { None } else { Some(begins()) };
        let begun = match begun.transpose() {
            Ok(begun) => begun,
            Err(refusal) => {
                drop(first);
                self.pass(&mut body).await;
                return Err(refusal);
            }
        };
        let reading = async {
            let read = if is_too_long { Err(Stopped::TooLong) } else { self.rest(&mut body, first).await };
            if matches!(read, Err(Stopped::TooLong)) {
                discard(&mut body, self.most.saturating_mul(4)).await;
            }
            read
        };
        let late = |_| Refusal::new(ProblemType::TooSlow, format!("the body took longer than {} s", BODY.as_secs()));
        let read = timeout(BODY, reading).await.map_err(late)?;
        match read {
            Ok(whole) => Ok((whole, begun)),
            Err(Stopped::TooLong) => {
                Err(Refusal::new(ProblemType::TooLarge, format!("the body may have at most {} bytes here", self.most)))
            }
            Err(Stopped::CutOff) => Err(Refusal::new(ProblemType::MalformedRequest, "the body was cut off")),
            Err(Stopped::NoMemory) => {
                self.pass(&mut body).await;
                Err(Refusal::new(ProblemType::Unavailable, "too many bodies are read now; try again later"))
            }
        }
    }

    /// Continues after the first read. Memory is reserved per received piece, so slow senders hold only what they sent.
    async fn rest<B>(&self, body: &mut B, first: Look<B::Error>) -> Result<Whole<'_>, Stopped>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (mut whole, mut joined, mut look) = (Whole::default(), Vec::new(), first);
        loop {
            let next = match look {
                Poll::Ready(next) => next,
                Poll::Pending => body.frame().await,
            };
            let Some(frame) = next else { break };
            if let Ok(piece) = frame.map_err(|_| Stopped::CutOff)?.into_data() {
                let length = whole.bytes.len() + joined.len();
                if piece.len() > self.most - length {
                    return Err(Stopped::TooLong);
                }
                let memory = self.memory(piece.len()).await.ok_or(Stopped::NoMemory)?;
                match &mut whole.memory {
                    Some(all) => all.merge(memory),
                    None => whole.memory = Some(memory),
                }
                // Nearly every body is one piece, which is not copied.
                if length == 0 {
                    whole.bytes = piece;
                } else {
                    joined.extend_from_slice(&std::mem::take(&mut whole.bytes));
                    joined.extend_from_slice(&piece);
                }
            }
            if body.is_end_stream() {
                break;
            }
            look = Poll::Pending;
        }
        if !joined.is_empty() {
            whole.bytes = joined.into();
        }
        Ok(whole)
    }

    /// Reserves memory until it is dropped; `None` if that takes too long.
    async fn memory(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(memory) = self.free.try_acquire_many(count) {
            return Some(memory);
        }
        timeout(READ_TIMEOUT, self.free.acquire_many(count)).await.ok()?.ok()
    }

    /// Reads and discards the body of a rejected request.
    async fn pass<B>(&self, body: &mut B)
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let _ = timeout(UNWANTED, discard(body, self.most)).await;
    }
}

/// Discards the rest of a body: a client whose upload is reset may not see the answer.
async fn discard<B>(body: &mut B, most: usize)
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut left = most;
    while let Some(Ok(frame)) = body.frame().await {
        match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::task::Context;

    use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

    use super::*;

    /// The bytes that a client sends until it is dropped.
    struct Sent(UnboundedReceiver<Bytes>);

    impl HttpBody for Sent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_closed() && self.0.is_empty()
        }
    }

    fn sending() -> (UnboundedSender<Bytes>, Sent) {
        let (sender, receiver) = unbounded_channel();
        (sender, Sent(receiver))
    }

    /// A body of this length that has arrived.
    fn there(bytes: usize) -> Sent {
        let (sender, sent) = sending();
        sender.send(vec![7; bytes].into()).unwrap();
        sent
    }

    async fn read(bodies: &Bodies, body: Sent) -> Result<Whole<'_>, u16> {
        bodies.read(body, || Ok(())).await.map(|(whole, _)| whole).map_err(|refusal| refusal.status())
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_holds_what_was_sent_and_what_finds_no_memory_is_refused() {
        let bodies = Arc::new(Bodies::within(10, 12));
        let (slow, body) = sending();
        let reading = tokio::spawn({
            let bodies = Arc::clone(&bodies);
            async move { read(&bodies, body).await.map(|whole| whole.bytes.to_vec()) }
        });
        slow.send(vec![1; 4].into()).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(bodies.free.available_permits(), 8, "it counts by what came, whatever is to come");
        let other = read(&bodies, there(8)).await.unwrap();
        assert_eq!(bodies.free.available_permits(), 0);
        assert_eq!(read(&bodies, there(1)).await.err(), Some(503));
        assert!(read(&bodies, there(0)).await.is_ok(), "nothing needs no room");
        let (waiting, ()) = tokio::join!(read(&bodies, there(8)), async {
            tokio::time::sleep(READ_TIMEOUT / 2).await;
            drop(other);
        });
        assert_eq!(waiting.unwrap().bytes.len(), 8, "for a short time it waits");
        slow.send(vec![2; 2].into()).unwrap();
        drop(slow);
        assert_eq!(reading.await.unwrap(), Ok(vec![1, 1, 1, 1, 2, 2]), "in the order in which it came");
        assert_eq!(bodies.free.available_permits(), 12, "what was read and dropped makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_announced_if_more_of_it_has_to_come() {
        let bodies = Bodies::within(10, 20);
        let (whole, begun) = bodies.read(there(4), || Ok(1)).await.unwrap();
        assert_eq!((whole.bytes.len(), begun), (4, None));
        let (sender, body) = sending();
        sender.send(vec![1; 4].into()).unwrap();
        let (read, ()) = tokio::join!(bodies.read(body, || Ok(1)), async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(sender);
        });
        assert_eq!(read.unwrap().1, Some(1));
        let full = || Err::<(), _>(Refusal::new(ProblemType::RateLimited, "full"));
        let (_sender, body) = sending();
        assert_eq!(bodies.read(body, full).await.err().map(|refusal| refusal.status()), Some(429));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_long_or_too_slow_is_refused_and_makes_room() {
        let bodies = Bodies::within(10, 20);
        assert_eq!(read(&bodies, there(10)).await.map(|whole| whole.bytes.len()), Ok(10));
        assert_eq!(read(&bodies, there(11)).await.err(), Some(413));
        let (sender, body) = sending();
        for _ in 0..3 {
            sender.send(vec![1; 4].into()).unwrap();
        }
        drop(sender);
        assert_eq!(read(&bodies, body).await.err(), Some(413));
        let (_sender, body) = sending();
        assert_eq!(read(&bodies, body).await.err(), Some(408));
        assert_eq!(bodies.free.available_permits(), 20);
    }

    #[tokio::test]
    async fn there_is_room_for_some_of_the_largest() {
        let bodies = Bodies::new(AT_ONCE);
        let mut kept = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            kept.push(bodies.memory(AT_ONCE).await.unwrap());
        }
        assert_eq!(bodies.free.available_permits(), 0);
    }
}
