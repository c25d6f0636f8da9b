//! Every instruction set must agree with plain arithmetic.
#![allow(clippy::float_cmp, reason = "these results are exact")]

use proptest::prelude::*;

use super::{Kernel, LANES, Lanes, Simd};

struct Exp([f32; LANES]);

impl Kernel for Exp {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        l.store(l.exp(l.load(&self.0)), &mut out);
        out
    }
}

struct Half([u32; LANES]);

impl Kernel for Half {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        l.store(l.f16_low(l.load_u(&self.0)), &mut out);
        out
    }
}

struct Reduce([f32; LANES]);

impl Kernel for Reduce {
    type Output = (f32, f32);

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> (f32, f32) {
        let value = l.load(&self.0);
        (l.sum(value), l.largest(value))
    }
}

struct BitOps([f32; LANES]);

impl Kernel for BitOps {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> [f32; LANES] {
        let value = l.load(&self.0);
        let bits = l.to_bits(value);
        let high = l.and(bits, l.splat_u(0xffff_0000));
        let low = l.shift_right::<16>(l.shift_left::<16>(bits));
        let again = l.of_bits(l.or(high, low));
        let small = l.min(l.max(again, l.splat(-1.0)), l.splat(1.0));
        let mut out = [0.0; LANES];
        l.store(l.if_less(small, l.splat(0.0), l.div(small, l.splat(2.0)), small), &mut out);
        out
    }
}

#[test]
fn exp_is_accurate_over_its_whole_range() {
    for simd in Simd::all() {
        let mut worst = 0.0_f64;
        for step in 0..20_000 {
            let x: [f32; LANES] =
                std::array::from_fn(|lane| -87.3 + 176.0 * (step * LANES + lane) as f32 / 320_000.0);
            for (x, y) in x.iter().zip(simd.run(Exp(x))) {
                let exact = f64::from(*x).exp();
                let error = (f64::from(y) / exact - 1.0).abs();
                if error > worst {
                    worst = error;
                }
            }
        }
        assert!(worst < 1.5e-7, "{simd:?}: {worst:e}");
    }
}

#[test]
fn exp_at_its_ends() {
    let x = [0.0, -0.0, f32::NEG_INFINITY, -88.0, -1e30, f32::INFINITY, 1e30, f32::NAN];
    for simd in Simd::all() {
        let y = simd.run(Exp(std::array::from_fn(|i| x[i % x.len()])));
        assert_eq!(y[..5], [1.0, 1.0, 0.0, 0.0, 0.0], "{simd:?}");
        assert!(y[5].is_finite() && y[5] > 3e38 && y[6] == y[5], "{simd:?}");
        assert!(y[7].is_nan(), "{simd:?}");
    }
}

#[test]
fn every_half_precision_number_is_read_right() {
    for simd in Simd::all() {
        for first in (0..=u16::MAX).step_by(LANES) {
            // The upper half is noise that must not matter.
            let words = std::array::from_fn(|lane| u32::from(first) + lane as u32 + 0xabcd_0000);
            for (lane, value) in simd.run(Half(words)).into_iter().enumerate() {
                let exact = half::f16::from_bits(first + lane as u16).to_f32();
                assert!(value.to_bits() == exact.to_bits() || (value.is_nan() && exact.is_nan()));
            }
        }
    }
}

proptest! {
    #[test]
    fn sums_follow_one_tree_on_every_set(values in prop::array::uniform16(-1e6_f32..1e6)) {
        let mut tree = values.to_vec();
        while tree.len() > 1 {
            let half = tree.len() / 2;
            tree = (0..half).map(|i| tree[i] + tree[i + half]).collect();
        }
        let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for simd in Simd::all() {
            prop_assert_eq!(simd.run(Reduce(values)), (tree[0], largest));
        }
    }

    #[test]
    fn bit_operations_agree(values in prop::array::uniform16(-3_f32..3.0)) {
        let expected = values.map(|value| value.clamp(-1.0, 1.0)).map(|v| if v < 0.0 { v / 2.0 } else { v });
        for simd in Simd::all() {
            prop_assert_eq!(simd.run(BitOps(values)), expected);
        }
    }
}
