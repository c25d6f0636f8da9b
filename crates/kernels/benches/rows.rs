//! Row-wise arithmetic between the products: norms, gates, rotary embedding, sums, and taking rows over as
//! input.
//!
//! `cargo bench -p updraft-kernels --bench rows`. Values a second of one row; one thread; `UPDRAFT_KERNELS`
//! chooses the instruction set.
#![allow(missing_docs, clippy::expect_used, reason = "a benchmark that cannot go on ends")]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use updraft_kernels::activations::{Activations, InputForm};
use updraft_kernels::elementwise;
use updraft_kernels::lanes::Simd;

/// Widths of a row in small models.
const WIDTHS: [usize; 3] = [576, 1024, 3072];
/// Values of a head.
const HEAD: usize = 64;

fn main() {
    divan::main();
}

fn values(width: usize) -> Vec<f32> {
    (0..width).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

fn simd() -> Simd {
    Simd::selected().expect("the instruction set can be used")
}

#[divan::bench(args = WIDTHS)]
fn rms_norm(bencher: Bencher<'_, '_>, width: usize) {
    let (simd, input, weight, mut out) = (simd(), values(width), values(width), values(width));
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| elementwise::rms_norm(simd, black_box(&input), &weight, 1e-6, black_box(&mut out)));
}

#[divan::bench(args = WIDTHS)]
fn head_norm(bencher: Bencher<'_, '_>, width: usize) {
    let (simd, weight, mut row) = (simd(), vec![1.0; HEAD], values(width));
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| elementwise::head_norm(simd, black_box(&mut row), &weight, 1e-6));
}

#[divan::bench(args = WIDTHS)]
fn gate_silu(bencher: Bencher<'_, '_>, width: usize) {
    let (simd, gate, up, mut out) = (simd(), values(width), values(width), values(width));
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| elementwise::gate_silu(simd, black_box(&gate), &up, black_box(&mut out)));
}

#[divan::bench(args = WIDTHS)]
fn gate_gelu_tanh(bencher: Bencher<'_, '_>, width: usize) {
    let (simd, gate, up, mut out) = (simd(), values(width), values(width), values(width));
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| elementwise::gate_gelu_tanh(simd, black_box(&gate), &up, black_box(&mut out)));
}

#[divan::bench(args = WIDTHS)]
fn add(bencher: Bencher<'_, '_>, width: usize) {
    let (simd, mut into, input) = (simd(), vec![0.0; width], vec![0.0; width]);
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| elementwise::add(simd, black_box(&mut into), black_box(&input)));
}

#[divan::bench(args = WIDTHS)]
fn quantise_input(bencher: Bencher<'_, '_>, width: usize) {
    let (input, mut activations) = (values(width), Activations::with_capacity(1, width));
    bencher
        .counter(ItemsCount::new(width))
        .bench_local(|| activations.fill(black_box(&input), width, InputForm::QUANTIZED));
}
