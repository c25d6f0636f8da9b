//! The status board: what `/health` and `/ready` read. Written by the supervisor and the device thread.
//!
//! The device thread writes to a clock of its own life; the board knows which one to read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::mailboxes::Mailboxes;
use super::step_clock::StepClock;

/// Where the engine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EnginePhase {
    /// Actors are being started.
    Starting,
    /// All actors are there.
    Serving,
    /// At least one is being restarted.
    Restarting,
    /// No new requests; the running ones go on.
    Draining,
    /// The restart budget is used up; the process is about to end.
    Failed,
}

impl EnginePhase {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Starting,
            1 => Self::Serving,
            2 => Self::Restarting,
            3 => Self::Draining,
            _ => Self::Failed,
        }
    }

    /// Name for people and machines.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::Restarting => "restarting",
            Self::Draining => "draining",
            Self::Failed => "failed",
        }
    }
}

/// The board.
#[derive(Debug)]
pub struct StatusBoard {
    started: Instant,
    stall_after: Duration,
    phase: AtomicU8,
    draining: AtomicBool,
    /// The clock of the present executor life.
    clock: RwLock<Arc<StepClock>>,
    steps: AtomicU64,
    stale: AtomicU64,
    epoch: AtomicU64,
    mailboxes: Mailboxes,
}

/// One reading of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineStatus {
    /// Where the engine is.
    pub phase: EnginePhase,
    /// Whether a request sent now is served: all actors there, and the running step (if any) not stalled.
    pub ready: bool,
    /// Why not, or `ok`.
    pub reason: String,
    /// Life number of the executor group.
    pub epoch: u64,
    /// Steps finished since the start of the process.
    pub steps: u64,
}

impl StatusBoard {
    /// A board of an engine that starts now. A step longer than `stall_after` counts as stalled.
    #[must_use]
    pub fn new(stall_after: Duration) -> Self {
        Self {
            started: Instant::now(),
            stall_after,
            phase: AtomicU8::new(EnginePhase::Starting as u8),
            draining: AtomicBool::new(false),
            clock: RwLock::default(),
            steps: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            mailboxes: Mailboxes::default(),
        }
    }

    /// Reads the board.
    #[must_use]
    pub fn read(&self) -> EngineStatus {
        let phase = self.phase();
        let reason = match (phase, self.step_age()) {
            (EnginePhase::Serving, Some(age)) if age > self.stall_after => {
                format!("the running step has made no progress for {} s", age.as_secs())
            }
            (EnginePhase::Serving, _) => "ok".to_owned(),
            (other, _) => format!("the engine is {}", other.as_str()),
        };
        EngineStatus {
            phase,
            ready: reason == "ok",
            reason,
            epoch: self.epoch.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
        }
    }

    /// Whether the running step is older than it may be.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.step_age().is_some_and(|age| age > self.stall_after)
    }

    /// Answers of an older epoch that were thrown away.
    #[must_use]
    pub fn stale(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    /// How many messages wait before each actor.
    pub fn mailbox_depths(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.mailboxes.depths()
    }

    /// Milliseconds since the engine started: the clock handed to the pure machines.
    #[must_use]
    pub fn now(&self) -> updraft_core::Millis {
        updraft_core::Millis(self.started.elapsed().as_millis() as u64)
    }

    /// The time `at` on the same clock.
    #[must_use]
    pub fn millis_of(&self, at: Instant) -> updraft_core::Millis {
        updraft_core::Millis(at.saturating_duration_since(self.started).as_millis() as u64)
    }

    pub(crate) fn mailboxes(&self) -> &Mailboxes {
        &self.mailboxes
    }

    pub(crate) fn phase(&self) -> EnginePhase {
        match EnginePhase::from_u8(self.phase.load(Ordering::Acquire)) {
            EnginePhase::Serving if self.draining.load(Ordering::Acquire) => EnginePhase::Draining,
            phase => phase,
        }
    }

    pub(crate) fn set_phase(&self, phase: EnginePhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn set_epoch(&self, epoch: updraft_core::Epoch) {
        self.epoch.store(epoch.0, Ordering::Relaxed);
    }

    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Watches this life from now on; the one before is over.
    pub(crate) fn install(&self, clock: Arc<StepClock>) {
        let mut present = self.clock.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *present, clock).retire();
    }

    /// Ends the present executor life without a new one. Says whether it was computing a step.
    pub(crate) fn retire(&self) -> bool {
        let clock = self.clock.read().unwrap_or_else(PoisonError::into_inner);
        let computing = clock.step_age().is_some() && !clock.is_retired();
        clock.retire();
        computing
    }

    pub(crate) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    fn step_age(&self) -> Option<Duration> {
        let clock = self.clock.read().unwrap_or_else(PoisonError::into_inner);
        clock.step_age().filter(|_| !clock.is_retired())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_not_ready() {
        let board = StatusBoard::new(Duration::ZERO);
        assert!(!board.read().ready);
        board.set_phase(EnginePhase::Serving);
        assert!(board.read().ready);
        let clock = Arc::new(StepClock::default());
        board.install(Arc::clone(&clock));
        clock.step_started();
        std::thread::sleep(Duration::from_millis(3));
        assert!(board.is_stalled());
        assert!(!board.read().ready);
        clock.step_ended();
        assert!(board.read().ready);
    }

    #[test]
    fn a_thread_of_an_earlier_life_does_not_show() {
        let board = StatusBoard::new(Duration::ZERO);
        let (old, new) = (Arc::new(StepClock::default()), Arc::new(StepClock::default()));
        board.install(Arc::clone(&old));
        board.install(Arc::clone(&new));
        assert!(old.is_retired() && !new.is_retired());
        old.step_started();
        std::thread::sleep(Duration::from_millis(3));
        assert!(!board.is_stalled());
        new.step_started();
        old.step_ended();
        std::thread::sleep(Duration::from_millis(3));
        assert!(board.is_stalled());
        assert!(board.retire(), "it was computing");
        assert!(!board.is_stalled(), "nobody is left to wait for");
    }

    #[test]
    fn draining_is_not_ready() {
        let board = StatusBoard::new(Duration::ZERO);
        board.set_phase(EnginePhase::Serving);
        board.begin_drain();
        assert_eq!(board.read().phase, EnginePhase::Draining);
        assert!(!board.read().ready);
    }
}
