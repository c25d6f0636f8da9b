//! Rows whose values are sums of two numbers of half width (bf16): what the matrix unit takes as its left side.
//!
//! Sixteen rows form a block, `[step of 32 values][part][row][16 words]`: first the upper parts of a step, then the lower
//! ones, two values to a word, so that what a step takes lies together. Rows are filled up with zeros to whole steps. A
//! value loses less than 2^-17 of itself.

#![allow(clippy::inline_always, reason = "part of the functions compiled for an instruction set")]

use std::ptr::NonNull;

/// Rows that the unit takes at once; there is room for whole blocks of them.
pub(crate) const SPLIT_BLOCK: usize = 16;

/// Values that a step of the unit sums over.
const STEP: usize = 32;

/// Words of a row in one part of a step.
const LINE_WORDS: usize = STEP / 2;

/// Words of a step of a block.
pub(crate) const SPLIT_STEP_WORDS: usize = 2 * SPLIT_BLOCK * LINE_WORDS;

/// Words of one part of a row.
pub(crate) fn part_words(cols: usize) -> usize {
    cols.next_multiple_of(STEP) / 2
}

/// Words of a row.
pub(super) fn row_words(cols: usize) -> usize {
    2 * part_words(cols)
}

/// Splits row `row` of a block that begins at `block`.
///
/// # Safety
/// The block has room for its sixteen rows, and nobody else touches this one.
#[inline(always)]
pub(super) unsafe fn write(values: &[f32], block: NonNull<u32>, row: usize) {
    debug_assert!(row < SPLIT_BLOCK, "a row of the block");
    let (whole, rest) = values.as_chunks::<STEP>();
    let mut last = [0.0; STEP];
    last[..rest.len()].copy_from_slice(rest);
    let rest = std::slice::from_ref(&last).iter().take(usize::from(!rest.is_empty()));
    for (step, values) in whole.iter().chain(rest).enumerate() {
        let (mut high, mut low) = ([0; LINE_WORDS], [0; LINE_WORDS]);
        for ((high, low), pair) in high.iter_mut().zip(&mut low).zip(values.as_chunks::<2>().0) {
            let parts = pair.map(halves);
            *high = parts[0].0 >> 16 | parts[1].0;
            *low = parts[0].1 >> 16 | parts[1].1;
        }
        for (part, line) in [high, low].into_iter().enumerate() {
            let at = step * SPLIT_STEP_WORDS + (part * SPLIT_BLOCK + row) * LINE_WORDS;
            // SAFETY: a line of this row inside of the block, which the caller promises.
            unsafe { block.add(at).cast::<[u32; LINE_WORDS]>().write(line) };
        }
    }
}

/// The two parts of a value, each in the upper half of a word. Of what is not finite the sum is no number.
#[inline(always)]
fn halves(value: f32) -> (u32, u32) {
    let high = rounded(value);
    (high, rounded(value - f32::from_bits(high)))
}

/// Rounds to the upper half of a word, to nearest, ties to even.
#[inline(always)]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The block's words with the row somewhere in it.
    fn of(values: &[f32], row: usize) -> Vec<u32> {
        let mut words = vec![u32::MAX; SPLIT_BLOCK * row_words(values.len())];
        // SAFETY: a vector of its own, as long as a block.
        unsafe { write(values, NonNull::from(&mut *words).cast(), row) };
        words
    }

    fn sum(words: &[u32], row: usize, at: usize) -> f32 {
        let first = at / STEP * SPLIT_STEP_WORDS + row * LINE_WORDS + at % STEP / 2;
        let part = |word: u32| if at.is_multiple_of(2) { word << 16 } else { word & 0xffff_0000 };
        [first, first + SPLIT_STEP_WORDS / 2].map(|at| f32::from_bits(part(words[at]))).iter().sum()
    }

    #[test]
    fn the_parts_sum_up_to_the_value() {
        for len in [1, 2, 31, 32, 33, 100] {
            let values: Vec<f32> =
                (0..len).map(|at| (at as f32 * 0.737 - 9.1) * 1.000_1_f32.powi(at)).collect();
            for row in [0, 7, 15] {
                let words = of(&values, row);
                for (at, value) in values.iter().enumerate() {
                    assert!(
                        (sum(&words, row, at) - value).abs() <= value.abs() / 131_072.0,
                        "{value} of {len}"
                    );
                }
                for at in values.len()..values.len().next_multiple_of(STEP) {
                    assert_eq!(sum(&words, row, at).to_bits(), 0);
                }
                let written = words.iter().filter(|word| **word != u32::MAX).count();
                assert_eq!(written, row_words(values.len()), "nothing of other rows");
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            assert!(!sum(&of(&[1.0, value, 1.0], 3), 3, 1).is_finite());
        }
    }
}
