//! A number that rises and that threads wait for: the one way in which workers of a team wait.
//!
//! Always holds: a waiter that saw an old value returns after the next [`Signal::advance`], however the two
//! interleave. Refuses to know what the number counts.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Yields between spinning and sleeping: a thread that shares its core with the one it waits for gets there
/// without a sleep and a wake-up.
const YIELDS: u32 = 4;

/// A rising number, alone on its cache line.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// The number now. What was written before the [`Signal::advance`] that made it is visible.
    pub(super) fn value(&self) -> u32 {
        self.value.load(Ordering::SeqCst)
    }

    /// Raises the number and wakes every waiter.
    pub(super) fn advance(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        // Either this sees the sleeper's count, or the sleeper (which counts itself first) sees the new value.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.changed.notify_all();
        }
    }

    /// Waits until the number is no longer `old` and returns it.
    pub(super) fn wait_past(&self, old: u32, patience: Patience) -> u32 {
        for _ in 0..patience.spins {
            let value = self.value();
            if value != old {
                return value;
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            let value = self.value();
            if value != old {
                return value;
            }
            std::thread::yield_now();
        }
        self.sleep_past(old)
    }

    #[cold]
    fn sleep_past(&self, old: u32) -> u32 {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut value = self.value();
        while value == old {
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
            value = self.value();
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        value
    }
}

/// How long to spin before giving the core away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    spins: u32,
}

impl Patience {
    /// Spins about this long on this machine.
    pub(super) fn new(time: Duration) -> Self {
        let spins = time.as_nanos() as f64 / spin_nanos();
        Self { spins: spins as u32 }
    }
}

/// What one round of spinning takes: between 5 and 150 ns, depending on the processor's pause instruction.
fn spin_nanos() -> f64 {
    static NANOS: OnceLock<f64> = OnceLock::new();
    *NANOS.get_or_init(|| {
        const ROUNDS: u32 = 1000;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            std::hint::spin_loop();
        }
        (start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)).clamp(1.0, 1000.0)
    })
}
