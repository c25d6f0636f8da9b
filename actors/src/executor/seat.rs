//! The seats of the devices: who has one holds the device's memory, so the next life waits until the one
//! before has left.
//!
//! A child process that does not leave is killed. A hung thread cannot be, so it may keep its seat for ever;
//! then a life may sit down beside it, and knows that it did.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The seats; clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<Room>);

#[derive(Debug, Default)]
struct Room {
    /// How many sit on each device.
    taken: Mutex<BTreeMap<u32, usize>>,
    /// Somebody left.
    left: Condvar,
}

/// A place on a device, until it is dropped.
#[derive(Debug)]
pub(super) struct Seated {
    seats: Seats,
    ordinal: u32,
    crowded: bool,
}

impl Seats {
    /// Whether nobody sits on this device.
    pub(crate) fn is_free(&self, ordinal: u32) -> bool {
        !self.taken().contains_key(&ordinal)
    }

    /// Sits down, beside others if need be.
    pub(super) fn sit(&self, ordinal: u32) -> Seated {
        self.sit_among(&mut self.taken(), ordinal)
    }

    fn sit_among(&self, taken: &mut BTreeMap<u32, usize>, ordinal: u32) -> Seated {
        let sitting = taken.entry(ordinal).or_insert(0);
        *sitting += 1;
        Seated { seats: self.clone(), ordinal, crowded: *sitting > 1 }
    }

    /// Waits for the seat to be free at most this long, and sits down either way.
    pub(super) fn wait_and_sit(&self, ordinal: u32, wait_max: Duration) -> Seated {
        let is_taken = |taken: &mut BTreeMap<u32, usize>| taken.contains_key(&ordinal);
        let waited = self.0.left.wait_timeout_while(self.taken(), wait_max, is_taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.sit_among(&mut taken, ordinal)
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seated {
    /// Whether somebody sat there when it sat down.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        match taken.get_mut(&self.ordinal) {
            Some(sitting) if *sitting > 1 => *sitting -= 1,
            _ => {
                taken.remove(&self.ordinal);
            }
        }
        self.seats.0.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_when_the_last_one_has_left() {
        let seats = Seats::default();
        let first = seats.sit(3);
        assert!(!first.is_crowded() && !seats.is_free(3) && seats.is_free(4));
        let second = seats.wait_and_sit(3, Duration::ZERO);
        assert!(second.is_crowded());
        drop(first);
        assert!(!seats.is_free(3));
        drop(second);
        assert!(seats.is_free(3));
        assert!(!seats.sit(3).is_crowded());
    }

    #[test]
    fn who_waits_gets_the_seat_that_is_left() {
        let seats = Seats::default();
        let first = seats.sit(0);
        let waiting = {
            let seats = seats.clone();
            std::thread::spawn(move || seats.wait_and_sit(0, Duration::from_secs(60)).is_crowded())
        };
        drop(first);
        assert!(!waiting.join().expect("it does not panic"));
    }
}
