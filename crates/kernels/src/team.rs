//! A team of threads that runs one job at a time, together.
//!
//! [`Team::run`] is a fork and a join: every worker runs the same closure, the caller is worker 0. Inside, the
//! workers meet at [`Worker::barrier`] and divide loops with [`Worker::share`]. Nothing here allocates once the
//! team exists.
//!
//! Always holds: `run` returns only when no worker touches the job any more; a panic in one worker makes all
//! others leave at their next barrier and then surfaces in the caller, after which the team works again; an
//! idle team sleeps. Waiting spins for some microseconds, then yields, then sleeps, so that a core taken by
//! another process costs its share and no more.
//!
//! Refuses to know what the jobs compute.

mod affinity;
mod rows;
mod share;
mod signal;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use affinity::Pinning;
pub(crate) use affinity::{allowed_cpus, current_cpu};
pub use rows::SharedRows;
pub use share::Shares;

use share::LoopCounter;
use signal::{Patience, Signal};

/// How long a worker spins for others in the middle of a job: longer than most loops are uneven, far shorter
/// than a time slice.
const SPIN_IN_JOB: Duration = Duration::from_micros(40);

/// How long helpers spin for the next job: about the time between two steps of a busy server.
const SPIN_BETWEEN_JOBS: Duration = Duration::from_micros(100);

/// A fixed set of threads that runs jobs in lockstep.
#[derive(Debug)]
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

impl Team {
    /// Starts `threads - 1` helpers named `kernel-1`, `kernel-2`, ...; the caller of [`Team::run`] is the
    /// missing one, and bound here as far as `pinning` says. Zero counts as one.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn new(threads: usize, pinning: &Pinning) -> io::Result<Self> {
        let count = u32::try_from(threads.max(1)).unwrap_or(u32::MAX);
        // Before the caller is bound. A quota counts too: what is spun away is not there to compute with.
        let spins = std::thread::available_parallelism().map_or(true, |all| all.get() >= count as usize);
        pinning.bind_caller();
        let shared = Arc::new(Shared::new(count, spins));
        let mut team = Self { shared, helpers: Vec::with_capacity(threads.saturating_sub(1)) };
        for index in 1..count as usize {
            let shared = Arc::clone(&team.shared);
            let cpus = pinning.helper(index).map(<[usize]>::to_vec);
            let helper = std::thread::Builder::new().name(format!("kernel-{index}")).spawn(move || {
                if let Some(cpus) = cpus {
                    affinity::bind_current_thread(&cpus);
                }
                shared.help(index);
            })?;
            team.helpers.push(helper);
        }
        Ok(team)
    }

    /// Workers of a job, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared.count as usize
    }

    /// Runs `job` once on every worker and returns when all are done.
    ///
    /// # Panics
    /// With the first worker's panic, when one panicked. The team can be used again.
    pub fn run<F>(&mut self, job: F)
    where
        F: Fn(&Worker<'_>) + Sync,
    {
        let shared = &*self.shared;
        let done = shared.done.value();
        shared.open(&job);
        shared.work(0, &job);
        if shared.count > 1 {
            shared.done.wait_past(done, shared.in_job);
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.start.advance();
        for helper in self.helpers.drain(..) {
            // A helper catches every panic of a job, so this only waits.
            let _ = helper.join();
        }
    }
}

/// One thread's view of the running job.
#[derive(Debug)]
pub struct Worker<'team> {
    shared: &'team Shared,
    index: usize,
    /// Shared loops this worker has begun: the same number on every worker names the same loop.
    loops: Cell<u32>,
}

impl Worker<'_> {
    /// Which worker this is, from zero.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Workers of this job.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.count as usize
    }

    /// Returns when every worker has called it; all that was written before is then visible to all. Unwinds
    /// when another worker has panicked.
    pub fn barrier(&self) {
        self.shared.barrier();
    }

    /// This worker's part of a loop over `0..items`, in pieces of `grain` that go to whoever is free.
    ///
    /// Every worker must begin the same shared loops in the same order, each to its end; together the pieces
    /// cover every item once. No barrier is implied on either side.
    #[must_use]
    pub fn share(&self, items: usize, grain: usize) -> Shares<'_> {
        let id = self.loops.get() + 1;
        self.loops.set(id);
        self.shared.counter.shares(id, items, grain)
    }
}

