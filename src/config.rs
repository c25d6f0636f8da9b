//! What `updraft serve` can be told, and where it is told from.
//!
//! Owns the one [`Config`] struct. Flags, environment variables, the keys of a configuration file and the
//! reference page are all read off its clap definition, so an option is added by adding one field. A value
//! from a flag wins over one from the environment, which wins over one from the file.
//!
//! Always holds: after [`load`] every value is in range and no key, variable or flag was silently ignored.
//! Refuses to know: models, memory sizes of this machine, sockets.

pub mod arguments;
pub mod ascend;
pub mod compilation;
pub mod device;
pub mod environment;
pub mod error;
pub mod file;
pub mod foreign;
pub mod generation;
pub mod keys;
pub mod logging;
pub mod memory;
pub mod model;
pub mod notices;
pub mod options;
pub mod platform;
pub mod reference;
pub mod scheduling;
pub mod server;
pub mod settings;
pub mod speculation;
pub mod values;
pub mod wishes;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches};

pub use environment::Environment;
pub use error::ConfigError;
pub use notices::{Level, Notice};

/// All options of `updraft serve`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "General")]
pub struct Config {
    /// File with options: TOML, YAML or JSON, told by its ending.
    ///
    /// Keys are the option names, with dashes or underscores, without the leading dashes. Environment
    /// variables and flags win over the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The model and how to read it.
    #[command(flatten)]
    pub model: model::ModelOptions,
    /// The HTTP side.
    #[command(flatten)]
    pub server: server::ServerOptions,
    /// The KV cache and other memory.
    #[command(flatten)]
    pub memory: memory::MemoryOptions,
    /// Which sequences run when.
    #[command(flatten)]
    pub scheduling: scheduling::SchedulingOptions,
    /// Where the model runs.
    #[command(flatten)]
    pub device: device::DeviceOptions,
    /// What requests get that do not say.
    #[command(flatten)]
    pub generation: generation::GenerationOptions,
    /// What is logged.
    #[command(flatten)]
    pub logging: logging::LoggingOptions,

    /// What all options about graphs and platforms come to together.
    #[arg(skip)]
    pub platform: platform::Platform,
}

/// A configuration and what should be said about it before serving.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The options in force.
    pub config: Config,
    /// One line each; none of them stops the server. Some are only said on one kind of device.
    pub notices: Vec<Notice>,
    /// The arguments as they were given.
    pub arguments: Vec<String>,
}

impl Loaded {
    /// The lines to say when serving on such a device.
    pub fn notices_on(&self, target: device::Target) -> impl Iterator<Item = &Notice> {
        self.notices.iter().filter(move |notice| notice.concerns(target))
    }
}

/// Puts flags, environment and file together.
///
/// `arguments` are those after `updraft serve`. Help is reported as [`ConfigError::Help`].
pub fn load(arguments: &[String], environment: &Environment) -> Result<Loaded, ConfigError> {
    let options = options::Options::of(&mut command());
    let rewritten = arguments::rewrite(arguments, &options)?;
    let mut notices = rewritten.notices;

    let mut settings = settings::Settings::default();
    let path = rewritten.config.or_else(|| environment.get(environment::CONFIG).map(str::to_owned));
    if let Some(path) = path {
        notices.extend(settings.add_file(&PathBuf::from(path), &options)?);
    }
    notices.extend(settings.add_environment(environment, &options));
    settings.yield_to(&rewritten.arguments);

    let command = settings.apply(command());
    let line = std::iter::once("updraft serve".to_owned()).chain(rewritten.arguments);
    let matches =
        command.try_get_matches_from(line).map_err(|error| ConfigError::from_clap(error, &settings))?;
    let mut config =
        Config::from_arg_matches(&matches).map_err(|error| ConfigError::from_clap(error, &settings))?;
    if config.model.model_tag.is_some() && settings.keys().any(|key| key == "model") {
        config.model.model = None;
    }

    let mut given: BTreeSet<String> = matches
        .ids()
        .map(clap::Id::as_str)
        .filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine))
        .map(str::to_owned)
        .chain(settings.keys().map(str::to_owned))
        .collect();
    notices.extend(platform::settle(&mut config, &mut given, &settings)?);
    config.check()?;
    notices.extend(notices::by_device(&config, &given));
    Ok(Loaded { config, notices, arguments: arguments.to_vec() })
}

/// The clap command of `updraft serve`, with built-in defaults only.
#[must_use]
pub fn command() -> Command {
    Config::augment_args(Command::new("updraft serve").bin_name("updraft serve"))
        .about("Serve a model over the OpenAI API")
        .after_help(EXAMPLES)
        .args_override_self(true)
        .max_term_width(100)
}

/// Shown below the options.
pub const EXAMPLES: &str = "\
Every option can also be set as an environment variable (--max-model-len: UPDRAFT_MAX_MODEL_LEN) or in a
file given by --config. Flags win over the environment, the environment over the file. Underscores in
place of dashes, --option=value and --no-option for switches are understood.

Examples:
  updraft serve ~/models/Qwen3-0.6B                      a folder in Hugging Face layout
  updraft serve SmolLM2-135M-Instruct.Q4_1.gguf          a GGUF file
  updraft serve Qwen/Qwen3-0.6B --revision main          a model of the hub, fetched once
  updraft serve MODEL --port 8080 --api-key \"$KEY\"       another port, requests need the key
  updraft serve MODEL --max-model-len 8k --max-num-seqs 32
  updraft serve MODEL --device ascend --config config/ascend.toml
  updraft serve --config config/updraft.toml";

impl Config {
    /// The model as given: folder, file or hub id.
    #[must_use]
    pub fn model_name(&self) -> &str {
        self.model.model_tag.as_deref().or(self.model.model.as_deref()).unwrap_or_default()
    }

    /// Names under which the model is served; the first one stands in replies. Never empty.
    #[must_use]
    pub fn served_names(&self) -> Vec<String> {
        if self.model.served_model_name.is_empty() {
            vec![self.model_name().to_owned()]
        } else {
            self.model.served_model_name.clone()
        }
    }

    /// Checks that span several options.
    fn check(&self) -> Result<(), ConfigError> {
        match (&self.model.model_tag, &self.model.model) {
            (None, None) => return Err(ConfigError::NoModel),
            (Some(tag), Some(model)) if tag != model => {
                return Err(ConfigError::TwoModels { first: tag.clone(), second: model.clone() });
            }
            _ => {}
        }
        self.scheduling.check()
    }
}
