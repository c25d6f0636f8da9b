//! The status board: what `/health` and `/ready` read. Written by the supervisor and the device thread.
//!
//! The device thread writes to a life of its own; the board knows which one to read.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::life::{Doing, Life};
use super::mailboxes::Mailboxes;

/// What a device does for itself (a capture, which it may spend in its own compiler without a word) may stand
/// still this many times longer than a step.
const UPKEEP_PATIENCE: u32 = 10;

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
    /// No device is left to serve with; the process stays and says so.
    Retired,
}

impl EnginePhase {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Starting,
            1 => Self::Serving,
            2 => Self::Restarting,
            3 => Self::Draining,
            5 => Self::Retired,
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
            Self::Retired => "out of service",
        }
    }
}

/// The board.
#[derive(Debug)]
pub struct StatusBoard {
    started: Instant,
    stall_after: Duration,
    open_deadline: Duration,
    phase: AtomicU8,
    draining: AtomicBool,
    /// Why no device is left.
    out_of_service: OnceLock<Arc<str>>,
    /// Why none could be opened in the first place.
    failed_to_open: OnceLock<Arc<str>>,
    /// The present executor life.
    life: RwLock<Arc<Life>>,
    steps: AtomicU64,
    /// When the last one ended.
    last_step: AtomicU64,
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

/// A device stands still for longer than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    doing: Doing,
    time: Duration,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.time.as_secs_f64();
        match self.doing {
            Doing::Opening => write!(f, "the device was still not open after {seconds:.1} s"),
            Doing::Step => write!(f, "the step made no progress for {seconds:.1} s"),
            Doing::Upkeep => write!(f, "the capture of a graph made no progress for {seconds:.1} s"),
        }
    }
}

impl StatusBoard {
    /// A board of an engine that starts now. A step without progress for `stall_after` counts as stalled, and
    /// so does a device that is not open after `open_deadline`.
    #[must_use]
    pub fn new(stall_after: Duration, open_deadline: Duration) -> Self {
        Self {
            started: Instant::now(),
            stall_after,
            open_deadline,
            phase: AtomicU8::new(EnginePhase::Starting as u8),
            draining: AtomicBool::new(false),
            out_of_service: OnceLock::new(),
            failed_to_open: OnceLock::new(),
            life: RwLock::default(),
            steps: AtomicU64::new(0),
            last_step: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            mailboxes: Mailboxes::default(),
        }
    }

    /// Reads the board.
    #[must_use]
    pub fn read(&self) -> EngineStatus {
        let phase = self.phase();
        let reason = match (phase, self.stall(), self.why_failed_to_open()) {
            (EnginePhase::Serving, Some(stall), _) => stall.to_string(),
            (EnginePhase::Serving, ..) => "ok".to_owned(),
            (EnginePhase::Retired, ..) => self.why_out_of_service().unwrap_or_default().to_string(),
            (EnginePhase::Failed, _, Some(reason)) => reason.to_string(),
            (other, ..) => format!("the engine is {}", other.as_str()),
        };
        EngineStatus {
            phase,
            ready: reason == "ok",
            reason,
            epoch: self.epoch.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
        }
    }

    /// Whether what is running has made no progress for longer than it may.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stall().is_some()
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
            EnginePhase::Failed => EnginePhase::Failed,
            _ if self.out_of_service.get().is_some() => EnginePhase::Retired,
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

    /// No device is left, and none will come back. The first reason stays.
    pub(crate) fn take_out_of_service(&self, reason: Arc<str>) {
        let _ = self.out_of_service.set(reason);
    }

    /// Why no device is left, if so.
    pub(crate) fn why_out_of_service(&self) -> Option<Arc<str>> {
        self.out_of_service.get().cloned()
    }

    /// None could be opened, and none ever will be. The first reason stays.
    pub(crate) fn fail_to_open(&self, reason: Arc<str>) {
        let _ = self.failed_to_open.set(reason);
    }

    /// Why none could be opened, if so.
    pub(crate) fn why_failed_to_open(&self) -> Option<Arc<str>> {
        self.failed_to_open.get().cloned()
    }

