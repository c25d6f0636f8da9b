//! The many ways of writing one configuration, and those that make no sense.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use updraft_core::program::Activation;

use super::hf::{HfConfig, parse};
use super::*;
use crate::rope::RopeScaling;

fn fixture(name: &str) -> Map<String, Value> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models"));
    let text = std::fs::read(folder.join(name).join("config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn read(object: &Map<String, Value>) -> Result<HfConfig, CheckpointError> {
    parse(Path::new("config.json"), object)
}

fn config(object: &Map<String, Value>) -> ModelConfig {
    read(object).unwrap().config
}

fn refusal(object: &Map<String, Value>) -> String {
    let message = read(object).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("config.json"), "no file in: {message}");
    message
}

/// The object with keys set; null removes.
fn with(object: &Map<String, Value>, changes: &Value) -> Map<String, Value> {
    let mut object = object.clone();
    for (key, value) in changes.as_object().unwrap().clone() {
        if value.is_null() {
            object.remove(&key)
        } else {
            object.insert(key, value)
        };
    }
    object
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn llama_variants_are_one_configuration() {
    let plain = fixture("llama3-rope-tied");
    let expected = config(&plain);
    assert!(matches!(expected.rope.scaling, RopeScaling::Llama3 { original: 64, .. }));
    let scaling = plain["rope_scaling"].as_object().unwrap().clone();
    let mut old_kind = scaling.clone();
    let kind = old_kind.remove("rope_type").unwrap();
    old_kind.insert("type".to_owned(), kind);
    let mut parameters = scaling.clone();
    parameters.insert("rope_theta".to_owned(), json!(500_000));
    let mut beside = scaling;
    let original = beside.remove("original_max_position_embeddings").unwrap();
    let nested = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "wrapper", "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 7}, "text_config": plain,
    });
    let moved = with(&plain, &json!({"tie_word_embeddings": null, "architectures": null}));
    let tied_outside =
        json!({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true, "text_config": moved});
    let variants = [
        ("dtype", with(&plain, &json!({"torch_dtype": null, "dtype": "bfloat16"}))),
        ("type", with(&plain, &json!({"rope_scaling": old_kind}))),
        (
            "rope_parameters",
            with(&plain, &json!({"rope_theta": null, "rope_scaling": null, "rope_parameters": parameters})),
        ),
        (
            "original beside",
            with(&plain, &json!({"rope_scaling": beside, "original_max_position_embeddings": original})),
        ),
        ("nested", object(&nested)),
        ("tied outside", object(&tied_outside)),
        ("model_type only", with(&plain, &json!({"architectures": null}))),
        ("whole floats", with(&plain, &json!({"hidden_size": 96.0}))),
        ("several", with(&plain, &json!({"architectures": ["Unheard", "LlamaForCausalLM"]}))),
    ];
    for (what, variant) in variants {
        assert_eq!(config(&variant), expected, "{what}");
    }
}

#[test]
fn gemma_variants_are_one_configuration() {
    let plain = fixture("gemma3-text");
    let expected = config(&plain);
    assert_eq!(expected.windows, [Some(32), Some(32), None, Some(32)]);
    let local = expected.local_rope.as_ref().unwrap();
    assert_eq!((expected.rope.theta, local.theta), (1e6, 1e4));
    let types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"];
    let parameters = json!({
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    });
    let new_rope = json!({"rope_theta": null, "rope_local_base_freq": null, "rope_scaling": null, "rope_parameters": parameters});
    let variants = [
        ("layer types", with(&plain, &json!({"sliding_window_pattern": null, "layer_types": types}))),
        ("rope_parameters", with(&plain, &new_rope)),
        (
            "defaults",
            with(
                &plain,
                &json!({"rope_theta": null, "rope_local_base_freq": null, "hidden_activation": null}),
            ),
        ),
    ];
    for (what, variant) in variants {
        assert_eq!(config(&variant), expected, "{what}");
    }
}

#[test]
fn sparse_gemma_takes_the_defaults_of_its_family() {
    // As published for the model with 4 billion parameters: most dimensions are left out.
    let sparse = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": {
            "hidden_size": 2560, "intermediate_size": 10_240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
        "eos_token_id": [1, 106],
    });
    let HfConfig { config, eos_token_ids, .. } = read(&object(&sparse)).unwrap();
    assert_eq!((config.heads, config.kv_heads, config.head_dim, config.vocab), (8, 4, 256, 262_208));
    assert_eq!(config.context_length.0, 131_072);
    assert!((config.attention_scale - 0.0625).abs() < f32::EPSILON);
    assert_eq!(config.activation, Activation::GeluTanh);
    assert!(config.tied_output && config.zero_centred_norms);
    assert_eq!(config.windows[4..7], [Some(1024), None, Some(1024)]);
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(config.local_rope.unwrap().scaling, RopeScaling::None);
    assert_eq!(eos_token_ids, [1, 106]);
}

