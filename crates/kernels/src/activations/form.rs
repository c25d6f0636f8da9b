//! Which forms of an input its products read.

use super::{GROUP, QuantizedGroup, split};

/// One or several forms of the same rows; at first none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputForm {
    floats: bool,
    groups: bool,
    halves: bool,
}

impl InputForm {
    /// Single precision.
    pub const FLOAT: Self = Self { floats: true, groups: false, halves: false };
    /// 8-bit integers with scales.
    pub const QUANTIZED: Self = Self { floats: false, groups: true, halves: false };
    /// Each value as the sum of two of half width.
    pub const SPLIT: Self = Self { floats: false, groups: false, halves: true };

    /// Both forms, for an input that several kinds of matrices share.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            floats: self.floats || other.floats,
            groups: self.groups || other.groups,
            halves: self.halves || other.halves,
        }
    }

    /// True if every form of `other` is among these.
    #[must_use]
    pub fn serves(self, other: Self) -> bool {
        self.and(other) == self
    }

    /// Memory of rows in these forms, in bytes.
    #[must_use]
    pub fn bytes_of(self, rows: usize, cols: usize) -> usize {
        let floats = usize::from(self.floats) * cols * size_of::<f32>();
        let groups = usize::from(self.groups) * cols.div_ceil(GROUP) * size_of::<QuantizedGroup>();
        let halves = usize::from(self.halves) * split::row_words(cols) * size_of::<u32>();
        rows * (floats + groups + halves)
    }

    pub(super) const fn has_floats(self) -> bool {
        self.floats
    }

    pub(super) const fn has_groups(self) -> bool {
        self.groups
    }

    pub(super) const fn has_halves(self) -> bool {
        self.halves
    }
}
