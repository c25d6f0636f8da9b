//! The spellings of the command line, brought into the one that clap reads.
//!
//! `--foo_bar` becomes `--foo-bar`, `--no-foo` becomes `--foo=false`, `-tp 8` becomes
//! `--tensor-parallel-size 8`, and `--x.key value` is gathered into the JSON object of `--x`. Options that
//! only vLLM has are answered here, and unknown ones refused with a suggestion.

use std::collections::BTreeMap;
use std::iter::Peekable;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::foreign::{self, Foreign, Takes};
use super::notices::Notice;
use super::options::{Options, Shape, dashed};

/// Short spellings that vLLM has, with what they stand for.
const SHORT: [(&str, &str); 16] = [
    ("-tp", "tensor-parallel-size"),
    ("-pp", "pipeline-parallel-size"),
    ("-dp", "data-parallel-size"),
    ("-cc", "compilation-config"),
    ("-ac", "additional-config"),
    ("-ep", "enable-expert-parallel"),
    ("-sc", "speculative-config"),
    ("-dcp", "decode-context-parallel-size"),
    ("-pcp", "prefill-context-parallel-size"),
    ("-dpn", "data-parallel-rank"),
    ("-dpr", "data-parallel-start-rank"),
    ("-dpl", "data-parallel-size-local"),
    ("-dpa", "data-parallel-address"),
    ("-dpp", "data-parallel-rpc-port"),
    ("-dpb", "data-parallel-backend"),
    ("-asc", "api-server-count"),
];

/// Arguments for clap, and what else was found.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    /// What clap shall read.
    pub arguments: Vec<String>,
    /// The value of `--config`.
    pub config: Option<String>,
    /// Answers to options that change nothing here.
    pub notices: Vec<Notice>,
}

/// Brings arguments into the form that clap reads.
pub fn rewrite(arguments: &[String], options: &Options) -> Result<Rewritten, ConfigError> {
    let mut rewriter = Rewriter {
        options,
        rest: arguments.iter().map(String::as_str).peekable(),
        out: Rewritten::default(),
        objects: BTreeMap::new(),
    };
    rewriter.run()?;
    Ok(rewriter.out)
}

struct Rewriter<'a, I: Iterator<Item = &'a str>> {
    options: &'a Options,
    rest: Peekable<I>,
    out: Rewritten,
    /// Keys given as `--x.key`, by option.
    objects: BTreeMap<String, Map<String, Value>>,
}

