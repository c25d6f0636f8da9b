//! Every dense fixture against its reference: logits within 1e-3, greedy continuations equal token by token,
//! alone and all at the same time; with every instruction set that this machine has.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

mod common;

use std::sync::Arc;

use common::{Setup, collect, fixtures, load, start, submission};
use safetensors::SafeTensors;
use serde_json::Value;
use updraft_core::sampling::SamplingParams;
use updraft_core::step::{SequenceSpan, StepInputs};
use updraft_core::{BlockId, Blocks, SlotId};
use updraft_devices::Device;
use updraft_devices::cpu::{CpuDevice, CpuModel, CpuOptions};
use updraft_kernels::kv_cache::KvType;
use updraft_kernels::matrix::Precision;
use updraft_kernels::team::Pinning;

/// The reference's own tolerance for float32.
const TOLERANCE: f32 = 1e-3;

fn expected(name: &str) -> Value {
    let path = fixtures().join("models").join(name).join("expected.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("is there")).expect("is JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(|id| id.as_u64().expect("a number") as u32).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// Logits at every position of the seven-token prompt, ours and the reference's: `[position][token]`.
fn every_position(name: &str, model: &Arc<CpuModel>, prompt: &[u32], kv: KvType) -> [Vec<Vec<f32>>; 2] {
    let options = CpuOptions {
        threads: 2,
        pinning: Pinning::Anywhere,
        blocks: Blocks(1),
        block_size: common::BLOCK_SIZE,
        kv,
        max_rows: 16,
        max_logit_rows: 16,
    };
    let mut device = CpuDevice::new(Arc::clone(model), &options).expect("a device");
    let rows = prompt.len() as u32;
    let inputs = StepInputs {
        token_ids: prompt.to_vec(),
        positions: (0..rows).collect(),
        slots: (0..rows).map(SlotId).collect(),
        spans: vec![SequenceSpan {
            row_start: 0,
            row_count: rows,
            context: rows,
            table_start: 0,
            table_len: 1,
        }],
        block_tables: vec![BlockId(0)],
        logit_rows: (0..rows).collect(),
    };
    device.run(&inputs).expect("the step runs");
    let path = fixtures().join("models").join(name).join("expected.safetensors");
    let bytes = std::fs::read(path).expect("is there");
    let reference = SafeTensors::deserialize(&bytes).expect("is a safetensors file");
    let reference = reference.tensor("len7.logits").expect("has the logits");
    let reference: Vec<f32> = reference
        .data()
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
        .collect();
    let vocab = device.properties().vocab;
    assert_eq!(reference.len(), prompt.len() * vocab, "{name}: the reference has this many logits");
    let ours = (0..prompt.len()).map(|row| device.logits(row).to_vec()).collect();
    [ours, reference.chunks_exact(vocab).map(<[f32]>::to_vec).collect()]
}

fn check_every_position(name: &str, model: &Arc<CpuModel>, prompt: &[u32]) {
    let [ours, theirs] = every_position(name, model, prompt, KvType::F32);
    for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        for (token, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let off = (ours - theirs).abs();
            assert!(off < TOLERANCE, "{name}: position {row}, token {token}: {ours} and not {theirs}");
        }
    }
}

/// One case's prompt, its reference continuation and the log-probabilities along it.
struct Case {
    name: String,
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    logprobs: Vec<f32>,
    top8: Vec<(u32, f32)>,
}

fn cases(expected: &Value) -> Vec<Case> {
    let list = expected["cases"].as_array().expect("a list");
    list.iter()
        .map(|case| {
            let top = &case["last_logits_top8"];
            let normalizer = top["logsumexp"].as_f64().expect("a number") as f32;
            let logits = floats(&top["logits"]);
            Case {
                name: case["name"].as_str().expect("a name").to_owned(),
                prompt: ids(&case["prompt_ids"]),
                greedy: ids(&case["greedy_ids"]),
                logprobs: floats(&case["greedy_logprobs"]),
                top8: ids(&top["ids"]).into_iter().zip(logits.iter().map(|x| x - normalizer)).collect(),
            }
        })
        .collect()
}

fn greedy(case: &Case) -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        max_tokens: case.greedy.len() as u32,
        ignore_eos: true,
        logprobs: Some(8),
        ..SamplingParams::default()
    }
}

