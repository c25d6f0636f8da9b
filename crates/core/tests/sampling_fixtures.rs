//! The sampling pipeline against the reference distributions, against a naive implementation, and its draws
//! against its own distribution.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed look-up is a failed test")]

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use updraft_core::TokenId;
use updraft_core::sampling::{SampleError, Sampler, SamplingParams, Scratch, token_logprobs};

fn cases() -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sampling/sampling_cases.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_str(&text).unwrap();
    file["cases"].as_array().unwrap().clone()
}

fn ids(value: &Value) -> Vec<TokenId> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as TokenId).collect()
}

fn params(from: &Value) -> SamplingParams {
    let mut params = SamplingParams::default();
    for (key, value) in from.as_object().unwrap() {
        let number = value.as_f64().unwrap_or(0.0) as f32;
        match key.as_str() {
            "temperature" => params.temperature = number,
            "top_p" => params.top_p = number,
            "top_k" => params.top_k = number.max(0.0) as u32,
            "min_p" => params.min_p = number,
            "repetition_penalty" => params.repetition_penalty = number,
            "frequency_penalty" => params.frequency_penalty = number,
            "presence_penalty" => params.presence_penalty = number,
            "min_tokens" => params.min_tokens = number as u32,
            "stop_token_ids" => params.stop_token_ids = ids(value),
            "allowed_token_ids" => params.allowed_token_ids = Some(ids(value)),
            "bad_words_token_ids" => params.bad_words = value.as_array().unwrap().iter().map(ids).collect(),
            "logit_bias" => {
                let biases = value.as_object().unwrap().iter();
                params.logit_bias =
                    biases.map(|(id, bias)| (id.parse().unwrap(), bias.as_f64().unwrap() as f32)).collect();
            }
            other => panic!("parameter {other} is not covered by this test"),
        }
    }
    params
}

struct Case {
    name: String,
    logits: Vec<f32>,
    sampler: Sampler,
    probabilities: Vec<f64>,
    argmax: usize,
}

