//! What all options about graphs and platforms come to together.
//!
//! Always holds: an option given by itself wins over a key of `--compilation-config`, that over one of
//! `--additional-config`, and that over one of an Ascend table in the configuration file. Refuses to know:
//! devices and models; what depends on them is left as a line to be said later.

use std::collections::BTreeSet;

use updraft_core::graphs::{GraphKind, GraphMode};

use super::Config;
use super::ascend;
use super::compilation;
use super::device::Target;
use super::error::ConfigError;
use super::keys::{LEVEL_MAX, Place, Reading, Unanswered};
use super::notices::Notice;
use super::settings::Settings;
use super::values::ContextLength;
use super::wishes::{Wish, Wishes, first, gives_way};

/// Graphs and optimiser, settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Which steps are replayed, when that was asked for.
    pub mode: Option<GraphMode>,
    /// Buckets asked for, in ascending order; the device's budget decides when absent.
    pub sizes: Option<Vec<u32>>,
    /// The largest bucket asked for.
    pub max_size: Option<u32>,
    /// How strongly the program is optimised: 0, 1 or 2.
    pub optimiser_level: u8,
    /// Keys whose answer depends on the model.
    pub unanswered: Vec<Unanswered>,
}

impl Default for Platform {
    fn default() -> Self {
        Self { mode: None, sizes: None, max_size: None, optimiser_level: LEVEL_MAX, unanswered: Vec::new() }
    }
}

impl Platform {
    /// Which steps are replayed on such a device.
    #[must_use]
    pub fn mode_on(&self, target: Target) -> GraphMode {
        self.mode.unwrap_or(match target {
            Target::Cpu => GraphMode::FullDecodeOnly,
            Target::Ascend => GraphMode::FullAndPiecewise,
        })
    }
}

/// Reads all tables, lets the options in `given` (field names) win, and puts what is left in force: into the
/// options that mean the same, and into [`Config::platform`].
pub(super) fn settle(
    config: &mut Config,
    given: &mut BTreeSet<String>,
    settings: &Settings,
) -> Result<Vec<Notice>, ConfigError> {
    let options = options(config, given, settings);
    let compilation = read_compilation(config, settings)?;
    let additional = match &config.device.additional_config {
        Some(object) => ascend::read_additional(object, &behind("--additional-config", settings))?,
        None => Reading::default(),
    };
    let tables = ascend::read_tables(&settings.tables, &settings.file)?;

    let mut notices = Vec::new();
    let mut unanswered = Vec::new();
    let mut sources = vec![options];
    for reading in [compilation, additional, tables] {
        notices.extend(reading.notices);
        unanswered.extend(reading.unanswered);
        sources.push(reading.wishes);
    }
    let sources: Vec<&Wishes> = sources.iter().collect();

    same_largest(&sources)?;
    let mode = first(&sources, |wishes| &wishes.mode, &mut notices);
    notices.extend(mode.as_ref().and_then(pieces_on_the_cpu));
    let sizes = first(&sources, |wishes| &wishes.sizes, &mut notices);
    let max_size = first(&sources, |wishes| &wishes.max_size, &mut notices);
    config.platform = Platform {
        mode: mode.map(|wish| wish.value),
        sizes: sizes.map(|wish| wish.value),
        max_size: max_size.map(|wish| wish.value),
        optimiser_level: level(&sources, &mut notices),
        unanswered,
    };
    plain_options(config, given, &sources, &mut notices);
    Ok(notices)
}

/// The wishes of options that were given by themselves.
fn options(config: &Config, given: &BTreeSet<String>, settings: &Settings) -> Wishes {
    let device = &config.device;
    let place = |field: &str| settings.place_of(&format!("--{}", field.replace('_', "-")));
    Wishes {
        mode: device.enforce_eager.then(|| Wish { value: GraphMode::None, place: place("enforce_eager") }),
        sizes: (!device.cudagraph_capture_sizes.is_empty()).then(|| {
            let mut sizes = device.cudagraph_capture_sizes.clone();
            sizes.sort_unstable();
            sizes.dedup();
            Wish { value: sizes, place: place("cudagraph_capture_sizes") }
        }),
        max_size: device
            .max_cudagraph_capture_size
            .map(|value| Wish { value, place: place("max_cudagraph_capture_size") }),
        max_model_len: config.model.max_model_len.map(|value| Wish { value, place: place("max_model_len") }),
        block_size: config.memory.block_size.map(|value| Wish { value, place: place("block_size") }),
        kv_cache_dtype: given
            .contains("kv_cache_dtype")
            .then(|| Wish { value: config.memory.kv_cache_dtype, place: place("kv_cache_dtype") }),
        quantization: config
            .model
            .quantization
            .clone()
            .map(|value| Wish { value, place: place("quantization") }),
        chunk_limit: given.contains("long_prefill_token_threshold").then(|| Wish {
            value: config.scheduling.long_prefill_token_threshold,
            place: place("long_prefill_token_threshold"),
        }),
        ..Wishes::default()
    }
}

