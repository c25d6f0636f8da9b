//! Which device takes the place of one that is taken out of service.
//!
//! Always: a device is in use, waiting, or retired, never two of these; a retired one never comes back. One
//! that is set aside waits behind the others, and may serve again.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The devices of one executor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spares {
    current: Option<u32>,
    waiting: VecDeque<u32>,
    retired: Vec<u32>,
}

impl Spares {
    /// The first of `ordinals` is in use, the others are spares, in this order. One that is named twice
    /// counts once.
    #[must_use]
    pub fn new(ordinals: &[u32]) -> Self {
        let mut waiting = VecDeque::with_capacity(ordinals.len());
        for ordinal in ordinals {
            if !waiting.contains(ordinal) {
                waiting.push_back(*ordinal);
            }
        }
        Self { current: waiting.pop_front(), waiting, retired: Vec::new() }
    }

    /// The device in use; none when all are retired.
    #[must_use]
    pub fn current(&self) -> Option<u32> {
        self.current
    }

    /// Takes the device in use out of service. Gives the one to use from now on, if there is one.
    pub fn retire(&mut self) -> Option<u32> {
        self.retired.extend(self.current);
        self.current = self.waiting.pop_front();
        self.current
    }

    /// Lets a spare take the place of the device in use, which becomes the last of the spares: nothing is
    /// known against it. Gives the one to use from now on; none, and no change, when no spare `can_serve` now.
    pub fn set_aside(&mut self, can_serve: impl Fn(u32) -> bool) -> Option<u32> {
        let aside = self.current?;
        let place = self.waiting.iter().position(|ordinal| can_serve(*ordinal))?;
        self.current = self.waiting.remove(place);
        self.waiting.push_back(aside);
        self.current
    }

    /// Takes all devices out of service.
    pub fn retire_all(&mut self) {
        self.retired.extend(self.current.take());
        self.retired.extend(self.waiting.drain(..));
    }

    /// Spares that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.waiting.len()
    }

    /// Devices out of service, in the order in which they were taken out.
    #[must_use]
    pub fn retired(&self) -> &[u32] {
        &self.retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_serves_once() {
        let mut spares = Spares::new(&[4, 6, 4, 5]);
        assert_eq!((spares.current(), spares.left()), (Some(4), 2));
        assert_eq!(spares.retire(), Some(6));
        assert_eq!(spares.retire(), Some(5));
        assert_eq!(spares.retire(), None);
        assert_eq!(spares.retire(), None);
        assert_eq!(spares.retired(), [4, 6, 5]);
        assert_eq!(spares.current(), None);
        assert_eq!(spares.set_aside(|_| true), None);
    }

    #[test]
    fn one_that_is_set_aside_serves_again() {
        let mut spares = Spares::new(&[0, 1, 2]);
        assert_eq!(spares.set_aside(|ordinal| ordinal == 2), Some(2));
        assert_eq!(spares.set_aside(|_| false), None);
        assert_eq!((spares.current(), spares.left()), (Some(2), 2));
        assert_eq!(spares.set_aside(|_| true), Some(1));
        assert_eq!(spares.set_aside(|_| true), Some(0));
        assert!(spares.retired().is_empty());
        spares.retire_all();
        assert_eq!((spares.current(), spares.left()), (None, 0));
        assert_eq!(spares.retired(), [0, 2, 1]);
    }
}