    /// Watches this life from now on; the one before is over.
    pub(crate) fn install(&self, life: Arc<Life>) {
        let mut present = self.life.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *present, life).retire();
    }

    /// Ends the present executor life without a new one. Says whether it was computing a step.
    pub(crate) fn retire(&self) -> bool {
        let life = self.life.read().unwrap_or_else(PoisonError::into_inner);
        let computing = life.is_computing() && !life.is_retired();
        life.retire();
        computing
    }

    pub(crate) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.last_step.store(self.now().0, Ordering::Relaxed);
    }

    /// When the last step ended, whichever life it was of.
    pub(crate) fn last_step(&self) -> updraft_core::Millis {
        updraft_core::Millis(self.last_step.load(Ordering::Relaxed))
    }

    pub(crate) fn count_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// What is running, and how long it has stood still, if that is longer than it may.
    pub(crate) fn stall(&self) -> Option<Stall> {
        let life = self.life.read().unwrap_or_else(PoisonError::into_inner);
        let doing = life.doing().filter(|_| !life.is_retired())?;
        let patience = match doing {
            Doing::Opening => self.open_deadline,
            Doing::Step => self.stall_after,
            Doing::Upkeep => self.stall_after.saturating_mul(UPKEEP_PATIENCE),
        };
        let time = life.stalled_for().filter(|time| *time > patience)?;
        Some(Stall { doing, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_step_that_does_not_end_is_not_ready() {
        let board = StatusBoard::new(Duration::ZERO, HOUR);
        assert!(!board.read().ready);
        board.set_phase(EnginePhase::Serving);
        assert!(board.read().ready);
        let life = Arc::new(Life::default());
        board.install(Arc::clone(&life));
        life.begin(Doing::Step);
        std::thread::sleep(Duration::from_millis(3));
        assert!(board.is_stalled());
        assert!(!board.read().ready);
        life.end();
        assert!(board.read().ready);
    }

    #[test]
    fn opening_has_a_deadline_of_its_own() {
        for (deadline, stalls) in [(HOUR, false), (Duration::ZERO, true)] {
            let board = StatusBoard::new(Duration::ZERO, deadline);
            let life = Arc::new(Life::default());
            board.install(Arc::clone(&life));
            life.begin(Doing::Opening);
            std::thread::sleep(Duration::from_millis(3));
            assert_eq!(board.is_stalled(), stalls);
            let why = board.stall().map(|stall| stall.to_string()).unwrap_or_default();
            assert_eq!(why.contains("not open"), stalls, "{why}");
        }
    }

    #[test]
    fn a_thread_of_an_earlier_life_does_not_show() {
        let board = StatusBoard::new(Duration::ZERO, HOUR);
        let (old, new) = (Arc::new(Life::default()), Arc::new(Life::default()));
        board.install(Arc::clone(&old));
        board.install(Arc::clone(&new));
        assert!(old.is_retired() && !new.is_retired());
        old.begin(Doing::Step);
        std::thread::sleep(Duration::from_millis(3));
        assert!(!board.is_stalled());
        new.begin(Doing::Step);
        old.end();
        std::thread::sleep(Duration::from_millis(3));
        assert!(board.is_stalled());
        assert!(board.retire(), "it was computing");
        assert!(!board.is_stalled(), "nobody is left to wait for");
    }

    #[test]
    fn out_of_service_outlasts_everything_but_the_end() {
        let board = StatusBoard::new(Duration::ZERO, HOUR);
        board.take_out_of_service("npu 3 is worn out".into());
        board.set_phase(EnginePhase::Serving);
        board.begin_drain();
        let status = board.read();
        assert_eq!((status.phase, status.ready), (EnginePhase::Retired, false));
        assert_eq!(status.reason, "npu 3 is worn out");
        board.set_phase(EnginePhase::Failed);
        assert_eq!(board.read().phase, EnginePhase::Failed);
    }

    #[test]
    fn draining_is_not_ready() {
        let board = StatusBoard::new(Duration::ZERO, HOUR);
        board.set_phase(EnginePhase::Serving);
        board.begin_drain();
        assert_eq!(board.read().phase, EnginePhase::Draining);
        assert!(!board.read().ready);
    }
}
