//! Completion requests: what passes, what is refused, and under which name.

#![allow(clippy::needless_pass_by_value, reason = "`json!(...)` at the call reads better without `&`")]

use serde_json::json;

use super::*;

fn call(body: Value) -> Result<CompletionCall, RequestError> {
    let Value::Object(body) = body else { panic!("not an object") };
    CompletionRequest::parse(body)?.check(&RequestLimits::new(1000, 2048), &SamplingDefaults::default())
}

fn prompts(prompt: Value) -> Result<Vec<PromptInput>, RequestError> {
    call(json!({"prompt": prompt})).map(|call| call.prompts)
}

#[test]
fn a_prompt_has_four_forms() {
    let text = |text: &str| PromptInput::Text(text.to_owned());
    assert_eq!(prompts(json!("a")), Ok(vec![text("a")]));
    assert_eq!(prompts(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
    assert_eq!(prompts(json!([1, 2.0])), Ok(vec![PromptInput::Tokens(vec![1, 2])]));
    let lists = vec![PromptInput::Tokens(vec![1]), PromptInput::Tokens(vec![2, 3])];
    assert_eq!(prompts(json!([[1], [2, 3]])), Ok(lists));
}

#[test]
fn what_is_no_prompt_is_refused() {
    for bad in [
        json!(null),
        json!([]),
        json!([[]]),
        json!([1, "a"]),
        json!({"a": 1}),
        json!(5),
        json!([true]),
        json!([1, -2]),
        json!([1, 1000]),
        json!([1.5]),
        json!([1, 99_999_999]),
        json!(vec!["a"; 1025]),
    ] {
        let error = prompts(bad.clone()).expect_err(&bad.to_string());
        assert_eq!((error.status, error.param.as_deref()), (400, Some("prompt")), "{error}");
    }
    let named = prompts(json!([1, 5_279_552_648_203_111_001_i64])).unwrap_err();
    assert!(named.message.contains("5279552648203111001"), "{named}");
}

#[test]
fn sixteen_tokens_unless_said_otherwise() {
    assert_eq!(call(json!({"prompt": "a"})).unwrap().generation.stop.max_tokens, Some(16));
    assert_eq!(call(json!({"prompt": "a", "max_tokens": 3})).unwrap().generation.stop.max_tokens, Some(3));
}

#[test]
fn an_echo_can_be_all_that_is_wanted() {
    let only = call(json!({"prompt": "a", "echo": true, "max_tokens": 0, "logprobs": 1})).unwrap();
    assert!(only.prompt_only && only.echo);
    assert_eq!(only.generation.stop.max_tokens, Some(1));
    assert!(call(json!({"prompt": "a", "max_tokens": 0})).is_err());
}

#[test]
fn the_number_of_answers_is_bounded() {
    assert!(call(json!({"prompt": vec!["a"; 1024]})).is_ok());
    let error = call(json!({"prompt": vec!["a"; 1024], "n": 2})).unwrap_err();
    assert!(error.message.contains("2048"), "{error}");
}

#[test]
fn answers_are_not_ranked() {
    assert!(call(json!({"prompt": "a", "best_of": 1})).is_ok());
    assert!(call(json!({"prompt": "a", "best_of": 2, "n": 2})).is_ok());
    assert!(call(json!({"prompt": "a", "best_of": 2})).is_err());
    assert!(call(json!({"prompt": "a", "suffix": "b"})).is_err());
    assert!(call(json!({"prompt": "a", "messages": []})).is_err());
}