#[test]
fn windows_follow_each_family() {
    let mistral = fixture("mistral-swa");
    assert_eq!(config(&mistral).windows, [Some(40); 3]);
    assert_eq!(config(&with(&mistral, &json!({"sliding_window": null}))).windows, [Some(4096); 3]);
    let mut off = mistral;
    off.insert("sliding_window".to_owned(), Value::Null);
    assert_eq!(config(&off).windows, [None; 3]);

    let qwen = fixture("qwen2-bias");
    assert_eq!(config(&qwen).windows, [None; 3]);
    let upper = with(&qwen, &json!({"use_sliding_window": true, "max_window_layers": 2}));
    assert_eq!(config(&upper).windows, [None, None, Some(512)]);
    let types = ["full_attention", "sliding_attention", "full_attention"];
    let listed = with(&qwen, &json!({"use_sliding_window": true, "layer_types": types}));
    assert_eq!(config(&listed).windows, [None, Some(512), None]);
}

#[test]
fn biases_follow_keys_and_families() {
    let biases = |qkv, attention_output, feed_forward| Biases { qkv, attention_output, feed_forward };
    let llama = fixture("llama3-rope-tied");
    assert_eq!(config(&llama).biases, biases(false, false, false));
    let keyed = with(&llama, &json!({"attention_bias": true, "mlp_bias": true}));
    assert_eq!(config(&keyed).biases, biases(true, true, true));
    assert_eq!(config(&fixture("qwen2-bias")).biases, biases(true, false, false));
    assert_eq!(
        config(&with(&fixture("qwen3-bf16"), &json!({"attention_bias": true}))).biases,
        biases(true, true, false)
    );
}

#[test]
fn scaled_contexts_are_longer() {
    let llama = fixture("llama-untied-sharded");
    let length = |scaling: Value| config(&with(&llama, &json!({"rope_scaling": scaling}))).context_length.0;
    assert_eq!(length(json!({"type": "default"})), 1024);
    assert_eq!(length(json!({"type": "linear", "factor": 2.0})), 2048);
    assert_eq!(length(json!({"type": "dynamic", "factor": 4.0})), 4096);
    assert_eq!(length(json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})), 2048);
    let yarn = with(
        &llama,
        &json!({"rope_scaling": {
            "rope_type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 1.0, "beta_fast": 16, "truncate": false,
        }}),
    );
    let RopeScaling::Yarn(yarn) = config(&yarn).rope.scaling else { panic!("no yarn") };
    assert!((yarn.attention_factor - 0.921_042).abs() < 1e-5 && !yarn.truncate);
    assert_eq!((yarn.original, yarn.beta_fast, yarn.beta_slow), (1024, 16.0, 1.0));
}

#[test]
fn nonsense_is_refused_by_key() {
    let llama = fixture("llama-untied-sharded");
    let gemma = fixture("gemma3-text");
    let cases = [
        (
            with(&llama, &json!({"architectures": ["BloomForCausalLM"]})),
            "`BloomForCausalLM`, which is unknown here; known are LlamaForCausalLM, Mistral",
        ),
        (with(&llama, &json!({"architectures": null, "model_type": "bloom"})), "model_type bloom"),
        (with(&llama, &json!({"architectures": null, "model_type": null})), "`architectures`"),
        (with(&llama, &json!({"hidden_size": null})), "`hidden_size`"),
        (
            with(&llama, &json!({"hidden_size": "64"})),
            "`hidden_size` in `config.json` is \"64\", but must be a whole number",
        ),
        (with(&llama, &json!({"hidden_size": -64})), "`hidden_size`"),
        (with(&llama, &json!({"num_hidden_layers": 0})), "number of layers"),
        (with(&llama, &json!({"num_hidden_layers": 4_000_000_000_u64})), "number of layers"),
        (with(&llama, &json!({"num_attention_heads": 0})), "number of attention heads"),
        (with(&llama, &json!({"num_key_value_heads": 3})), "a multiple of the 3 key-value heads"),
        (with(&llama, &json!({"head_dim": 7})), "head width"),
        (with(&llama, &json!({"head_dim": 1_000_000})), "heads times head width"),
        (with(&llama, &json!({"hidden_act": "relu"})), "`hidden_act`"),
        (with(&llama, &json!({"rope_theta": 0.0})), "rope theta"),
        (
            with(&llama, &json!({"rope_scaling": {"type": "longrope"}})),
            "`longrope`, which is not supported: known are default, linear",
        ),
        (with(&llama, &json!({"rope_scaling": {"type": "linear"}})), "`factor`"),
        (with(&llama, &json!({"rope_scaling": {"type": "linear", "factor": 0}})), "`factor`"),
        (with(&llama, &json!({"rope_scaling": [1]})), "`rope_scaling`"),
        (with(&llama, &json!({"quantization_config": {"quant_method": "gptq"}})), "quantised by gptq"),
        (with(&llama, &json!({"eos_token_id": "</s>"})), "`eos_token_id`"),
        (with(&gemma, &json!({"layer_types": ["full_attention"]})), "a list of 4 entries"),
        (with(&gemma, &json!({"layer_types": ["full_attention", "x", "x", "x"]})), "`layer_types`"),
        (with(&gemma, &json!({"sliding_window_pattern": 0})), "`sliding_window_pattern`"),
        (with(&gemma, &json!({"sliding_window": 0})), "sliding window"),
        (with(&gemma, &json!({"final_logit_softcapping": 30.0})), "`final_logit_softcapping`"),
    ];
    for (object, expected) in cases {
        let message = refusal(&object);
        assert!(message.contains(expected), "`{expected}` is not in: {message}");
    }
}
