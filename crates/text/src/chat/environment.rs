//! The Jinja environment that chat templates expect: that of transformers, within a budget.

use std::borrow::Cow;

use jiff::Zoned;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};

use super::json;

/// Name of the one template in the environment.
pub(super) const TEMPLATE: &str = "chat_template";

/// Steps that one rendering may take. A step is an instruction or 64 bytes of data made on the way, so this bounds
/// the memory too: to 128 MB, which no conversation that fits into a context comes near.
pub(super) const FUEL: u64 = 2_000_000;

/// What a template said with `raise_exception`; the source of the error that it caused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub String);

/// Compiles the template.
pub(super) fn environment(source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(false);
    environment.add_filter("tojson", json::filter);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_template_owned(TEMPLATE, without_generation_tags(source).into_owned())?;
    Ok(environment)
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(Raised(message)))
}

/// What Python can iterate over or index: strings and maps too, but not `none`. Jinja's `sequence` says the same.
fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined
    )
}

/// The local time, formatted as Python's `strftime` does.
fn strftime_now(format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &Zoned::now()).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"))
    })
}

/// Replaces `{% generation %}` blocks, which only matter in training, by blocks that do nothing but have the same
/// scope and the same whitespace control.
fn without_generation_tags(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut output = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        output.push_str(before);
        let inner_start = if tag[2..].starts_with(['-', '+']) { 3 } else { 2 };
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = tag.get(inner_start..end).unwrap_or("");
        let replacement = match inner.trim_end_matches(['-', '+']).trim() {
            "generation" => Some("with"),
            "endgeneration" => Some("endwith"),
            _ => None,
        };
        let whole = &tag[..end + 2];
        match replacement {
            Some(word) => {
                let name = inner.trim_end_matches(['-', '+']).trim();
                output.push_str(&whole.replacen(name, word, 1));
            }
            None => output.push_str(whole),
        }
        rest = &tag[end + 2..];
    }
    output.push_str(rest);
    Cow::Owned(output)
}

#[cfg(test)]
mod tests {
    use super::without_generation_tags;

    #[test]
    fn generation_tags_keep_their_whitespace_control() {
        let source = "{%- generation -%} a {% endgeneration +%}{% if add_generation_prompt %}{% endif %}{% x";
        let expected = "{%- with -%} a {% endwith +%}{% if add_generation_prompt %}{% endif %}{% x";
        assert_eq!(without_generation_tags(source), expected);
        assert_eq!(without_generation_tags("{% if x %}"), "{% if x %}");
    }
}
