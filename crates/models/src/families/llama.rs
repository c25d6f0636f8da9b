//! Llama, and models of the same shape published under its name.

use updraft_core::program::{Program, RopePairing};

use super::decoder::Decoder;
use super::naming::Part;
use super::{Family, Naming};
use crate::config::{BiasRule, ModelConfig, Rules};

pub(super) static FAMILY: Family = Family {
    name: "llama",
    architectures: &["LlamaForCausalLM"],
    model_types: &["llama"],
    // Files of Mistral models say `llama`, too; a sliding window is not in their metadata.
    gguf_architectures: &["llama"],
    gguf_pairing: RopePairing::Neighbours,
    rules: Rules { biases: BiasRule::ByKey, ..Rules::COMMON },
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
