//! Threads that read and write the files of blobs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// Maximum number of threads: more would wait for the same disk, and allocators keep memory for each.
const THREADS: usize = 11;

type Job = Box<dyn FnOnce() + Send>;

/// The queue of file operations. They avoid the runtime's blocking threads, which must stay free for statements
/// that wait for the database's disk, whatever the number of uploads. A permit would not do: granting it needs the
/// runtime, which first decrypts the bytes of all uploads, while more arrive.
struct Files {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

struct Waiting {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static FILES: Files =
    Files { waiting: Mutex::new(Waiting { jobs: VecDeque::new(), threads: 0, idle: 0 }), more: Condvar::new() };

/// Runs `act` on a blocking thread as soon as one is free. Once started, it completes even if the caller is gone.
///
/// # Errors
/// A fault if `act` panics, or if a thread cannot be started.
pub async fn with_files<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (tell, told) = oneshot::channel();
    FILES.add(Box::new(move || {
        // If the caller has given up, a job that has not started is dropped.
        if !tell.is_closed() {
            let _ = tell.send(catch_unwind(AssertUnwindSafe(act)));
        }
    }))?;
    match told.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) | Err(_) => Err(StoreError::fault("a thread panicked that read or wrote files")),
    }
}

impl Files {
    /// Passes a job to an idle or a new thread; if there are enough threads, to the first that is free.
    fn add(&'static self, job: Job) -> Result<()> {
        let mut waiting = self.lock();
        waiting.jobs.push_back(job);
        if waiting.idle >= waiting.jobs.len() || waiting.threads == THREADS {
            drop(waiting);
            self.more.notify_one();
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("files".to_owned());
        match thread.spawn(move || self.work()) {
            Ok(_) => waiting.threads += 1,
            // Existing threads will process it.
            Err(_) if waiting.threads > 0 => {}
            Err(error) => {
                waiting.jobs.clear();
                return Err(StoreError::fault(error));
            }
        }
        Ok(())
    }

    /// Processes jobs as long as the process lives.
    fn work(&self) {
        loop {
            let mut waiting = self.lock();
            while waiting.jobs.is_empty() {
                waiting.idle += 1;
                waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                waiting.idle -= 1;
            }
            let job = waiting.jobs.pop_front();
            drop(waiting);
            // The job catches its own panics: see `with_files`.
            job.into_iter().for_each(|job| job());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The queue stays consistent after a panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn many_jobs_are_done_by_few_threads_and_a_panic_ends_none() {
        let threads = Mutex::new(std::collections::HashSet::new());
        let jobs = (0..200).map(|n| async move {
            let act = move || {
                assert!(n % 7 != 0, "on purpose");
                (n, std::thread::current().id())
            };
            with_files(act).await
        });
        for (n, done) in join_all(jobs).await.into_iter().enumerate() {
            match done {
                Ok((number, thread)) => {
                    assert_eq!(number, n);
                    threads.lock().unwrap().insert(thread);
                }
                Err(error) => assert!(n % 7 == 0 && matches!(error, StoreError::Fault(_)), "{error}"),
            }
        }
        assert!((1..=THREADS).contains(&threads.lock().unwrap().len()));
    }

    #[tokio::test]
    async fn what_blocks_leaves_room_for_others_up_to_the_last_thread() {
        let (release, released): (Vec<_>, Vec<_>) = (1..THREADS).map(|_| mpsc::channel::<()>()).unzip();
        let blocked: Vec<_> =
            released.into_iter().map(|released| tokio::spawn(with_files(move || released.recv().is_ok()))).collect();
        tokio::task::yield_now().await;
        for _ in 0..20 {
            assert_eq!(with_files(|| 1).await.unwrap(), 1);
        }
        for release in release {
            release.send(()).unwrap();
        }
        assert!(join_all(blocked).await.into_iter().all(|job| job.unwrap().unwrap()));
    }
}
