//! Values from a file and from the environment, which take the place of built-in defaults.
//!
//! That order (built-in, file, environment) is the order of the calls; flags win because clap prefers them
//! to any default.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Command;
use serde_json::Value;

use super::environment::{self, Environment};
use super::error::ConfigError;
use super::notices::Notice;
use super::options::{OptionFacts, Options, Shape};
use super::{ascend, file, foreign, values};

/// Values by option, with the place each came from.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: BTreeMap<String, Setting>,
    /// Tables of a platform that stand at the top of the file, with their names.
    pub tables: Vec<(String, Value)>,
    /// ` in FILE`, when a file was read.
    pub file: String,
}

#[derive(Clone, Debug)]
struct Setting {
    values: Vec<String>,
    place: String,
}

impl Settings {
    /// Takes in a file.
    pub fn add_file(&mut self, path: &Path, options: &Options) -> Result<Vec<Notice>, ConfigError> {
        let mut notices = Vec::new();
        let mut seen = BTreeMap::new();
        self.file = format!(" in {}", path.display());
        for (key, value) in file::read(path)? {
            if ascend::is_table(&key) {
                self.tables.push((key, value));
                continue;
            }
            let place = format!("{key}{}", self.file);
            let Some(facts) = options.get(&key).filter(|facts| facts.id != "config") else {
                notices.extend(answer_foreign(&key, &value, place, options)?);
                continue;
            };
            if let Some(other) = seen.insert(facts.id.clone(), key.clone()) {
                let problem = format!("it means the same as {other}; leave one out");
                return Err(ConfigError::Value { place, problem });
            }
            match written(&value, facts) {
                Ok(None) => {}
                Ok(Some(values)) => {
                    self.values.insert(facts.id.clone(), Setting { values, place });
                }
                Err(problem) => return Err(ConfigError::Value { place, problem }),
            }
        }
        Ok(notices)
    }

    /// Takes in the environment; variables with our prefix that mean nothing get a warning.
    pub fn add_environment(&mut self, environment: &Environment, options: &Options) -> Vec<Notice> {
        if let Some(key) = environment.get(environment::VLLM_API_KEY) {
            let place = environment::VLLM_API_KEY.to_owned();
            self.values.insert("api_key".to_owned(), Setting { values: vec![key.to_owned()], place });
        }
        let mut known: Vec<String> = environment::OTHERS.map(str::to_owned).to_vec();
        for facts in options.iter() {
            let place = environment::variable(&facts.name);
            if let Some(text) = environment.get(&place).filter(|_| facts.id != "config") {
                let values = match facts.shape {
                    // A list that cannot be read is kept whole, for the option's own reader to refuse.
                    Shape::Many => values::list_items(text).unwrap_or_else(|_| vec![text.to_owned()]),
                    _ => vec![text.to_owned()],
                };
                self.values.insert(facts.id.clone(), Setting { values, place: place.clone() });
            }
            known.push(place);
        }
        environment
            .own_names()
            .filter(|name| !known.iter().any(|known| known == name))
            .map(|name| {
                let option = name.trim_start_matches(environment::PREFIX).to_ascii_lowercase();
                let nearest = options.nearest(&option).filter(|nearest| options.get(nearest).is_some());
                let hint = nearest.map_or_else(String::new, |nearest| {
                    format!("; did you mean {}?", environment::variable(&nearest))
                });
                Notice::warning(format!("the environment variable {name} means nothing here{hint}"))
            })
            .collect()
    }

    /// Makes the values the defaults of a command.
    #[must_use]
    pub fn apply(&self, mut command: Command) -> Command {
        for (id, setting) in &self.values {
            command = command.mut_arg(id, |arg| arg.default_values(setting.values.clone()));
        }
        command
    }

    /// Fields that have a value here.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Drops the values of options that the command line gives, so that what is left is in force.
    pub fn yield_to(&mut self, arguments: &[String]) {
        for option in arguments.iter().filter_map(|argument| argument.strip_prefix("--")) {
            let name = option.split_once('=').map_or(option, |(name, _)| name);
            self.values.remove(&name.replace('-', "_"));
        }
    }

    /// Where the value of an option (`--name`) came from, for messages.
    #[must_use]
    pub fn place_of(&self, option: &str) -> String {
        let id = option.trim_start_matches('-').replace('-', "_");
        self.values.get(&id).map_or_else(|| option.to_owned(), |setting| setting.place.clone())
    }
}

/// A value of a file as the command line would have it; `None` for an explicit nothing.
fn written(value: &Value, facts: &OptionFacts) -> Result<Option<Vec<String>>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        _ => Err("expected a plain value".to_owned()),
    };
    match value {
        Value::Null => Ok(None),
        Value::Object(_) if facts.shape == Shape::Json => Ok(Some(vec![value.to_string()])),
        Value::Object(_) => Err("expected a plain value, found a table; keys are not grouped".to_owned()),
        Value::Array(items) if facts.shape == Shape::Many => items
            .iter()
            .map(one)
            .collect::<Result<Vec<_>, _>>()
            .map(|items| Some(items).filter(|items| !items.is_empty())),
        // An option that reads lists itself, such as allowed_origins.
        Value::Array(_) if facts.shape == Shape::One => Ok(Some(vec![value.to_string()])),
        other => one(other).map(|text| Some(vec![text])),
    }
}

fn answer_foreign(
    key: &str,
    value: &Value,
    place: String,
    options: &Options,
) -> Result<Option<Notice>, ConfigError> {
    let Some(known) = foreign::find(key) else {
        return Err(ConfigError::Unknown { place, nearest: options.nearest(key) });
    };
    // What is switched off need not be answered.
    if matches!(value, Value::Null | Value::Bool(false)) {
        return Ok(None);
    }
    known.answer(&place)
}
