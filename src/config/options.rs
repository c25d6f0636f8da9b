//! What is known about the options, read off the clap definition.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, Command};

use super::foreign;

/// Names closer than this (Jaro-Winkler, 0 to 1) are worth suggesting.
const SIMILAR_MIN: f64 = 0.8;

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionFacts {
    /// Name of its field.
    pub id: String,
    /// Long name, with dashes.
    pub name: String,
    /// How its values are written.
    pub shape: Shape,
}

/// How the values of an option are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `--x`, `--no-x` or `--x=true`.
    Switch,
    /// One value.
    One,
    /// Any number of values.
    Many,
    /// A JSON object, or single keys of it as `--x.key value`.
    Json,
}

/// All options by long name and alias.
#[derive(Clone, Debug)]
pub struct Options(BTreeMap<String, OptionFacts>);

impl Options {
    /// Reads them off a command.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        command.build();
        let mut options = BTreeMap::new();
        for arg in command.get_arguments() {
            let Some(name) = arg.get_long().filter(|&name| name != "help") else {
                continue;
            };
            let facts =
                OptionFacts { id: arg.get_id().to_string(), name: name.to_owned(), shape: shape_of(arg) };
            for alias in arg.get_all_aliases().unwrap_or_default() {
                options.insert(alias.to_owned(), facts.clone());
            }
            options.insert(name.to_owned(), facts);
        }
        Self(options)
    }

    /// The option of this name (dashes or underscores).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OptionFacts> {
        self.0.get(&dashed(name))
    }

    /// All options, once each.
    pub fn iter(&self) -> impl Iterator<Item = &OptionFacts> {
        self.0.iter().filter(|(name, facts)| **name == facts.name).map(|(_, facts)| facts)
    }

    /// The known name (ours, or one of vLLM that is answered) most like this one.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Option<String> {
        let name = dashed(name);
        let ours = self.0.keys().map(String::as_str);
        let theirs = foreign::names().map(|known| -> &str { known });
        ours.chain(theirs)
            .map(|known| (strsim::jaro_winkler(&name, known), known))
            .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, known)| known.to_owned())
    }
}

/// A name with dashes in place of underscores.
#[must_use]
pub fn dashed(name: &str) -> String {
    name.replace('_', "-")
}

fn shape_of(arg: &Arg) -> Shape {
    let names = arg.get_value_names().unwrap_or_default();
    if arg.is_require_equals_set() {
        Shape::Switch
    } else if names.first().is_some_and(|name| name == "JSON") {
        Shape::Json
    } else if matches!(arg.get_action(), ArgAction::Append) {
        Shape::Many
    } else {
        Shape::One
    }
}
