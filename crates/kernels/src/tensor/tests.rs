//! Tests of shapes, and of each storage type against blocks worked out by hand.

#![allow(clippy::float_cmp, reason = "bit for bit is what is promised")]

use super::*;

fn half_bytes(value: f32) -> [u8; 2] {
    half::f16::from_f32(value).to_le_bytes()
}

fn values(element: ElementType, bytes: &[u8]) -> Vec<f32> {
    let shape = [bytes.len() / element.block_bytes() * element.block_len()];
    TensorView::new(element, &shape, bytes).unwrap().to_f32().unwrap()
}

#[test]
fn floats_are_read_as_they_are() {
    assert_eq!(values(ElementType::F32, &1.5_f32.to_le_bytes()), [1.5]);
    assert_eq!(values(ElementType::F16, &half_bytes(-0.25)), [-0.25]);
    assert_eq!(values(ElementType::BF16, &half::bf16::from_f32(3.0).to_le_bytes()), [3.0]);
}

#[test]
fn four_and_five_bit_blocks() {
    let packed: Vec<u8> = (0..16_u8).map(|at| at | (15 - at) << 4).collect();
    let plain: Vec<f32> = (0..16).chain((0..16).rev()).map(|q| q as f32).collect();
    let with = |head: &[u8]| [head, &packed[..]].concat();
    let scale = half_bytes(0.5);
    let min = half_bytes(-3.0);

    let q4_0 = values(ElementType::Q4_0, &with(&scale));
    assert!(q4_0.iter().zip(&plain).all(|(y, q)| *y == 0.5 * (q - 8.0)));
    let q4_1 = values(ElementType::Q4_1, &with(&[scale, min].concat()));
    assert!(q4_1.iter().zip(&plain).all(|(y, q)| *y == 0.5 * q - 3.0));

    // The fifth bit is set for values 0, 5 and 31.
    let high = 1_u32 | 1 << 5 | 1 << 31;
    let fifth = |k: usize| if [0, 5, 31].contains(&k) { 16.0 } else { 0.0 };
    let q5_0 = values(ElementType::Q5_0, &with(&[&scale[..], &high.to_le_bytes()].concat()));
    assert!(q5_0.iter().zip(&plain).enumerate().all(|(k, (y, q))| *y == 0.5 * (q + fifth(k) - 16.0)));
    let q5_1 = values(ElementType::Q5_1, &with(&[&scale[..], &min, &high.to_le_bytes()].concat()));
    assert!(q5_1.iter().zip(&plain).enumerate().all(|(k, (y, q))| *y == 0.5 * (q + fifth(k)) - 3.0));
}

#[test]
fn eight_bit_blocks_are_signed() {
    let mut block = half_bytes(0.25).to_vec();
    block.extend((0..32_i16).map(|at| (at * 8 - 128) as u8));
    let y = values(ElementType::Q8_0, &block);
    assert_eq!((y[0], y[16], y[31]), (-32.0, 0.0, 30.0));
}

#[test]
fn k_quant_groups_have_their_own_scales() {
    // Scales 1..8 and minimums 40..47, packed in 6 bits each.
    let (scales, mins): (Vec<u8>, Vec<u8>) = ((1..9).collect(), (40..48).collect());
    let mut packed = [0_u8; 12];
    for at in 0..4 {
        packed[at] = scales[at] | (scales[at + 4] >> 4) << 6;
        packed[at + 4] = mins[at] | (mins[at + 4] >> 4) << 6;
        packed[at + 8] = (scales[at + 4] & 15) | (mins[at + 4] & 15) << 4;
    }
    let head = [&half_bytes(2.0)[..], &half_bytes(0.5), &packed].concat();
    // Even groups hold 3, odd groups hold 12.
    let nibbles = [0xC3_u8; 128];
    let q4 = values(ElementType::Q4K, &[&head[..], &nibbles].concat());
    // The fifth bit is set for the second half of each group in group 6 only.
    let mut fifth = [0_u8; 32];
    fifth[16..].fill(1 << 6);
    let q5 = values(ElementType::Q5K, &[&head[..], &fifth, &nibbles].concat());
    for k in 0..256 {
        let group = k / 32;
        let q = if group % 2 == 0 { 3.0 } else { 12.0 };
        let high = if group == 6 && k % 32 >= 16 { 16.0 } else { 0.0 };
        let (scale, min) = (2.0 * f32::from(scales[group]), 0.5 * f32::from(mins[group]));
        assert_eq!(q4[k], scale * q - min);
        assert_eq!(q5[k], scale * (q + high) - min);
    }
}

#[test]
fn six_bit_blocks_follow_their_interleaving() {
    let mut block = vec![0_u8; 210];
    // Value k = 128 * half + 32 * quarter + l is (k * 7) % 64, under scale (group of 16) - 8.
    for k in 0..256 {
        let (half, quarter, l) = (k / 128, k / 32 % 4, k % 32);
        let q = (k * 7 % 64) as u8;
        block[half * 64 + quarter % 2 * 32 + l] |= (q & 15) << (quarter / 2 * 4);
        block[128 + half * 32 + l] |= (q >> 4) << (quarter * 2);
    }
    for group in 0..16 {
        block[192 + group] = (group as i8 - 8) as u8;
    }
    block[208..].copy_from_slice(&half_bytes(0.5));
    for (k, y) in values(ElementType::Q6K, &block).into_iter().enumerate() {
        assert_eq!(y, 0.5 * ((k / 16) as f32 - 8.0) * ((k * 7 % 64) as f32 - 32.0));
    }
}

#[test]
fn a_row_is_the_same_alone() {
    let bytes: Vec<u8> = (0..3 * 2 * 18).map(|at| (at * 37 % 120) as u8).collect();
    let view = TensorView::new(ElementType::Q4_0, &[3, 64], &bytes).unwrap();
    assert_eq!((view.rows(), view.cols()), (3, 64));
    let all = view.to_f32().unwrap();
    let mut row = [0.0; 64];
    view.dequantize_row(2, &mut row).unwrap();
    assert_eq!(row, all[128..]);
    assert_eq!(view.dequantize_row(3, &mut row), Err(TensorError::NoSuchRow { row: 3, rows: 3 }));
    let wrong = TensorError::WrongDestination { cols: 64, actual: 63 };
    assert_eq!(view.dequantize_row(0, &mut row[1..]), Err(wrong));
}

#[test]
fn contradictions_are_refused() {
    let bytes = [0_u8; 18];
    assert!(TensorView::new(ElementType::Q4_0, &[1, 32], &bytes).is_ok());
    let error = TensorView::new(ElementType::Q4_0, &[2, 32], &bytes).unwrap_err();
    assert_eq!(error.to_string(), "a Q4_0 tensor of shape [2, 32] takes 36 bytes, but there are 18");
    let error = TensorView::new(ElementType::Q4_0, &[2, 16], &bytes).unwrap_err();
    assert_eq!(error, TensorError::BrokenBlock { element: ElementType::Q4_0, cols: 16 });
    let huge = [usize::MAX, 4];
    assert!(matches!(TensorView::new(ElementType::F32, &huge, &bytes), Err(TensorError::TooLarge { .. })));
    // A scalar is one value.
    assert!(TensorView::new(ElementType::F32, &[], &bytes[..4]).is_ok());
}
