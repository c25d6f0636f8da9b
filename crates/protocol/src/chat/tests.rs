//! Chat requests: what passes, what is refused, and under which name.

#![allow(clippy::needless_pass_by_value, reason = "`json!(...)` at the call reads better without `&`")]

use serde_json::json;

use super::*;

fn call(body: Value) -> Result<ChatCall, RequestError> {
    let Value::Object(body) = body else { panic!("not an object") };
    ChatRequest::parse(body)?.check(&RequestLimits::new(1000, 2048), &SamplingDefaults::default())
}

fn with(field: &str, value: Value) -> Result<ChatCall, RequestError> {
    call(json!({"messages": [{"role": "user", "content": "hi"}], field: value}))
}

fn messages(messages: Value) -> Result<Vec<Value>, RequestError> {
    call(json!({"messages": messages})).map(|call| call.conversation.messages)
}

/// The path of the field at fault.
fn fault(given: Value) -> String {
    messages(given).expect_err("was accepted").param.unwrap()
}

#[test]
fn a_plain_request_is_complete() {
    let call = with("max_tokens", json!(5)).unwrap();
    assert_eq!(call.conversation.messages, [json!({"role": "user", "content": "hi"})]);
    assert!(call.conversation.add_generation_prompt && !call.conversation.add_special_tokens);
    assert_eq!(call.generation.stop.max_tokens, Some(5));
    assert_eq!(with("user", json!("me")).unwrap().generation.stop.max_tokens, None);
}

#[test]
fn max_completion_tokens_wins_and_is_named() {
    let both =
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 9, "max_completion_tokens": 3});
    assert_eq!(call(both).unwrap().generation.stop.max_tokens, Some(3));
    let error = with("max_completion_tokens", json!(0)).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("max_completion_tokens"));
}

#[test]
fn content_becomes_one_string() {
    let parts =
        json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    assert_eq!(messages(parts).unwrap()[0]["content"], "a\nb");
    let empty = json!([{"role": "user", "content": "A"}, {"role": "assistant", "content": ""}]);
    assert_eq!(messages(empty).unwrap()[1]["content"], "");
    let null = json!([{"role": "assistant", "content": null}]);
    assert_eq!(messages(null).unwrap()[0]["content"], "");
    let developer = json!([{"role": "developer", "content": "x"}]);
    assert_eq!(messages(developer).unwrap()[0]["role"], "system");
}

#[test]
fn what_is_no_message_is_named() {
    assert_eq!(fault(json!([])), "messages");
    assert_eq!(fault(json!("hi")), "messages");
    assert_eq!(fault(json!(["hi"])), "messages[0]");
    assert_eq!(fault(json!([{"content": "hi"}])), "messages[0].role");
    assert_eq!(fault(json!([{"role": "robot", "content": "hi"}])), "messages[0].role");
    assert_eq!(fault(json!([{"role": "user"}])), "messages[0].content");
    assert_eq!(fault(json!([{"role": "user", "content": 5}])), "messages[0].content");
    let hologram = json!([{"role": "user", "content": [{"type": "hologram", "x": 1}]}]);
    assert_eq!(fault(hologram), "messages[0].content[0]");
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    assert!(messages(image).unwrap_err().message.contains("text only"));
}

#[test]
fn earlier_calls_reach_the_template_as_objects() {
    let called = |arguments: Value| {
        json!([{"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}},
        ]}])
    };
    let arguments =
        |given: Value| messages(called(given)).unwrap()[0]["tool_calls"][0]["function"]["arguments"].clone();
    assert_eq!(arguments(json!("{\"city\": \"Oslo\"}")), json!({"city": "Oslo"}));
    assert_eq!(arguments(json!("")), json!({}));
    assert_eq!(arguments(json!({"a": 1})), json!({"a": 1}));
    assert_eq!(fault(called(json!("{broken"))), "messages[0].tool_calls[0].function");
    assert_eq!(fault(called(json!(5))), "messages[0].tool_calls[0].function");
}

#[test]
fn tools_are_shown_unless_none_is_wanted() {
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let ask = |choice: Value| {
        call(json!({"messages": [{"role": "user", "content": "a"}], "tools": tools, "tool_choice": choice}))
    };
    assert!(ask(json!("auto")).unwrap().conversation.tools.is_some());
    assert!(ask(json!(null)).unwrap().conversation.tools.is_some());
    assert!(ask(json!("none")).unwrap().conversation.tools.is_none());
    for forced in [json!("required"), json!({"type": "function", "function": {"name": "f"}})] {
        assert_eq!(ask(forced).unwrap_err().code, Some("unsupported_parameter"));
    }
    assert!(ask(json!("always")).is_err() && ask(json!(5)).is_err());
    assert_eq!(with("tool_choice", json!("required")).unwrap_err().param.as_deref(), Some("tool_choice"));
    assert!(with("tool_choice", json!("none")).is_ok());
    assert!(with("tools", json!([])).is_err());
    assert_eq!(with("tools", json!([{"type": "function"}])).unwrap_err().param.as_deref(), Some("tools[0]"));
}

#[test]
fn log_probabilities_need_the_switch() {
    assert!(with("top_logprobs", json!(5)).is_err());
    assert_eq!(with("top_logprobs", json!(0)).unwrap().generation.report.logprobs, None);
    assert_eq!(with("logprobs", json!(true)).unwrap().generation.report.logprobs, Some(0));
    let both = |top: i64| {
        call(json!({"messages": [{"role": "user", "content": "a"}], "logprobs": true, "top_logprobs": top}))
    };
    assert_eq!(both(5).unwrap().generation.report.logprobs, Some(5));
    assert!(both(21).is_err() && both(-2).is_err());
}

#[test]
fn what_would_change_the_answer_is_refused_not_ignored() {
    for (field, value) in [
        ("guided_json", json!({"type": "object"})),
        ("response_format", json!({"type": "json_schema", "json_schema": {}})),
        ("use_beam_search", json!(true)),
        ("echo", json!(true)),
        ("prompt", json!("hi")),
        ("best_of", json!(3)),
        ("not_a_field", json!(1)),
    ] {
        let error = with(field, value).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(field)), "{error}");
    }
    for (field, value) in
        [("metadata", json!({"a": "b"})), ("store", json!(false)), ("service_tier", json!("auto"))]
    {
        with(field, value).unwrap();
    }
}

#[test]
fn the_template_gets_its_variables() {
    let call = with("chat_template_kwargs", json!({"enable_thinking": false})).unwrap();
    assert_eq!(call.conversation.kwargs["enable_thinking"], json!(false));
    assert_eq!(
        with("reasoning_effort", json!("low")).unwrap().conversation.kwargs["reasoning_effort"],
        "low"
    );
    assert!(with("reasoning_effort", json!("huge")).is_err());
    let continued = with("continue_final_message", json!(true)).unwrap().conversation;
    assert!(continued.continue_final_message && !continued.add_generation_prompt);
    let both = json!({
        "messages": [{"role": "user", "content": "a"}],
        "continue_final_message": true, "add_generation_prompt": true,
    });
    assert!(super::tests::call(both).is_err());
}

#[test]
fn a_request_survives_being_written_and_read() {
    let body = json!({"messages": [{"role": "user", "content": "a"}], "model": "m", "temperature": 0.5, "stop": ["x"]});
    let Value::Object(object) = body.clone() else { panic!("not an object") };
    let request = ChatRequest::parse(object).unwrap();
    let written = serde_json::to_value(&request).unwrap();
    for (name, value) in body.as_object().unwrap() {
        assert_eq!(&written[name], value, "{name}");
    }
}
