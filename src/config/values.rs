//! Readers of single values. Each error says in one clause what would be right.

use std::time::Duration;

use serde_json::{Map, Value};

/// A setting given as a JSON object.
pub type JsonObject = Map<String, Value>;

/// Keys of `--override-generation-config`.
const GENERATION_KEYS: [&str; 7] =
    ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_new_tokens", "max_tokens"];

/// A wanted context length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextLength {
    /// As long as the KV cache allows.
    Auto,
    /// This many tokens.
    Tokens(u32),
}

/// How many log-probabilities a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogprobsLimit {
    /// The whole vocabulary.
    Vocabulary,
    /// This many.
    Count(u32),
}

/// How long streams may wait for a token because of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterTokenLatency {
    /// What is reasonable for the model.
    Auto,
    /// As long as it takes.
    Unbounded,
    /// Milliseconds.
    Millis(u32),
}

/// A list in one value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing(pub Vec<String>);

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// A number of things, at least one: `8192`, `8k` (8000), `8K` (8192), `1.5k`.
pub fn count(text: &str) -> Result<u32, String> {
    match scaled(text).and_then(|number| u32::try_from(number).ok()) {
        Some(number) if number > 0 => Ok(number),
        _ => Err("expected a whole number of 1 or more, such as 8192, 8k (8000) or 8K (8192)".to_owned()),
    }
}

/// Like [`count`], but 0 is good too.
pub fn count_or_zero(text: &str) -> Result<u32, String> {
    scaled(text)
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| "expected a whole number of 0 or more, such as 256, 8k (8000) or 8K (8192)".to_owned())
}

/// A number of bytes: `4GiB`, `4G`, `512m`, `1000000`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    match scaled(number) {
        Some(number) if number > 0 => Ok(number),
        _ => Err("expected a size such as 4GiB, 4G, 512m (decimal) or a number of bytes".to_owned()),
    }
}

/// `auto`, -1, or a number of tokens.
pub fn context_length(text: &str) -> Result<ContextLength, String> {
    if text.eq_ignore_ascii_case("auto") || text == "-1" {
        return Ok(ContextLength::Auto);
    }
    count(text)
        .map(ContextLength::Tokens)
        .map_err(|_| "expected a number of tokens such as 8192 or 8k, or auto (-1)".to_owned())
}

/// `auto`, `none`, or milliseconds.
pub fn inter_token_latency(text: &str) -> Result<InterTokenLatency, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(InterTokenLatency::Auto),
        "none" => Ok(InterTokenLatency::Unbounded),
        _ => count(text)
            .map(InterTokenLatency::Millis)
            .map_err(|_| "expected milliseconds such as 80, or auto, or none".to_owned()),
    }
}

/// -1 or a number.
pub fn logprobs_limit(text: &str) -> Result<LogprobsLimit, String> {
    if text == "-1" {
        return Ok(LogprobsLimit::Vocabulary);
    }
    count_or_zero(text)
        .map(LogprobsLimit::Count)
        .map_err(|_| "expected a whole number of 0 or more, or -1 for the whole vocabulary".to_owned())
}

/// A TCP port.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected a port from 1 to 65535, or 0 for any free one".to_owned())
}

/// A seed.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number of 0 or more".to_owned())
}

/// A block size that kernels know.
pub fn block_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size @ (16 | 32 | 64 | 128 | 256)) => Ok(size),
        _ => Err("expected one of 16, 32, 64, 128, 256".to_owned()),
    }
}

/// A share of a whole: more than 0, at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a share above 0 and up to 1, such as 0.9".to_owned()),
    }
}

/// A time in seconds, at most a day.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds from 0 to 86400, such as 30 or 2.5".to_owned()),
    }
}

/// A time in seconds above nothing, at most a day.
pub fn positive_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("expected seconds above 0 and up to 86400, such as 30 or 1.5".to_owned()),
    }
}

/// Yes or no.
pub fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// A key that is not empty and can stand in a header.
pub fn secret(text: &str) -> Result<Secret, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "expected a key of visible ASCII characters without spaces, and not an empty one".to_owned()
        );
    }
    Ok(Secret(text.to_owned()))
}

/// `a,b` or `["a", "b"]`.
pub fn listing(text: &str) -> Result<Listing, String> {
    list_items(text).map(Listing)
}

