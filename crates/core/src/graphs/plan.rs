//! Which graphs are to be captured, in which order, and which not and why.
//!
//! A pure value made from options, what the device can do, what it has room for and what traffic has been
//! seen. Always: the wanted graphs together stay within the budget as far as costs are known, and every
//! candidate is either wanted or dropped with a reason.
//!
//! Refuses to know: what becomes of the plan. That is [`super::Lifecycles`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::buckets::{default_sizes, gain, sample_evenly};
use super::traffic::Histogram;
use super::{GraphKey, GraphKind, GraphMode};
use crate::units::{Bytes, Tokens};

/// Graphs of one device at most, unless options say otherwise: each takes time to capture.
pub const GRAPHS_MAX: u32 = 128;

/// What somebody wants of graphs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphOptions {
    /// Which steps are replayed.
    pub mode: GraphMode,
    /// Sizes to capture; the default list when absent.
    pub sizes: Option<Vec<u32>>,
    /// No larger sizes than this.
    pub max_size: Option<u32>,
    /// Memory for graphs, if less than the device offers.
    pub memory: Option<Bytes>,
    /// Graphs at most: each takes time to capture.
    pub max_graphs: u32,
    /// Whether sizes may come and go with the traffic. Has no effect on sizes that are given.
    pub adapt: bool,
}

/// How large steps get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLimits {
    /// Sequences in one step: rows of a step that only decodes.
    pub max_sequences: u32,
    /// Tokens in one step: rows of any step.
    pub step_budget: Tokens,
}

/// What one graph takes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphUse {
    /// Memory.
    pub bytes: Bytes,
    /// Hardware streams.
    pub streams: u32,
}

/// What all graphs together may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphBudget {
    /// Memory.
    pub bytes: Bytes,
    /// Hardware streams.
    pub streams: u32,
    /// Graphs: each takes time.
    pub captures: u32,
}

/// Why a graph is not captured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error,
)]
pub enum DropReason {
    /// The streams do not suffice.
    #[error("not enough streams; sizes are spread evenly over those there are")]
    OverStreams,
    /// The memory does not suffice.
    #[error("not enough memory for graphs; give them more, or list fewer sizes")]
    OverMemory,
    /// More than may be captured.
    #[error("more graphs than may be captured; raise the limit, or list fewer sizes")]
    OverTime,
    /// The device has no such graphs.
    #[error("the device cannot capture this kind of graph; such steps run eagerly")]
    KindUnsupported,
    /// No step would ever use it.
    #[error("larger than any step or than the largest size allowed")]
    TooLarge,
}

/// One candidate, for people.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRow {
    /// Its name.
    pub key: GraphKey,
    /// What it takes, as far as known.
    pub cost: GraphUse,
    /// Share of all steps seen that would be replayed from it; none before the first step.
    pub share: Option<f64>,
    /// Its place in the order of capture, or why it has none.
    pub verdict: Result<u32, DropReason>,
}

/// Which graphs to capture.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphPlan {
    mode: GraphMode,
    wanted: Vec<GraphKey>,
    first: usize,
    dropped: Vec<(GraphKey, DropReason)>,
    costs: BTreeMap<GraphKey, GraphUse>,
    budget: GraphBudget,
    limits: StepLimits,
    adapts: bool,
    rows: Vec<PlanRow>,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self {
            mode: GraphMode::None,
            sizes: None,
            max_size: None,
            memory: None,
            max_graphs: GRAPHS_MAX,
            adapt: true,
        }
    }
}

impl GraphOptions {
    /// What graphs may take of a device that offers `device`.
    #[must_use]
    pub fn budget(&self, device: GraphUse) -> GraphBudget {
        let bytes = self.memory.map_or(device.bytes, |memory| memory.min(device.bytes));
        GraphBudget { bytes, streams: device.streams, captures: self.max_graphs }
    }
}

impl GraphBudget {
    /// Whether graphs that take so much, so many of them, stay within it.
    #[must_use]
    pub fn holds(&self, total: GraphUse, graphs: usize) -> bool {
        total.bytes <= self.bytes && total.streams <= self.streams && graphs <= self.captures as usize
    }
}

