//! Row-wise arithmetic between the matrix products: norms, rotary embedding, gates, sums.
//!
//! Always holds: a row's result depends on that row alone; a sum over a row adds four vectors of sixteen lanes in
//! order and then follows one tree, whatever the row's address or neighbours. All values are `f32`. Slices that
//! belong together have equal lengths (stated at each function, checked at its entry): a caller that breaks this
//! has a bug, and panics.

mod rope;
#[cfg(test)]
mod tests;

pub use rope::{RopeRow, rope, rope_angles};

use crate::lanes::{Kernel, LANES, Lanes, Simd};

/// `out = input / sqrt(mean(input^2) + epsilon) * weight`, over a whole row. All slices have equal lengths.
///
/// # Panics
/// When lengths differ.
pub fn rms_norm(simd: Simd, input: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    assert!(input.len() == weight.len() && input.len() == out.len(), "a norm's slices differ in length");
    out.copy_from_slice(input);
    simd.run(RmsNorm { row: out, weight, epsilon });
}

/// [`rms_norm`] over each head of a row, in place. A head is as long as `weight`; the row is whole heads.
///
/// # Panics
/// When the row is not whole heads.
pub fn head_norm(simd: Simd, row: &mut [f32], weight: &[f32], epsilon: f32) {
    assert!(!weight.is_empty() && row.len().is_multiple_of(weight.len()), "a row is not whole heads");
    for head in row.chunks_exact_mut(weight.len()) {
        simd.run(RmsNorm { row: head, weight, epsilon });
    }
}

/// `out = silu(gate) * up`, where `silu(x) = x / (1 + exp(-x))`. All slices have equal lengths.
pub fn gate_silu(simd: Simd, gate: &[f32], up: &[f32], out: &mut [f32]) {
    simd.run(Gate { values: gate, up, out, is_gelu: false });
}

/// `out = gelu(gate) * up` with the tanh approximation of GELU. All slices have equal lengths.
pub fn gate_gelu_tanh(simd: Simd, gate: &[f32], up: &[f32], out: &mut [f32]) {
    simd.run(Gate { values: gate, up, out, is_gelu: true });
}

/// `into += input`. The slices have equal lengths.
pub fn add(simd: Simd, into: &mut [f32], input: &[f32]) {
    simd.run(Add { into, input });
}

/// `row *= factor`.
pub fn scale(simd: Simd, row: &mut [f32], factor: f32) {
    simd.run(Scale { row, factor });
}

struct RmsNorm<'a> {
    row: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mean = sum_of_squares(l, self.row) / self.row.len() as f32;
        let factor = 1.0 / (mean + self.epsilon).sqrt();
        let wide = l.splat(factor);
        let (chunks, rest) = self.row.as_chunks_mut::<LANES>();
        let (weights, weights_rest) = self.weight.as_chunks::<LANES>();
        for (chunk, weight) in chunks.iter_mut().zip(weights) {
            let normed = l.mul(l.load(chunk), wide);
            l.store(l.mul(normed, l.load(weight)), chunk);
        }
        for (value, weight) in rest.iter_mut().zip(weights_rest) {
            *value = *value * factor * weight;
        }
    }
}

/// Sum of the squares: vector `i` goes to accumulator `i % 4`, the tail is one vector filled up with zeros.
#[inline(always)]
fn sum_of_squares<L: Lanes>(l: L, row: &[f32]) -> f32 {
    let mut sums = [l.splat(0.0); 4];
    let (groups, rest) = row.as_chunks::<{ 4 * LANES }>();
    for group in groups {
        for (sum, chunk) in sums.iter_mut().zip(group.as_chunks::<LANES>().0) {
            let x = l.load(chunk);
            *sum = l.fma(x, x, *sum);
        }
    }
    let (chunks, tail) = rest.as_chunks::<LANES>();
    let mut padded = [0.0; LANES];
    padded[..tail.len()].copy_from_slice(tail);
    for (sum, chunk) in sums.iter_mut().zip(chunks.iter().chain([&padded])) {
        let x = l.load(chunk);
        *sum = l.fma(x, x, *sum);
    }
    let [a, b, c, d] = sums;
    l.sum(l.add(l.add(a, b), l.add(c, d)))
}

struct Gate<'a> {
    values: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
    is_gelu: bool,
}

impl Kernel for Gate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { values: gate, up, out, is_gelu } = self;
        assert!(gate.len() == up.len() && gate.len() == out.len(), "a gate's slices differ in length");
        let (gates, gates_rest) = gate.as_chunks::<LANES>();
        let (ups, ups_rest) = up.as_chunks::<LANES>();
        let (outs, outs_rest) = out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gates.iter().zip(ups).zip(outs) {
            l.store(gated(l, gate, up, is_gelu), out);
        }
        if !gates_rest.is_empty() {
            let mut padded = [[0.0; LANES]; 3];
            padded[0][..gates_rest.len()].copy_from_slice(gates_rest);
            padded[1][..ups_rest.len()].copy_from_slice(ups_rest);
            let [gate, up, out] = &mut padded;
            l.store(gated(l, gate, up, is_gelu), out);
            outs_rest.copy_from_slice(&out[..outs_rest.len()]);
        }
    }
}

/// Both functions are `x * sigmoid(something)`: the form that keeps small results accurate. No closure: one that
/// is not inlined would call every instruction as a function.
#[inline(always)]
fn gated<L: Lanes>(l: L, gate: &[f32; LANES], up: &[f32; LANES], is_gelu: bool) -> L::F {
    let x = l.load(gate);
    let inner = if is_gelu { gelu_inner(l, x) } else { x };
    let exp = l.exp(l.sub(l.splat(0.0), inner));
    l.mul(l.div(x, l.add(exp, l.splat(1.0))), l.load(up))
}

/// What stands in the sigmoid of the tanh form of GELU: `2 * sqrt(2 / pi) * (x + 0.044715 x^3)`.
#[inline(always)]
fn gelu_inner<L: Lanes>(l: L, x: L::F) -> L::F {
    let cubic = l.fma(l.mul(x, x), l.splat(0.044_715), l.splat(1.0));
    l.mul(l.mul(x, l.splat(1.595_769)), cubic)
}

struct Add<'a> {
    into: &'a mut [f32],
    input: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        assert!(self.into.len() == self.input.len(), "a sum's slices differ in length");
        for (into, input) in self.into.iter_mut().zip(self.input) {
            *into += input;
        }
    }
}

struct Scale<'a> {
    row: &'a mut [f32],
    factor: f32,
}

impl Kernel for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        for value in self.row {
            *value *= self.factor;
        }
    }
}
