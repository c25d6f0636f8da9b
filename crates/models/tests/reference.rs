//! The dense fixtures against their reference results, computed by a plain runner of the step programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test")]

#[path = "reference/interpreter.rs"]
mod interpreter;

use std::path::{Path, PathBuf};

use serde_json::Value;
use updraft_models::{Checkpoint, OpenOptions};

/// The tolerance that the fixtures' README states for computing in float32.
const TOLERANCE: f32 = 1e-3;
/// Architectures that are built here.
const DENSE: [&str; 5] =
    ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma3ForCausalLM"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Folders of all dense models.
fn dense_models() -> Vec<PathBuf> {
    let index = json(&fixtures().join("index.json"));
    let models: Vec<PathBuf> = index["models"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|model| {
            model["kind"] == "causal-lm" && DENSE.contains(&model["architecture"].as_str().unwrap())
        })
        .map(|model| fixtures().join(model["path"].as_str().unwrap()))
        .collect();
    assert!(models.len() >= 6, "only {} dense models found", models.len());
    models
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn argmax(row: &[f32]) -> u32 {
    let best = row.iter().enumerate().max_by(|left, right| left.1.total_cmp(right.1));
    best.unwrap().0 as u32
}

fn log_sum_exp(row: &[f32]) -> f32 {
    let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    highest + row.iter().map(|value| (value - highest).exp()).sum::<f32>().ln()
}

#[test]
fn logits_of_every_position_match() {
    for folder in dense_models() {
        let checkpoint = Checkpoint::open(&folder, &OpenOptions::default()).unwrap();
        let expected = json(&folder.join("expected.json"));
        let case = expected["cases"].as_array().unwrap().iter().find(|case| case["name"] == "len7").unwrap();
        let logits = interpreter::run(&checkpoint.program, &checkpoint, &ids(&case["prompt_ids"]));

        let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor("len7.logits").unwrap();
        assert_eq!(tensor.shape(), [logits.len(), checkpoint.config.vocab as usize]);
        let reference =
            tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let worst = logits.iter().flatten().zip(reference).map(|(ours, theirs)| (ours - theirs).abs());
        let worst = worst.fold(0.0, f32::max);
        assert!(worst < TOLERANCE, "{}: logits differ by {worst}", folder.display());
    }
}

/// Feeds prompt and expected continuation at once: each position must have the next token as its likeliest.
#[test]
fn greedy_continuations_match() {
    for folder in dense_models() {
        let checkpoint = Checkpoint::open(&folder, &OpenOptions::default()).unwrap();
        for case in json(&folder.join("expected.json"))["cases"].as_array().unwrap() {
            let what = format!("{} {}", folder.display(), case["name"]);
            let prompt = ids(&case["prompt_ids"]);
            let greedy = ids(&case["greedy_ids"]);
            let tokens = [prompt.as_slice(), greedy.as_slice()].concat();
            let logits = interpreter::run(&checkpoint.program, &checkpoint, &tokens);

            let last = &logits[prompt.len() - 1];
            let top = &case["last_logits_top8"];
            for (id, expected) in ids(&top["ids"]).into_iter().zip(floats(&top["logits"])) {
                let difference = (last[id as usize] - expected).abs();
                assert!(difference < TOLERANCE, "{what}: logit of {id} differs by {difference}");
            }
            let logprobs = floats(&case["greedy_logprobs"]);
            for (step, (&token, expected)) in greedy.iter().zip(logprobs).enumerate() {
                let row = &logits[prompt.len() - 1 + step];
                assert_eq!(argmax(row), token, "{what}: step {step}");
                let difference = (row[token as usize] - log_sum_exp(row) - expected).abs();
                assert!(
                    difference < TOLERANCE,
                    "{what}: log-probability of step {step} differs by {difference}"
                );
            }
        }
    }
}

#[test]
fn facts_about_the_fixtures() {
    let open = |name: &str| {
        Checkpoint::open(&fixtures().join("models").join(name), &OpenOptions::default()).unwrap()
    };
    let sharded = open("llama-untied-sharded");
    assert_eq!((sharded.config.architecture.as_str(), sharded.config.family), ("LlamaForCausalLM", "llama"));
    assert_eq!((sharded.config.layers, sharded.config.heads, sharded.config.kv_heads), (3, 8, 2));
    assert_eq!(
        (sharded.config.head_dim, sharded.config.vocab, sharded.config.context_length.0),
        (8, 600, 1024)
    );
    assert_eq!(sharded.config.stored_dtype, "float32");
    assert_eq!(sharded.text.eos_token_ids, [2]);
    assert_eq!(
        (sharded.text.bos_token.as_deref(), sharded.text.eos_token.as_deref()),
        (Some("<s>"), Some("</s>"))
    );
    assert!(sharded.text.chat_template.is_some());
    // The index says how many bytes the weights have, four to a value.
    assert_eq!(sharded.config.parameters * 4, 800_512);

    let tied = open("llama3-rope-tied");
    assert_eq!((tied.config.stored_dtype.as_str(), tied.config.tied_output), ("bfloat16", true));
    assert_eq!(tied.text.eos_token_ids, [500, 502]);
    assert_eq!(tied.program.weights.iter().filter(|weight| weight.name.contains("embed")).count(), 1);

    let sampled = open("qwen2-bias");
    let defaults = sampled.text.generation;
    assert_eq!((defaults.temperature, defaults.top_k, defaults.top_p), (Some(0.7), Some(20), Some(0.8)));
    assert_eq!((defaults.repetition_penalty, defaults.max_tokens), (Some(1.05), None));

    // A bare body without the prefix `model.`, as embedding models are published.
    assert_eq!(open("qwen3-embedding").config.family, "qwen3");
}
