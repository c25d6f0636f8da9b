//! Which steps there were: how many of each phase and number of rows.
//!
//! Old traffic fades: when [`STEPS_REMEMBERED`] steps have been counted all counts are halved, so a histogram
//! never takes more room than it begins with and follows a change of load within as many steps.
//!
//! Refuses to know: graphs.

use super::{GraphKind, GraphMode, buckets::LARGEST_BUCKET};

/// Steps after which all counts are halved.
pub const STEPS_REMEMBERED: u64 = 100_000;

/// Steps by phase and rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Steps that only decode, by rows; the first entry counts steps beyond [`LARGEST_BUCKET`].
    decode: Vec<u64>,
    /// All others, in the same way.
    other: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let empty = vec![0; LARGEST_BUCKET as usize + 1];
        Self { decode: empty.clone(), other: empty, total: 0 }
    }
}

impl Histogram {
    /// Counts one step. Steps without rows do not exist and are not counted.
    pub fn observe(&mut self, rows: u32, decode_only: bool) {
        if rows == 0 {
            return;
        }
        let counts = if decode_only { &mut self.decode } else { &mut self.other };
        let place = if rows > LARGEST_BUCKET { 0 } else { rows as usize };
        if let Some(count) = counts.get_mut(place) {
            *count += 1;
            self.total += 1;
        }
        if self.total >= STEPS_REMEMBERED {
            self.fade();
        }
    }

    /// Steps in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Steps of `rows` rows that a mode replays from graphs of a kind.
    #[must_use]
    pub fn steps(&self, mode: GraphMode, kind: GraphKind, rows: u32) -> u64 {
        let of = |counts: &Vec<u64>, decode_only| {
            let counted = rows > 0 && mode.kind_for(decode_only) == Some(kind);
            counts.get(rows as usize).copied().filter(|_| counted).unwrap_or(0)
        };
        of(&self.decode, true) + of(&self.other, false)
    }

    /// Steps of more than `above` and at most `upto` rows that a mode replays from graphs of a kind.
    #[must_use]
    pub fn steps_between(&self, mode: GraphMode, kind: GraphKind, above: u32, upto: u32) -> u64 {
        (above + 1..=upto.min(LARGEST_BUCKET)).map(|rows| self.steps(mode, kind, rows)).sum()
    }

    /// Share of all steps, from 0 to 1; 0 before the first.
    #[must_use]
    pub fn share(&self, steps: u64) -> f64 {
        if self.total == 0 { 0.0 } else { steps as f64 / self.total as f64 }
    }

    fn fade(&mut self) {
        for count in self.decode.iter_mut().chain(&mut self.other) {
            *count /= 2;
        }
        self.total = self.decode.iter().chain(&self.other).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_the_kind_that_a_mode_would_use() {
        let mut seen = Histogram::default();
        for _ in 0..3 {
            seen.observe(4, true);
        }
        seen.observe(4, false);
        seen.observe(0, true);
        seen.observe(LARGEST_BUCKET + 1, false);
        assert_eq!(seen.total(), 5);
        assert_eq!(seen.steps(GraphMode::FullDecodeOnly, GraphKind::Decode, 4), 3);
        assert_eq!(seen.steps(GraphMode::FullDecodeOnly, GraphKind::Mixed, 4), 0);
        assert_eq!(seen.steps(GraphMode::Piecewise, GraphKind::Piecewise, 4), 4);
        assert_eq!(seen.steps(GraphMode::Full, GraphKind::Mixed, 4), 1);
        assert_eq!(seen.steps_between(GraphMode::Full, GraphKind::Decode, 3, 512), 3);
        assert_eq!(seen.steps_between(GraphMode::Full, GraphKind::Decode, 4, 512), 0);
    }

    #[test]
    fn old_traffic_fades() {
        let mut seen = Histogram::default();
        for _ in 0..STEPS_REMEMBERED {
            seen.observe(1, true);
        }
        for _ in 0..3 * STEPS_REMEMBERED {
            seen.observe(2, true);
            assert!(seen.total() < STEPS_REMEMBERED);
        }
        let old = seen.steps(GraphMode::Full, GraphKind::Decode, 1);
        let new = seen.steps(GraphMode::Full, GraphKind::Decode, 2);
        assert!(old < new / 8, "{old} old steps, {new} new ones");
    }
}
