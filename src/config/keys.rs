//! Keys of nested tables (`--compilation-config`, `--additional-config`, the Ascend tables of a file): what
//! each may hold, and what becomes of it.
//!
//! Always holds: a key that is given takes effect as a wish, or is answered by one line; a key that no table
//! knows is refused with the nearest name. Refuses to know: which wish wins, and which device is used.

mod parse;

use serde_json::Value;
use updraft_core::graphs::GraphMode;

use super::device::Target;
use super::error::ConfigError;
use super::memory::KvCacheType;
use super::notices::Notice;
use super::values::{self, ContextLength, JsonObject};
use super::wishes::{Wishes, set};

use parse::{compilation_mode, count, graph_mode, is_off, level, plain, sizes};

/// Names closer than this (Jaro-Winkler, 0 to 1) are worth suggesting.
const SIMILAR_MIN: f64 = 0.8;
/// The strongest optimiser level.
pub const LEVEL_MAX: u8 = 2;
/// The level without the fusion of rotation and cache write.
const LEVEL_WITHOUT_ROPE: u8 = 1;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Where it stands, with dots: `eplb_config.dynamic_eplb`.
    pub path: &'static str,
    /// What its value may be.
    pub takes: Takes,
    /// What becomes of it.
    pub effect: Effect,
    /// Its meaning, or why it has none.
    pub text: &'static str,
}

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// true or false.
    Switch,
    /// A whole number of 1 or more.
    Count,
    /// A whole number of 0 or more.
    CountOrZero,
    /// Any number.
    Number,
    /// Text.
    Text,
    /// A list of whole numbers of 1 or more.
    Sizes,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Anything: it is not looked at.
    Anything,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Chooses which steps are replayed from graphs.
    GraphMode,
    /// A switch: false is graph mode NONE.
    GraphsOn,
    /// A switch: true is graph mode FULL.
    GraphsFull,
    /// The buckets of rows that graphs are captured for.
    Buckets,
    /// The largest of them.
    LargestBucket,
    /// A switch of the program's optimiser.
    Optimiser,
    /// The same, under the name of a compiler that is gone.
    Torchair,
    /// The optimiser's level.
    OptimiserLevel,
    /// How vLLM compiles: not at all is optimiser level 0.
    CompilationMode,
    /// A switch of the optimiser's fusion of rotation and cache write.
    RopeFusion,
    /// The longest prompt plus answer.
    ContextLength,
    /// Tokens in a block of the KV cache.
    BlockSize,
    /// Type of the KV cache.
    KvCacheType,
    /// Quantisation scheme.
    Quantization,
    /// Longest chunk of one prompt.
    ChunkLimit,
    /// It is the case, whatever is asked for.
    Always,
    /// It is not done, whatever is asked for.
    Never,
    /// It is about something that the served model may not have.
    Part(ModelPart),
}

/// Something that a model may have, and no family served so far has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPart {
    /// A mixture of experts.
    Experts,
    /// Multi-head latent attention.
    LatentAttention,
    /// Sparse attention.
    SparseAttention,
}

/// A key that waits for the model to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The key and where it stands.
    pub place: String,
    /// What it is about.
    pub part: ModelPart,
}

/// What was read out of one table.
#[derive(Debug, Default)]
pub struct Reading {
    /// What takes effect.
    pub wishes: Wishes,
    /// Lines about the rest.
    pub notices: Vec<Notice>,
    /// Keys about parts of a model.
    pub unanswered: Vec<Unanswered>,
}

/// Where a table stands: what is written before and behind its keys in messages.
#[derive(Clone, Debug)]
pub struct Place {
    /// `ascend_config.`, or nothing.
    pub before: String,
    /// ` in graphs.json`.
    pub behind: String,
}

impl Place {
    fn of(&self, path: &str) -> String {
        format!("{}{path}{}", self.before, self.behind)
    }
}

impl ModelPart {
    fn as_str(self) -> &'static str {
        match self {
            Self::Experts => "no experts",
            Self::LatentAttention => "no latent attention (MLA)",
            Self::SparseAttention => "no sparse attention",
        }
    }
}

impl Unanswered {
    /// The line about it, now that the model's architecture is known. No family that can be opened has the
    /// part.
    #[must_use]
    pub fn answer(&self, architecture: &str) -> Notice {
        Notice::warning(format!("{} has no effect: {architecture} has {}", self.place, self.part.as_str()))
    }
}

impl Reading {
    /// Reads all keys of a table.
    pub fn read(&mut self, keys: &[Key], object: &JsonObject, place: &Place) -> Result<(), ConfigError> {
        self.read_below("", keys, object, place)
    }

    fn read_below(
        &mut self,
        above: &str,
        keys: &[Key],
        object: &JsonObject,
        place: &Place,
    ) -> Result<(), ConfigError> {
        for (name, value) in object {
            let path = format!("{above}{}", name.replace('-', "_"));
            let below = format!("{path}.");
            if value.is_null() {
                continue;
            }
            if let Some(key) = keys.iter().find(|key| key.path == path) {
                self.take(key, value, &place.of(&path))?;
            } else if !keys.iter().any(|key| key.path.starts_with(&below)) {
                let nearest = nearest(keys, &path).map(|nearest| format!("{}{nearest}", place.before));
                return Err(ConfigError::Unknown { place: place.of(&path), nearest });
            } else if let Value::Object(inner) = value {
                self.read_below(&below, keys, inner, place)?;
            } else {
                let problem = "expected a table of keys".to_owned();
                return Err(ConfigError::Value { place: place.of(&path), problem });
            }
        }
        Ok(())
    }

