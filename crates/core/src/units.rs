//! Amounts with their unit in the type.
//!
//! Arithmetic saturates: an amount that would fall below zero is zero, so that a rounding slip in a limit
//! can refuse work but never wrap around.

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// None of it.
            pub const ZERO: Self = Self(0);
        }

        impl std::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl std::ops::Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl std::ops::SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
                amounts.fold(Self::ZERO, |total, amount| total + amount)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit!(
    /// A number of tokens.
    Tokens(u32)
);
unit!(
    /// A number of KV blocks.
    Blocks(u32)
);
unit!(
    /// A number of bytes.
    Bytes(u64)
);
unit!(
    /// Milliseconds since an arbitrary start that the caller keeps; the core has no clock.
    Millis(u64)
);

impl Tokens {
    /// Blocks of `block_size` tokens that hold this many tokens.
    #[must_use]
    pub fn blocks(self, block_size: Tokens) -> Blocks {
        Blocks(self.0.div_ceil(block_size.0.max(1)))
    }
}
