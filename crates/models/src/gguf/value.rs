//! Metadata of a GGUF file: named values of a few types, and typed look-ups.

use std::path::Path;

use indexmap::IndexMap;

use super::cursor::{Cursor, CursorError};
use super::damaged;
use crate::error::CheckpointError;

/// Arrays of arrays are followed this deep; real files have none.
const MAX_DEPTH: u32 = 4;
/// Least bytes of one entry: empty key, type, one byte.
const MIN_ENTRY: u64 = 8 + 4 + 1;

/// A metadata value. Integers of all widths are one kind, and floats another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Any unsigned or signed integer.
    Integer(i128),
    /// A float of either width.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array, with the types that are large in real files kept compact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Array {
    /// Texts.
    Strings(Vec<String>),
    /// Floats of 32 bits.
    Floats(Vec<f32>),
    /// Integers of at most 32 bits.
    Integers(Vec<i64>),
    /// Truth values.
    Bools(Vec<bool>),
    /// Everything else.
    Other(Vec<Value>),
}

/// All metadata of a file, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metadata {
    values: IndexMap<String, Value>,
}

/// Why a value could not be read.
enum ValueError {
    Cursor(CursorError),
    Type(u32),
    Count { count: u64, remaining: u64 },
    Depth,
}

impl From<CursorError> for ValueError {
    fn from(error: CursorError) -> Self {
        Self::Cursor(error)
    }
}

impl std::fmt::Display for ValueError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cursor(error) => error.fmt(f),
            Self::Type(code) => write!(f, "has the unknown type {code}"),
            Self::Count { count, remaining } => {
                write!(f, "has {count} elements, more than the {remaining} bytes behind it can hold")
            }
            Self::Depth => f.write_str("nests arrays too deeply"),
        }
    }
}

impl Metadata {
    pub(super) fn read(path: &Path, cursor: &mut Cursor<'_>, count: u64) -> Result<Self, CheckpointError> {
        if count > cursor.remaining() / MIN_ENTRY {
            let reason = format!("{count} metadata entries cannot fit into its {} bytes", cursor.len());
            return Err(damaged(path, reason));
        }
        let mut values = IndexMap::with_capacity(count as usize);
        for at in 0..count {
            let key = cursor
                .string()
                .map_err(|error| damaged(path, format!("metadata entry {} of {count} {error}", at + 1)))?;
            let value = cursor
                .u32()
                .map_err(ValueError::from)
                .and_then(|code| read_value(cursor, code, 0))
                .map_err(|error| damaged(path, format!("the metadata value `{key}` {error}")))?;
            values.insert(key, value);
        }
        Ok(Self { values })
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Takes a value out, which saves a copy of large arrays.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.values.get_mut(key).map(|value| std::mem::replace(value, Value::Bool(false)))
    }

    /// A non-negative integer; a key of another type counts as absent.
    pub(crate) fn integer(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// A float, or an integer as one.
    pub(crate) fn float(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::Float(value) => Some(*value),
            Value::Integer(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// A truth value.
    pub(crate) fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// A text.
    pub(crate) fn string(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(value) => Some(value),
            _ => None,
        }
    }
}

fn read_value(cursor: &mut Cursor<'_>, code: u32, depth: u32) -> Result<Value, ValueError> {
    Ok(match code {
        0 => Value::Integer(cursor.u8()?.into()),
        1 => Value::Integer(cursor.i8()?.into()),
        2 => Value::Integer(cursor.u16()?.into()),
        3 => Value::Integer(cursor.i16()?.into()),
        4 => Value::Integer(cursor.u32()?.into()),
        5 => Value::Integer(cursor.i32()?.into()),
        6 => Value::Float(cursor.f32()?.into()),
        7 => Value::Bool(cursor.u8()? != 0),
        8 => Value::String(cursor.string()?),
        9 => Value::Array(read_array(cursor, depth + 1)?),
        10 => Value::Integer(cursor.u64()?.into()),
        11 => Value::Integer(cursor.i64()?.into()),
        12 => Value::Float(cursor.f64()?),
        other => return Err(ValueError::Type(other)),
    })
}

fn read_array(cursor: &mut Cursor<'_>, depth: u32) -> Result<Array, ValueError> {
    if depth > MAX_DEPTH {
        return Err(ValueError::Depth);
    }
    let code = cursor.u32()?;
    let count = cursor.u64()?;
    let remaining = cursor.remaining();
    if count > remaining / least_bytes(code)? {
        return Err(ValueError::Count { count, remaining });
    }
    Ok(match code {
        0..=5 => Array::Integers(collect(cursor, count, |cursor| match read_value(cursor, code, depth)? {
            Value::Integer(value) => Ok(value as i64),
            _ => Err(ValueError::Type(code)),
        })?),
        6 => Array::Floats(collect(cursor, count, |cursor| Ok(cursor.f32()?))?),
        7 => Array::Bools(collect(cursor, count, |cursor| Ok(cursor.u8()? != 0))?),
        8 => Array::Strings(collect(cursor, count, |cursor| Ok(cursor.string()?))?),
        _ => Array::Other(collect(cursor, count, |cursor| read_value(cursor, code, depth))?),
    })
}

fn collect<T>(
    cursor: &mut Cursor<'_>,
    count: u64,
    mut read: impl FnMut(&mut Cursor<'_>) -> Result<T, ValueError>,
) -> Result<Vec<T>, ValueError> {
    let mut values = Vec::with_capacity(count as usize);
    for _ in 0..count {
        values.push(read(cursor)?);
    }
    Ok(values)
}

/// Least bytes of one value of a type.
fn least_bytes(code: u32) -> Result<u64, ValueError> {
    match code {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        8 | 10..=12 => Ok(8),
        9 => Ok(12),
        other => Err(ValueError::Type(other)),
    }
}
