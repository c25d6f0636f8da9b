//! Tests of quantising and of how rows are interleaved.

#![allow(clippy::float_cmp, reason = "bit for bit is what is promised")]

use proptest::prelude::*;

use super::*;

/// The groups of one row, in order.
fn groups_of(input: &Activations, row: usize) -> Vec<QuantizedGroup> {
    let block = RowBlock::of(row, input.rows());
    input.group_block(block).iter().skip(row - block.first).step_by(block.width).copied().collect()
}

fn integers(group: &QuantizedGroup) -> Vec<i32> {
    group.words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| i32::from(byte as i8)).collect()
}

fn filled(values: &[f32], cols: usize) -> Activations {
    let mut input = Activations::default();
    input.fill(values, cols, InputForm::FLOAT.and(InputForm::QUANTIZED));
    input
}

#[test]
fn blocks_cover_all_rows_in_order() {
    for rows in 0..40 {
        let blocks: Vec<RowBlock> = RowBlock::within(0, rows).collect();
        let covered: Vec<usize> =
            blocks.iter().flat_map(|block| block.first..block.first + block.rows).collect();
        assert_eq!(covered, (0..rows).collect::<Vec<_>>());
        for block in &blocks {
            assert!((block.first..block.first + block.rows).all(|row| RowBlock::of(row, rows) == *block));
        }
    }
}

#[test]
fn plain_rows_are_kept_as_they_are() {
    for rows in [1, 2, 3, 7, 8, 13, 33] {
        let values: Vec<f32> = (0..rows * 5).map(|at| at as f32).collect();
        let input = filled(&values, 5);
        for row in 0..rows {
            let block = RowBlock::of(row, rows);
            let kept = input.float_block(block).iter().skip(row - block.first).step_by(block.width);
            assert!(kept.eq(&values[row * 5..(row + 1) * 5]), "row {row} of {rows}");
        }
    }
}

#[test]
fn a_short_last_group_is_filled_with_zeros() {
    let values: Vec<f32> = (0..2 * 40).map(|at| at as f32).collect();
    let input = filled(&values, 40);
    let groups = groups_of(&input, 1);
    assert_eq!(groups.len(), 2);
    assert_eq!(integers(&groups[1])[7], 127);
    assert!(integers(&groups[1])[8..].iter().all(|&q| q == 0));
}

#[test]
fn rounding_is_to_nearest_ties_to_even() {
    let mut values = [0.0; 32];
    values[..8].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -126.6, 0.49]);
    let group = groups_of(&filled(&values, 32), 0)[0];
    assert_eq!(integers(&group)[..8], [127, 0, 2, 2, 0, -2, -127, 0]);
    assert_eq!(group.scale, 1.0);
}

#[test]
fn zeros_and_tiny_values_become_zero() {
    for value in [0.0, -0.0, 1e-38, f32::from_bits(1)] {
        let group = groups_of(&filled(&[value; 32], 32), 0)[0];
        assert_eq!((group.scale, group.scaled_sum, group.starts), (0.0, 0.0, [0; 3]));
    }
}

#[test]
fn values_that_are_not_finite_stay_visible() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = [1.0; 32];
        values[5] = value;
        assert!(!groups_of(&filled(&values, 32), 0)[0].scale.is_finite());
    }
}

#[test]
fn a_scratch_is_reused() {
    let mut input = Activations::with_capacity(4, 64);
    let place = input.groups.as_ptr();
    for rows in [4, 1, 3] {
        input.fill(&vec![1.0; rows * 64], 64, InputForm::QUANTIZED);
        assert_eq!((input.rows(), input.cols()), (rows, 64));
        assert_eq!(input.form(), InputForm::QUANTIZED);
    }
    input.fill(&[1.0; 64], 32, InputForm::FLOAT);
    assert_eq!(input.form(), InputForm::FLOAT);
    assert_eq!(place, input.groups.as_ptr(), "nothing was allocated again");
    // It grows when it must.
    input.fill(&[1.0; 1024], 64, InputForm::FLOAT.and(InputForm::QUANTIZED));
    assert_eq!(input.rows(), 16);
}

proptest! {
    #[test]
    fn quantised_values_are_near_and_their_sums_exact(
        values in prop::collection::vec(-1e3_f32..1e3, 32),
        magnitude in -30..30_i32,
    ) {
        let values: Vec<f32> = values.iter().map(|value| value * (magnitude as f32).exp2()).collect();
        let group = groups_of(&filled(&values, 32), 0)[0];
        let quantised = integers(&group);
        for (value, &q) in values.iter().zip(&quantised) {
            prop_assert!((-127..=127).contains(&q));
            prop_assert!((value - q as f32 * group.scale).abs() <= group.scale * 0.500_01);
        }
        let halves = [quantised[..16].iter().sum::<i32>(), quantised[16..].iter().sum()];
        prop_assert_eq!(group.half_starts, halves.map(|half| -32 * half));
        for zero_point in [8, 16, 128] {
            prop_assert_eq!(group.start(zero_point), -zero_point * (halves[0] + halves[1]));
        }
        prop_assert_eq!(group.scaled_sum, group.scale * (halves[0] + halves[1]) as f32);
    }

    #[test]
    fn every_instruction_set_quantises_alike(
        halves in prop::collection::vec(-254..=254_i32, 70),
        rest in prop_oneof![Just(0.0), 0.0..0.5_f32],
        magnitude in -149..=120_i32,
    ) {
        // Halves of integers: with a largest of 127 they are ties. Magnitudes down to those that count as zero.
        let unit = (magnitude as f32).exp2();
        let values: Vec<f32> = halves.iter().map(|half| (*half as f32 * 0.5 + rest) * unit).collect();
        let mut groups = [AlignedVec::<QuantizedGroup>::zeroed(3), AlignedVec::zeroed(3)];
        for isa in Isa::available() {
            let start = NonNull::from(&mut *groups[1]).cast();
            dispatch(isa, QuantizeRow { values: &values, start, stride: 1 });
            if isa == Isa::Portable {
                groups[0] = groups[1].clone();
            }
            for (one, other) in groups[0].iter().zip(&*groups[1]) {
                prop_assert_eq!(one.words, other.words);
                prop_assert_eq!(one.scale.to_bits(), other.scale.to_bits());
                prop_assert_eq!(one.scaled_sum.to_bits(), other.scaled_sum.to_bits());
                prop_assert_eq!((one.starts, one.half_starts), (other.starts, other.half_starts));
            }
        }
    }
}
