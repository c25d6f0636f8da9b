//! How the 32-bit words of the cache take part in products.
//!
//! A cell is a word of the cache in each lane. It holds one value (single precision) or two or four neighbouring ones,
//! and multiplies with as many values of the other side: of a query, or of a row of probabilities. Everything above
//! this file is the same for all storage types.

use crate::lanes::{LANES, Lanes};

/// One way to multiply cells.
pub(super) trait Cells: Copy {
    /// Values in a cell.
    const VALUES: usize;
    /// Words that hold the other side's values for one cell.
    const WORDS: usize;
    /// Cells as loaded.
    type Loaded<L: Lanes>: Copy;
    /// The other side's values, in every lane.
    type Factor<L: Lanes>: Copy;

    /// Rounds sixteen values to the form of the other side: `16 * WORDS / VALUES` words of `to`.
    fn pack<L: Lanes>(self, l: L, values: L::F, to: &mut [u32]);

    /// The factor for one cell, from its `WORDS` words.
    fn factor<L: Lanes>(self, l: L, words: &[u32]) -> Self::Factor<L>;

    /// Reads cells, of which only the bits of `keep` count.
    fn load<L: Lanes>(self, l: L, words: &[u32; LANES], keep: u32) -> Self::Loaded<L>;

    /// `sum` plus the products of all values of the cells, in order.
    fn multiply_add<L: Lanes>(self, l: L, sum: L::F, cells: Self::Loaded<L>, factor: Self::Factor<L>)
    -> L::F;
}

/// Every bit of a word: all values of a cell count.
pub(super) const KEEP_ALL: u32 = u32::MAX;

#[inline(always)]
fn store_bits<L: Lanes>(l: L, values: L::F, to: &mut [u32]) {
    let mut lanes = [0.0; LANES];
    l.store(values, &mut lanes);
    for (word, value) in to[..LANES].iter_mut().zip(lanes) {
        *word = value.to_bits();
    }
}

#[inline(always)]
fn masked<L: Lanes>(l: L, words: &[u32; LANES], keep: u32) -> L::U {
    let words = l.load_u(words);
    if keep == KEEP_ALL { words } else { l.and(words, l.splat_u(keep)) }
}

/// Single precision.
#[derive(Clone, Copy)]
pub(super) struct WideF32;

impl Cells for WideF32 {
    const VALUES: usize = 1;
    const WORDS: usize = 1;
    type Loaded<L: Lanes> = L::F;
    type Factor<L: Lanes> = L::F;

    #[inline(always)]
    fn pack<L: Lanes>(self, l: L, values: L::F, to: &mut [u32]) {
        store_bits(l, values, to);
    }

    #[inline(always)]
    fn factor<L: Lanes>(self, l: L, words: &[u32]) -> L::F {
        l.of_bits(l.splat_u(words[0]))
    }

    #[inline(always)]
    fn load<L: Lanes>(self, l: L, words: &[u32; LANES], keep: u32) -> L::F {
        l.of_bits(masked(l, words, keep))
    }

    #[inline(always)]
    fn multiply_add<L: Lanes>(self, l: L, sum: L::F, cells: L::F, factor: L::F) -> L::F {
        l.fma(cells, factor, sum)
    }
}

/// Two 16-bit values, widened to single precision; the other side stays in single precision.
macro_rules! wide_pairs {
    ($(#[$doc:meta])* $name:ident, $low:expr, $high:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Cells for $name {
            const VALUES: usize = 2;
            const WORDS: usize = 2;
            type Loaded<L: Lanes> = (L::F, L::F);
            type Factor<L: Lanes> = (L::F, L::F);

            #[inline(always)]
            fn pack<L: Lanes>(self, l: L, values: L::F, to: &mut [u32]) {
                store_bits(l, values, to);
            }

            #[inline(always)]
            fn factor<L: Lanes>(self, l: L, words: &[u32]) -> (L::F, L::F) {
                (l.of_bits(l.splat_u(words[0])), l.of_bits(l.splat_u(words[1])))
            }

            #[inline(always)]
            fn load<L: Lanes>(self, l: L, words: &[u32; LANES], keep: u32) -> (L::F, L::F) {
                let words = masked(l, words, keep);
                ($low(l, words), $high(l, words))
            }

            #[inline(always)]
            fn multiply_add<L: Lanes>(
                self,
                l: L,
                sum: L::F,
                cells: (L::F, L::F),
                factor: (L::F, L::F),
            ) -> L::F {
                l.fma(cells.1, factor.1, l.fma(cells.0, factor.0, sum))
            }
        }
    };
}

