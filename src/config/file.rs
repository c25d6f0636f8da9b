//! Reading of configuration files into flat keys and values.
//!
//! Knows the three formats and nothing about which keys exist.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::ConfigError;

/// Bytes a configuration file may have.
const SIZE_MAX: u64 = 1 << 20;

/// The keys and values of a file, in its order.
pub fn read(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    let problem = |problem: String| ConfigError::File { path: path.to_owned(), problem };
    let size = std::fs::metadata(path).map_err(|error| problem(format!("cannot be read ({error})")))?.len();
    if size > SIZE_MAX {
        return Err(problem(format!("has {size} bytes; a configuration has at most {SIZE_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| problem(format!("cannot be read ({error})")))?;
    parse(path, &text).map_err(problem)
}

fn parse(path: &Path, text: &str) -> Result<Map<String, Value>, String> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let value = match ending.to_ascii_lowercase().as_str() {
        "toml" => toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            format!("line {line} is not TOML: {}", error.message().replace('\n', ", "))
        })?,
        "yaml" | "yml" => serde_norway::from_str(text).map_err(|error| format!("is not YAML: {error}"))?,
        "json" => serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?,
        _ => {
            return Err(
                "its format is not known; the name must end in .toml, .yaml, .yml or .json".to_owned()
            );
        }
    };
    match value {
        Value::Object(keys) => Ok(keys),
        Value::Null => Ok(Map::new()),
        _ => Err("expected keys and values at the top, such as port: 8000".to_owned()),
    }
}
