//! One life of the executor: whether its step moves on, whether the life is over, and what ended it.
//!
//! One value a life: a device thread that outlives its executor (it hung, or was in the middle of a step)
//! keeps writing to its own, which nobody reads any more. A step may take as long as it likes while its
//! device's progress counter moves; that counter lives here, in this process, or is reported by a child.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use updraft_core::graphs::GraphKey;
use updraft_devices::Progress;

use crate::executor::LifeEnd;

/// What keeps a device busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Doing {
    /// It is being opened: nothing of it can be seen until that is done.
    Opening,
    /// A step, for sequences.
    Step,
    /// Something of our own: capturing.
    Upkeep,
}

impl Doing {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Opening,
            1 => Self::Step,
            _ => Self::Upkeep,
        }
    }
}

/// One life.
#[derive(Debug)]
pub(crate) struct Life {
    started: Instant,
    /// Milliseconds after `started`, plus one, of the last sign of life of what is running; 0 when nothing
    /// runs.
    since: AtomicU64,
    /// The progress counter at that moment.
    seen: AtomicU64,
    /// What is running, or ran last.
    doing: AtomicU8,
    /// The counter of a device in this process.
    progress: OnceLock<Progress>,
    /// The counter of a device in another one.
    reported: AtomicU64,
    retired: AtomicBool,
    /// The graph that is being captured.
    capturing: Mutex<Option<GraphKey>>,
    end: Mutex<Option<Box<LifeEnd>>>,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            since: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            doing: AtomicU8::new(Doing::Opening as u8),
            progress: OnceLock::new(),
            reported: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            capturing: Mutex::new(None),
            end: Mutex::new(None),
        }
    }
}

impl Life {
    /// Watches this counter from now on.
    pub(crate) fn watch(&self, progress: Progress) {
        // A life has one device; a second counter could only be of the same.
        let _ = self.progress.set(progress);
    }

    /// Something begins that has to make progress.
    pub(crate) fn begin(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
        self.seen.store(self.reading(), Ordering::Relaxed);
        self.since.store(self.now(), Ordering::Release);
    }

    /// It is done.
    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// A child says how far it is, and what it is doing.
    pub(crate) fn beat(&self, reading: u64, doing: Option<Doing>) {
        self.reported.store(reading, Ordering::Relaxed);
        match doing {
            Some(doing) if self.doing() != Some(doing) => self.begin(doing),
            None if self.is_busy() => self.end(),
            _ => {}
        }
    }

    /// What is running has got somewhere, whatever the counter says.
    pub(crate) fn moved(&self) {
        let since = self.since.load(Ordering::Acquire);
        if since != 0 {
            // It may have ended meanwhile, or something new begun: then that counts.
            let _ = self.since.compare_exchange(since, self.now(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// How long what is running has made no progress.
    pub(crate) fn stalled_for(&self) -> Option<Duration> {
        let since = self.since.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let reading = self.reading();
        if self.seen.swap(reading, Ordering::Relaxed) != reading {
            self.moved();
            return Some(Duration::ZERO);
        }
        Some(Duration::from_millis(self.now().saturating_sub(since)))
    }

    /// What is running.
    pub(crate) fn doing(&self) -> Option<Doing> {
        self.is_busy().then(|| Doing::from_u8(self.doing.load(Ordering::Relaxed)))
    }

    /// Whether something is running.
    pub(crate) fn is_busy(&self) -> bool {
        self.since.load(Ordering::Acquire) != 0
    }

    /// Whether a step is running.
    pub(crate) fn is_computing(&self) -> bool {
        self.doing() == Some(Doing::Step)
    }

    /// The progress counter.
    pub(crate) fn reading(&self) -> u64 {
        self.progress.get().map_or(0, Progress::reading) + self.reported.load(Ordering::Relaxed)
    }

    /// Ends the life: its thread takes no further plan, its child is killed.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Notes which graph is being captured.
    pub(crate) fn capturing(&self, key: Option<GraphKey>) {
        *self.capturing.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// The graph that was being captured when the life ended.
    pub(crate) fn deadly_capture(&self) -> Option<GraphKey> {
        *self.capturing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves what ended the life for the supervisor.
    pub(crate) fn leave(&self, end: Box<LifeEnd>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// What ended the life, if it said so itself.
    pub(crate) fn take_end(&self) -> Option<Box<LifeEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Milliseconds after the start, plus one.
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(3);

    #[test]
    fn a_step_that_moves_on_is_not_stalled() {
        let (life, progress) = (Life::default(), Progress::default());
        life.watch(progress.clone());
        assert_eq!(life.stalled_for(), None, "nothing runs");
        life.begin(Doing::Step);
        std::thread::sleep(MOMENT);
        assert!(life.stalled_for() >= Some(MOMENT));
        progress.tick();
        assert_eq!(life.stalled_for(), Some(Duration::ZERO), "it moved");
        std::thread::sleep(MOMENT);
        assert!(life.stalled_for() >= Some(MOMENT), "and stopped again");
        life.end();
        assert_eq!(life.stalled_for(), None);
    }

    #[test]
    fn a_child_reports_for_itself() {
        let life = Life::default();
        for doing in [Doing::Opening, Doing::Upkeep, Doing::Step] {
            life.beat(0, Some(doing));
            assert_eq!(life.doing(), Some(doing), "one follows another without a pause");
        }
        assert!(life.is_computing());
        std::thread::sleep(MOMENT);
        life.beat(0, Some(Doing::Step));
        assert!(life.stalled_for() >= Some(MOMENT));
        life.beat(1, Some(Doing::Step));
        assert_eq!(life.stalled_for(), Some(Duration::ZERO));
        life.beat(1, None);
        assert!(!life.is_busy());
    }
}
