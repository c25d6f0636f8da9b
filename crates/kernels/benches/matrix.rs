//! Matrix products by kind of weights: one row of input (a decode step) and many (a prefill).
//!
//! `cargo bench -p updraft-kernels --bench matrix`. One row is bound by how fast weights are read, so it
//! shows bytes a second; many rows are bound by arithmetic, so they show operations a second (two for each
//! weight and row). One thread; `UPDRAFT_KERNELS` chooses the instruction set.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark that cannot go on ends")]

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use updraft_kernels::activations::Activations;
use updraft_kernels::matrix::{PackedMatrix, Precision};
use updraft_kernels::tensor::{ElementType, TensorView};

/// A projection of a small model, and one whose weights fit no cache near the core.
const SHAPES: [[usize; 2]; 2] = [[1536, 512], [4096, 2048]];
/// Input rows of a prefill chunk.
const MANY: usize = 256;
/// Input rows of a batch of sequences that decode.
const BATCH: usize = 16;

fn main() {
    divan::main();
}

/// Kind and shape of the weights.
#[derive(Clone, Copy)]
struct Case {
    element: ElementType,
    shape: [usize; 2],
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}x{}", self.element.name(), self.shape[0], self.shape[1])
    }
}

fn cases() -> Vec<Case> {
    let shapes = |element| SHAPES.map(|shape| Case { element, shape });
    ElementType::ALL.into_iter().flat_map(shapes).collect()
}

#[divan::bench(args = cases())]
fn one_row(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, 1);
}

#[divan::bench(args = cases(), max_time = 2)]
fn batch_of_16(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, BATCH);
}

#[divan::bench(args = cases(), max_time = 2)]
fn prefill_of_256(bencher: Bencher<'_, '_>, case: Case) {
    product(bencher, case, MANY);
}

fn product(bencher: Bencher<'_, '_>, Case { element, shape }: Case, rows: usize) {
    let matrix = pack(element, shape);
    let input: Vec<f32> = (0..rows * shape[1]).map(|at| (at % 97) as f32 / 97.0 - 0.5).collect();
    let mut activations = Activations::with_capacity(rows, shape[1]);
    activations.fill(&input, shape[1], matrix.input_form());
    let mut out = vec![0.0; rows * shape[0]];
    let operations = 2 * rows * shape[0] * shape[1];
    let bencher = if rows == 1 {
        bencher.counter(BytesCount::new(matrix.bytes()))
    } else {
        bencher.counter(ItemsCount::new(operations))
    };
    bencher.bench_local(|| matrix.multiply_all(&activations, None, divan::black_box(&mut out), shape[0]));
}

fn pack(element: ElementType, shape: [usize; 2]) -> PackedMatrix {
    // Bytes that make small scales and floats, none of them subnormal, whatever they stand for.
    let bytes: Vec<u8> = (0..TensorView::bytes_for(element, &shape).expect("the shape is whole blocks"))
        .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 27) as u8 & 0x1F | 0x20)
        .collect();
    let view = TensorView::new(element, &shape, &bytes).expect("the bytes fit the shape");
    PackedMatrix::pack(&view, Precision::Auto).expect("the values are finite")
}
