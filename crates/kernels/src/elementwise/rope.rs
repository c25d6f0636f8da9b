//! Rotary position embedding: pairs of a head's values turned by an angle that grows with the position.

use crate::lanes::{Kernel, LANES, Lanes, Simd};

/// Cosine and sine of every rotated pair at one position.
#[derive(Clone, Copy, Debug)]
pub struct RopeRow<'a> {
    /// One for each pair.
    pub cos: &'a [f32],
    /// As many.
    pub sin: &'a [f32],
    /// True if value `2 i` is turned with `2 i + 1`, false for `i` with `i + pairs`.
    pub neighbours: bool,
}

/// Cosine and sine, times `factor`, of each pair's angle at a position. All slices have equal lengths.
///
/// The angle is rounded to `f32`, as it is where models are trained; its cosine and sine are exact to the last bit
/// or nearly so.
///
/// # Panics
/// When lengths differ.
pub fn rope_angles(
    position: u32,
    inverse_frequencies: &[f32],
    factor: f32,
    cos: &mut [f32],
    sin: &mut [f32],
) {
    assert!(
        inverse_frequencies.len() == cos.len() && cos.len() == sin.len(),
        "a rotary table's slices differ in length"
    );
    for ((frequency, cos), sin) in inverse_frequencies.iter().zip(cos).zip(sin) {
        let (s, c) = f64::from(position as f32 * frequency).sin_cos();
        *cos = c as f32 * factor;
        *sin = s as f32 * factor;
    }
}

/// Turns the leading `2 * pairs` values of every head of a row; the others stay. The row is whole heads.
///
/// # Panics
/// When the row is not whole heads, or there are more pairs than a head has.
pub fn rope(simd: Simd, row: &mut [f32], head_dim: usize, angles: RopeRow<'_>) {
    assert!(head_dim > 0 && row.len().is_multiple_of(head_dim), "a row is not whole heads");
    assert!(
        2 * angles.cos.len() <= head_dim && angles.sin.len() == angles.cos.len(),
        "more pairs than a head has"
    );
    simd.run(Rope { row, head_dim, angles });
}

struct Rope<'a> {
    row: &'a mut [f32],
    head_dim: usize,
    angles: RopeRow<'a>,
}

impl Kernel for Rope<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let RopeRow { cos, sin, neighbours } = self.angles;
        for head in self.row.chunks_exact_mut(self.head_dim) {
            let rotated = &mut head[..2 * cos.len()];
            if neighbours {
                turn_neighbours(rotated, cos, sin);
            } else {
                let (first, second) = rotated.split_at_mut(cos.len());
                turn_halves(l, first, second, cos, sin);
            }
        }
    }
}

#[inline(always)]
fn turn_halves<L: Lanes>(l: L, first: &mut [f32], second: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (firsts, first_rest) = first.as_chunks_mut::<LANES>();
    let (seconds, second_rest) = second.as_chunks_mut::<LANES>();
    let (coses, cos_rest) = cos.as_chunks::<LANES>();
    let (sines, sin_rest) = sin.as_chunks::<LANES>();
    for (((first, second), cos), sin) in firsts.iter_mut().zip(seconds).zip(coses).zip(sines) {
        let (a, b, c, s) = (l.load(first), l.load(second), l.load(cos), l.load(sin));
        l.store(l.sub(l.mul(a, c), l.mul(b, s)), first);
        l.store(l.add(l.mul(b, c), l.mul(a, s)), second);
    }
    for (((a, b), cos), sin) in first_rest.iter_mut().zip(second_rest).zip(cos_rest).zip(sin_rest) {
        (*a, *b) = turned(*a, *b, *cos, *sin);
    }
}

#[inline(always)]
fn turn_neighbours(rotated: &mut [f32], cos: &[f32], sin: &[f32]) {
    for ((pair, cos), sin) in rotated.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        (pair[0], pair[1]) = turned(pair[0], pair[1], *cos, *sin);
    }
}

#[inline(always)]
fn turned(a: f32, b: f32, cos: f32, sin: f32) -> (f32, f32) {
    (a * cos - b * sin, b * cos + a * sin)
}
