//! The shared fields: ranges, forms, defaults; and that whatever passes is usable.

#![allow(clippy::needless_pass_by_value, reason = "`json!(...)` at the call reads better without `&`")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::completion::CompletionRequest;

fn limits() -> RequestLimits {
    RequestLimits::new(1000, 2048)
}

fn check_with(mut fields: Value, defaults: &SamplingDefaults) -> Result<GenerationSpec, RequestError> {
    fields["prompt"] = json!("hi");
    let Value::Object(body) = fields else { panic!("not an object") };
    Ok(CompletionRequest::parse(body)?.check(&limits(), defaults)?.generation)
}

fn check(fields: Value) -> Result<GenerationSpec, RequestError> {
    check_with(fields, &SamplingDefaults::default())
}

/// The error of a request that must be refused, which names the field.
fn refused(field: &str, value: Value) -> String {
    let error = check(json!({field: value})).expect_err(field);
    assert_eq!((error.status, error.param.as_deref()), (400, Some(field)), "{error}");
    assert!(error.message.contains(field), "{error}");
    error.message
}

#[test]
fn ranges_are_checked_and_the_message_has_the_value() {
    assert_eq!(refused("temperature", json!(2.5)), "temperature must be from 0 to 2, not 2.5");
    assert_eq!(refused("top_p", json!(0)), "top_p must be above 0 and at most 1, not 0");
    for (field, values) in [
        ("temperature", json!([-0.1, "hot", [1]])),
        ("top_p", json!([1.1, -1, true])),
        ("top_k", json!([-2, 1.5, "5"])),
        ("min_p", json!([-0.1, 1.1])),
        ("repetition_penalty", json!([0, -1])),
        ("frequency_penalty", json!([-2.1, 2.1])),
        ("presence_penalty", json!([-2.1, 2.1])),
        ("max_tokens", json!([-5, -1, 0, "ten", 2.5, 2049, 1e300])),
        ("min_tokens", json!([-1, 17])),
        ("n", json!([0, -1, 129, 99_999_999_999_i64])),
        ("logprobs", json!([-2, 21, true])),
        ("prompt_logprobs", json!([-2, 21])),
        ("seed", json!([1.5, "a", 1e30])),
        ("priority", json!([5_000_000_000_i64])),
        ("truncate_prompt_tokens", json!([0, -2, 5000])),
        ("truncation_side", json!(["middle"])),
        ("stream", json!(["yes", 1])),
    ] {
        for value in values.as_array().unwrap() {
            refused(field, value.clone());
        }
    }
}

#[test]
fn values_on_the_border_pass() {
    for fields in [
        json!({"temperature": 0}),
        json!({"temperature": 2, "top_p": 1, "min_p": 1, "top_k": -1, "n": 128}),
        json!({"temperature": 1e-30}),
        json!({"max_tokens": 2048, "min_tokens": 2048}),
        json!({"logprobs": 0}),
        json!({"logprobs": 20, "prompt_logprobs": 20}),
        json!({"frequency_penalty": -2, "presence_penalty": 2}),
        json!({"max_tokens": 10.0}),
        json!({"seed": i64::MIN}),
        json!({"temperature": null, "stop": null, "logit_bias": null, "n": null, "anything": null}),
    ] {
        check(fields.clone()).unwrap_or_else(|error| panic!("{fields}: {error}"));
    }
}

#[test]
fn the_request_wins_over_the_server_and_the_server_over_the_usual_values() {
    let server = SamplingDefaults { temperature: Some(0.5), top_k: Some(40), ..SamplingDefaults::default() };
    let model = SamplingDefaults { temperature: Some(0.6), top_p: Some(0.9), ..SamplingDefaults::default() };
    let merged = check_with(json!({"top_k": 5}), &server.or(model)).unwrap().sampling;
    assert_eq!((merged.temperature, merged.top_p, merged.top_k, merged.min_p), (0.5, 0.9, 5, 0.0));
    let off = check_with(json!({"top_k": 0}), &server).unwrap().sampling;
    assert_eq!(off.top_k, 0);
    let bounded = SamplingDefaults { max_tokens: Some(4), ..SamplingDefaults::default() };
    assert_eq!(check_with(json!({"max_tokens": 100}), &bounded).unwrap().stop.max_tokens, Some(4));
}

