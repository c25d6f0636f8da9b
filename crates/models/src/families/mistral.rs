//! Mistral: Llama's layers, with a sliding window in all of them unless the checkpoint turns it off.

use updraft_core::program::{Program, RopePairing};

use super::decoder::Decoder;
use super::naming::Part;
use super::{Family, Naming};
use crate::config::{ModelConfig, Rules, WindowRule};

pub(super) static FAMILY: Family = Family {
    name: "mistral",
    architectures: &["MistralForCausalLM"],
    model_types: &["mistral"],
    // Its GGUF files say `llama`.
    gguf_architectures: &[],
    gguf_pairing: RopePairing::Neighbours,
    rules: Rules {
        kv_heads: Some(8),
        max_position: 4096 * 32,
        windows: WindowRule::Everywhere { default: 4096 },
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