wide_pairs!(
    /// Two bf16 values.
    WideBf16,
    bf16_low,
    bf16_high
);
wide_pairs!(
    /// Two half-precision values.
    WideF16,
    f16_low,
    f16_high
);

#[inline(always)]
fn bf16_low<L: Lanes>(l: L, words: L::U) -> L::F {
    l.of_bits(l.shift_left::<16>(words))
}

#[inline(always)]
fn bf16_high<L: Lanes>(l: L, words: L::U) -> L::F {
    l.of_bits(l.and(words, l.splat_u(0xffff_0000)))
}

#[inline(always)]
pub(super) fn f16_low<L: Lanes>(l: L, words: L::U) -> L::F {
    l.f16_low(words)
}

#[inline(always)]
pub(super) fn f16_high<L: Lanes>(l: L, words: L::U) -> L::F {
    l.f16_low(l.shift_right::<16>(words))
}

/// Four integers of 8 bits, as numbers; their scales are left to the tile.
#[derive(Clone, Copy)]
pub(super) struct WideInt8;

impl Cells for WideInt8 {
    const VALUES: usize = 4;
    const WORDS: usize = 4;
    type Loaded<L: Lanes> = [L::F; 4];
    type Factor<L: Lanes> = [L::F; 4];

    #[inline(always)]
    fn pack<L: Lanes>(self, l: L, values: L::F, to: &mut [u32]) {
        store_bits(l, values, to);
    }

    #[inline(always)]
    fn factor<L: Lanes>(self, l: L, words: &[u32]) -> [L::F; 4] {
        [
            l.of_bits(l.splat_u(words[0])),
            l.of_bits(l.splat_u(words[1])),
            l.of_bits(l.splat_u(words[2])),
            l.of_bits(l.splat_u(words[3])),
        ]
    }

    #[inline(always)]
    fn load<L: Lanes>(self, l: L, words: &[u32; LANES], keep: u32) -> [L::F; 4] {
        let words = masked(l, words, keep);
        // Not `map`: a closure's calls would leave the function that enables the instructions.
        [byte(l, words, 0), byte(l, words, 1), byte(l, words, 2), byte(l, words, 3)]
    }

    #[inline(always)]
    fn multiply_add<L: Lanes>(self, l: L, sum: L::F, cells: [L::F; 4], factor: [L::F; 4]) -> L::F {
        let sum = l.fma(cells[1], factor[1], l.fma(cells[0], factor[0], sum));
        l.fma(cells[3], factor[3], l.fma(cells[2], factor[2], sum))
    }
}

/// The signed integers in one byte of the words (0 is the lowest).
#[inline(always)]
pub(super) fn byte<L: Lanes>(l: L, words: L::U, place: usize) -> L::F {
    let top = match place {
        0 => l.shift_left::<24>(words),
        1 => l.shift_left::<16>(words),
        2 => l.shift_left::<8>(words),
        _ => words,
    };
    l.to_number(l.shift_right_signed::<24>(top))
}

/// Two bf16 values, multiplied by an instruction that also takes the other side as bf16.
#[derive(Clone, Copy)]
pub(super) struct DotBf16;

impl Cells for DotBf16 {
    const VALUES: usize = 2;
    const WORDS: usize = 1;
    type Loaded<L: Lanes> = L::U;
    type Factor<L: Lanes> = L::U;

    #[inline(always)]
    fn pack<L: Lanes>(self, l: L, values: L::F, to: &mut [u32]) {
        to[..LANES / 2].copy_from_slice(&l.pack_bf16(values));
    }

    #[inline(always)]
    fn factor<L: Lanes>(self, l: L, words: &[u32]) -> L::U {
        l.splat_u(words[0])
    }

    #[inline(always)]
    fn load<L: Lanes>(self, l: L, words: &[u32; LANES], keep: u32) -> L::U {
        masked(l, words, keep)
    }

    #[inline(always)]
    fn multiply_add<L: Lanes>(self, l: L, sum: L::F, cells: L::U, factor: L::U) -> L::F {
        l.dot_bf16(sum, cells, factor)
    }
}
