//! Inverse frequencies of the rotary embedding, for every scaling that checkpoints ask for.
//!
//! A table is `theta^(-2 i / d)` for pair `i` of `d` rotated values (Su et al., "`RoFormer`", 2021), changed by the
//! scaling:
//! - linear: positions divided by the factor (Chen et al., "Extending Context Window of Large Language Models via
//!   Positional Interpolation", 2023);
//! - dynamic: a larger base for longer contexts ("NTK-aware" scaling, bloc97 and emozilla, 2023);
//! - yarn: low frequencies interpolated, high ones kept, a ramp between (Peng et al., "`YaRN`", 2023);
//! - llama3: the piecewise rule published with Llama 3.1's model code;
//! - factors: one divisor a pair, as the tensor `rope_freqs.weight` of GGUF files has it.
//!
//! Parameter names and defaults are those of the transformers library 5.24. Computed in f64 and rounded once.

#[cfg(test)]
mod tests;

use std::f64::consts::PI;

use updraft_core::program::{RopePairing, RopeSpec};

/// What a rotary table is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// The base.
    pub theta: f64,
    /// Leading values of a head that are rotated; even.
    pub rotated: u32,
    /// How frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

/// How frequencies are changed.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All divided by the factor.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// A base that grows with the longest sequence. The reference library recomputes it whenever a longer
    /// sequence arrives, so that a token's result depends on what came before the request; here it is computed once,
    /// for the longest context that is served. A server whose context is within the original length is thereby
    /// unscaled, as the reference is for such sequences.
    Dynamic {
        /// At least 1.
        factor: f64,
        /// Context length of the training.
        original: u32,
    },
    /// Interpolation by frequency.
    Yarn(Yarn),
    /// The rule of Llama 3.1.
    Llama3 {
        /// Divides low frequencies.
        factor: f64,
        /// Waves longer than the original context divided by this are low.
        low_frequency_factor: f64,
        /// Waves shorter than the original context divided by this are high and stay.
        high_frequency_factor: f64,
        /// Context length of the training.
        original: u32,
    },
    /// A divisor for each pair.
    Factors(Vec<f32>),
}

/// Parameters of yarn.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// How much longer the context becomes.
    pub factor: f64,
    /// Context length of the training.
    pub original: u32,
    /// Pairs that turn more often than this within the original context stay.
    pub beta_fast: f64,
    /// Pairs that turn less often than this are interpolated.
    pub beta_slow: f64,
    /// Multiplies sine and cosine.
    pub attention_factor: f64,
    /// Whether the borders of the ramp are rounded to whole pairs.
    pub truncate: bool,
}

impl Yarn {
    /// The attention factor that follows from the other parameters when a checkpoint does not state it.
    #[must_use]
    pub fn default_attention_factor(factor: f64, mscale: Option<f64>, mscale_all_dim: Option<f64>) -> f64 {
        let magnitude = |scale: f64| {
            if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
        };
        match (mscale.filter(|&scale| scale != 0.0), mscale_all_dim.filter(|&scale| scale != 0.0)) {
            (Some(scale), Some(all)) => magnitude(scale) / magnitude(all),
            _ => magnitude(1.0),
        }
    }
}

impl RopeConfig {
    /// The table for contexts of at most `positions` tokens.
    #[must_use]
    pub fn table(&self, positions: u32, pairing: RopePairing) -> RopeSpec {
        let frequencies = self.frequencies(positions);
        let factor = match &self.scaling {
            RopeScaling::Yarn(yarn) => yarn.attention_factor as f32,
            _ => 1.0,
        };
        RopeSpec {
            inverse_frequencies: frequencies.into_iter().map(|frequency| frequency as f32).collect(),
            factor,
            pairing,
            max_positions: positions,
        }
    }

    fn frequencies(&self, positions: u32) -> Vec<f64> {
        let plain = unscaled(self.theta, self.rotated);
        match &self.scaling {
            RopeScaling::None => plain,
            RopeScaling::Linear { factor } => plain.into_iter().map(|frequency| frequency / factor).collect(),
            RopeScaling::Dynamic { factor, original } => {
                unscaled(dynamic_theta(self.theta, self.rotated, *factor, *original, positions), self.rotated)
            }
            RopeScaling::Yarn(yarn) => yarn_frequencies(plain, self.theta, yarn),
            RopeScaling::Llama3 { factor, low_frequency_factor, high_frequency_factor, original } => plain
                .into_iter()
                .map(|frequency| {
                    let turns = f64::from(*original) * frequency / (2.0 * PI);
                    if turns < *low_frequency_factor {
                        frequency / factor
                    } else if turns > *high_frequency_factor {
                        frequency
                    } else {
                        let smooth =
                            (turns - low_frequency_factor) / (high_frequency_factor - low_frequency_factor);
                        (1.0 - smooth) * frequency / factor + smooth * frequency
                    }
                })
                .collect(),
            RopeScaling::Factors(factors) => {
                plain.into_iter().zip(factors).map(|(frequency, &by)| frequency / f64::from(by)).collect()
            }
        }
    }
}

fn unscaled(theta: f64, rotated: u32) -> Vec<f64> {
    (0..rotated / 2).map(|pair| theta.powf(-2.0 * f64::from(pair) / f64::from(rotated))).collect()
}

fn dynamic_theta(theta: f64, rotated: u32, factor: f64, original: u32, positions: u32) -> f64 {
    let longest = f64::from(positions.max(original));
    let rotated = f64::from(rotated);
    let growth = factor * longest / f64::from(original.max(1)) - (factor - 1.0);
    if rotated > 2.0 { theta * growth.powf(rotated / (rotated - 2.0)) } else { theta }
}

fn yarn_frequencies(plain: Vec<f64>, theta: f64, yarn: &Yarn) -> Vec<f64> {
    let rotated = 2.0 * plain.len() as f64;
    // The pair (a fraction of one) that makes `turns` turns within the original context.
    let pair_of =
        |turns: f64| rotated * (f64::from(yarn.original) / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair_of(yarn.beta_fast), pair_of(yarn.beta_slow));
    if yarn.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    let low = low.max(0.0);
    let high = high.min(rotated - 1.0);
    // A ramp of no width would divide by zero.
    let width = if (high - low).abs() < f64::EPSILON { 0.001 } else { high - low };
    plain
        .into_iter()
        .enumerate()
        .map(|(pair, frequency)| {
            let interpolated = ((pair as f64 - low) / width).clamp(0.0, 1.0);
            frequency / yarn.factor * interpolated + frequency * (1.0 - interpolated)
        })
        .collect()
}