fn read(case: &Value, change: impl FnOnce(&mut SamplingParams)) -> Case {
    let mut params = params(&case["params"]);
    change(&mut params);
    let floats =
        |key: &str| case[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let logits: Vec<f32> = floats("logits").iter().map(|&x| x as f32).collect();
    let prompt = ids(&case["prompt_token_ids"]);
    let output = ids(&case["output_token_ids"]);
    Case {
        name: format!("{} {}", case["name"], case["params"]),
        sampler: Sampler::new(Arc::new(params), &prompt, &output, logits.len()),
        logits,
        probabilities: floats("probs"),
        argmax: case["argmax"].as_u64().unwrap() as usize,
    }
}

#[test]
fn distributions_equal_the_reference() {
    let cases = cases();
    assert!(cases.len() >= 62);
    let mut scratch = Scratch::default();
    for case in &cases {
        let case = read(case, |_| ());
        let got = case.sampler.probabilities(&case.logits, &mut scratch).unwrap();
        for (token, (got, expected)) in got.iter().zip(&case.probabilities).enumerate() {
            assert!((got - expected).abs() < 1e-5, "{}: token {token}: {got} not {expected}", case.name);
            // Single precision ends at 1e-38: below, a weight may be rounded to none.
            let both = (*got > 0.0, *expected > 0.0);
            assert!(both.0 == both.1 || *expected < 1e-36, "{}: token {token}: {got} {expected}", case.name);
        }
        let likeliest = got[case.argmax];
        assert!(got.iter().all(|&p| p <= likeliest + 1e-9), "{}", case.name);
    }
}

#[test]
fn draws_follow_the_distribution() {
    const DRAWS: u64 = 3000;
    let mut scratch = Scratch::default();
    for case in &cases() {
        let expected = read(case, |_| ()).probabilities;
        let mut counts = vec![0_u32; expected.len()];
        for seed in 0..DRAWS {
            let case = read_with_seed(case, seed);
            counts[case.sampler.sample(&case.logits, &mut scratch).unwrap().token as usize] += 1;
        }
        let (mut statistic, mut bins, mut rest, mut rest_count) = (0.0, 0_u32, 0.0, 0_u32);
        for (&probability, &count) in expected.iter().zip(&counts) {
            assert!(probability > 0.0 || count == 0, "drew an impossible token: {}", case["params"]);
            let mean = probability * DRAWS as f64;
            if mean < 8.0 {
                rest += mean;
                rest_count += count;
            } else {
                statistic += (f64::from(count) - mean).powi(2) / mean;
                bins += 1;
            }
        }
        if rest > 1.0 {
            statistic += (f64::from(rest_count) - rest).powi(2) / rest;
            bins += 1;
        }
        let freedom = f64::from(bins.max(1) - 1);
        // Five standard deviations above the mean of the chi-square distribution, plus its skew for few bins.
        let limit = freedom + 5.0 * (2.0 * freedom).sqrt() + 8.0;
        assert!(statistic < limit, "{} {}: {statistic} > {limit}", case["name"], case["params"]);
    }
}

fn read_with_seed(case: &Value, seed: u64) -> Case {
    read(case, |params| params.seed = seed)
}

/// What the pipeline should do, written as plainly as possible.
fn naive(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let temperature = f64::from(params.temperature);
    let mut scaled: Vec<f64> = logits.iter().map(|&x| f64::from(x) / temperature).collect();
    let softmax = |scaled: &[f64]| {
        let maximum = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scaled.iter().map(|x| (x - maximum).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect::<Vec<f64>>()
    };
    let drop = |scaled: &mut Vec<f64>, dropped: &dyn Fn(usize, f64) -> bool| {
        for (token, value) in scaled.iter_mut().enumerate() {
            if dropped(token, *value) {
                *value = f64::NEG_INFINITY;
            }
        }
    };
    if params.min_p > 0.0 {
        let p = softmax(&scaled);
        let maximum = p.iter().copied().fold(0.0, f64::max);
        drop(&mut scaled, &|token, _| p[token] < f64::from(params.min_p) * maximum * (1.0 - 1e-9));
    }
    if params.top_k > 0 && (params.top_k as usize) < scaled.len() {
        let mut sorted = scaled.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let smallest = sorted[params.top_k as usize - 1];
        drop(&mut scaled, &|_, value| value < smallest);
    }
    if params.top_p < 1.0 {
        let p = softmax(&scaled);
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|&a, &b| p[b].total_cmp(&p[a]).then(a.cmp(&b)));
        let mut above = 0.0;
        for (rank, &token) in order.iter().enumerate() {
            if rank > 0 && above >= f64::from(params.top_p) {
                scaled[token] = f64::NEG_INFINITY;
            }
            above += p[token];
        }
    }
    softmax(&scaled)
}

/// Distance of the nearest top-p decision from flipping.
fn margin(logits: &[f32], params: &SamplingParams) -> f64 {
    let p = naive(logits, &SamplingParams { top_p: 1.0, ..params.clone() });
    let mut order: Vec<f64> = p;
    order.sort_by(|a, b| b.total_cmp(a));
    let mut above = 0.0;
    let mut nearest = f64::INFINITY;
    for p in order {
        above += p;
        nearest = nearest.min((above - f64::from(params.top_p)).abs());
    }
    nearest
}

fn row() -> impl Strategy<Value = Vec<f32>> {
    // Quarter steps make ties common; some tokens are ruled out by the model itself.
    let value = prop_oneof![8 => (-60_i32..60).prop_map(|n| n as f32 / 4.0), 1 => Just(f32::NEG_INFINITY)];
    prop::collection::vec(value, 1..700)
        .prop_filter("something must be possible", |row| row.iter().any(|x| x.is_finite()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_naive_pipeline(
        logits in row(),
        temperature in 0.2_f32..2.5,
        top_k in prop_oneof![Just(0_u32), 1_u32..60, 60_u32..800],
        top_p in prop_oneof![Just(1.0_f32), 0.01_f32..0.999],
        min_p in prop_oneof![Just(0.0_f32), 0.0013_f32..1.0],
    ) {
        let params = SamplingParams { temperature, top_k, top_p, min_p, ..SamplingParams::default() };
        prop_assume!(margin(&logits, &params) > 1e-6);
        let expected = naive(&logits, &params);
        let sampler = Sampler::new(Arc::new(params), &[], &[], logits.len());
        let got = sampler.probabilities(&logits, &mut Scratch::default()).unwrap();
        for (token, (got, expected)) in got.iter().zip(&expected).enumerate() {
            prop_assert!((got - expected).abs() < 1e-6, "token {}: {} not {}", token, got, expected);
        }
    }

    #[test]
    fn greedy_takes_the_first_largest(logits in row()) {
        let params = SamplingParams { temperature: 0.0, logprobs: Some(5), ..SamplingParams::default() };
        let sampler = Sampler::new(Arc::new(params), &[], &[], logits.len());
        let sampled = sampler.sample(&logits, &mut Scratch::default()).unwrap();
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        prop_assert_eq!(sampled.token as usize, logits.iter().position(|&x| x >= largest).unwrap());
        let logprobs = sampled.logprobs.unwrap();
        prop_assert_eq!(logprobs.rank, 1);
        prop_assert_eq!(logprobs.top[0], (sampled.token, logprobs.logprob));
    }

    #[test]
    fn logprobs_equal_the_naive_ones(logits in row(), token in 0_usize..700, top in 0_usize..30) {
        let token = token % logits.len();
        let got = token_logprobs(&logits, token as TokenId, top, &mut Scratch::default()).unwrap();
        let p = naive(&logits, &SamplingParams::default());
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
        prop_assert_eq!(got.rank as usize, order.iter().position(|&other| other == token).unwrap() + 1);
        let possible = logits.iter().filter(|x| x.is_finite()).count();
        prop_assert_eq!(got.top.len(), top.min(possible));
        for (&(id, logprob), &expected) in got.top.iter().zip(&order) {
            prop_assert_eq!(id as usize, expected);
            prop_assert!((f64::from(logprob) - p[expected].ln()).abs() < 1e-5);
        }
        let expected = p[token].ln();
        if expected.is_finite() {
            prop_assert!((f64::from(got.logprob) - expected).abs() < 1e-5);
        } else {
            prop_assert!(got.logprob.is_infinite() && got.logprob < 0.0);
        }
    }

    #[test]
    fn a_rebuilt_sampler_continues_the_same_way(
        logits in prop::collection::vec(-8.0_f32..8.0, 40),
        prompt in prop::collection::vec(0_u32..40, 0..20),
        seed: u64,
        cut in 0_usize..12,
    ) {
        let params = Arc::new(SamplingParams {
            seed,
            repetition_penalty: 1.2,
            frequency_penalty: 0.3,
            presence_penalty: -0.2,
            min_tokens: 6,
            eos_token_ids: vec![3],
            bad_words: vec![vec![1], vec![5, 6, 7]],
            top_p: 0.95,
            ..SamplingParams::default()
        });
        let mut scratch = Scratch::default();
        let mut whole = Sampler::new(params.clone(), &prompt, &[], 40);
        let mut output = Vec::new();
        for at in 0..12 {
            let token = whole.sample(&logits, &mut scratch).unwrap().token;
            prop_assert!(token != 1 && (at >= 6 || token != 3));
            whole.accept(token);
            output.push(token);
        }
        let mut rebuilt = Sampler::new(params, &prompt, &output[..cut], 40);
        for &token in &output[cut..] {
            prop_assert_eq!(rebuilt.sample(&logits, &mut scratch).unwrap().token, token);
            rebuilt.accept(token);
        }
    }
}

#[test]
fn degenerate_rows_are_typed_errors() {
    let mut scratch = Scratch::default();
    let greedy = Arc::new(SamplingParams { temperature: 0.0, ..SamplingParams::default() });
    let sampler = Sampler::new(greedy, &[], &[], 100);
    let mut logits = vec![0.5_f32; 100];
    logits[70] = f32::NAN;
    let error = sampler.sample(&logits, &mut scratch).unwrap_err();
    assert!(matches!(error, SampleError::NotFinite { token: 70, .. }), "{error}");
    let ruled_out = vec![f32::NEG_INFINITY; 100];
    assert_eq!(sampler.sample(&ruled_out, &mut scratch), Err(SampleError::NothingAllowed));
    assert_eq!(sampler.sample(&[], &mut scratch), Err(SampleError::NothingAllowed));

    let contradiction = SamplingParams {
        allowed_token_ids: Some(vec![4, 9]),
        bad_words: vec![vec![4]],
        stop_token_ids: vec![9],
        min_tokens: 1,
        logit_bias: vec![(4, 100.0), (1000, 1.0)],
        ..SamplingParams::default()
    };
    let mut sampler = Sampler::new(Arc::new(contradiction), &[], &[], 100);
    assert_eq!(sampler.sample(&[0.5; 100], &mut scratch), Err(SampleError::NothingAllowed));
    sampler.accept(9);
    assert_eq!(sampler.sample(&[0.5; 100], &mut scratch).unwrap().token, 9);
}

#[test]
fn padding_of_the_vocabulary_is_never_drawn() {
    let mut logits = vec![0.0_f32; 80];
    logits[79] = 50.0;
    let sampler = Sampler::new(Arc::new(SamplingParams::default()), &[], &[], 64);
    let mut scratch = Scratch::default();
    assert!(sampler.sample(&logits, &mut scratch).unwrap().token < 64);
    assert_eq!(sampler.probabilities(&logits, &mut scratch).unwrap().len(), 64);
}
