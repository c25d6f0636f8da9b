//! Against the same formulas in double precision, on every instruction set and for awkward lengths.
#![allow(clippy::float_cmp, reason = "these results are exact")]

use proptest::prelude::*;

use super::*;

fn assert_close(actual: &[f32], expected: &[f64], relative: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        prop_assert!((f64::from(*a) - e).abs() <= relative * e.abs() + 1e-30, "{} is not {}", a, e);
    }
    Ok(())
}

fn norm_reference(row: &[f32], weight: &[f32], epsilon: f32) -> Vec<f64> {
    let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / row.len() as f64;
    let factor = 1.0 / (mean + f64::from(epsilon)).sqrt();
    row.iter().zip(weight).map(|(x, w)| f64::from(*x) * factor * f64::from(*w)).collect()
}

fn rows(max: usize) -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
    (1..max).prop_flat_map(|len| {
        (prop::collection::vec(-30_f32..30.0, len), prop::collection::vec(-3_f32..3.0, len))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rms_norm_is_the_formula((row, weight) in rows(200)) {
        for simd in Simd::all() {
            let mut out = vec![0.0; row.len()];
            rms_norm(simd, &row, &weight, 1e-5, &mut out);
            assert_close(&out, &norm_reference(&row, &weight, 1e-5), 1e-6)?;
        }
    }

    #[test]
    fn head_norm_is_rms_norm_of_each_head((row, weight) in rows(80), heads in 1..4_usize) {
        let whole: Vec<f32> = (0..heads).flat_map(|h| row.iter().map(move |x| x * (h + 1) as f32)).collect();
        for simd in Simd::all() {
            let mut normed = whole.clone();
            head_norm(simd, &mut normed, &weight, 1e-6);
            for (head, input) in normed.chunks(row.len()).zip(whole.chunks(row.len())) {
                let mut alone = vec![0.0; row.len()];
                rms_norm(simd, input, &weight, 1e-6, &mut alone);
                prop_assert_eq!(head, &alone[..]);
            }
        }
    }

    #[test]
    fn gates_are_the_formulas((gate, up) in rows(100)) {
        let silu: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| {
            let g = f64::from(*g);
            g / (1.0 + (-g).exp()) * f64::from(*u)
        }).collect();
        let gelu: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| {
            let g = f64::from(*g);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044_715 * g.powi(3));
            // 1 + tanh(inner) without cancellation.
            g / (1.0 + (-2.0 * inner).exp()) * f64::from(*u)
        }).collect();
        for simd in Simd::all() {
            let mut out = vec![0.0; gate.len()];
            gate_silu(simd, &gate, &up, &mut out);
            assert_close(&out, &silu, 1e-6)?;
            gate_gelu_tanh(simd, &gate, &up, &mut out);
            for ((out, exact), up) in out.iter().zip(&gelu).zip(&up) {
                // The argument of exp is itself rounded, which shows where the result is near zero.
                let error = (f64::from(*out) - exact).abs();
                prop_assert!(error <= 2e-6 * exact.abs() + 1e-7 * f64::from(up.abs()), "{} is not {}", out, exact);
            }
        }
    }

    #[test]
    fn rope_turns_pairs_and_leaves_the_rest(
        (pairs, rest, heads) in (1..40_usize, 0..9_usize, 1..4_usize),
        position in 0..100_000_u32,
        neighbours: bool,
    ) {
        let head_dim = 2 * pairs + rest;
        let frequencies: Vec<f32> = (0..pairs).map(|i| 1e4_f32.powf(-(i as f32) / pairs as f32)).collect();
        let (mut cos, mut sin) = (vec![0.0; pairs], vec![0.0; pairs]);
        rope_angles(position, &frequencies, 1.5, &mut cos, &mut sin);
        let row: Vec<f32> = (0..heads * head_dim).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let mut expected: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        for head in 0..heads {
            for (i, frequency) in frequencies.iter().enumerate() {
                let (a, b) = if neighbours { (2 * i, 2 * i + 1) } else { (i, i + pairs) };
                let (a, b) = (head * head_dim + a, head * head_dim + b);
                let (s, c) = f64::from(position as f32 * frequency).sin_cos();
                let (x, y) = (f64::from(row[a]), f64::from(row[b]));
                expected[a] = 1.5 * (x * c - y * s);
                expected[b] = 1.5 * (y * c + x * s);
            }
        }
        for simd in Simd::all() {
            let mut turned = row.clone();
            rope(simd, &mut turned, head_dim, RopeRow { cos: &cos, sin: &sin, neighbours });
            for (a, e) in turned.iter().zip(&expected) {
                prop_assert!((f64::from(*a) - e).abs() < 1e-5, "{} is not {}", a, e);
            }
        }
    }
}

#[test]
fn sums_and_factors() {
    for simd in Simd::all() {
        let mut row = [1.0, 2.0, 3.0];
        add(simd, &mut row, &[10.0, 20.0, 30.0]);
        scale(simd, &mut row, 0.5);
        assert_eq!(row, [5.5, 11.0, 16.5]);
    }
}

#[test]
fn a_gate_of_huge_values_stays_finite() {
    for simd in Simd::all() {
        let mut out = [0.0; 4];
        gate_silu(simd, &[1e30, -1e30, 200.0, -200.0], &[1.0; 4], &mut out);
        assert_eq!(out[0], 1e30);
        assert!(out[1].abs() < 1e-6 && out[2] == 200.0 && out[3].abs() < 1e-30, "{out:?}");
        gate_gelu_tanh(simd, &[1e30, -1e30, 200.0, -200.0], &[1.0; 4], &mut out);
        assert!(out[0] == 1e30 && out[2] == 200.0 && out[1].abs() < 1e-6 && out[3].abs() < 1e-30, "{out:?}");
    }
}