fn check_case(name: &str, case: &Case, ours: &common::Collected) {
    assert_eq!(ours.tokens, case.greedy, "{name}/{}: greedy continuation", case.name);
    for (step, (entry, theirs)) in ours.logprobs.iter().zip(&case.logprobs).enumerate() {
        let off = (entry.logprob - theirs).abs();
        assert!(off < TOLERANCE, "{name}/{}: step {step}: {} and not {theirs}", case.name, entry.logprob);
    }
    for ((token, logprob), (their_token, theirs)) in ours.logprobs[0].top.iter().zip(&case.top8) {
        assert!((logprob - theirs).abs() < TOLERANCE, "{name}/{}: {logprob} and not {theirs}", case.name);
        assert_eq!(token, their_token, "{name}/{}", case.name);
    }
    assert_eq!(ours.logprobs.len(), case.greedy.len());
}

async fn check_model(name: &str) {
    let model = load(name, Precision::Float32);
    let expected = expected(name);
    let cases = cases(&expected);
    let seven = cases.iter().find(|case| case.name == "len7").expect("there is such a case");
    check_every_position(name, &model, &seven.prompt);
    let engine = start(&model, &Setup::default()).await;
    let mut together = Vec::new();
    for case in &cases {
        let alone = engine.submit(submission(&case.prompt, greedy(case))).await.expect("there is room");
        check_case(name, case, &collect(alone).await);
        together.push(engine.submit(submission(&case.prompt, greedy(case))).await.expect("there is room"));
    }
    for (case, stream) in cases.iter().zip(together) {
        check_case(name, case, &collect(stream).await);
    }
    engine.stop().await;
}

macro_rules! dense {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                check_model($name).await;
            }
        )*
        /// The names above, to hold against the index.
        const COVERED: &[&str] = &[$($name),*];
    };
}

dense! {
    llama_untied_sharded: "llama-untied-sharded";
    llama3_rope_tied: "llama3-rope-tied";
    mistral_sliding_window: "mistral-swa";
    qwen2_bias: "qwen2-bias";
    qwen3_bfloat16: "qwen3-bf16";
    gemma3_text: "gemma3-text";
}

/// Keys and values of 8 bits may cost less than computing the whole model in bf16 does.
#[test]
fn a_cache_of_integers_stays_near_the_reference() {
    for name in COVERED {
        let model = load(name, Precision::Float32);
        let expected = expected(name);
        let cases = cases(&expected);
        let seven = cases.iter().find(|case| case.name == "len7").expect("there is such a case");
        let [ours, theirs] = every_position(name, &model, &seven.prompt, KvType::Int8);
        let squares: Vec<f64> = ours
            .iter()
            .flatten()
            .zip(theirs.iter().flatten())
            .map(|(ours, theirs)| f64::from(ours - theirs).powi(2))
            .collect();
        let rms = (squares.iter().sum::<f64>() / squares.len() as f64).sqrt();
        let bf16 = expected["numerics"]["whole_model_in_bf16_vs_f32"]["rms"].as_f64().expect("a number");
        assert!(rms < bf16, "{name}: {rms} off, bf16 is {bf16}");
    }
}

#[test]
fn every_dense_fixture_is_covered() {
    let index = std::fs::read_to_string(fixtures().join("index.json")).expect("is there");
    let index: Value = serde_json::from_str(&index).expect("is JSON");
    let dense = [
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Gemma3ForCausalLM",
    ];
    for model in index["models"].as_array().expect("a list") {
        let (name, kind) = (model["name"].as_str().expect("a name"), model["kind"].as_str());
        let architecture = model["architecture"].as_str().expect("an architecture");
        if kind == Some("causal-lm") && dense.contains(&architecture) {
            assert!(COVERED.contains(&name), "{name} has no test");
        }
    }
}

#[test]
fn with_every_other_instruction_set() {
    common::kernel_paths::run_again_on_each("with_every_other_instruction_set", |_| &[]);
}
