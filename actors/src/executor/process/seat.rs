//! The one place for a child: a new one waits until the old one is gone, because both cannot have the
//! device's memory.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time between two looks at the seat.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The seat; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seat(Arc<Mutex<()>>);

/// The right to have a child.
pub(super) struct Seated<'a>(
    #[expect(dead_code, reason = "what counts is its drop")] std::sync::MutexGuard<'a, ()>,
);

impl Seat {
    /// Waits for the seat at most this long. None when the one before does not leave.
    pub(super) fn take(&self, wait_max: Duration) -> Option<Seated<'_>> {
        let started = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Some(Seated(guard)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Some(Seated(PoisonError::into_inner(poisoned)));
                }
                Err(TryLockError::WouldBlock) if started.elapsed() >= wait_max => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}
