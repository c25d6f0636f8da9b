//! Which graph a step is replayed from. Lives on the device thread and decides anew for each step, without
//! allocating.
//!
//! Always: only a graph that was reported ready and not dropped since is chosen, and it has at least as many
//! rows as the step. What kind of graph a step takes is decided by its phase as the scheduler planned it,
//! never by its shape.
//!
//! Refuses to know: how graphs come to be.

use super::{EagerReason, GraphKey, GraphKind, GraphMode};
use crate::step::StepKind;

/// What the device thread knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Wanted,
    Ready,
    Failed,
}

/// The graphs of one device, as its thread sees them.
#[derive(Clone, Debug, Default)]
pub struct Dispatcher {
    mode: GraphMode,
    /// Ascending by key.
    entries: Vec<(GraphKey, Stage)>,
}

impl Dispatcher {
    /// One without any graph.
    #[must_use]
    pub fn new(mode: GraphMode) -> Self {
        Self { mode, entries: Vec::new() }
    }

    /// The mode it decides by.
    #[must_use]
    pub fn mode(&self) -> GraphMode {
        self.mode
    }

    /// A graph of this key is to come. Says nothing new about a key that is known.
    pub fn want(&mut self, key: GraphKey) {
        if let Err(place) = self.place(key) {
            self.entries.insert(place, (key, Stage::Wanted));
        }
    }

    /// The graph can be replayed from now on.
    pub fn ready(&mut self, key: GraphKey) {
        self.set(key, Stage::Ready);
    }

    /// The graph could not be captured, or must not be replayed any more.
    pub fn failed(&mut self, key: GraphKey) {
        self.set(key, Stage::Failed);
    }

    /// The graph is dropped, and nobody asks for it any more.
    pub fn forget(&mut self, key: GraphKey) {
        if let Ok(place) = self.place(key) {
            self.entries.remove(place);
        }
    }

    /// No graph can be replayed any more (the streams are new ones); they are all wanted again.
    pub fn void(&mut self) {
        for (_, stage) in self.entries.iter_mut().filter(|(_, stage)| *stage == Stage::Ready) {
            *stage = Stage::Wanted;
        }
    }

    /// Whether the graph can be replayed.
    #[must_use]
    pub fn is_ready(&self, key: GraphKey) -> bool {
        self.place(key)
            .ok()
            .and_then(|place| self.entries.get(place))
            .is_some_and(|entry| entry.1 == Stage::Ready)
    }

