//! Bodies of requests: within limits of size and time, and of the memory for all of them together.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use wire::problem::ProblemType;

use super::problem::Refusal;

/// Time for a body to come.
const BODY: Duration = Duration::from_secs(30);
/// Longest wait for the memory of a body.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time for a body that is not kept.
const UNWANTED: Duration = Duration::from_secs(1);
/// Bytes of bodies in memory at once, or so many of the largest, if that is more.
const AT_ONCE: usize = 256 << 20;
const LARGEST_AT_ONCE: usize = 4;

/// Memory for the bodies that are read, and for none beyond.
pub(in crate::serving) struct Bodies {
    /// Most bytes of one.
    most: usize,
    free: Semaphore,
}

impl Bodies {
    /// `most`: bytes of one body.
    pub(in crate::serving) fn new(most: usize) -> Self {
        Self::within(most, most.saturating_mul(LARGEST_AT_ONCE).max(AT_ONCE))
    }

    fn within(most: usize, at_once: usize) -> Self {
        Self { most, free: Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)) }
    }

    /// Memory for a body of this length, if it is known, until the permit is dropped.
    ///
    /// # Errors
    /// There is none for a while.
    pub(super) async fn reserve(&self, length: Option<u64>) -> Result<SemaphorePermit<'_>, Refusal> {
        let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX).min(self.most);
        let free = self.free.acquire_many(u32::try_from(length).unwrap_or(u32::MAX));
        match timeout(PATIENCE, free).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(Refusal::new(ProblemType::Unavailable, "too many bodies are read now; try again later"))
            }
        }
    }

    /// The body of somebody who was let in.
    ///
    /// # Errors
    /// It is too long, too slow, or cut off.
    pub(super) async fn read(&self, mut body: Body) -> Result<Bytes, Refusal> {
        let most = self.most;
        let late = |_| Refusal::new(ProblemType::TooSlow, format!("the body took longer than {} s", BODY.as_secs()));
        let read = async {
            let read = Limited::new(&mut body, most).collect().await;
            if read.as_ref().is_err_and(|error| error.is::<LengthLimitError>()) {
                discard(&mut body, most.saturating_mul(4)).await;
            }
            read
        };
        let read = timeout(BODY, read).await.map_err(late)?;
        read.map(Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                return Refusal::new(ProblemType::TooLarge, format!("the body may have at most {most} bytes here"));
            }
            Refusal::new(ProblemType::MalformedRequest, "the body was cut off")
        })
    }

    /// Lets the body of a request that is refused pass, and keeps nothing of it.
    pub(super) async fn pass(&self, mut body: Body) {
        let _ = timeout(UNWANTED, discard(&mut body, self.most)).await;
    }
}

/// Reads on in a body that is not wanted: a sender that is cut off while it writes may never see the answer.
async fn discard(body: &mut Body, most: usize) {
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
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bodies_beyond_the_memory_for_all_of_them_are_refused_until_some_are_read() {
        let bodies = Bodies::within(10, 20);
        let small = bodies.reserve(Some(4)).await.unwrap();
        let unknown = bodies.reserve(None).await.unwrap();
        let too_long = bodies.reserve(Some(1 << 40)).await;
        assert_eq!(too_long.unwrap_err().status(), 503, "it is read up to the most for one, for which 6 are too few");
        let last = bodies.reserve(Some(6)).await.unwrap();
        assert_eq!(bodies.reserve(Some(1)).await.unwrap_err().status(), 503);
        assert!(bodies.reserve(Some(0)).await.is_ok(), "nothing needs no room");
        drop(small);
        assert!(bodies.reserve(Some(4)).await.is_ok());
        let (waiting, ()) = tokio::join!(bodies.reserve(Some(10)), async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop((unknown, last));
        });
        assert!(waiting.is_ok(), "for a short time it waits");
    }

    #[tokio::test]
    async fn there_is_room_for_some_of_the_largest() {
        let most = AT_ONCE;
        let bodies = Bodies::new(most);
        let mut kept = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            kept.push(bodies.reserve(None).await.unwrap());
        }
        assert_eq!(bodies.free.available_permits(), 0);
    }
}