/// The items of `a,b` or `["a", "b"]`; blanks around items are dropped, as are empty items.
pub fn list_items(text: &str) -> Result<Vec<String>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text)
            .map_err(|_| "expected a JSON list of strings such as [\"a\", \"b\"], or a,b".to_owned());
    }
    Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

/// A JSON object.
pub fn json_object(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("expected a JSON object such as {{\"key\": 1}} ({error})"))
}

/// A JSON object, or the object in a file.
pub fn object_or_file(text: &str) -> Result<JsonObject, String> {
    if text.trim_start().starts_with('{') {
        return json_object(text);
    }
    let path = std::path::Path::new(text);
    if !path.is_file() {
        return Err(
            "expected a JSON object such as {\"key\": 1}, or the path of a .json, .toml or .yaml file"
                .to_owned(),
        );
    }
    super::file::read(path).map_err(|error| error.to_string())
}

/// A JSON object with sampling defaults, each of them a number or null.
pub fn generation_overrides(text: &str) -> Result<JsonObject, String> {
    let object = json_object(text)?;
    for (key, value) in &object {
        if !GENERATION_KEYS.contains(&key.as_str()) {
            return Err(format!("it has the unknown key {key:?}; known are {}", GENERATION_KEYS.join(", ")));
        }
        if !(value.is_number() || value.is_null()) {
            return Err(format!("expected a number for {key:?}, found {value}"));
        }
    }
    Ok(object)
}

/// A number with an optional decimal (k, m, g, t) or binary (K, M, G, T) suffix; `None` unless it is whole.
fn scaled(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 1_000_u64),
        (at, 'm') => (&text[..at], 1_000_000),
        (at, 'g') => (&text[..at], 1_000_000_000),
        (at, 't') => (&text[..at], 1_000_000_000_000),
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let digits: String = digits.chars().filter(|&digit| digit != '_').collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let number = digits.parse::<f64>().ok()? * factor as f64;
    // Beyond 2^53 a float no longer tells neighbours apart.
    (number.fract().abs() < f64::EPSILON && number < 9_007_199_254_740_992.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_decimal_and_binary_suffixes() {
        for (text, number) in
            [("1", 1), ("8192", 8192), ("8k", 8000), ("8K", 8192), ("25.6k", 25_600), ("1m", 1_000_000)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        for text in ["", "0", "-1", "k", "1.5", "8kk", "1e3", "99999999999", "8 k", "１"] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(count_or_zero("0"), Ok(0));
    }

    #[test]
    fn sizes_are_binary_with_a_capital() {
        for (text, number) in [
            ("4GiB", 4 << 30),
            ("4G", 4 << 30),
            ("4g", 4_000_000_000),
            ("1.5GiB", 3 << 29),
            ("77", 77),
            ("77B", 77),
        ] {
            assert_eq!(bytes(text), Ok(number), "{text}");
        }
        assert!(bytes("lots").is_err());
        assert!(bytes("99999999T").is_err());
    }

    #[test]
    fn odd_values_are_refused() {
        for text in ["0", "1.01", "NaN", "-0.5", "x"] {
            assert!(share(text).is_err(), "{text}");
        }
        for text in ["-1", "inf", "NaN", "86401"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["", "a b", "schlüssel", "line\n"] {
            assert!(secret(text).is_err(), "{text}");
        }
        assert!(block_size("24").is_err());
        assert!(port("65536").is_err());
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", secret("sk-1").unwrap()), "***");
    }

    #[test]
    fn lists_are_json_or_commas() {
        assert_eq!(list_items("a, b,"), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(list_items(r#"["a,b"]"#), Ok(vec!["a,b".to_owned()]));
        assert_eq!(list_items(""), Ok(vec![]));
        assert!(list_items("[1]").is_err());
    }

    #[test]
    fn generation_overrides_name_what_is_wrong() {
        assert!(generation_overrides(r#"{"temperature": 0.2, "top_k": null}"#).is_ok());
        assert!(generation_overrides(r#"{"temprature": 0.2}"#).unwrap_err().contains("temprature"));
        assert!(generation_overrides(r#"{"temperature": "hot"}"#).unwrap_err().contains("number"));
    }
}
