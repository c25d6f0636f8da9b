//! Qwen2 and Qwen2.5: Llama's layers, with biases on query, key and value.

use updraft_core::program::{Program, RopePairing};

use super::decoder::Decoder;
use super::naming::Part;
use super::{Family, Naming};
use crate::config::{BiasRule, ModelConfig, Rules, WindowRule};

pub(super) static FAMILY: Family = Family {
    name: "qwen2",
    architectures: &["Qwen2ForCausalLM"],
    model_types: &["qwen2"],
    gguf_architectures: &["qwen2"],
    gguf_pairing: RopePairing::Halves,
    rules: Rules {
        max_position: 32_768,
        windows: WindowRule::UpperLayers,
        biases: BiasRule::AlwaysQkv,
        ..Rules::COMMON
    },
    tokens_of_sisters: &[],
    build,
};

fn build(config: &ModelConfig, naming: &Naming, positions: u32) -> Program {
    let mut decoder = Decoder::new(config, naming, positions);
    decoder.embed(1.0);
    for layer in 0..config.layers {
        decoder.norm(layer, Part::AttentionNorm);
        decoder.project_qkv(layer);
        decoder.attend(layer);
        decoder.add_branch();
        decoder.norm(layer, Part::FeedForwardNorm);
        decoder.feed_forward(layer);
        decoder.add_branch();
    }
    decoder.finish()
}