    fn take(&mut self, key: &Key, value: &Value, place: &str) -> Result<(), ConfigError> {
        let wrong = |problem: String| ConfigError::Value { place: place.to_owned(), problem };
        key.takes.check(value).map_err(wrong)?;
        let off = is_off(value);
        let wishes = &mut self.wishes;
        match key.effect {
            Effect::GraphMode => {
                set(&mut wishes.mode, graph_mode(value).map_err(wrong)?, place)?;
            }
            Effect::GraphsOn if off => set(&mut wishes.mode, GraphMode::None, place)?,
            Effect::GraphsFull if !off => set(&mut wishes.mode, GraphMode::Full, place)?,
            Effect::Buckets => {
                let sizes = sizes(value).map_err(wrong)?;
                if sizes.is_empty() {
                    self.notices
                        .push(Notice::note(format!("{place} is empty: sizes are chosen at the start")));
                    return Ok(());
                }
                set(&mut wishes.sizes, sizes, place)?;
            }
            Effect::LargestBucket => {
                set(&mut wishes.max_size, count(value).map_err(wrong)?, place)?;
            }
            Effect::Optimiser => set(&mut wishes.optimiser, !off, place)?,
            Effect::Torchair if !off => {
                set(&mut wishes.optimiser, true, place)?;
                let text = format!("{place} switches on the program's own optimiser: torchair is gone");
                self.notices.push(Notice::note(text).on(Target::Ascend));
            }
            Effect::OptimiserLevel => {
                set(&mut wishes.level, level(value).map_err(wrong)?, place)?;
            }
            Effect::CompilationMode if compilation_mode(value).map_err(wrong)? == 0 => {
                set(&mut wishes.level, 0, place)?;
            }
            Effect::CompilationMode => {
                let text = format!("{place} is not needed: the program's optimiser is on anyway");
                self.notices.push(Notice::note(text).on(Target::Ascend));
            }
            Effect::RopeFusion if off => set(&mut wishes.level_max, LEVEL_WITHOUT_ROPE, place)?,
            Effect::ContextLength => {
                let tokens = count(value).map_err(wrong)?;
                set(&mut wishes.max_model_len, ContextLength::Tokens(tokens), place)?;
            }
            Effect::BlockSize => {
                let size = values::block_size(&plain(value)).map_err(wrong)?;
                set(&mut wishes.block_size, size, place)?;
            }
            Effect::KvCacheType => {
                let kind = KvCacheType::parse(&plain(value)).map_err(wrong)?;
                set(&mut wishes.kv_cache_dtype, kind, place)?;
            }
            Effect::Quantization => set(&mut wishes.quantization, plain(value), place)?,
            Effect::ChunkLimit => {
                let tokens = values::count_or_zero(&plain(value)).map_err(wrong)?;
                set(&mut wishes.chunk_limit, tokens, place)?;
            }
            // The value asks for what is the case anyway.
            Effect::GraphsOn | Effect::GraphsFull | Effect::Torchair | Effect::RopeFusion => {
                self.notices.push(Notice::note(format!("{place} is not needed: that is the case anyway")));
                return Ok(());
            }
            Effect::Always if off => {
                self.notices.push(Notice::warning(format!("{place} is ignored: {}", key.text)));
            }
            Effect::Always => {
                self.notices.push(Notice::note(format!("{place} is not needed: {}", key.text)));
            }
            Effect::Never | Effect::Part(_) if off => {
                self.notices.push(Notice::note(format!("{place} is not needed: it is off anyway")));
            }
            Effect::Never => {
                self.notices.push(Notice::warning(format!("{place} is ignored: {}", key.text)));
            }
            Effect::Part(part) => self.unanswered.push(Unanswered { place: place.to_owned(), part }),
        }
        if let Some(why) = key.effect.missing_on_the_cpu() {
            let text = format!("{place} has no effect on the CPU: {why}");
            self.notices.push(Notice::warning(text).on(Target::Cpu));
        }
        Ok(())
    }
}

impl Effect {
    /// Why it changes nothing on the CPU, if it does not.
    #[must_use]
    pub fn missing_on_the_cpu(self) -> Option<&'static str> {
        match self {
            Self::Optimiser
            | Self::Torchair
            | Self::OptimiserLevel
            | Self::CompilationMode
            | Self::RopeFusion => Some("it schedules the program's operations itself"),
            _ => None,
        }
    }
}

/// The known path most like this one, by its last name or as a whole.
fn nearest<'a>(keys: &[Key], path: &str) -> Option<&'a str> {
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let likeness = |key: &Key| {
        let whole = strsim::jaro_winkler(path, key.path);
        whole.max(strsim::jaro_winkler(&last(path), &last(key.path)))
    };
    keys.iter()
        .map(|key| (likeness(key), key.path))
        .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, path)| path)
}
