//! The rules of the shared fields, one function a group. All pure.

use serde_json::Value;

use super::{
    ReportSpec, SamplingFields, SamplingSpec, StopSpec, StreamSpec, Truncation, TruncationSide, Wishes,
};
use crate::error::RequestError;
use crate::json::describe;
use crate::limits::{RequestLimits, SamplingDefaults};

/// What positive parameters are raised to.
const SMALLEST: f32 = 1e-30;

/// Temperatures below this take the likeliest token.
const GREEDY_BELOW: f32 = 1e-5;
const BIAS_MAX: f64 = 100.0;
const SALT_CHARS_MAX: usize = 128;
const STOP_STRING_BYTES_MAX: usize = 4096;

pub(super) fn sampling(
    fields: &SamplingFields,
    limits: &RequestLimits,
    defaults: &SamplingDefaults,
) -> Result<SamplingSpec, RequestError> {
    let number = |name, value: Option<f64>, low, high, default: f32| match value {
        Some(value) if (low..=high).contains(&value) => Ok(value as f32),
        Some(value) => Err(out_of_range(name, value, &format!("from {low} to {high}"))),
        None => Ok(default),
    };
    let above_zero = |name, value: Option<f64>, high: f64, words: &str, default: f32| match value {
        // A logit divided by a smaller number would leave single precision.
        Some(value) if value > 0.0 && value <= high => Ok((value as f32).max(SMALLEST)),
        Some(value) => Err(out_of_range(name, value, words)),
        None => Ok(default),
    };
    Ok(SamplingSpec {
        temperature: number(
            "temperature",
            fields.temperature,
            0.0,
            2.0,
            defaults.temperature.unwrap_or(1.0),
        )?,
        top_p: above_zero(
            "top_p",
            fields.top_p,
            1.0,
            "above 0 and at most 1",
            defaults.top_p.unwrap_or(1.0),
        )?,
        top_k: top_k(fields.top_k)?.or(defaults.top_k).unwrap_or(0),
        min_p: number("min_p", fields.min_p, 0.0, 1.0, defaults.min_p.unwrap_or(0.0))?,
        repetition_penalty: above_zero(
            "repetition_penalty",
            fields.repetition_penalty,
            f64::from(f32::MAX),
            "above 0",
            defaults.repetition_penalty.unwrap_or(1.0),
        )?,
        frequency_penalty: number("frequency_penalty", fields.frequency_penalty, -2.0, 2.0, 0.0)?,
        presence_penalty: number("presence_penalty", fields.presence_penalty, -2.0, 2.0, 0.0)?,
        logit_bias: logit_bias(fields, limits)?,
        allowed_token_ids: allowed_token_ids(fields, limits)?,
        bad_words: bad_words(fields, limits)?,
        seed: fields.seed.filter(|seed| *seed != -1).map(|seed| seed as u64),
    })
}

pub(super) fn choices(
    fields: &SamplingFields,
    sampling: &SamplingSpec,
    limits: &RequestLimits,
) -> Result<u32, RequestError> {
    let n = within("n", fields.n.unwrap_or(1), 1, i64::from(limits.max_choices))?;
    if n > 1 && sampling.temperature < GREEDY_BELOW {
        return Err(RequestError::invalid(
            "n",
            format!(
                "n is {n}, but with temperature 0 all answers are the same; use n 1 or a higher temperature"
            ),
        ));
    }
    Ok(n)
}

pub(super) fn stop(
    fields: &SamplingFields,
    wishes: &Wishes,
    limits: &RequestLimits,
    defaults: &SamplingDefaults,
) -> Result<StopSpec, RequestError> {
    let max_tokens = match wishes.max_tokens {
        Some(asked) => {
            let name = wishes.max_tokens_field;
            let low = wishes.max_tokens_min;
            Some(within(name, asked, low, i64::from(limits.max_model_len))?)
        }
        None => None,
    };
    let min_tokens =
        within("min_tokens", fields.min_tokens.unwrap_or(0), 0, i64::from(limits.max_model_len))?;
    if let Some(max) = max_tokens.filter(|max| min_tokens > *max) {
        return Err(RequestError::invalid(
            "min_tokens",
            format!("min_tokens is {min_tokens}, more than {} ({max})", wishes.max_tokens_field),
        ));
    }
    Ok(StopSpec {
        strings: stop_strings(fields.stop.as_ref(), limits)?,
        token_ids: token_ids("stop_token_ids", fields.stop_token_ids.as_deref().unwrap_or_default(), limits)?,
        include_in_output: fields.include_stop_str_in_output.unwrap_or(false),
        ignore_eos: fields.ignore_eos.unwrap_or(false),
        min_tokens,
        max_tokens: [max_tokens, defaults.max_tokens].into_iter().flatten().min(),
    })
}

