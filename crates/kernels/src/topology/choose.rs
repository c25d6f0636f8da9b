//! How many threads a team has, and where they run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::parse::shown;
use super::{Machine, Processor};
use crate::team::Pinning;

/// Whether threads are bound, as far as it is the user's wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// Where it helps and is in nobody's way.
    #[default]
    Auto,
    /// Not at all.
    Never,
    /// One thread to a core.
    Cores,
}

/// Why a team has as many threads as it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// They were asked for.
    Asked,
    /// One for each core.
    Cores,
    /// A quota allows no more.
    Quota,
}

/// A team before it is started. Shown as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Threads, the caller's included; at least 1.
    pub threads: usize,
    /// Where they run.
    pub pinning: Pinning,
    /// Why so many.
    pub reason: Reason,
    /// Hardware threads they may run on, ascending; empty when the system does not say.
    processors: Vec<usize>,
    /// Cores of all hardware threads that the process may use.
    cores: usize,
    /// Hardware threads that the process may use.
    available: usize,
    /// The memory node that all of them belong to, if there are others.
    node: Option<usize>,
    /// Why they are bound, or why not.
    bound: &'static str,
}

impl Machine {
    /// Threads and their places. `wanted` wins over what would be chosen.
    ///
    /// One thread for each core: the second hardware thread of a core shares its vector units and its path to memory,
    /// which is what kernels are short of, and a team that waits for its slowest member is slowed by both. Not more
    /// than a quota's worth, rounded down: with more, the system would stop all of them for a part of every period.
    #[must_use]
    pub fn choose(&self, wanted: Option<usize>, binding: Binding) -> Choice {
        let all: Vec<_> = self.processors.iter().collect();
        let cores = if all.is_empty() { self.parallelism } else { cores(&all) };
        let (threads, reason) = match wanted {
            Some(wanted) => (wanted.max(1), Reason::Asked),
            None if self.parallelism < cores => (self.parallelism.max(1), Reason::Quota),
            None => (cores, Reason::Cores),
        };
        let node = if binding == Binding::Never { None } else { self.node_for(threads) };
        let pool: Vec<_> =
            all.iter().copied().filter(|each| node.is_none_or(|node| each.node == node)).collect();
        let mut processors: Vec<_> = pool.iter().map(|each| each.id).collect();
        let quota = self.parallelism < all.len();
        let fits = threads <= pool.len();
        let (each, bound) = match binding {
            Binding::Never => (false, "not bound, as asked"),
            _ if !fits => (false, "not bound: there are more threads than processors"),
            Binding::Cores => (true, "each bound to one, as asked"),
            Binding::Auto if quota => {
                (false, "not bound: a quota is no claim to one processor rather than another")
            }
            Binding::Auto if !self.restricted => (false, "not bound: other programs may use them too"),
            Binding::Auto if threads < cores => (false, "not bound: there are more cores than threads"),
            Binding::Auto => (true, "each bound to one: the process may use no others"),
        };
        let pinning = if each {
            processors = one_by_one(&pool);
            processors.truncate(threads);
            Pinning::Each(processors.clone().into())
        } else if node.is_some() {
            Pinning::Among(processors.clone().into())
        } else {
            Pinning::Anywhere
        };
        processors.sort_unstable();
        Choice { threads, pinning, reason, processors, cores, available: all.len(), node, bound }
    }

    /// The memory node to keep a team on: one with a core for each thread, the one we run on first (the system puts
    /// the next server on another), then the largest. None when there is but one node, or none is large enough.
    fn node_for(&self, threads: usize) -> Option<usize> {
        let mut nodes: BTreeMap<usize, Vec<&Processor>> = BTreeMap::new();
        for each in &self.processors {
            nodes.entry(each.node).or_default().push(each);
        }
        if nodes.len() < 2 {
            return None;
        }
        let here = self.processors.iter().find(|each| Some(each.id) == self.here).map(|each| each.node);
        let sizes = nodes.into_iter().map(|(node, members)| (node, cores(&members)));
        let large_enough = sizes.filter(|(_, size)| *size >= threads);
        large_enough
            .max_by_key(|&(node, size)| (Some(node) == here, size, std::cmp::Reverse(node)))
            .map(|(node, _)| node)
    }
}

/// Cores that these hardware threads belong to.
fn cores(processors: &[&Processor]) -> usize {
    processors.iter().map(|each| each.core).collect::<BTreeSet<_>>().len()
}

/// The first hardware thread of each core, then the second of each, node by node.
fn one_by_one(processors: &[&Processor]) -> Vec<usize> {
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    let mut order: Vec<_> = processors
        .iter()
        .map(|each| {
            let earlier = seen.entry(each.core).or_default();
            *earlier += 1;
            (*earlier, each.node, each.core, each.id)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(.., id)| id).collect()
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, cores, available, .. } = self;
        write!(f, "{threads}, ")?;
        match self.reason {
            Reason::Asked => f.write_str("as asked")?,
            Reason::Quota => f.write_str("as many as the CPU quota has whole processors")?,
            Reason::Cores => f.write_str("one for each core")?,
        }
        if *available > *cores {
            write!(f, " ({cores} cores with {available} hardware threads)")?;
        }
        if self.processors.is_empty() {
            return Ok(());
        }
        write!(f, "; on processors {}", shown(&self.processors))?;
        if let Some(node) = self.node {
            write!(f, " of memory node {node}")?;
        }
        write!(f, ", {}", self.bound)
    }
}
