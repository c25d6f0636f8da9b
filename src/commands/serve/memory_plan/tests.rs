//! Plans for small and large machines, and the errors that name what would fit.

use super::*;
use crate::config::{Environment, load};

const GIB: u64 = 1 << 30;

fn config(line: &str) -> Config {
    let words: Vec<String> = format!("m {line}").split_whitespace().map(str::to_owned).collect();
    load(&words, &Environment::default()).unwrap().config
}

/// The demo model: 2048 tokens, 23040 bytes of KV cache a token.
fn facts() -> Facts {
    Facts {
        target: Target::Cpu,
        context: Tokens(2048),
        weights: Bytes(100 << 20),
        kv_token: Bytes(23_040),
        activation_row: Bytes(20_000),
        logit_row: Bytes(100_000),
        free: Some(Bytes(16 * GIB)),
    }
}

#[test]
fn a_small_model_gets_at_most_four_gibibytes() {
    let made = plan(&config(""), &facts()).unwrap();
    assert_eq!((made.max_model_len, made.block_size, made.shortened), (Tokens(2048), Tokens(64), false));
    assert!(made.kv.0 <= 4 * GIB && made.kv.0 > 4 * GIB - 64 * 23_040, "{:?}", made.kv);
    assert_eq!(made.kv.0, made.kv_tokens() * 23_040);
    assert!((made.max_concurrency() - made.kv_tokens() as f64 / 2048.0).abs() < 1e-9);
    assert_eq!(made.activations, Bytes(512 * 20_000 + 256 * 100_000));
    // Fewer sequences need less.
    let few = plan(&config("--max-num-seqs 2 --max-model-len 1k"), &facts()).unwrap();
    assert_eq!(few.kv, Bytes(2 * 1024 * 23_040));
}

#[test]
fn a_small_machine_shortens_the_context_unless_it_was_stated() {
    let tight = Facts { free: Some(Bytes((100 << 20) + 2 * 1000 * 23_040)), ..facts() };
    let made = plan(&config("--block-size 32"), &tight).unwrap();
    assert_eq!((made.max_model_len, made.shortened), (Tokens(992), true));
    assert_eq!(plan(&config("--max-model-len auto --block-size 32"), &tight), Ok(made));

    let message = plan(&config("--max-model-len 2048 --block-size 32"), &tight).unwrap_err().to_string();
    for part in ["2048 tokens", "--max-model-len 992", "45.0 MiB", "22.0 MiB", "--kv-cache-memory-bytes"] {
        assert!(message.contains(part), "{message}");
    }
    let message = plan(&config("--max-model-len 4k"), &facts()).unwrap_err().to_string();
    assert!(message.contains("2048 tokens the model was made for"), "{message}");
}

#[test]
fn what_was_asked_for_is_given() {
    let made =
        plan(&config("--num-gpu-blocks-override 7 --block-size 16 --max-model-len 100"), &facts()).unwrap();
    assert_eq!((made.blocks, made.kv), (Blocks(7), Bytes(7 * 16 * 23_040)));
    let made = plan(&config("--kv-cache-memory-bytes 1GiB --block-size 128"), &facts()).unwrap();
    assert_eq!(made.blocks, Blocks((GIB / (128 * 23_040)) as u32));
    let error = plan(&config("--kv-cache-memory-bytes 1000"), &facts()).unwrap_err();
    assert!(matches!(error, PlanError::NoBlock { .. }), "{error}");
}

#[test]
fn weights_that_do_not_fit_are_named() {
    let message =
        plan(&config(""), &Facts { free: Some(Bytes(50 << 20)), ..facts() }).unwrap_err().to_string();
    assert!(message.contains("100.0 MiB") && message.contains("50.0 MiB"), "{message}");
    assert!(plan(&config(""), &Facts { free: None, ..facts() }).is_ok());
}

#[test]
fn whole_prompts_need_large_steps() {
    assert_eq!(plan(&config("--no-enable-chunked-prefill"), &facts()).unwrap().step_budget, Tokens(2048));
    let stated = config("--no-enable-chunked-prefill --max-num-batched-tokens 1000");
    let message = plan(&stated, &facts()).unwrap_err().to_string();
    assert!(message.contains("from 1000 to 2048"), "{message}");
}

#[test]
fn an_npu_gives_the_cache_what_weights_and_activations_leave() {
    let npu = Facts { target: Target::Ascend, free: Some(Bytes(8 * GIB)), ..facts() };
    let made = plan(&config(""), &npu).unwrap();
    assert_eq!((made.block_size, made.step_budget), (Tokens(128), Tokens(2048)));
    let left = 8 * GIB - npu.weights.0 - made.activations.0;
    assert!(made.kv.0 < left && made.kv.0 > left * 9 / 10, "{} of {left}", made.kv.0);
    assert_eq!(plan(&config("--block-size 16"), &npu).unwrap().block_size, Tokens(16));
    assert_eq!(plan(&config("--kv-cache-memory-bytes 1GiB"), &npu).unwrap().kv.0 >> 20, 1023);

    let full = Facts { free: Some(Bytes(50 << 20)), ..npu };
    let message = plan(&config(""), &full).unwrap_err().to_string();
    for part in ["--gpu-memory-utilization", "50.0 MiB", "smaller model"] {
        assert!(message.contains(part), "{message}");
    }
    // A child is told its blocks and does not know the memory.
    let told = Facts { free: None, ..npu };
    let line = format!("--num-gpu-blocks-override {} --max-model-len 2048", made.blocks.0);
    assert_eq!(plan(&config(&line), &told).unwrap(), made);
}

#[test]
fn sizes_are_readable() {
    assert_eq!(size(Bytes(12)), "12 bytes");
    assert_eq!(size(Bytes(1536)), "1.5 KiB");
    assert_eq!(size(Bytes(5 * GIB / 2)), "2.5 GiB");
}
