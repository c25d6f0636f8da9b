//! Fixtures rewritten as GGUF files, as the usual converter does it: the same model must come out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

#[path = "support/gguf_writer.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared by several tests")]
mod gguf_writer;
#[path = "reference/interpreter.rs"]
mod interpreter;
#[path = "support/temp_dir.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared by several tests")]
mod temp_dir;

use std::path::{Path, PathBuf};

use gguf_writer::{GgufWriter, Meta, Tensor};
use temp_dir::TempDir;
use updraft_core::program::RopePairing;
use updraft_kernels::tensor::TensorSource;
use updraft_models::{Checkpoint, OpenOptions, RopeScaling, TokenizerAsset};

const TOKENS: [u32; 7] = [82, 405, 126, 444, 332, 394, 247];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/models").join(name)
}

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path, &OpenOptions::default()).unwrap()
}

/// The name of a tensor in a GGUF file.
fn gguf_name(name: &str) -> String {
    let name = name.strip_prefix("model.").unwrap_or(name);
    let parts = [
        ("embed_tokens", "token_embd"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("lm_head", "output"),
        ("layers.", "blk."),
    ];
    let name = parts.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    if name == "norm.weight" { "output_norm.weight".to_owned() } else { name }
}

/// Rows reordered so that the values of a rotary pair are neighbours.
fn interleave(values: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let row = |at: usize| &values[at * cols..(at + 1) * cols];
    let rows = values.len() / cols;
    (0..rows)
        .flat_map(|at| row(at / head_dim * head_dim + at % 2 * half + at % head_dim / 2))
        .copied()
        .collect()
}

fn convert(name: &str, architecture: &str) -> GgufWriter {
    let model = open(&fixture(name));
    let config = &model.config;
    let mut file = GgufWriter::new();
    file.meta("general.architecture", Meta::text(architecture));
    let key = |name: &str| format!("{architecture}.{name}");
    file.meta(&key("block_count"), Meta::U32(config.layers))
        .meta(&key("context_length"), Meta::U32(config.context_length.0))
        .meta(&key("embedding_length"), Meta::U32(config.hidden))
        .meta(&key("feed_forward_length"), Meta::U32(config.intermediate))
        .meta(&key("attention.head_count"), Meta::U32(config.heads))
        .meta(&key("attention.head_count_kv"), Meta::U32(config.kv_heads))
        .meta(&key("attention.key_length"), Meta::U32(config.head_dim))
        .meta(&key("attention.value_length"), Meta::U32(config.head_dim))
        .meta(&key("attention.layer_norm_rms_epsilon"), Meta::F32(config.rms_epsilon))
        .meta(&key("rope.freq_base"), Meta::F32(config.rope.theta as f32));
    let kind = |id: u32| if id < 500 { 1 } else { 3 };
    file.meta("tokenizer.ggml.model", Meta::text("gpt2"))
        .meta(
            "tokenizer.ggml.tokens",
            Meta::Array((0..512).map(|id| Meta::text(&format!("t{id}"))).collect()),
        )
        .meta("tokenizer.ggml.token_type", Meta::Array((0..512).map(|id| Meta::I32(kind(id))).collect()))
        .meta("tokenizer.ggml.merges", Meta::Array(vec![Meta::text("a b")]))
        .meta("tokenizer.ggml.eos_token_id", Meta::U32(502))
        .meta("tokenizer.chat_template", Meta::text("{{ messages }}"));
    for weight in &model.program.weights {
        let mut values = model.tensor(&weight.name).unwrap().to_f32().unwrap();
        let cols = *weight.shape.last().unwrap() as usize;
        if architecture == "llama" && (weight.name.contains("q_proj") || weight.name.contains("k_proj")) {
            values = interleave(&values, cols, config.head_dim as usize);
        }
        if config.zero_centred_norms && weight.name.contains("norm") {
            for value in &mut values {
                *value += 1.0;
            }
        }
        let mut name = gguf_name(&weight.name);
        let other = if architecture == "gemma3" { "post_attention_norm" } else { "ffn_norm" };
        name = name.replace("post_attention_layernorm", other);
        let shape: Vec<u64> = weight.shape.iter().map(|&length| length.into()).collect();
        file.tensors.push(Tensor::floats(&name, &shape, &values));
    }
    file
}

fn write(folder: &TempDir, file: &GgufWriter) -> PathBuf {
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    path
}

fn assert_same_logits(name: &str, file: &GgufWriter) {
    let folder = TempDir::new(name);
    let (original, rewritten) = (open(&fixture(name)), open(&write(&folder, file)));
    let run = |model: &Checkpoint| interpreter::run(&model.program, model, &TOKENS).concat();
    let worst = run(&original).into_iter().zip(run(&rewritten)).map(|(left, right)| (left - right).abs());
    let worst = worst.fold(0.0, f32::max);
    assert!(worst < 1e-4, "{name}: logits differ by {worst}");
}

#[test]
fn every_family_computes_the_same_from_gguf() {
    assert_same_logits("qwen2-bias", &convert("qwen2-bias", "qwen2"));
    assert_same_logits("qwen3-bf16", &convert("qwen3-bf16", "qwen3"));
    let mut gemma = convert("gemma3-text", "gemma3");
    gemma
        .meta("gemma3.attention.sliding_window", Meta::U32(32))
        .meta("gemma3.attention.sliding_window_pattern", Meta::U32(3));
    assert_same_logits("gemma3-text", &gemma);
}

/// Llama 3.1's scaling is a tensor of factors in GGUF files, and rotary pairs are neighbours.
#[test]
fn llama_computes_the_same_from_gguf() {
    let mut llama = convert("llama3-rope-tied", "llama");
    let config = open(&fixture("llama3-rope-tied")).config;
    let scaled = config.rope.table(1, RopePairing::Halves).inverse_frequencies;
    let mut plain = config.rope;
    plain.scaling = RopeScaling::None;
    let plain = plain.table(1, RopePairing::Halves).inverse_frequencies;
    let factors: Vec<f32> = plain.iter().zip(scaled).map(|(plain, scaled)| plain / scaled).collect();
    llama.tensors.push(Tensor::floats("rope_freqs.weight", &[factors.len() as u64], &factors));
    assert_same_logits("llama3-rope-tied", &llama);
}

#[test]
fn facts_come_from_metadata() {
    let folder = TempDir::new("facts");
    let mut file = convert("qwen3-bf16", "qwen3");
    let end = Meta::text("<|im_end|>");
    for (key, value) in &mut file.metadata {
        if key == "tokenizer.ggml.tokens"
            && let Meta::Array(tokens) = value
        {
            tokens[505] = end.clone();
        }
    }
    file.meta("tokenizer.ggml.bos_token_id", Meta::U32(500))
        .meta("tokenizer.ggml.add_bos_token", Meta::Bool(false));
    let model = open(&write(&folder, &file));
    assert_eq!((model.config.architecture.as_str(), model.config.family), ("qwen3", "qwen3"));
    assert_eq!((model.config.stored_dtype.as_str(), model.config.tied_output), ("float32", true));
    assert_eq!(model.text.eos_token_ids, [502, 505]);
    assert_eq!(model.text.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(
        (model.text.bos_token.as_deref(), model.text.eos_token.as_deref()),
        (Some("t500"), Some("t502"))
    );
    let TokenizerAsset::Gguf(tokenizer) = &model.text.tokenizer else { panic!("no lists") };
    assert_eq!((tokenizer.model.as_str(), tokenizer.tokens.len(), tokenizer.merges.len()), ("gpt2", 512, 1));
    assert_eq!(
        (tokenizer.bos, tokenizer.eos, tokenizer.add_bos, tokenizer.pre.as_deref()),
        (Some(500), Some(502), Some(false), None)
    );
    assert_eq!((tokenizer.types[0], tokenizer.types[511]), (1, 3));
    assert!(model.file_of("token_embd.weight").ends_with("model.gguf"));
    model.release("token_embd.weight");
    assert_eq!(model.tensor("token_embd.weight").unwrap().shape, [512, 96]);
}

#[test]
fn rope_scaling_comes_from_metadata() {
    let folder = TempDir::new("scaling");
    let rope = |changes: &[(&str, Meta)]| {
        let mut file = convert("qwen3-bf16", "qwen3");
        for (key, value) in changes {
            file.meta(&format!("qwen3.rope.scaling.{key}"), value.clone());
        }
        open(&write(&folder, &file)).config
    };
    assert_eq!(rope(&[]).rope.scaling, RopeScaling::None);
    let linear = rope(&[("type", Meta::text("linear")), ("factor", Meta::F32(2.0))]);
    assert_eq!(linear.rope.scaling, RopeScaling::Linear { factor: 2.0 });
    let yarn = rope(&[
        ("type", Meta::text("yarn")),
        ("factor", Meta::F32(4.0)),
        ("original_context_length", Meta::U32(512)),
    ]);
    assert_eq!(yarn.context_length.0, 2048);
    let RopeScaling::Yarn(yarn) = yarn.rope.scaling else { panic!("no yarn") };
    assert_eq!((yarn.original, yarn.beta_fast, yarn.truncate), (512, 32.0, true));
}

#[test]
fn refusals_name_file_and_tensor() {
    let folder = TempDir::new("refused");
    let base = convert("qwen3-bf16", "qwen3");
    let refused = |what: &str, change: &dyn Fn(&mut GgufWriter), parts: &[&str]| {
        let mut file = base.clone();
        change(&mut file);
        let message = Checkpoint::open(&write(&folder, &file), &OpenOptions::default())
            .map(|_| ())
            .unwrap_err()
            .to_string();
        for part in parts.iter().chain(&["model.gguf"]) {
            assert!(message.contains(part), "{what}: `{part}` is not in: {message}");
        }
    };
    let set = |key: &'static str, value: Meta| {
        move |file: &mut GgufWriter| {
            file.metadata.retain(|(existing, _)| existing != key);
            file.meta(key, value.clone());
        }
    };
    let forget = |key: &'static str| {
        move |file: &mut GgufWriter| file.metadata.retain(|(existing, _)| existing != key)
    };
    refused("architecture", &set("general.architecture", Meta::text("rwkv")), &["`rwkv`", "known are llama"]);
    refused("no architecture", &forget("general.architecture"), &["general.architecture"]);
    refused("no layers", &forget("qwen3.block_count"), &["qwen3.block_count"]);
    refused("no tokenizer", &forget("tokenizer.ggml.tokens"), &["tokenizer.ggml.tokens"]);
    refused("stale layers", &set("qwen3.block_count", Meta::U32(3)), &["`blk.3.", "3 layers"]);
    refused("more layers", &set("qwen3.block_count", Meta::U32(5)), &["`blk.4.attn_norm.weight`"]);
    refused("heads", &set("qwen3.attention.head_count", Meta::text("four")), &["qwen3.attention.head_count"]);
    refused("experts", &set("qwen3.expert_count", Meta::U32(8)), &["mixture of experts"]);
    refused("scaling", &set("qwen3.rope.scaling.factor", Meta::F32(f32::NAN)), &["rope.scaling.factor"]);
    let many = (0..600).map(|id| Meta::text(&format!("t{id}"))).collect();
    refused("vocabulary", &set("tokenizer.ggml.tokens", Meta::Array(many)), &["tokenizer.ggml.token_type"]);
    let pad = |file: &mut GgufWriter| {
        forget("tokenizer.ggml.token_type")(file);
        let many = (0..513).map(|id| Meta::text(&format!("t{id}"))).collect();
        set("tokenizer.ggml.tokens", Meta::Array(many))(file);
    };
    refused("vocabulary", &pad, &["\"t512\" with id 512", "`token_embd.weight`", "only 512 rows"]);
    refused(
        "missing",
        &|file| file.tensors.retain(|tensor| tensor.name != "blk.1.ffn_up.weight"),
        &["`blk.1.ffn_up.weight`"],
    );
    let foreign = |file: &mut GgufWriter| {
        let tensor = file.tensors.iter_mut().find(|tensor| tensor.name == "blk.1.ffn_up.weight").unwrap();
        tensor.kind = 10;
    };
    refused("foreign", &foreign, &["`blk.1.ffn_up.weight`", "stored as Q2_K", "Q4_K, Q5_K, Q6_K"]);
    let reshape = |file: &mut GgufWriter| file.tensors[2].shape.reverse();
    refused("shape", &reshape, &["has shape", "makes it"]);
}

#[test]
fn truncation_never_panics() {
    let folder = TempDir::new("cut");
    let bytes = convert("llama3-rope-tied", "llama").bytes();
    let path = folder.path().join("cut.gguf");
    // Every 64th byte of what describes the tensors, and some cuts within their data.
    for len in (0..60_000).step_by(64).chain((60_000..bytes.len()).step_by(50_021)) {
        std::fs::write(&path, &bytes[..len]).unwrap();
        let message = Checkpoint::open(&path, &OpenOptions::default()).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("cut.gguf"), "{message}");
    }
}