impl std::ops::Add for GraphUse {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, streams: self.streams.saturating_add(other.streams) }
    }
}

impl std::iter::Sum for GraphUse {
    fn sum<I: Iterator<Item = Self>>(uses: I) -> Self {
        uses.fold(Self::default(), |total, one| total + one)
    }
}

impl StepLimits {
    /// Rows of the largest step that graphs of a kind are replayed for.
    pub(super) fn bound(self, kind: GraphKind) -> u32 {
        match kind {
            GraphKind::Decode => self.max_sequences.min(self.step_budget.0),
            GraphKind::Mixed | GraphKind::Piecewise => self.step_budget.0,
        }
    }
}

impl GraphPlan {
    /// A plan. `kinds` are those the device can capture, `cost` says what a graph takes of it (an estimate
    /// before its first capture), `traffic` may be empty.
    #[must_use]
    pub fn new(
        options: &GraphOptions,
        limits: StepLimits,
        kinds: &[GraphKind],
        budget: GraphBudget,
        cost: &dyn Fn(GraphKey) -> GraphUse,
        traffic: &Histogram,
    ) -> Self {
        let candidates = Self::candidates(options, limits);
        let costs: BTreeMap<GraphKey, GraphUse> = candidates.iter().map(|key| (*key, cost(*key))).collect();
        let mut plan = Self {
            mode: options.mode,
            wanted: Vec::new(),
            first: 0,
            dropped: Vec::new(),
            costs,
            budget,
            limits,
            adapts: options.adapt && options.sizes.is_none(),
            rows: Vec::new(),
        };
        let mut sizes = plan.usable(options, &candidates, kinds);
        plan.thin_out(&mut sizes);
        plan.order(&sizes, traffic);
        plan.fit_memory();
        plan.rows = candidates.iter().map(|key| plan.row(*key, traffic)).collect();
        plan
    }

