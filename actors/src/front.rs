//! The front pool: threads for work that computes but belongs to no device (templates, tokenising).
//!
//! Async handlers hand closures in and await the answer, so they never compute. The queue is bounded; a
//! closure that panics costs its own request and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Closures waiting at most; beyond that the caller hears [`FrontError::Full`].
const QUEUE_MAX: usize = 1_024;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed set of threads. Clones share it; the threads end with the last clone.
#[derive(Clone, Debug)]
pub struct FrontPool {
    jobs: flume::Sender<Job>,
}

/// Why a closure gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontError {
    /// Too many closures wait.
    #[error("too many requests are being prepared at once; try again in a second")]
    Full,
    /// The closure panicked; the pool goes on.
    #[error("preparing the request failed inside the server")]
    Panicked,
}

impl FrontPool {
    /// Starts `threads` threads (at least one).
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let (jobs, queue) = flume::bounded::<Job>(QUEUE_MAX);
        for index in 0..threads.max(1) {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("front-{index}")).spawn(move || {
                while let Ok(job) = queue.recv() {
                    // The answer's sender is dropped by the unwinding, which tells the caller.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            })?;
        }
        Ok(Self { jobs })
    }

    /// Runs `work` on one of the threads.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FrontError> {
        let (answer, wait) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(move || {
            // A caller that went away needs no answer.
            let _ = answer.send(work());
        });
        self.jobs.try_send(job).map_err(|_| FrontError::Full)?;
        wait.await.map_err(|_| FrontError::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_closure_costs_only_itself() {
        let pool = FrontPool::start(1).unwrap();
        assert_eq!(pool.run(|| -> u32 { panic!("bad template") }).await, Err(FrontError::Panicked));
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let pool = FrontPool::start(1).unwrap();
        let (open, gate) = flume::bounded::<()>(0);
        let blocker = pool.run(move || gate.recv().is_ok());
        let waiting: Vec<_> = (0..=QUEUE_MAX).map(|_| Box::pin(pool.run(|| ()))).collect();
        let mut blocker = Box::pin(blocker);
        assert!(futures::poll!(&mut blocker).is_pending());
        let mut full = 0;
        let mut kept = Vec::new();
        for mut job in waiting {
            match futures::poll!(&mut job) {
                std::task::Poll::Ready(Err(FrontError::Full)) => full += 1,
                _ => kept.push(job),
            }
        }
        assert!(full >= 1);
        open.send(()).unwrap();
        assert_eq!(blocker.await, Ok(true));
        for job in kept {
            assert_eq!(job.await, Ok(()));
        }
    }
}
