//! Which device takes the place of one that is taken out of service.
//!
//! Always: a device is in use, waiting, or retired, never two of these; a retired one never comes back.

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
    }
}
