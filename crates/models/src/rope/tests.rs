//! Frequencies against values computed independently from the published formulas.

use super::*;

fn table(theta: f64, rotated: u32, scaling: RopeScaling, positions: u32) -> RopeSpec {
    RopeConfig { theta, rotated, scaling }.table(positions, RopePairing::Halves)
}

fn assert_near(actual: &[f32], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (pair, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        assert!((f64::from(actual) / expected - 1.0).abs() < 2e-7, "pair {pair}: {actual} is not {expected}");
    }
}

#[test]
fn unscaled_and_linear() {
    let plain = table(1e4, 8, RopeScaling::None, 100);
    assert_near(&plain.inverse_frequencies, &[1.0, 0.1, 0.01, 0.001]);
    assert_eq!((plain.factor, plain.max_positions), (1.0, 100));
    let linear = table(1e4, 8, RopeScaling::Linear { factor: 4.0 }, 100);
    assert_near(&linear.inverse_frequencies, &[0.25, 0.025, 0.0025, 0.00025]);
}

#[test]
fn dynamic_scales_only_beyond_the_trained_context() {
    let dynamic = || RopeScaling::Dynamic { factor: 2.0, original: 2048 };
    assert_near(&table(1e4, 8, dynamic(), 2048).inverse_frequencies, &[1.0, 0.1, 0.01, 0.001]);
    assert_near(
        &table(1e4, 8, dynamic(), 4096).inverse_frequencies,
        &[1.0, 6.933_612_744e-2, 4.807_498_568e-3, 3.333_333_333e-4],
    );
}

fn yarn(factor: f64, original: u32, truncate: bool) -> RopeScaling {
    RopeScaling::Yarn(Yarn {
        factor,
        original,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: Yarn::default_attention_factor(factor, None, None),
        truncate,
    })
}

#[test]
fn yarn_interpolates_low_frequencies() {
    let whole = table(1e6, 16, yarn(4.0, 32_768, true), 131_072);
    assert_near(
        &whole.inverse_frequencies,
        &[
            1.0,
            1.778_279_410e-1,
            3.162_277_660e-2,
            4.217_559_939e-3,
            5.000_000_000e-4,
            4.445_698_525e-5,
            7.905_694_150e-6,
            1.405_853_313e-6,
        ],
    );
    assert!((whole.factor - 1.138_629_4).abs() < 1e-6);
    let fractions = table(1e4, 16, yarn(8.0, 4096, false), 32_768);
    assert_near(
        &fractions.inverse_frequencies,
        &[
            1.0,
            3.162_277_660e-1,
            1.000_000_000e-1,
            2.811_208_085e-2,
            5.983_133_441e-3,
            9.728_577_592e-4,
            1.250_000_000e-4,
            3.952_847_075e-5,
        ],
    );
}

#[test]
fn attention_factor_follows_the_magnitudes() {
    let of_deepseek = Yarn::default_attention_factor(40.0, Some(0.707), Some(1.0));
    assert!((of_deepseek - 0.921_042_355).abs() < 1e-8);
    let without = [(1.0, None), (40.0, Some(1.0))];
    for (factor, scale) in without {
        assert!((Yarn::default_attention_factor(factor, scale, scale) - 1.0).abs() < f64::EPSILON);
    }
}

#[test]
fn llama3_keeps_high_and_divides_low_frequencies() {
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original: 8192,
    };
    assert_near(
        &table(5e5, 16, scaling, 131_072).inverse_frequencies,
        &[
            1.0,
            1.939_227_447e-1,
            3.760_603_093e-2,
            7.292_664_737e-3,
            5.248_461_610e-4,
            3.428_102_196e-5,
            6.647_869_871e-6,
            1.289_173_172e-6,
        ],
    );
}

#[test]
fn factors_divide_each_pair() {
    let scaling = RopeScaling::Factors(vec![1.0, 2.0, 4.0, 8.0]);
    assert_near(&table(1e4, 8, scaling, 10).inverse_frequencies, &[1.0, 0.05, 0.0025, 0.000_125]);
}
