//! Typed look-ups in a JSON object that name the file and key when a value is of the wrong kind.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::CheckpointError;

/// A JSON object with the file it came from. `null` counts as absent, except where told.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) file: &'a Path,
    pub(crate) map: &'a Map<String, Value>,
}

/// Reads a file that holds one JSON object; `None` when there is no such file.
pub(crate) fn read_object(file: &Path) -> Result<Option<Map<String, Value>>, CheckpointError> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(CheckpointError::Read { file: file.to_owned(), source });
        }
    };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(map)) => Ok(Some(map)),
        Ok(_) => Err(bad_json(file, "it holds no object".to_owned())),
        Err(error) => Err(bad_json(file, error.to_string())),
    }
}

fn bad_json(file: &Path, reason: String) -> CheckpointError {
    CheckpointError::BadJson { file: file.to_owned(), reason }
}

impl<'a> Fields<'a> {
    /// The value of a key, unless it is null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// Whether the key is there, null or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// A whole number of 32 bits.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<u32>, CheckpointError> {
        self.typed(key, "a whole number", as_integer)
    }

    /// A whole number of 32 bits, with a default.
    pub(crate) fn integer_or(&self, key: &str, default: Option<u32>) -> Result<u32, CheckpointError> {
        self.integer(key)?.or(default).ok_or_else(|| CheckpointError::MissingKey {
            file: self.file.to_owned(),
            key: key.to_owned(),
            help: "the model cannot be built without it; fetch the file again".to_owned(),
        })
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(key, "a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// A truth value.
    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A text.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An object within this one.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields<'a>>, CheckpointError> {
        let map = self.typed(key, "an object", Value::as_object)?;
        Ok(map.map(|map| Fields { file: self.file, map }))
    }

    /// A list of strings.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>, CheckpointError> {
        self.typed(key, "a list of strings", |value| {
            value.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()
        })
    }

    /// One number or a list of them, as token ids are written; empty when absent.
    pub(crate) fn ids(&self, key: &str) -> Result<Vec<u32>, CheckpointError> {
        let ids = self.typed(key, "a token id or a list of them", |value| match value {
            Value::Array(list) => list.iter().map(as_integer).collect::<Option<Vec<_>>>(),
            single => as_integer(single).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    /// A complaint about the value of a key.
    pub(crate) fn bad(&self, key: &str, expected: impl Into<String>) -> CheckpointError {
        let found = self.map.get(key).map_or_else(|| "absent".to_owned(), shortened);
        CheckpointError::BadValue {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found,
            expected: expected.into(),
        }
    }

    /// A complaint about something that is not built here.
    pub(crate) fn unsupported(&self, what: impl Into<String>, help: impl Into<String>) -> CheckpointError {
        CheckpointError::Unsupported { file: PathBuf::from(self.file), what: what.into(), help: help.into() }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.bad(key, expected)),
        }
    }
}

/// A whole number, also when it is written as `64.0`.
fn as_integer(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|float| float.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(float))
            .map(|float| float as u64)
    })?;
    u32::try_from(number).ok()
}

/// A value as text that fits into a message.
fn shortened(value: &Value) -> String {
    const MOST: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
