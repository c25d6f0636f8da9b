//! What of each token is shown, counted and named at the end.

use updraft_protocol::{CompletionRequest, RequestLimits, SamplingDefaults};

use super::*;
use crate::http::tests::text_model;

const EOS: TokenId = 502;
const STOP: EngineFinish = EngineFinish::Stop { stop_token: None };

fn answer(text: &TextModel, fields: serde_json::Value) -> Answer {
    let serde_json::Value::Object(mut body) = fields else { panic!("not an object") };
    body.insert("prompt".to_owned(), "x".into());
    let request = CompletionRequest::parse(body).unwrap();
    let spec = request.check(&RequestLimits::new(512, 100), &SamplingDefaults::default()).unwrap().generation;
    let sampling = SamplingParams {
        eos_token_ids: vec![EOS],
        stop_token_ids: spec.stop.token_ids.clone(),
        ignore_eos: spec.stop.ignore_eos,
        ..SamplingParams::default()
    };
    Answer::new(text, &spec, &sampling)
}

/// Text, number of tokens, and end of an answer fed with these tokens.
fn run(fields: serde_json::Value, tokens: &[TokenId], finish: EngineFinish) -> (String, usize, End) {
    let text = text_model();
    let mut answer = answer(&text, fields);
    let (mut shown, mut count) = (String::new(), 0);
    let pieces = tokens.iter().map(|token| answer.token(*token, None)).collect::<Vec<_>>();
    for piece in pieces {
        shown.push_str(&piece.text);
        count += piece.tokens.len();
        if let Some(end) = piece.end {
            return (shown, count, end);
        }
    }
    let last = answer.finish(finish);
    (shown + &last.text, count + last.tokens.len(), last.end.unwrap())
}

fn ids(text: &str) -> Vec<TokenId> {
    text_model().encode(text, false).unwrap()
}

fn end(reason: FinishReason, stop_reason: Option<StopReason>) -> End {
    End { reason, stop_reason }
}

#[test]
fn the_end_token_is_counted_but_not_shown() {
    let tokens = [ids("so many tokens"), vec![EOS]].concat();
    let (shown, count, how) = run(serde_json::json!({}), &tokens, STOP);
    assert_eq!((shown.as_str(), count), ("so many tokens", tokens.len()));
    assert_eq!(how, end(FinishReason::Stop, None));
}

#[test]
fn an_end_token_is_text_when_it_does_not_end() {
    let tokens = [ids("a"), vec![EOS], ids("b")].concat();
    let shown = |skip: bool| {
        let fields = serde_json::json!({"ignore_eos": true, "skip_special_tokens": skip});
        run(fields, &tokens, EngineFinish::Length).0
    };
    assert_eq!((shown(true).as_str(), shown(false).as_str()), ("ab", "a<|im_end|>b"));
}

#[test]
fn a_stop_token_is_named_and_shown_on_request() {
    let finish = EngineFinish::Stop { stop_token: Some(1) };
    let (shown, count, how) = run(serde_json::json!({"stop_token_ids": [1]}), &[0, 1], finish);
    assert_eq!((shown.as_str(), count), ("!", 2));
    assert_eq!(how, end(FinishReason::Stop, Some(StopReason::Token(1))));
    let fields = serde_json::json!({"stop_token_ids": [1], "include_stop_str_in_output": true});
    assert_eq!(run(fields, &[0, 1], finish).0, "!\"");
}

#[test]
fn a_stop_string_over_token_borders_ends_the_text_before_it() {
    let tokens = ids("so many tokens in the morning");
    let stopped = |fields| run(fields, &tokens, EngineFinish::Length);
    let (shown, count, how) = stopped(serde_json::json!({"stop": ["y tok"]}));
    assert_eq!(shown, "so man");
    assert!(count < tokens.len());
    assert_eq!(how, end(FinishReason::Stop, Some(StopReason::Text("y tok".into()))));
    let shown = stopped(serde_json::json!({"stop": "y tok", "include_stop_str_in_output": true})).0;
    assert_eq!(shown, "so many tok");
    let (shown, _, how) = stopped(serde_json::json!({"stop": "ings"}));
    assert_eq!((shown.as_str(), how), ("so many tokens in the morning", end(FinishReason::Length, None)));
}

#[test]
fn no_stop_string_counts_before_min_tokens() {
    let tokens = ids("!!!!");
    assert_eq!(tokens.len(), 4);
    let fields = serde_json::json!({"stop": "!", "min_tokens": 2});
    let (shown, count, _) = run(fields, &tokens, EngineFinish::Length);
    assert_eq!((shown.as_str(), count), ("!!", 3));
}

#[test]
fn pieces_never_hold_half_a_character() {
    let text = text_model();
    let mut answer = answer(&text, serde_json::json!({}));
    let tokens = ids("日本 🦀 é");
    let mut shown = String::new();
    for token in tokens {
        let piece = answer.token(token, None);
        assert!(!piece.text.contains('\u{FFFD}'));
        shown.push_str(&piece.text);
    }
    shown.push_str(&answer.finish(EngineFinish::Length).text);
    assert_eq!(shown, "日本 🦀 é");
}
