//! Readers of the values that keys have in JSON. Each error says in one clause what would be right.

use serde_json::Value;
use updraft_core::graphs::GraphMode;

use super::super::values;
use super::{LEVEL_MAX, Takes};

impl Takes {
    /// Whether a value is of the kind that the key takes.
    pub(super) fn check(self, value: &Value) -> Result<(), String> {
        let expected = |what: &str| Err(format!("expected {what}, found {value}"));
        match (self, value) {
            (Self::Anything, _)
            | (Self::Switch | Self::CountOrZero, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::Text, Value::String(_)) => Ok(()),
            (Self::Switch, Value::String(text)) => values::switch(text).map(|_| ()),
            (Self::Switch, _) => expected("true or false"),
            (Self::Count, _) => count(value).map(|_| ()),
            (Self::CountOrZero, _) => values::count_or_zero(&plain(value)).map(|_| ()),
            (Self::Number, _) => expected("a number"),
            (Self::Text, _) => expected("text"),
            (Self::Sizes, _) => sizes(value).map(|_| ()),
            (Self::Words(words), Value::String(text)) if words.contains(&text.as_str()) => Ok(()),
            (Self::Words(words), _) => expected(&format!("one of {}", words.join(", "))),
        }
    }
}

/// A value without quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a value asks for nothing.
pub(super) fn is_off(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || values::switch(text) == Ok(false),
        Value::Array(items) => items.is_empty(),
        Value::Object(keys) => keys.is_empty(),
    }
}

/// A whole number of 1 or more.
pub(super) fn count(value: &Value) -> Result<u32, String> {
    values::count(&plain(value))
}

/// Sizes in ascending order, each once.
pub(super) fn sizes(value: &Value) -> Result<Vec<u32>, String> {
    let Value::Array(items) = value else {
        return Err(format!("expected a list of sizes such as [1, 2, 4, 8], found {value}"));
    };
    let mut sizes: Vec<u32> = items.iter().map(count).collect::<Result<_, _>>()?;
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// A mode by its name or by the number that vLLM gives the first three.
pub(super) fn graph_mode(value: &Value) -> Result<GraphMode, String> {
    const MODES: [GraphMode; 5] = [
        GraphMode::None,
        GraphMode::Piecewise,
        GraphMode::Full,
        GraphMode::FullDecodeOnly,
        GraphMode::FullAndPiecewise,
    ];
    let found = match value.as_u64() {
        Some(number) => usize::try_from(number).ok().filter(|&number| number < 3).map(|at| MODES[at]),
        None => MODES.into_iter().find(|mode| mode.as_str().eq_ignore_ascii_case(&plain(value))),
    };
    found.ok_or_else(|| {
        let names: Vec<_> = MODES.iter().map(|mode| mode.as_str()).collect();
        format!("{value} is not possible; expected one of {}", names.join(", "))
    })
}

/// A level of the optimiser.
pub(super) fn level(value: &Value) -> Result<u8, String> {
    match plain(value).parse() {
        Ok(level @ 0..=LEVEL_MAX) => Ok(level),
        _ => Err(format!("{value} is not possible; expected 0 (off), 1 or {LEVEL_MAX}")),
    }
}

/// How vLLM compiles, as its number.
pub(super) fn compilation_mode(value: &Value) -> Result<u8, String> {
    const NAMES: [&str; 4] = ["NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE"];
    let text = plain(value);
    let named = NAMES.iter().position(|name| name.eq_ignore_ascii_case(&text));
    let number = named.or_else(|| text.parse().ok().filter(|&number: &usize| number < NAMES.len()));
    number.map(|number| number as u8).ok_or_else(|| format!("{value} is not possible; expected 0 to 3"))
}
