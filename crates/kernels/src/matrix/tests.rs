//! Tests of packing and of every product path against the plain reference.

#![allow(clippy::float_cmp, reason = "bit for bit is what is promised")]

mod sample;

use proptest::prelude::*;

use super::*;
use crate::activations::{InputForm, RowBlock};
use sample::{Sample, noise};

const PRECISIONS: [Precision; 2] = [Precision::Auto, Precision::Float32];

/// Every way of computing a product of this matrix: on each instruction set, in each precision.
fn all_ways(sample: &Sample) -> Vec<PackedMatrix> {
    Isa::available()
        .into_iter()
        .flat_map(|isa| PRECISIONS.map(|precision| sample.pack_for(precision, isa).unwrap()))
        .collect()
}

fn input_of(values: &[f32], cols: usize) -> Activations {
    let mut input = Activations::default();
    input.fill(values, cols, InputForm::FLOAT.and(InputForm::QUANTIZED).and(InputForm::SPLIT));
    input
}

/// The whole product, rows one after the other.
fn product(matrix: &PackedMatrix, values: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let mut out = vec![f32::NAN; values.len() / matrix.cols() * matrix.rows()];
    matrix.multiply_all(&input_of(values, matrix.cols()), bias, &mut out, matrix.rows());
    out
}

/// The input as the product sees it: quantised and turned back for matrices that read it so.
fn seen_input(matrix: &PackedMatrix, values: &[f32]) -> Vec<f32> {
    if matrix.input_form() != InputForm::QUANTIZED {
        return values.to_vec();
    }
    let mut seen = Vec::new();
    for row in values.chunks_exact(matrix.cols()) {
        let input = input_of(row, matrix.cols());
        for group in input.group_block(RowBlock::at(0, 1)) {
            let bytes = group.words.iter().flat_map(|word| word.to_le_bytes());
            seen.extend(bytes.map(|byte| f32::from(byte as i8) * group.scale));
        }
    }
    seen
}

#[test]
fn every_way_agrees_with_the_reference_on_odd_shapes() {
    for element in ElementType::ALL {
        for (rows, blocks) in [(1, 1), (5, 3), (16, 2), (17, 1), (50, 5), (133, 2)] {
            let sample = Sample::new(element, rows, blocks * element.block_len().max(7), rows as u64);
            let weights = sample.view().to_f32().unwrap();
            let bias: Vec<f32> = noise(rows, 7);
            let values = noise(3 * sample.cols(), 99);
            for matrix in all_ways(&sample) {
                let seen = seen_input(&matrix, &values);
                let out = product(&matrix, &values, Some(&bias));
                for (at, &value) in out.iter().enumerate() {
                    let (row, col) = (at / rows, at % rows);
                    let input = &seen[row * sample.cols()..][..sample.cols()];
                    let weights = &weights[col * sample.cols()..][..sample.cols()];
                    let terms = || input.iter().zip(weights).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let exact = terms().sum::<f64>() + f64::from(bias[col]);
                    let magnitude = 1e-3 + terms().map(f64::abs).sum::<f64>();
                    let error = (f64::from(value) - exact).abs() / magnitude;
                    assert!(error < 3e-6, "{element} {rows}x{} {:?}: {error:e}", sample.cols(), matrix.isa);
                }
            }
        }
    }
}

#[test]
fn a_row_is_the_same_in_every_batch_and_split() {
    for element in ElementType::ALL {
        let sample = Sample::new(element, 16 * 6 + 3, 2 * element.block_len().max(19), 5);
        let (rows, cols) = (sample.rows(), sample.cols());
        let values = noise(33 * cols, 11);
        for matrix in all_ways(&sample) {
            let alone: Vec<f32> =
                values.chunks_exact(cols).flat_map(|row| product(&matrix, row, None)).collect();
            for batch in [2, 3, 7, 8, 12, 33] {
                assert_eq!(
                    product(&matrix, &values[..batch * cols], None),
                    alone[..batch * rows],
                    "batch {batch}"
                );
            }
            for split in [1, 2, 3, 5] {
                let mut out = vec![f32::NAN; 33 * rows];
                let input = input_of(&values, cols);
                // SAFETY: one thread only.
                let shared = unsafe { OutputRows::new(&mut out, rows) };
                for first in (0..matrix.tiles()).step_by(split) {
                    matrix.multiply(&input, None, first..matrix.tiles().min(first + split), &shared);
                }
                assert_eq!(out, alone, "{element}, {split} tiles at a time");
            }
        }
    }
}

#[test]
fn long_inputs_are_cut_into_chunks_without_a_trace() {
    // Enough rows for several chunks of the cache.
    let sample = Sample::new(ElementType::Q4_1, 20, 512, 3);
    let values = noise(900 * 512, 4);
    for matrix in all_ways(&sample) {
        if matrix.isa == Isa::Portable && matrix.precision == Precision::Float32 {
            continue;
        }
        let all = product(&matrix, &values, None);
        for row in [0, 383, 384, 385, 899] {
            let alone = product(&matrix, &values[row * 512..(row + 1) * 512], None);
            assert_eq!(all[row * 20..(row + 1) * 20], alone);
        }
    }
}

