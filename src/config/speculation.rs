//! The value of `--speculative-config`, as vLLM writes it.
//!
//! Always holds: what was read is in range, and no key was passed over. Refuses to know: models that draft.

use serde_json::Value;
use updraft_core::Tokens;
use updraft_core::speculation::{DRAFTS_MAX, Method, NgramLengths, SpeculationConfig};

use super::values::{self, JsonObject};

/// Drafts of all sequences in one step, at most: a row of a large vocabulary takes a megabyte.
pub const DRAFT_ROWS: Tokens = Tokens(64);
/// The longest n-gram that is looked up.
const LOOKUP_MAX: u32 = 32;
/// Its length when none is given, as in vLLM.
const LOOKUP_DEFAULT: u32 = 5;

const METHOD: &str = "method";
const DRAFTS: &str = "num_speculative_tokens";
const LONGEST: &str = "prompt_lookup_max";
const SHORTEST: &str = "prompt_lookup_min";
const KEYS: [&str; 4] = [METHOD, DRAFTS, LONGEST, SHORTEST];

/// A JSON object with a method and what belongs to it.
pub fn speculation(text: &str) -> Result<SpeculationConfig, String> {
    let object = values::json_object(text)?;
    match get(&object, METHOD) {
        Some(Value::String(method)) if method == "ngram" => {}
        Some(method) => {
            return Err(format!(
                "Updraft has no {METHOD} {method}: the only one is \"ngram\", which drafts from the request's \
                 own tokens"
            ));
        }
        None => {
            return Err(format!("expected a {METHOD}, such as {{\"{METHOD}\": \"ngram\", \"{DRAFTS}\": 4}}"));
        }
    }
    if let Some(unknown) = object.keys().find(|key| !KEYS.contains(&key.replace('-', "_").as_str())) {
        return Err(format!("it has the unknown key {unknown:?}; known are {}", KEYS.join(", ")));
    }
    let drafts = number(&object, DRAFTS, DRAFTS_MAX as u32)?.ok_or_else(|| {
        format!("expected {DRAFTS}: how many tokens are drafted at most, 1 to {DRAFTS_MAX}")
    })?;
    let (max, min) = (number(&object, LONGEST, LOOKUP_MAX)?, number(&object, SHORTEST, LOOKUP_MAX)?);
    let max_or_default = max.or(min).unwrap_or(LOOKUP_DEFAULT);
    let lengths = NgramLengths { min: min.unwrap_or(max_or_default), max: max_or_default };
    if lengths.min > lengths.max {
        return Err(format!("{SHORTEST} {} is more than {LONGEST} {}", lengths.min, lengths.max));
    }
    Ok(SpeculationConfig { method: Method::Ngram(lengths), drafts: Tokens(drafts), rows: DRAFT_ROWS })
}

/// The text that [`speculation`] reads as this.
#[must_use]
pub fn speculation_text(config: &SpeculationConfig) -> String {
    let Method::Ngram(NgramLengths { min, max }) = config.method;
    let drafts = config.drafts.0;
    format!(r#"{{"{METHOD}":"ngram","{DRAFTS}":{drafts},"{LONGEST}":{max},"{SHORTEST}":{min}}}"#)
}

/// The value of a key, with dashes or underscores; null is none.
fn get<'a>(object: &'a JsonObject, key: &str) -> Option<&'a Value> {
    let found = object.iter().find(|(name, _)| name.replace('-', "_") == key);
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

fn number(object: &JsonObject, key: &str, most: u32) -> Result<Option<u32>, String> {
    let Some(value) = get(object, key) else { return Ok(None) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    match number.filter(|number| (1..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(format!("expected a whole number from 1 to {most} for {key}, found {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (u32, u32, u32) {
        let config = speculation(text).unwrap();
        let Method::Ngram(NgramLengths { min, max }) = config.method;
        (config.drafts.0, min, max)
    }

    #[test]
    fn what_is_not_said_is_as_in_vllm() {
        let all =
            r#"{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}"#;
        assert_eq!(read(all), (4, 2, 4));
        assert_eq!(read(r#"{"method":"ngram","num-speculative-tokens":3}"#), (3, 5, 5));
        let one =
            r#"{"method":"ngram","num_speculative_tokens":1,"prompt_lookup_min":3,"prompt_lookup_max":null}"#;
        assert_eq!(read(one), (1, 3, 3));
        let other = r#"{"method":"ngram","num_speculative_tokens":1,"prompt_lookup_max":2}"#;
        assert_eq!(read(other), (1, 2, 2));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let config =
            speculation(r#"{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":7}"#).unwrap();
        assert_eq!(speculation(&speculation_text(&config)), Ok(config));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        let ngram = |rest: &str| format!("{{\"method\":\"ngram\"{rest}}}");
        for (text, says) in [
            ("[]".to_owned(), "JSON object"),
            ("{}".to_owned(), "expected a method"),
            (r#"{"model":"small"}"#.to_owned(), "expected a method"),
            (
                r#"{"method":"eagle","model":"small"}"#.to_owned(),
                "no method \"eagle\": the only one is \"ngram\"",
            ),
            (r#"{"method":"draft_model"}"#.to_owned(), "no method \"draft_model\""),
            (r#"{"method":7}"#.to_owned(), "no method 7"),
            (ngram(""), "expected num_speculative_tokens"),
            (ngram(r#","num_speculative_tokens":0"#), "from 1 to 16 for num_speculative_tokens, found 0"),
            (ngram(r#","num_speculative_tokens":17"#), "from 1 to 16"),
            (ngram(r#","num_speculative_tokens":2.5"#), "found 2.5"),
            (ngram(r#","num_speculative_tokens":2,"prompt_lookup_max":33"#), "from 1 to 32"),
            (
                ngram(r#","num_speculative_tokens":2,"prompt_lookup_max":2,"prompt_lookup_min":3"#),
                "prompt_lookup_min 3 is more than prompt_lookup_max 2",
            ),
            (ngram(r#","num_speculative_tokens":2,"model":"m""#), "unknown key \"model\""),
        ] {
            let problem = speculation(&text).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }
}
