//! The canary: now and then a replayed step is computed again eagerly, and both results have to be the same,
//! bit for bit.

use updraft_devices::Device;

/// Counts replays, and keeps the logits of one.
#[derive(Debug, Default)]
pub(super) struct Canary {
    every: u32,
    since: u32,
    kept: Vec<Vec<f32>>,
}

impl Canary {
    /// One that checks every `every`-th replay; 0 for none.
    pub(super) fn new(every: u32) -> Self {
        Self { every, ..Self::default() }
    }

    /// Counts one replay, and says whether it is to be checked.
    pub(super) fn is_due(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.since = (self.since + 1) % self.every;
        self.since == 0
    }

    /// Keeps the first `rows` rows of logits.
    pub(super) fn keep(&mut self, device: &dyn Device, rows: usize) {
        self.kept.resize_with(self.kept.len().max(rows), Vec::new);
        for (row, kept) in self.kept.iter_mut().take(rows).enumerate() {
            kept.clear();
            kept.extend_from_slice(device.logits(row));
        }
    }

    /// Whether the device now has the same logits.
    pub(super) fn is_same(&self, device: &dyn Device, rows: usize) -> bool {
        let bits = |logits: &[f32]| logits.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        self.kept.iter().take(rows).enumerate().all(|(row, kept)| bits(kept) == bits(device.logits(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_so_many_replays_are_checked() {
        let mut canary = Canary::new(3);
        let due: Vec<bool> = (0..6).map(|_| canary.is_due()).collect();
        assert_eq!(due, [false, false, true, false, false, true]);
        assert!((0..10).all(|_| !Canary::new(0).is_due()));
    }
}
