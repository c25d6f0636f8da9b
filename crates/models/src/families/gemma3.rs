//! Gemma 3, the language model: sliding layers with a global one after every few, each kind with its own rotary
//! base; norms before and after both parts; a scaled embedding that is also the output matrix.
//!
//! In float32 the reference scales the embedding by the plain root of the width (its bfloat16 runs round the
//! factor first); activations are float32 here, so the plain root is right for every checkpoint.

use updraft_core::program::{Activation, Program, RopePairing};

use super::decoder::Decoder;
use super::naming::Part;
use super::{Family, Naming};
use crate::config::{BiasRule, ModelConfig, Rules, WindowRule};

pub(super) static FAMILY: Family = Family {
    name: "gemma3",
    // Of the vision-language models, the language model alone is built: they serve text.
    architectures: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    model_types: &["gemma3_text", "gemma3"],
    gguf_architectures: &["gemma3"],
    gguf_pairing: RopePairing::Halves,
    rules: Rules {
        hidden: Some(2304),
        intermediate: Some(9216),
        layers: Some(26),
        heads: Some(8),
        vocab: Some(262_208),
        kv_heads: Some(4),
        head_dim: Some(256),
        max_position: 131_072,
        activation: Activation::GeluTanh,
        tied_output: true,
        rope_theta: 1_000_000.0,
        local_rope_theta: Some(10_000.0),
        windows: WindowRule::AllButEvery { layers: 6, default: 4096 },
        biases: BiasRule::ByKey,
        zero_centred_norms: true,
        query_scalar: Some(256.0),
        max_position_is_scaled: true,
        ..Rules::COMMON
    },
    // The text-only models share the tokenizer of the larger ones, which marks images.
    tokens_of_sisters: &["<image_soft_token>"],
    build,
};

fn build(config: &ModelConfig, naming: &Naming, positions: u32) -> Program {
    let mut decoder = Decoder::new(config, naming, positions);
    decoder.embed(f64::from(config.hidden).sqrt() as f32);
    for layer in 0..config.layers {
        decoder.norm(layer, Part::AttentionNorm);
        decoder.project_qkv(layer);
        decoder.norm_heads(layer);
        decoder.attend(layer);
        decoder.add_normed_branch(layer, Part::AttentionResultNorm);
        decoder.norm(layer, Part::FeedForwardInputNorm);
        decoder.feed_forward(layer);
        decoder.add_normed_branch(layer, Part::FeedForwardResultNorm);
    }
    decoder.finish()
}