    /// All keys that a plan may be about, ascending: whoever makes plans elsewhere needs their costs.
    #[must_use]
    pub fn candidates(options: &GraphOptions, limits: StepLimits) -> Vec<GraphKey> {
        let mut keys: Vec<GraphKey> = kinds_of(options.mode)
            .into_iter()
            .flat_map(|kind| {
                let sizes = options.sizes.clone().unwrap_or_else(|| {
                    let cap = options.max_size.unwrap_or(u32::MAX).min(limits.step_budget.0);
                    default_sizes(limits.bound(kind), cap)
                });
                sizes.into_iter().filter(|rows| *rows > 0).map(move |rows| GraphKey { kind, rows })
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The mode it was made for.
    #[must_use]
    pub fn mode(&self) -> GraphMode {
        self.mode
    }

    /// What to capture, in this order.
    #[must_use]
    pub fn wanted(&self) -> &[GraphKey] {
        &self.wanted
    }

    /// The beginning of [`GraphPlan::wanted`] that is captured before anything is served: the smallest
    /// bucket, and one that takes every step that only decodes.
    #[must_use]
    pub fn first(&self) -> &[GraphKey] {
        self.wanted.get(..self.first).unwrap_or_default()
    }

    /// What is not captured, and why.
    #[must_use]
    pub fn dropped(&self) -> &[(GraphKey, DropReason)] {
        &self.dropped
    }

    /// What all graphs together may take.
    #[must_use]
    pub fn budget(&self) -> GraphBudget {
        self.budget
    }

    /// How large steps get.
    #[must_use]
    pub fn limits(&self) -> StepLimits {
        self.limits
    }

    /// Whether sizes may come and go with the traffic.
    #[must_use]
    pub fn adapts(&self) -> bool {
        self.adapts
    }

    /// All candidates, ascending, for a table.
    #[must_use]
    pub fn rows(&self) -> &[PlanRow] {
        &self.rows
    }

    /// What a graph of any key will take at most: as much as the next larger candidate of its kind, or the
    /// largest.
    #[must_use]
    pub fn estimate(&self, key: GraphKey) -> GraphUse {
        let of_kind = || self.costs.iter().filter(|(known, _)| known.kind == key.kind);
        let next = of_kind().find(|(known, _)| known.rows >= key.rows);
        next.or_else(|| of_kind().next_back()).map(|(_, cost)| *cost).unwrap_or_default()
    }

    /// Whether any graph of a kind was found worth capturing.
    pub(super) fn captures(&self, kind: GraphKind) -> bool {
        self.wanted.iter().any(|key| key.kind == kind)
    }

    /// What a graph really takes.
    pub(super) fn learn(&mut self, key: GraphKey, cost: GraphUse) {
        self.costs.insert(key, cost);
    }

    /// The sizes of each kind that the device can capture and a step can use; drops all others.
    fn usable(
        &mut self,
        options: &GraphOptions,
        candidates: &[GraphKey],
        kinds: &[GraphKind],
    ) -> Vec<(GraphKind, Vec<u32>)> {
        let mut sizes = Vec::new();
        for kind in kinds_of(options.mode) {
            let of_kind: Vec<GraphKey> = candidates.iter().filter(|key| key.kind == kind).copied().collect();
            if !kinds.contains(&kind) {
                self.drop_all(of_kind, DropReason::KindUnsupported);
                continue;
            }
            // The smallest that takes the largest step is the last one of use.
            let bound = self.limits.bound(kind);
            let covered = of_kind.partition_point(|key| key.rows < bound);
            let last = of_kind.get(covered).map_or(u32::MAX, |key| key.rows);
            let largest = options.max_size.unwrap_or(u32::MAX).min(last);
            let (used, never): (Vec<GraphKey>, Vec<GraphKey>) =
                of_kind.into_iter().partition(|key| key.rows <= largest);
            self.drop_all(never, DropReason::TooLarge);
            sizes.push((kind, used.into_iter().map(|key| key.rows).collect()));
        }
        sizes
    }

    /// Where there are more sizes than streams or captures, keeps an even selection. Kinds share fairly: none
    /// gets less than its part unless it needs less.
    fn thin_out(&mut self, sizes: &mut [(GraphKind, Vec<u32>)]) {
        let mut streams = u64::from(self.budget.streams);
        let mut captures = self.budget.captures as usize;
        let streams_each = |plan: &Self, kind: GraphKind, sizes: &[u32]| {
            sizes.iter().map(|rows| u64::from(plan.estimate(GraphKey { kind, rows: *rows }).streams)).max()
        };
        for place in 0..sizes.len() {
            let (before, behind) = sizes.split_at_mut(place + 1);
            let Some((kind, mine)) = before.last_mut() else { continue };
            let each = streams_each(self, *kind, mine).unwrap_or(0);
            let parts = behind.len() + 1;
            let others: usize = behind.iter().map(|(_, sizes)| sizes.len()).sum();
            let others_streams: u64 = behind
                .iter()
                .map(|(kind, sizes)| sizes.len() as u64 * streams_each(self, *kind, sizes).unwrap_or(0))
                .sum();
            let in_time = captures.saturating_sub(others).max(captures.div_ceil(parts));
            let for_me = streams.saturating_sub(others_streams).max(streams / parts as u64);
            let in_streams = for_me.checked_div(each).map_or(usize::MAX, |count| count as usize);
            let kept = sample_evenly(mine, in_time.min(in_streams));
            let reason = if in_streams < in_time { DropReason::OverStreams } else { DropReason::OverTime };
            let gone = mine.iter().filter(|rows| kept.binary_search(rows).is_err());
            let gone = gone.map(|rows| GraphKey { kind: *kind, rows: *rows }).collect();
            self.drop_all(gone, reason);
            captures = captures.saturating_sub(kept.len());
            streams = streams.saturating_sub(kept.len() as u64 * each);
            *mine = kept;
        }
    }

    /// Puts the sizes into the order of capture: the first set, then always the one that saves most padded
    /// rows.
    fn order(&mut self, sizes: &[(GraphKind, Vec<u32>)], traffic: &Histogram) {
        let primary = self.mode.kind_for(true);
        for (kind, sizes) in sizes.iter().filter(|(kind, _)| Some(*kind) == primary) {
            let covering = sizes.iter().find(|rows| **rows >= self.limits.bound(GraphKind::Decode));
            let first = [sizes.first(), covering.or(sizes.last())];
            self.wanted =
                first.into_iter().flatten().map(|rows| GraphKey { kind: *kind, rows: *rows }).collect();
            self.wanted.dedup();
        }
        self.first = self.wanted.len();
        let keys = |(kind, sizes): &(GraphKind, Vec<u32>)| {
            let kind = *kind;
            sizes.iter().map(move |rows| GraphKey { kind, rows: *rows }).collect::<Vec<_>>()
        };
        let mut left: Vec<GraphKey> = sizes.iter().flat_map(keys).collect();
        left.retain(|key| !self.wanted.contains(key));
        while let Some(best) = most_useful(self.mode, &self.wanted, &left, traffic) {
            left.retain(|key| *key != best);
            self.wanted.push(best);
        }
    }

    /// Drops what the memory does not hold, the last in the order of capture first.
    fn fit_memory(&mut self) {
        let mut total = GraphUse::default();
        let mut over = Vec::new();
        let (mut kept, mut kept_first) = (Vec::new(), 0);
        for (place, key) in self.wanted.iter().enumerate() {
            let with_it = total + self.estimate(*key);
            if self.budget.holds(with_it, kept.len() + 1) {
                total = with_it;
                kept_first += usize::from(place < self.first);
                kept.push(*key);
            } else {
                over.push(*key);
            }
        }
        (self.wanted, self.first) = (kept, kept_first);
        self.drop_all(over, DropReason::OverMemory);
    }

    fn drop_all(&mut self, keys: Vec<GraphKey>, reason: DropReason) {
        self.dropped.extend(keys.into_iter().map(|key| (key, reason)));
    }

    fn row(&self, key: GraphKey, traffic: &Histogram) -> PlanRow {
        let place = self.wanted.iter().position(|wanted| *wanted == key);
        let dropped = self.dropped.iter().find(|(dropped, _)| *dropped == key).map(|(_, reason)| *reason);
        let verdict =
            place.map(|place| place as u32).ok_or_else(|| dropped.unwrap_or(DropReason::OverMemory));
        let below = self.wanted.iter().filter(|other| other.kind == key.kind && other.rows < key.rows);
        let below = below.map(|other| other.rows).max().unwrap_or(0);
        let steps = traffic.steps_between(self.mode, key.kind, below, key.rows);
        let share = traffic.share(if verdict.is_ok() { steps } else { 0 });
        PlanRow { key, cost: self.estimate(key), share: (traffic.total() > 0).then_some(share), verdict }
    }
}

/// Of `candidates`, the one that saves most padded rows beside those there are; a smaller one in case of
/// doubt.
pub(super) fn most_useful(
    mode: GraphMode,
    have: &[GraphKey],
    candidates: &[GraphKey],
    traffic: &Histogram,
) -> Option<GraphKey> {
    let gain_of = |key: &GraphKey| {
        let mut sizes: Vec<u32> =
            have.iter().filter(|other| other.kind == key.kind).map(|key| key.rows).collect();
        sizes.sort_unstable();
        gain(&sizes, key.rows, &|rows| traffic.steps(mode, key.kind, rows))
    };
    candidates.iter().map(|key| (gain_of(key), std::cmp::Reverse(*key))).max().map(|(_, key)| key.0)
}

/// The kinds of graphs that a mode replays, the one for decoding first.
pub(super) fn kinds_of(mode: GraphMode) -> Vec<GraphKind> {
    let mut kinds: Vec<GraphKind> =
        [true, false].into_iter().filter_map(|phase| mode.kind_for(phase)).collect();
    kinds.dedup();
    kinds
}

#[cfg(test)]
mod tests;