#[test]
fn token_ids_must_exist() {
    for (field, value) in [
        ("logit_bias", json!({"99999999": 5})),
        ("logit_bias", json!({"-1": 5})),
        ("logit_bias", json!({"abc": 5})),
        ("logit_bias", json!({"5": "high"})),
        ("allowed_token_ids", json!([1, 1000])),
        ("allowed_token_ids", json!([])),
        ("stop_token_ids", json!([-3])),
        ("stop_token_ids", json!([5_279_552_648_203_111_001_i64])),
    ] {
        refused(field, value);
    }
    let spec =
        check(json!({"logit_bias": {"7": 1000, "999": -3.5}, "allowed_token_ids": [5, 3, 5]})).unwrap();
    assert_eq!(spec.sampling.logit_bias, [(7, 100.0), (999, -3.5)]);
    assert_eq!(spec.sampling.allowed_token_ids, Some(vec![3, 5]));
}

#[test]
fn stop_has_several_forms() {
    let strings = |stop: Value| check(json!({"stop": stop})).unwrap().stop.strings;
    assert_eq!(strings(json!("END")), ["END"]);
    assert_eq!(strings(json!(["a", "b"])), ["a", "b"]);
    assert!(strings(json!([])).is_empty() && strings(json!(null)).is_empty());
    for bad in [json!(""), json!(["a", ""]), json!(["1", "2", "3", "4", "5"]), json!([1]), json!({"a": 1})] {
        refused("stop", bad);
    }
}

#[test]
fn stream_options_need_a_stream() {
    assert!(check(json!({"stream_options": {"include_usage": true}})).is_err());
    let spec = check(json!({"stream": true, "stream_options": {"include_usage": true}})).unwrap();
    assert_eq!(spec.stream, Some(StreamSpec { include_usage: true, continuous_usage: false }));
    assert!(check(json!({"stream": true, "stream_options": {"include_usage": 1}})).is_err());
    assert!(check(json!({"stream": true, "prompt_logprobs": 1})).is_err());
    assert_eq!(check(json!({"stream": false})).unwrap().stream, None);
}

#[test]
fn several_answers_need_a_temperature() {
    assert!(check(json!({"n": 2, "temperature": 0})).unwrap_err().message.contains("temperature"));
    assert_eq!(check(json!({"n": 2, "temperature": 0.5})).unwrap().choices, 2);
}

#[test]
fn the_other_rules() {
    assert_eq!(check(json!({"seed": -1})).unwrap().sampling.seed, None);
    assert_eq!(check(json!({"seed": 7})).unwrap().sampling.seed, Some(7));
    for salt in [json!(""), json!("a@b"), json!("a/b"), json!("x".repeat(129)), json!(5)] {
        refused("cache_salt", salt);
    }
    refused("bad_words", json!([" "]));
    refused("bad_words", json!(vec!["x"; 129]));
    assert_eq!(check(json!({"min_tokens": 5, "max_tokens": 5})).unwrap().stop.min_tokens, 5);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z0-9]{0,6}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_passes_is_usable(
        fields in prop::collection::vec((0_usize..14, any_value()), 0..5),
    ) {
        const NAMES: [&str; 14] = [
            "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "n", "max_tokens", "min_tokens",
            "logit_bias", "stop", "seed", "logprobs", "stop_token_ids", "allowed_token_ids",
        ];
        let body: crate::JsonObject =
            fields.into_iter().map(|(at, value)| (NAMES[at].to_owned(), value)).collect();
        match check(Value::Object(body)) {
            Err(error) => prop_assert!(error.status == 400 && !error.message.is_empty()),
            Ok(spec) => {
                let sampling = &spec.sampling;
                prop_assert!((0.0..=2.0).contains(&sampling.temperature));
                prop_assert!(sampling.top_p > 0.0 && sampling.top_p <= 1.0);
                prop_assert!((0.0..=1.0).contains(&sampling.min_p));
                prop_assert!(sampling.repetition_penalty > 0.0 && sampling.repetition_penalty.is_finite());
                prop_assert!(sampling.logit_bias.iter().all(|(id, by)| *id < 1000 && by.abs() <= 100.0));
                prop_assert!(spec.choices >= 1 && spec.choices <= 128);
                prop_assert!(spec.stop.max_tokens.is_none_or(|max| max >= 1 && max >= spec.stop.min_tokens));
                prop_assert!(spec.stop.strings.iter().all(|text| !text.is_empty()));
                prop_assert!(spec.stop.token_ids.is_sorted() && spec.stop.token_ids.iter().all(|id| *id < 1000));
            }
        }
    }
}
