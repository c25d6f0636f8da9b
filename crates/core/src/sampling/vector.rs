//! Passes over a whole row of logits, written so that the compiler turns them into vector code.
//!
//! A row is looked at in blocks of [`BLOCK`] values. The largest value of each block answers most later
//! questions (where is the maximum, which blocks can hold one of the k largest) without reading the row
//! again. The order of every sum is fixed by the row's length alone.

use super::pipeline::SampleError;

/// Values in one block.
pub(super) const BLOCK: usize = 64;

const LANES: usize = 16;

/// Fills `maxima` with the largest value of each block of `logits` and returns the largest of all.
///
/// Negative infinity is a value like others (a token that is ruled out); NaN and positive infinity are
/// errors.
pub(super) fn block_maxima(logits: &[f32], maxima: &mut Vec<f32>) -> Result<f32, SampleError> {
    maxima.clear();
    let mut largest = f32::NEG_INFINITY;
    for (index, block) in logits.chunks(BLOCK).enumerate() {
        let (maximum, sound) = block_maximum(block);
        if !sound {
            return Err(first_unsound(block, index * BLOCK));
        }
        maxima.push(maximum);
        largest = largest.max(maximum);
    }
    Ok(largest)
}

fn block_maximum(block: &[f32]) -> (f32, bool) {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let mut unsound = [0_u32; LANES];
    let (groups, rest) = block.as_chunks::<LANES>();
    for group in groups {
        for ((maximum, flag), &value) in maxima.iter_mut().zip(&mut unsound).zip(group) {
            *maximum = if value > *maximum { value } else { *maximum };
            *flag |= u32::from(value.is_nan()) | u32::from(value == f32::INFINITY);
        }
    }
    for ((maximum, flag), &value) in maxima.iter_mut().zip(&mut unsound).zip(rest) {
        *maximum = if value > *maximum { value } else { *maximum };
        *flag |= u32::from(value.is_nan()) | u32::from(value == f32::INFINITY);
    }
    let maximum = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (maximum, unsound.iter().all(|&flag| flag == 0))
}

fn first_unsound(block: &[f32], start: usize) -> SampleError {
    let at = block.iter().position(|value| value.is_nan() || *value == f32::INFINITY).unwrap_or(0);
    SampleError::NotFinite { token: (start + at) as u32, value: block.get(at).copied().unwrap_or(f32::NAN) }
}

/// Fills `weights` with `exp((logit - maximum) * sharpness)` and `sums` with the sum of each block; returns
/// the sum of all. Weights below 1e-37 become zero.
pub(super) fn exponentials(
    logits: &[f32],
    maximum: f32,
    sharpness: f32,
    weights: &mut Vec<f32>,
    sums: &mut Vec<f64>,
) -> f64 {
    weights.clear();
    weights.resize(logits.len(), 0.0);
    sums.clear();
    let mut total = 0.0;
    for (logits, weights) in logits.chunks(BLOCK).zip(weights.chunks_mut(BLOCK)) {
        for (logit, weight) in logits.iter().zip(weights.iter_mut()) {
            *weight = exp_of_negative((logit - maximum) * sharpness);
        }
        let sum = block_sum(weights);
        sums.push(sum);
        total += sum;
    }
    total
}

fn block_sum(weights: &[f32]) -> f64 {
    let mut lanes = [0.0_f32; LANES];
    let (groups, rest) = weights.as_chunks::<LANES>();
    for group in groups {
        lanes.iter_mut().zip(group).for_each(|(lane, weight)| *lane += weight);
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, weight)| *lane += weight);
    lanes.iter().map(|&lane| f64::from(lane)).sum()
}

/// `e^x` for `x <= 0` to within two units in the last place; zero below -87.
///
/// Splits `x` into `n * ln 2 + r`, takes the power series of `e^r` up to the seventh term and shifts `n` into
/// the exponent. No branch and no table, so a loop over it becomes vector code.
#[inline]
fn exp_of_negative(x: f32) -> f32 {
    const LOWEST: f32 = -87.0;
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUNDER: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > LOWEST { x } else { LOWEST };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUNDER;
    let whole = rounded - ROUNDER;
    let r = (clamped - whole * LN_2_HIGH) - whole * LN_2_LOW;
    let series = 1.0
        + r * (1.0
            + r * (1.0 / 2.0
                + r * (1.0 / 6.0
                    + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0)))))));
    let power = f32::from_bits(rounded.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127) << 23);
    if x > LOWEST { series * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close_to_the_exact_one() {
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_of_negative(x)) - exact).abs() / exact;
            assert!(error < 3e-7, "x {x}: relative error {error}");
        }
        assert_eq!(exp_of_negative(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exp_of_negative(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp_of_negative(-1e30).to_bits(), 0);
    }

    #[test]
    fn maxima_cover_ragged_ends_and_name_the_unsound_value() {
        let mut maxima = Vec::new();
        for length in [1_usize, 15, 16, 17, 63, 64, 65, 200] {
            let mut logits: Vec<f32> = (0..length).map(|at| ((at * 37) % 101) as f32 - 50.0).collect();
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(block_maxima(&logits, &mut maxima), Ok(largest));
            assert_eq!(maxima.len(), length.div_ceil(BLOCK));
            for at in [0, length / 2, length - 1] {
                let sound = logits[at];
                for value in [f32::NAN, f32::INFINITY] {
                    logits[at] = value;
                    let error = block_maxima(&logits, &mut maxima).unwrap_err();
                    assert!(matches!(error, SampleError::NotFinite { token, .. } if token as usize == at));
                }
                logits[at] = sound;
            }
        }
    }
}