impl<'a, I: Iterator<Item = &'a str>> Rewriter<'a, I> {
    fn run(&mut self) -> Result<(), ConfigError> {
        while let Some(argument) = self.rest.next() {
            if argument == "--" {
                self.out.arguments.push(argument.to_owned());
                self.out.arguments.extend(self.rest.by_ref().map(str::to_owned));
            } else if let Some(option) = argument.strip_prefix("--") {
                let (name, value) = split(option);
                self.option(name, value)?;
            } else if let Some((long, value)) = long_form(argument) {
                self.option(long, value)?;
            } else if argument.starts_with("-O") {
                let place = argument.to_owned();
                if argument == "-O" {
                    self.rest.next();
                }
                self.answer(&foreign::OPTIMIZATION_LEVEL, &place)?;
            } else {
                self.out.arguments.push(argument.to_owned());
            }
        }
        for (option, object) in std::mem::take(&mut self.objects) {
            self.out.arguments.push(format!("--{option}={}", Value::Object(object)));
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), ConfigError> {
        if name == "help" || name == "version" {
            self.out.arguments.push(format!("--{name}"));
            return Ok(());
        }
        if let Some(facts) = self.options.get(name) {
            let (id, long, shape) = (facts.id.as_str(), facts.name.clone(), facts.shape);
            let value = match (value, shape) {
                (None, Shape::Switch) => None,
                // The value is taken along unseen, so that nothing in it is mistaken for an option.
                (None, _) => self.rest.next_if(|next| !next.starts_with("--")),
                (value, _) => value,
            };
            if id == "config" {
                self.out.config = value.map(str::to_owned);
            }
            match (value, shape) {
                // Further values may follow, which `=` would rule out.
                (Some(value), Shape::Many) if !value.starts_with('-') => {
                    self.out.arguments.extend([format!("--{long}"), value.to_owned()]);
                }
                (Some(value), _) => self.out.arguments.push(format!("--{long}={value}")),
                (None, _) => self.out.arguments.push(format!("--{long}")),
            }
            return Ok(());
        }
        if let Some((base, key)) = name.split_once('.') {
            if self.options.get(base).is_some_and(|facts| facts.shape == Shape::Json) {
                return self.dotted(&dashed(base), key, value);
            }
            if let Some(known) = foreign::find(base) {
                self.skip_value(value.is_some(), known.takes);
                return self.answer(known, &format!("--{name}"));
            }
        }
        self.negated_or_foreign(name, value)
    }

    fn negated_or_foreign(&mut self, name: &str, value: Option<&str>) -> Result<(), ConfigError> {
        let dashed = dashed(name);
        if let Some(facts) = dashed.strip_prefix("no-").and_then(|positive| self.options.get(positive)) {
            let place = format!("--{dashed}");
            if facts.shape != Shape::Switch {
                let problem = format!("only switches can be negated, and --{} takes a value", facts.name);
                return Err(ConfigError::Value { place, problem });
            }
            if value.is_some() {
                let problem = format!("it takes no value; say --{0} or --no-{0}", facts.name);
                return Err(ConfigError::Value { place, problem });
            }
            self.out.arguments.push(format!("--{}=false", facts.name));
            return Ok(());
        }
        if let Some(known) = foreign::find(&dashed) {
            self.skip_value(value.is_some(), known.takes);
            return self.answer(known, &format!("--{dashed}"));
        }
        if let Some(known) = dashed.strip_prefix("no-").and_then(foreign::find) {
            // Switched off: only the notes that say "always on" are still of interest.
            return if known.is_refused() { Ok(()) } else { self.answer(known, &format!("--{dashed}")) };
        }
        let nearest = self.options.nearest(name).map(|nearest| format!("--{nearest}"));
        Err(ConfigError::Unknown { place: format!("--{name}"), nearest })
    }

    /// Puts `--base.key value` into the object of `--base`.
    fn dotted(&mut self, base: &str, key: &str, value: Option<&str>) -> Result<(), ConfigError> {
        let place = format!("--{base}.{key}");
        let Some(text) = value.or_else(|| self.rest.next_if(|next| !next.starts_with("--"))) else {
            return Err(ConfigError::Value { place, problem: "a value is missing".to_owned() });
        };
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let mut object = self.objects.entry(base.to_owned()).or_default();
        let mut keys = key.split('.').peekable();
        while let Some(part) = keys.next() {
            if keys.peek().is_none() {
                object.insert(part.to_owned(), value);
                break;
            }
            let inner = object.entry(part).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = inner else {
                let problem = format!("{part:?} was already given a plain value");
                return Err(ConfigError::Value { place, problem });
            };
            object = inner;
        }
        Ok(())
    }

    fn skip_value(&mut self, inline: bool, takes: Takes) {
        if inline || takes == Takes::Nothing {
            return;
        }
        let plain = |next: &&str| !next.starts_with('-') || next.parse::<f64>().is_ok();
        let mut taken = self.rest.next_if(plain);
        while takes == Takes::Many && taken.is_some() {
            taken = self.rest.next_if(plain);
        }
    }

    fn answer(&mut self, known: &Foreign, place: &str) -> Result<(), ConfigError> {
        self.out.notices.extend(known.answer(place)?);
        Ok(())
    }
}

fn split(option: &str) -> (&str, Option<&str>) {
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    }
}

fn long_form(argument: &str) -> Option<(&'static str, Option<&str>)> {
    let (short, value) = split(argument);
    SHORT.iter().find(|(known, _)| *known == short).map(|(_, long)| (*long, value))
}