    /// All graphs that can be replayed, ascending.
    pub fn ready_keys(&self) -> impl Iterator<Item = GraphKey> + '_ {
        self.entries.iter().filter(|(_, stage)| *stage == Stage::Ready).map(|(key, _)| *key)
    }

    /// The graph for a step of `rows` rows; `step` as the plan's phases say: the smallest that is ready, of
    /// the kind for the phase, or else of the kind that takes any step.
    ///
    /// # Errors
    /// Why the step is to be run eagerly.
    pub fn choose(&self, rows: u32, step: StepKind) -> Result<GraphKey, EagerReason> {
        let Some(kind) = self.mode.kind_for(step == StepKind::Decode) else {
            return Err(match (self.mode, step) {
                (GraphMode::None, _) => EagerReason::Off,
                (_, StepKind::Verify) => EagerReason::Verify,
                _ => EagerReason::Phase,
            });
        };
        self.smallest(kind, rows).or_else(|reason| {
            let general = self.mode.kind_for(false).filter(|general| *general != kind);
            general.and_then(|general| self.smallest(general, rows).ok()).ok_or(reason)
        })
    }

    fn smallest(&self, kind: GraphKind, rows: u32) -> Result<GraphKey, EagerReason> {
        let place = self.entries.partition_point(|(key, _)| *key < GraphKey { kind, rows });
        let fitting = || self.entries.iter().skip(place).take_while(|(key, _)| key.kind == kind);
        if let Some((key, _)) = fitting().find(|(_, stage)| *stage == Stage::Ready) {
            return Ok(*key);
        }
        match fitting().next() {
            Some((_, Stage::Failed)) => Err(EagerReason::Failed),
            Some(_) => Err(EagerReason::NotReady),
            None if self.entries.is_empty() => Err(EagerReason::NotReady),
            None if self.entries.iter().any(|(key, _)| key.kind == kind) => Err(EagerReason::TooLarge),
            None => Err(EagerReason::Phase),
        }
    }

    fn set(&mut self, key: GraphKey, stage: Stage) {
        match self.place(key) {
            Ok(place) => {
                if let Some(entry) = self.entries.get_mut(place) {
                    entry.1 = stage;
                }
            }
            Err(place) => self.entries.insert(place, (key, stage)),
        }
    }

    fn place(&self, key: GraphKey) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |entry| entry.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(rows: u32) -> GraphKey {
        GraphKey { kind: GraphKind::Decode, rows }
    }

    fn mixed(rows: u32) -> GraphKey {
        GraphKey { kind: GraphKind::Mixed, rows }
    }

    #[test]
    fn takes_the_smallest_that_is_ready() {
        let mut graphs = Dispatcher::new(GraphMode::FullDecodeOnly);
        for rows in [1, 2, 8] {
            graphs.want(decode(rows));
        }
        assert_eq!(graphs.choose(2, StepKind::Decode), Err(EagerReason::NotReady));
        graphs.ready(decode(8));
        assert_eq!(graphs.choose(2, StepKind::Decode), Ok(decode(8)));
        graphs.ready(decode(2));
        assert_eq!(graphs.choose(2, StepKind::Decode), Ok(decode(2)));
        assert_eq!(graphs.choose(3, StepKind::Decode), Ok(decode(8)));
        assert_eq!(graphs.choose(9, StepKind::Decode), Err(EagerReason::TooLarge));
        assert_eq!(graphs.choose(1, StepKind::Mixed), Err(EagerReason::Phase));
        graphs.failed(decode(8));
        assert_eq!(graphs.choose(3, StepKind::Decode), Err(EagerReason::Failed));
        graphs.void();
        assert_eq!(graphs.choose(2, StepKind::Decode), Err(EagerReason::NotReady));
        assert_eq!(graphs.choose(3, StepKind::Decode), Err(EagerReason::Failed));
        graphs.forget(decode(8));
        assert_eq!(graphs.choose(3, StepKind::Decode), Err(EagerReason::TooLarge));
        assert_eq!(graphs.choose(1, StepKind::Verify), Err(EagerReason::Verify));
        assert_eq!(Dispatcher::new(GraphMode::None).choose(1, StepKind::Decode), Err(EagerReason::Off));
    }

    #[test]
    fn a_step_that_decodes_may_take_a_graph_for_any_step_but_not_the_reverse() {
        let mut graphs = Dispatcher::new(GraphMode::Full);
        graphs.ready(mixed(16));
        graphs.want(decode(4));
        assert_eq!(graphs.choose(3, StepKind::Decode), Ok(mixed(16)));
        assert_eq!(graphs.choose(17, StepKind::Decode), Err(EagerReason::TooLarge));
        graphs.ready(decode(32));
        assert_eq!(graphs.choose(17, StepKind::Mixed), Err(EagerReason::TooLarge));
        assert_eq!(graphs.choose(3, StepKind::Decode), Ok(decode(32)));
    }

    proptest! {
        #[test]
        fn a_choice_is_ready_and_fits(ready in proptest::collection::btree_set(1_u32..40, 0..8),
                                      wanted in proptest::collection::btree_set(1_u32..40, 0..8),
                                      rows in 1_u32..50) {
            let mut graphs = Dispatcher::new(GraphMode::FullDecodeOnly);
            for rows in &wanted {
                graphs.want(decode(*rows));
            }
            for rows in &ready {
                graphs.ready(decode(*rows));
            }
            let best = ready.range(rows..).next();
            prop_assert_eq!(graphs.choose(rows, StepKind::Decode).ok(), best.map(|rows| decode(*rows)));
        }
    }
}