#[test]
fn integer_products_do_not_depend_on_the_kind_of_vector() {
    for element in ElementType::ALL.into_iter().filter(|element| element.is_quantized()) {
        // Columns and rows enough for several stretches and blocks, with something left over.
        let sample = Sample::new(element, 40, 1280, 17);
        let values = noise(50 * 1280, 23);
        let results: Vec<Vec<f32>> = Isa::available()
            .into_iter()
            .filter(|&isa| isa != Isa::Portable)
            .map(|isa| product(&sample.pack_for(Precision::Auto, isa).unwrap(), &values, None))
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{element}");
    }
}

#[test]
fn extreme_integers_do_not_overflow() {
    for byte in [0x80_u8, 0x7F, 0xFF, 0x00] {
        for element in ElementType::ALL.into_iter().filter(|element| element.is_quantized()) {
            let sample = Sample::constant(element, 16, 256, byte);
            let weights = sample.view().to_f32().unwrap();
            let values: Vec<f32> = (0..256).map(|at| if at % 64 < 32 { 127.0 } else { -127.0 }).collect();
            for values in [values, vec![127.0; 256], vec![-127.0; 256]] {
                let terms = || weights[..256].iter().zip(&values).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (exact, magnitude) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                for matrix in all_ways(&sample) {
                    for value in product(&matrix, &values, None) {
                        let error = (f64::from(value) - exact).abs() / magnitude.max(1.0);
                        assert!(error < 1e-5, "{element} of {byte:#x} on {:?}: {error:e}", matrix.isa);
                    }
                }
            }
        }
    }
}

#[test]
fn weights_keep_their_width() {
    for element in ElementType::ALL {
        let sample = Sample::new(element, 64, 512, 1);
        let stored = sample.view().bytes.len();
        let packed = sample.pack(Precision::Auto).unwrap().bytes();
        assert!(packed >= stored && packed * 100 <= stored * 103, "{element}: {stored} became {packed}");
    }
}

#[test]
fn columns_beyond_the_matrix_are_left_alone() {
    let sample = Sample::new(ElementType::F32, 19, 8, 1);
    let matrix = sample.pack(Precision::Auto).unwrap();
    let mut out = vec![7.5; 2 * 24 + 19];
    matrix.multiply_all(&input_of(&noise(24, 1), 8), None, &mut out, 24);
    for row in out.chunks(24) {
        assert!(row[..19].iter().all(|&value| value != 7.5) && row[19..].iter().all(|&value| value == 7.5));
    }
}

#[test]
fn damaged_values_are_refused_with_their_row() {
    for element in ElementType::ALL {
        for row in [0, 15, 16, 20] {
            let mut sample = Sample::new(element, 21, 2 * element.block_len().max(160), 9);
            sample.spoil(row);
            let error = sample.pack(Precision::Auto).unwrap_err();
            assert_eq!(error, PackError::NotFinite { row }, "{element}");
        }
    }
}

#[test]
fn what_is_no_matrix_is_refused() {
    let bytes = [0_u8; 64];
    for shape in [&[16][..], &[2, 2, 4], &[0, 16], &[16, 0]] {
        let len = shape.iter().product::<usize>() * 4;
        let view = TensorView::new(ElementType::F32, shape, &bytes[..len]).unwrap();
        let error = PackedMatrix::pack(&view, Precision::Auto).unwrap_err();
        assert_eq!(error, PackError::NotAMatrix { shape: shape.to_vec() });
    }
    let lying = TensorView { element: ElementType::F32, shape: &[4, 5], bytes: &bytes };
    assert!(matches!(PackedMatrix::pack(&lying, Precision::Auto), Err(PackError::Tensor(_))));
}

#[test]
#[should_panic(expected = "form of the input")]
fn plain_input_is_no_quantised_input() {
    let matrix = Sample::new(ElementType::Q4_0, 16, 32, 1).pack(Precision::Auto).unwrap();
    let mut input = Activations::default();
    input.fill(&[1.0; 32], 32, InputForm::FLOAT);
    matrix.multiply_all(&input, None, &mut [0.0; 16], 16);
}

#[test]
#[should_panic(expected = "room for the results")]
fn results_must_fit() {
    let matrix = Sample::new(ElementType::F32, 17, 4, 1).pack(Precision::Auto).unwrap();
    matrix.multiply_all(&input_of(&[1.0; 8], 4), None, &mut [0.0; 33], 17);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn packing_loses_nothing(
        kind in 0..ElementType::ALL.len(),
        rows in 1..40_usize,
        blocks in 1..4_usize,
        seed: u64,
    ) {
        let element = ElementType::ALL[kind];
        let sample = Sample::new(element, rows, blocks * element.block_len(), seed);
        let expected = sample.view().to_f32().unwrap();
        for matrix in all_ways(&sample) {
            let mut row = vec![f32::NAN; sample.cols()];
            for (at, expected) in expected.chunks_exact(sample.cols()).enumerate() {
                matrix.dequantize_row(at, &mut row);
                prop_assert_eq!(&row, expected, "{} row {} on {:?}", element, at, matrix.isa);
            }
        }
    }
}
