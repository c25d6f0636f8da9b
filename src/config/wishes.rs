//! What tables of keys ask for, and which of several that ask wins.
//!
//! Sources come in an order: options given by themselves, `--compilation-config`, `--additional-config`, the
//! Ascend table of a file. Always holds: what gives way to something else is said in one line.

use updraft_core::graphs::GraphMode;

use super::error::ConfigError;
use super::memory::KvCacheType;
use super::notices::Notice;
use super::values::ContextLength;

/// A value, and where it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish<T> {
    /// The value.
    pub value: T,
    /// The option or key, and where it stands.
    pub place: String,
}

/// What one source asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Which steps are replayed.
    pub mode: Option<Wish<GraphMode>>,
    /// Buckets, in ascending order.
    pub sizes: Option<Wish<Vec<u32>>>,
    /// The largest bucket.
    pub max_size: Option<Wish<u32>>,
    /// Whether the program is optimised.
    pub optimiser: Option<Wish<bool>>,
    /// How strongly.
    pub level: Option<Wish<u8>>,
    /// How strongly at most.
    pub level_max: Option<Wish<u8>>,
    /// Longest prompt plus answer.
    pub max_model_len: Option<Wish<ContextLength>>,
    /// Tokens in a block.
    pub block_size: Option<Wish<u32>>,
    /// Type of the KV cache.
    pub kv_cache_dtype: Option<Wish<KvCacheType>>,
    /// Quantisation scheme.
    pub quantization: Option<Wish<String>>,
    /// Longest chunk of one prompt.
    pub chunk_limit: Option<Wish<u32>>,
}

/// Notes a wish of one source. Two keys that mean the same must not differ.
pub fn set<T: PartialEq>(slot: &mut Option<Wish<T>>, value: T, place: &str) -> Result<(), ConfigError> {
    match slot {
        Some(first) if first.value != value => Err(ConfigError::Conflict(format!(
            "{} and {place} mean the same and differ; leave one out",
            first.place
        ))),
        Some(_) => Ok(()),
        None => {
            *slot = Some(Wish { value, place: place.to_owned() });
            Ok(())
        }
    }
}

/// The wish of the first source that has one. Those of others that differ get a line.
pub fn first<T: Clone + PartialEq>(
    sources: &[&Wishes],
    of: impl Fn(&Wishes) -> &Option<Wish<T>>,
    notices: &mut Vec<Notice>,
) -> Option<Wish<T>> {
    let mut found: Option<Wish<T>> = None;
    for wish in sources.iter().filter_map(|source| of(source).as_ref()) {
        match &found {
            None => found = Some(wish.clone()),
            Some(winner) if winner.value != wish.value => notices.push(gives_way(&wish.place, &winner.place)),
            Some(_) => {}
        }
    }
    found
}

/// The line about a wish that lost.
#[must_use]
pub fn gives_way(place: &str, winner: &str) -> Notice {
    Notice::note(format!("{place} gives way to {winner}"))
}
