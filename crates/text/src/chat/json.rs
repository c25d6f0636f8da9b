//! The `tojson` filter of transformers: Python's `json.dumps` with `ensure_ascii=False`.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deeper values than this are refused; Python stops at about a thousand.
const DEPTH: usize = 200;

/// Bytes that one unit of fuel pays for.
const BYTES_PER_FUEL: usize = 16;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
#[allow(clippy::needless_pass_by_value, reason = "filters get their options by value")]
pub(super) fn filter(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = match ensure_ascii {
        Some(given) => given,
        None => options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    let indent = match options.get::<Option<Value>>("indent")?.filter(|value| !value.is_none()) {
        None => None,
        Some(value) => Some(match value.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(value)?.clamp(0, 64)).unwrap_or(0)),
        }),
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("separators must be a pair of strings")),
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let mut writer =
        Writer { out: String::new(), charged: 0, state, ensure_ascii, indent, item, key, sort_keys };
    writer.value(value, 0)?;
    Ok(Value::from_safe_string(writer.out))
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

struct Writer<'a, 'b, 'c> {
    out: String,
    /// Bytes already paid for.
    charged: usize,
    state: &'a State<'b, 'c>,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            return Err(invalid(format!("cannot write a value nested deeper than {DEPTH} as JSON")));
        }
        self.charge()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.sequence(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            other => return Err(invalid(format!("cannot write a value of type {other} as JSON"))),
        }
        Ok(())
    }

    fn sequence(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut is_empty = true;
        for item in value.try_iter()? {
            self.separate(is_empty, depth + 1);
            is_empty = false;
            self.value(&item, depth + 1)?;
        }
        self.close(']', is_empty, depth);
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (at, key) in keys.iter().enumerate() {
            self.separate(at == 0, depth + 1);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::Number => self.string(&number(key)),
                ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
                ValueKind::None => self.string("null"),
                other => return Err(invalid(format!("cannot use a value of type {other} as a JSON key"))),
            }
            self.out.push_str(&self.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close('}', keys.is_empty(), depth);
        Ok(())
    }

    fn separate(&mut self, is_first: bool, depth: usize) {
        if !is_first {
            self.out.push_str(&self.item);
        }
        self.break_line(depth);
    }

    fn close(&mut self, bracket: char, is_empty: bool, depth: usize) {
        if !is_empty {
            self.break_line(depth);
        }
        self.out.push(bracket);
    }

    fn break_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                _ if character < ' ' || (self.ensure_ascii && character > '~') => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    /// Pays for what was written: a value that contains itself many times over is short in memory and long as text.
    fn charge(&mut self) -> Result<(), Error> {
        let fuel = (self.out.len() - self.charged) / BYTES_PER_FUEL;
        self.charged += fuel * BYTES_PER_FUEL;
        self.state.consume_fuel(fuel as u64 + 1)
    }
}

/// A number as Python writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// The shortest digits that read back as the same number, in positional form from 1e-4 to 1e16.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{value:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_are_written_as_python_does() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (2.5, "2.5"),
            (100.0, "100.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (0.1, "0.1"),
            (f64::INFINITY, "Infinity"),
            (f64::NAN, "NaN"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
    }
}