pub(super) fn report(
    fields: &SamplingFields,
    wishes: &Wishes,
    limits: &RequestLimits,
) -> Result<ReportSpec, RequestError> {
    Ok(ReportSpec {
        logprobs: alternatives(wishes.logprobs_field, wishes.logprobs, limits)?,
        prompt_logprobs: alternatives("prompt_logprobs", fields.prompt_logprobs, limits)?,
        skip_special_tokens: fields.skip_special_tokens.unwrap_or(true),
        token_ids: fields.return_token_ids.unwrap_or(false),
        tokens_as_ids: fields.return_tokens_as_token_ids.unwrap_or(false),
        prompt_text: fields.return_prompt_text.unwrap_or(false),
    })
}

pub(super) fn stream(fields: &SamplingFields) -> Result<Option<StreamSpec>, RequestError> {
    let streams = fields.stream.unwrap_or(false);
    let Some(options) = &fields.stream_options else {
        return Ok(streams.then(StreamSpec::default));
    };
    if !streams {
        return Err(RequestError::invalid(
            "stream_options",
            "stream_options only works together with stream: true",
        ));
    }
    let flag = |name: &str| match options.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(other) => {
            let name = format!("stream_options.{name}");
            let message = format!("{name} must be true or false, not {}", describe(other));
            Err(RequestError::invalid(name, message))
        }
    };
    Ok(Some(StreamSpec {
        include_usage: flag("include_usage")?,
        continuous_usage: flag("continuous_usage_stats")?,
    }))
}

pub(super) fn truncation(
    fields: &SamplingFields,
    limits: &RequestLimits,
) -> Result<Option<Truncation>, RequestError> {
    let side = match fields.truncation_side.as_deref() {
        None | Some("left") => TruncationSide::Left,
        Some("right") => TruncationSide::Right,
        Some(other) => {
            return Err(RequestError::invalid(
                "truncation_side",
                format!("truncation_side must be \"left\" or \"right\", not {}", describe(&other.into())),
            ));
        }
    };
    let tokens = match fields.truncate_prompt_tokens {
        None => return Ok(None),
        Some(-1) => None,
        Some(kept) => Some(within("truncate_prompt_tokens", kept, 1, i64::from(limits.max_model_len))?),
    };
    Ok(Some(Truncation { tokens, side }))
}

pub(super) fn priority(fields: &SamplingFields) -> Result<Option<i32>, RequestError> {
    fields
        .priority
        .map(|asked| {
            i32::try_from(asked).map_err(|_| {
                RequestError::invalid("priority", format!("priority must fit 32 bits, {asked} does not"))
            })
        })
        .transpose()
}

pub(super) fn cache_salt(fields: &SamplingFields) -> Result<Option<String>, RequestError> {
    let Some(salt) = &fields.cache_salt else {
        return Ok(None);
    };
    let problem = if salt.is_empty() {
        "is empty"
    } else if salt.chars().count() > SALT_CHARS_MAX {
        "has more than 128 characters"
    } else if salt.contains(['@', '/', '\\', '\0']) {
        "contains one of @ / \\ NUL"
    } else {
        return Ok(Some(salt.clone()));
    };
    Err(RequestError::invalid(
        "cache_salt",
        format!("cache_salt {problem}; use up to 128 other characters, or leave it out"),
    ))
}

/// Token ids that exist, sorted, each once.
pub(crate) fn token_ids(
    field: &'static str,
    ids: &[i64],
    limits: &RequestLimits,
) -> Result<Vec<u32>, RequestError> {
    let mut checked = ids.iter().map(|id| token_id(field, *id, limits)).collect::<Result<Vec<_>, _>>()?;
    checked.sort_unstable();
    checked.dedup();
    Ok(checked)
}

/// A token id that exists.
pub(crate) fn token_id(field: &'static str, id: i64, limits: &RequestLimits) -> Result<u32, RequestError> {
    u32::try_from(id).ok().filter(|id| *id < limits.vocab).ok_or_else(|| {
        let last = limits.vocab.saturating_sub(1);
        RequestError::invalid(
            field,
            format!("{field}: there is no token {id}; token ids go from 0 to {last}"),
        )
    })
}

fn top_k(asked: Option<i64>) -> Result<Option<u32>, RequestError> {
    match asked {
        None => Ok(None),
        Some(-1) => Ok(Some(0)),
        Some(k) => match u32::try_from(k) {
            Ok(k) => Ok(Some(k)),
            Err(_) if k > 0 => Ok(Some(u32::MAX)),
            Err(_) => Err(RequestError::invalid(
                "top_k",
                format!("top_k must be at least 1, or 0 or -1 for off, not {k}"),
            )),
        },
    }
}

