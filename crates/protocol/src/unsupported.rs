//! Fields that other servers know and this one cannot honour, and fields without effect on the answer.
//!
//! Each refusal says what works instead. A field stands in one of the lists here, or is read by a request
//! type, or is refused as unknown: there is no fourth way.

use serde_json::Value;

use crate::JsonObject;
use crate::error::RequestError;

/// Accepted and without effect: they label, route or bill a request, or speed it up elsewhere.
const HARMLESS: &[&str] = &[
    "early_stopping",
    "include_reasoning",
    "length_penalty",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "session_id",
    "spaces_between_special_tokens",
    "store",
    "stream_interval",
    "user",
];

const NO_CONSTRAINTS: &str = "answers cannot be constrained to a grammar or schema yet; leave the field out, describe the format in the \
     prompt, and check the answer";
const TEXT_ONLY: &str = "the model answers in text only; leave the field out";
const NO_TRANSFER: &str = "each request is computed where it arrives; leave the field out";
const OLD_FUNCTIONS: &str = "this form is obsolete; use tools and tool_choice";

/// A field, when its value matters, and what works instead.
struct Refused {
    name: &'static str,
    matters: fn(&Value) -> bool,
    instead: &'static str,
}

const fn refused(name: &'static str, matters: fn(&Value) -> bool, instead: &'static str) -> Refused {
    Refused { name, matters, instead }
}

const REFUSED: &[Refused] = &[
    refused("audio", always, TEXT_ONLY),
    refused(
        "chat_template",
        always,
        "the template of the model is used; set another one when the server starts",
    ),
    refused("ec_transfer_params", not_empty, NO_TRANSFER),
    refused("enable_thinking", always, "send it as chat_template_kwargs: {\"enable_thinking\": ...}"),
    refused("extra_body", always, "it is an argument of client libraries; send its fields at the top level"),
    refused("function_call", always, OLD_FUNCTIONS),
    refused("functions", always, OLD_FUNCTIONS),
    refused("grammar", always, NO_CONSTRAINTS),
    refused("guided_choice", always, NO_CONSTRAINTS),
    refused("guided_decoding_backend", always, NO_CONSTRAINTS),
    refused("guided_grammar", always, NO_CONSTRAINTS),
    refused("guided_json", always, NO_CONSTRAINTS),
    refused("guided_regex", always, NO_CONSTRAINTS),
    refused("guided_whitespace_pattern", always, NO_CONSTRAINTS),
    refused("json_schema", always, NO_CONSTRAINTS),
    refused("kv_transfer_params", not_empty, NO_TRANSFER),
    refused("logits_processors", not_empty, "use logit_bias, allowed_token_ids or bad_words"),
    refused("logprob_token_ids", not_empty, "use top_logprobs (chat) or logprobs (completions)"),
    refused("media_io_kwargs", not_empty, "the model reads text only; leave the field out"),
    refused("mm_processor_kwargs", not_empty, "the model reads text only; leave the field out"),
    refused("modalities", beyond_text, TEXT_ONLY),
    refused("prompt_embeds", always, "send the prompt as text or as token ids"),
    refused(
        "repetition_detection",
        always,
        "use repetition_penalty, frequency_penalty or a smaller max_tokens",
    ),
    refused("response_format", not_text, NO_CONSTRAINTS),
    refused("structured_outputs", not_empty, NO_CONSTRAINTS),
    refused("suffix", not_empty, "text is only continued at its end; put everything into prompt"),
    refused("thinking", always, "pass the switch of the model's template in chat_template_kwargs"),
    refused("thinking_token_budget", always, "bound the whole answer with max_tokens"),
    refused("use_beam_search", is_true, "use n with a temperature above 0"),
    refused("verbosity", not_medium, "ask for a short or long answer in the prompt"),
    refused("vllm_xargs", not_empty, "there are no plug-in samplers; leave the field out"),
    refused("web_search_options", always, "the server does not search the web; leave the field out"),
];

fn always(_: &Value) -> bool {
    true
}

fn is_true(value: &Value) -> bool {
    value != &Value::Bool(false)
}

fn not_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn beyond_text(value: &Value) -> bool {
    value.as_array().is_none_or(|kinds| kinds.iter().any(|kind| kind != "text"))
}

fn not_text(format: &Value) -> bool {
    format.get("type").is_none_or(|kind| kind != "text")
}

fn not_medium(value: &Value) -> bool {
    value != "medium"
}

/// Refuses fields that would change the answer in a way this server cannot follow, and removes those whose
/// value asks for nothing.
pub(crate) fn refuse(object: &mut JsonObject) -> Result<(), RequestError> {
    for entry in REFUSED {
        let Some(value) = object.shift_remove(entry.name) else {
            continue;
        };
        if !value.is_null() && (entry.matters)(&value) {
            return Err(RequestError::unsupported(entry.name, entry.instead));
        }
    }
    Ok(())
}

pub(crate) fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name)
}

/// The error for a field that nobody knows, with the known one that looks most like it.
pub(crate) fn unknown(name: &str, known: &[&'static str]) -> RequestError {
    const ALIKE_MIN: f64 = 0.84;
    let nearest = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    let shown: String = name.chars().take(64).collect();
    let advice = match nearest {
        Some((_, candidate)) => format!("did you mean `{candidate}`?"),
        None => "remove it (fields that could change the answer are never ignored)".to_owned(),
    };
    RequestError {
        code: Some("unknown_parameter"),
        ..RequestError::invalid(shown.clone(), format!("unknown field `{shown}`: {advice}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: Value) -> Result<JsonObject, RequestError> {
        let Value::Object(mut object) = value else { panic!("not an object") };
        refuse(&mut object).map(|()| object)
    }

    #[test]
    fn a_constraint_is_refused_and_the_message_says_what_works() {
        for name in ["guided_json", "guided_regex", "guided_choice", "structured_outputs"] {
            let error = check(json!({name: {"a": 1}})).unwrap_err();
            assert_eq!((error.status, error.code), (400, Some("unsupported_parameter")));
            assert!(error.message.starts_with(name) && error.message.contains("prompt"), "{error}");
        }
        assert!(check(json!({"response_format": {"type": "json_object"}})).is_err());
        assert!(check(json!({"response_format": "json"})).is_err());
    }

    #[test]
    fn a_value_that_asks_for_nothing_passes() {
        let idle = json!({
            "guided_json": null, "response_format": {"type": "text"}, "structured_outputs": {},
            "use_beam_search": false, "suffix": "", "modalities": ["text"], "verbosity": "medium", "user": "me",
        });
        assert_eq!(check(idle).unwrap().keys().collect::<Vec<_>>(), ["user"]);
    }

    #[test]
    fn an_unknown_field_gets_the_nearest_name() {
        let known = ["repetition_penalty", "max_tokens", "temperature"];
        assert!(unknown("repeat_penalty", &known).message.contains("`repetition_penalty`"));
        assert!(unknown("max_token", &known).message.contains("`max_tokens`"));
        assert!(unknown("zzz", &known).message.contains("remove it"));
        assert!(unknown(&"x".repeat(100_000), &known).message.len() < 300);
    }

    #[test]
    fn no_field_is_both_refused_and_harmless() {
        assert!(REFUSED.iter().all(|entry| !is_harmless(entry.name)));
    }
}