fn read_compilation(config: &Config, settings: &Settings) -> Result<Reading, ConfigError> {
    let mut reading = Reading::default();
    if let Some(object) = &config.device.compilation_config {
        let place = Place { before: String::new(), behind: behind("--compilation-config", settings) };
        reading.read(compilation::KEYS, object, &place)?;
    }
    Ok(reading)
}

/// What stands behind a key of this option in messages.
fn behind(option: &str, settings: &Settings) -> String {
    format!(" of {}", settings.place_of(option))
}

/// Options that a table can stand in for.
fn plain_options(
    config: &mut Config,
    given: &mut BTreeSet<String>,
    sources: &[&Wishes],
    notices: &mut Vec<Notice>,
) {
    if let Some(wish) = first(sources, |wishes| &wishes.max_model_len, notices) {
        let by_a_table = sources.first().is_none_or(|options| options.max_model_len.is_none());
        if let (true, ContextLength::Tokens(tokens)) = (by_a_table, wish.value) {
            notices.push(Notice::note(format!(
                "{} is read as --max-model-len {tokens}: captured graphs do not depend on a length",
                wish.place
            )));
        }
        config.model.max_model_len = Some(wish.value);
        given.insert("max_model_len".to_owned());
    }
    if let Some(wish) = first(sources, |wishes| &wishes.block_size, notices) {
        config.memory.block_size = Some(wish.value);
        given.insert("block_size".to_owned());
    }
    if let Some(wish) = first(sources, |wishes| &wishes.kv_cache_dtype, notices) {
        config.memory.kv_cache_dtype = wish.value;
        given.insert("kv_cache_dtype".to_owned());
    }
    if let Some(wish) = first(sources, |wishes| &wishes.quantization, notices) {
        config.model.quantization = Some(wish.value);
        given.insert("quantization".to_owned());
    }
    if let Some(wish) = first(sources, |wishes| &wishes.chunk_limit, notices) {
        config.scheduling.long_prefill_token_threshold = wish.value;
        given.insert("long_prefill_token_threshold".to_owned());
    }
}

/// The level that switch, level and its bound come to.
fn level(sources: &[&Wishes], notices: &mut Vec<Notice>) -> u8 {
    let switch = first(sources, |wishes| &wishes.optimiser, notices);
    let wanted = first(sources, |wishes| &wishes.level, notices);
    let bound = first(sources, |wishes| &wishes.level_max, notices);
    match (switch, wanted) {
        (Some(switch), wanted) if !switch.value => {
            let lost = wanted.filter(|wish| wish.value > 0);
            notices.extend(lost.map(|wish| gives_way(&wish.place, &switch.place)));
            0
        }
        (switch, Some(wanted)) => {
            let lost = switch.filter(|_| wanted.value == 0);
            notices.extend(lost.map(|switch| gives_way(&switch.place, &wanted.place)));
            wanted.value.min(value_or(bound, LEVEL_MAX))
        }
        (_, None) => value_or(bound, LEVEL_MAX),
    }
}

/// The line about pieces of a step, which the CPU does not capture.
fn pieces_on_the_cpu(mode: &Wish<GraphMode>) -> Option<Notice> {
    let pieces = mode.value.kind_for(false) == Some(GraphKind::Piecewise);
    let text = || {
        format!(
            "{} {} has no effect on the CPU for steps with prompts: it captures whole steps only",
            mode.place,
            mode.value.as_str()
        )
    };
    pieces.then(|| Notice::warning(text()).on(Target::Cpu))
}

/// A list of sizes and a largest size that an operator wrote down by hand have to agree.
fn same_largest(sources: &[&Wishes]) -> Result<(), ConfigError> {
    let by_hand = sources.iter().take(2);
    let sizes = by_hand.clone().find_map(|wishes| wishes.sizes.as_ref());
    let largest = by_hand.clone().find_map(|wishes| wishes.max_size.as_ref());
    match (sizes, largest) {
        (Some(sizes), Some(largest)) if sizes.value.last() != Some(&largest.value) => {
            Err(ConfigError::Conflict(format!(
                "{} {} is not the largest of {}; leave one out",
                largest.place, largest.value, sizes.place
            )))
        }
        _ => Ok(()),
    }
}

fn value_or<T>(wish: Option<Wish<T>>, default: T) -> T {
    wish.map_or(default, |wish| wish.value)
}