fn logit_bias(fields: &SamplingFields, limits: &RequestLimits) -> Result<Vec<(u32, f32)>, RequestError> {
    let Some(offsets) = &fields.logit_bias else {
        return Ok(Vec::new());
    };
    let mut bias = Vec::with_capacity(offsets.len());
    for (key, value) in offsets {
        let id = key.trim().parse::<i64>().map_err(|_| {
            let shown = describe(&Value::String(key.clone()));
            RequestError::invalid("logit_bias", format!("logit_bias: the key {shown} is not a token id"))
        })?;
        let id = token_id("logit_bias", id, limits)?;
        let offset = value.as_f64().filter(|offset| offset.is_finite()).ok_or_else(|| {
            let found = describe(value);
            RequestError::invalid("logit_bias", format!("logit_bias: token {id} needs a number, not {found}"))
        })?;
        bias.push((id, offset.clamp(-BIAS_MAX, BIAS_MAX) as f32));
    }
    Ok(bias)
}

fn allowed_token_ids(
    fields: &SamplingFields,
    limits: &RequestLimits,
) -> Result<Option<Vec<u32>>, RequestError> {
    match fields.allowed_token_ids.as_deref() {
        None => Ok(None),
        Some([]) => Err(RequestError::invalid(
            "allowed_token_ids",
            "allowed_token_ids is empty, so no token could be chosen; leave it out to allow all",
        )),
        Some(ids) => token_ids("allowed_token_ids", ids, limits).map(Some),
    }
}

fn bad_words(fields: &SamplingFields, limits: &RequestLimits) -> Result<Vec<String>, RequestError> {
    let words = fields.bad_words.clone().unwrap_or_default();
    if words.len() > limits.max_bad_words {
        let (have, max) = (words.len(), limits.max_bad_words);
        return Err(RequestError::invalid(
            "bad_words",
            format!("bad_words has {have} words, at most {max} work"),
        ));
    }
    if words.iter().any(|word| word.trim().is_empty()) {
        return Err(RequestError::invalid("bad_words", "bad_words contains an empty word; remove it"));
    }
    Ok(words)
}

fn stop_strings(stop: Option<&Value>, limits: &RequestLimits) -> Result<Vec<String>, RequestError> {
    let refused = |message: String| Err(RequestError::invalid("stop", message));
    let listed = match stop {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    if listed.len() > limits.max_stop_strings {
        let (have, max) = (listed.len(), limits.max_stop_strings);
        return refused(format!("stop has {have} strings, at most {max} work"));
    }
    let mut strings = Vec::with_capacity(listed.len());
    for item in listed {
        match item {
            Value::String(text) if text.is_empty() => {
                return refused(
                    "stop contains an empty string, which would end every answer; remove it".into(),
                );
            }
            Value::String(text) if text.len() > STOP_STRING_BYTES_MAX => {
                return refused(format!("stop contains a string of more than {STOP_STRING_BYTES_MAX} bytes"));
            }
            Value::String(text) => strings.push(text.clone()),
            other => {
                return refused(format!(
                    "stop must be a string or a list of strings, not {}",
                    describe(other)
                ));
            }
        }
    }
    Ok(strings)
}

fn alternatives(
    field: &'static str,
    asked: Option<i64>,
    limits: &RequestLimits,
) -> Result<Option<u32>, RequestError> {
    let Some(asked) = asked else { return Ok(None) };
    let wanted = if asked == -1 { i64::from(limits.vocab) } else { asked };
    if wanted < 0 {
        return Err(RequestError::invalid(
            field,
            format!("{field} must be 0 or more, or -1 for all, not {asked}"),
        ));
    }
    if wanted > i64::from(limits.max_logprobs) {
        let max = limits.max_logprobs;
        let message =
            format!("{field} asks for {wanted} tokens per position, this server gives at most {max}");
        return Err(RequestError::invalid(field, message));
    }
    Ok(Some(wanted as u32))
}

fn within(field: &'static str, value: i64, low: i64, high: i64) -> Result<u32, RequestError> {
    match u32::try_from(value) {
        Ok(fits) if (low..=high).contains(&value) => Ok(fits),
        _ => Err(RequestError::invalid(field, format!("{field} must be from {low} to {high}, not {value}"))),
    }
}

fn out_of_range(field: &'static str, value: f64, wanted: &str) -> RequestError {
    RequestError::invalid(field, format!("{field} must be {wanted}, not {value}"))
}