/// A job with its lifetime erased; see the safety argument in [`Shared::open`].
type Job = *const (dyn Fn(&Worker<'_>) + Sync);

/// What a worker unwinds with when it leaves because of another's panic; never seen outside.
struct LeftEarly;

struct Shared {
    count: u32,
    in_job: Patience,
    between_jobs: Patience,
    /// Advances once a job (and once more to stop).
    start: Signal,
    /// Advances when the last helper has finished a job.
    done: Signal,
    /// Advances when all workers have reached a barrier, or when one has panicked.
    phase: Signal,
    arrived: AtomicU32,
    pending: AtomicU32,
    poisoned: AtomicBool,
    stop: AtomicBool,
    counter: LoopCounter,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    job: UnsafeCell<Option<Job>>,
}

// SAFETY: `job` is the only field that is not `Sync` by itself. It is written by the caller of `run` before
// `start` advances and read by helpers after they have seen that, and `run` waits for all of them before it
// can be called again (it takes `&mut Team`). The closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed while `run` keeps the closure alive.
unsafe impl Send for Shared {}

impl Shared {
    fn new(count: u32, may_spin: bool) -> Self {
        Self {
            count,
            in_job: Patience::new(if may_spin { SPIN_IN_JOB } else { Duration::ZERO }),
            between_jobs: Patience::new(if may_spin { SPIN_BETWEEN_JOBS } else { Duration::ZERO }),
            start: Signal::default(),
            done: Signal::default(),
            phase: Signal::default(),
            arrived: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            counter: LoopCounter::default(),
            panic: Mutex::new(None),
            job: UnsafeCell::new(None),
        }
    }

    /// Resets what the last job left and lets the helpers begin.
    fn open(&self, job: &(dyn Fn(&Worker<'_>) + Sync)) {
        self.poisoned.store(false, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.pending.store(self.count - 1, Ordering::Relaxed);
        self.counter.reset();
        // SAFETY: only the lifetime changes. `Team::run` does not return (nor unwind: a panic of its own part is
        // caught in `work`) before every helper has finished with the job, so the closure outlives every use.
        let job: &'static (dyn Fn(&Worker<'_>) + Sync) = unsafe { std::mem::transmute(job) };
        // SAFETY: no helper reads the slot now: all of them wait for `start`.
        unsafe { *self.job.get() = Some(std::ptr::from_ref(job)) };
        if self.count > 1 {
            self.start.advance();
        }
    }

    /// A helper's life: wait, work, report, until the team is dropped.
    fn help(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.start.wait_past(seen, self.between_jobs);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // SAFETY: the caller wrote the slot before `start` advanced and leaves it alone until `done`.
            if let Some(job) = unsafe { *self.job.get() } {
                // SAFETY: `Team::run` keeps the closure alive until `pending` has reached zero.
                self.work(index, unsafe { &*job });
            }
            if self.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.done.advance();
            }
        }
    }

    /// Runs one worker's part; a panic is kept for the caller and makes the others leave.
    fn work(&self, index: usize, job: &(dyn Fn(&Worker<'_>) + Sync)) {
        let worker = Worker { shared: self, index, loops: Cell::new(0) };
        let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(&worker))) else { return };
        if payload.is::<LeftEarly>() {
            return;
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        self.poisoned.store(true, Ordering::SeqCst);
        self.phase.advance();
    }

    fn barrier(&self) {
        if self.count == 1 {
            return;
        }
        let phase = self.phase.value();
        // Read after the phase: whoever sees the phase a panic has advanced also sees the panic.
        self.leave_if_poisoned();
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
            self.arrived.store(0, Ordering::Relaxed);
            self.phase.advance();
        } else {
            self.phase.wait_past(phase, self.in_job);
        }
        self.leave_if_poisoned();
    }

    fn leave_if_poisoned(&self) {
        if self.poisoned.load(Ordering::SeqCst) {
            resume_unwind(Box::new(LeftEarly));
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("count", &self.count).finish_non_exhaustive()
    }
}
