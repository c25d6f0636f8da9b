//! What is planned, in which order, and what is dropped and why.

use proptest::prelude::*;

use super::*;

const MEBI: u64 = 1 << 20;

fn limits() -> StepLimits {
    StepLimits { max_sequences: 32, step_budget: Tokens(64) }
}

fn options(mode: GraphMode) -> GraphOptions {
    GraphOptions { mode, ..GraphOptions::default() }
}

fn wide_budget() -> GraphBudget {
    GraphBudget { bytes: Bytes(1_000 * MEBI), streams: 2_000, captures: 100 }
}

/// A mebibyte a row; pieces take ten streams.
fn cost(key: GraphKey) -> GraphUse {
    let streams = if key.kind == GraphKind::Piecewise { 10 } else { 1 };
    GraphUse { bytes: Bytes(u64::from(key.rows) * MEBI), streams }
}

const ALL_KINDS: [GraphKind; 3] = [GraphKind::Decode, GraphKind::Mixed, GraphKind::Piecewise];

fn plan(options: &GraphOptions, budget: GraphBudget) -> GraphPlan {
    GraphPlan::new(options, limits(), &ALL_KINDS, budget, &cost, &Histogram::default())
}

fn sizes(keys: &[GraphKey], kind: GraphKind) -> Vec<u32> {
    let mut sizes: Vec<u32> = keys.iter().filter(|key| key.kind == kind).map(|key| key.rows).collect();
    sizes.sort_unstable();
    sizes
}

fn dropped(plan: &GraphPlan, reason: DropReason) -> usize {
    plan.dropped().iter().filter(|(_, why)| *why == reason).count()
}

#[test]
fn begins_with_the_smallest_and_one_that_takes_every_decoding_step() {
    let plan = plan(&options(GraphMode::FullDecodeOnly), wide_budget());
    let rows: Vec<u32> = plan.first().iter().map(|key| key.rows).collect();
    assert_eq!(rows, [1, 32]);
    assert_eq!(sizes(plan.wanted(), GraphKind::Decode), [1, 2, 4, 8, 16, 24, 32]);
    assert!(plan.dropped().is_empty());
    let by_pieces = GraphPlan::new(
        &options(GraphMode::Piecewise),
        limits(),
        &ALL_KINDS,
        wide_budget(),
        &cost,
        &Histogram::default(),
    );
    assert_eq!(by_pieces.first().iter().map(|key| key.rows).collect::<Vec<_>>(), [1, 32]);
    assert_eq!(sizes(by_pieces.wanted(), GraphKind::Piecewise).last(), Some(&64));
}

#[test]
fn traffic_decides_what_comes_next() {
    let mut traffic = Histogram::default();
    (0..100).for_each(|_| traffic.observe(7, true));
    (0..40).for_each(|_| traffic.observe(23, true));
    (0..10).for_each(|_| traffic.observe(30, false));
    let plan = GraphPlan::new(
        &options(GraphMode::FullDecodeOnly),
        limits(),
        &ALL_KINDS,
        wide_budget(),
        &cost,
        &traffic,
    );
    assert_eq!(plan.wanted()[2].rows, 8);
    assert_eq!(plan.wanted()[3].rows, 24);
    let share = |rows| plan.rows().iter().find(|row| row.key.rows == rows).and_then(|row| row.share);
    assert_eq!(share(8), Some(100.0 / 150.0));
    assert_eq!(share(24), Some(40.0 / 150.0));
    assert_eq!(share(32), Some(0.0));
}

#[test]
fn too_many_for_the_streams_or_the_time_are_thinned_out_evenly() {
    let budget = GraphBudget { streams: 4, ..wide_budget() };
    let scarce = plan(&options(GraphMode::FullDecodeOnly), budget);
    assert_eq!(sizes(scarce.wanted(), GraphKind::Decode), [1, 4, 16, 32]);
    assert_eq!(dropped(&scarce, DropReason::OverStreams), 3);
    let budget = GraphBudget { captures: 3, ..wide_budget() };
    let short = plan(&options(GraphMode::FullDecodeOnly), budget);
    assert_eq!(sizes(short.wanted(), GraphKind::Decode), [1, 8, 32]);
    assert_eq!(dropped(&short, DropReason::OverTime), 4);
}

#[test]
fn kinds_share_what_is_scarce() {
    let budget = GraphBudget { captures: 6, ..wide_budget() };
    let short = plan(&options(GraphMode::FullAndPiecewise), budget);
    assert_eq!(sizes(short.wanted(), GraphKind::Decode).len(), 3);
    assert_eq!(sizes(short.wanted(), GraphKind::Piecewise).len(), 3);
    // Ten streams a piecewise graph: decoding needs few and gets them all.
    let budget = GraphBudget { streams: 47, ..wide_budget() };
    let scarce = plan(&options(GraphMode::FullAndPiecewise), budget);
    assert_eq!(sizes(scarce.wanted(), GraphKind::Decode).len(), 7);
    assert_eq!(sizes(scarce.wanted(), GraphKind::Piecewise), [1, 8, 32, 64]);
}

#[test]
fn what_the_memory_does_not_hold_is_dropped_from_the_end() {
    let budget = GraphBudget { bytes: Bytes(50 * MEBI), ..wide_budget() };
    let small = plan(&options(GraphMode::FullDecodeOnly), budget);
    assert_eq!(small.first().len(), 2);
    assert!(dropped(&small, DropReason::OverMemory) > 0);
    let budget = GraphBudget { bytes: Bytes(20 * MEBI), ..wide_budget() };
    let tiny = plan(&options(GraphMode::FullDecodeOnly), budget);
    assert_eq!(tiny.first().iter().map(|key| key.rows).collect::<Vec<_>>(), [1]);
}

#[test]
fn says_why_it_drops() {
    let given = GraphOptions { sizes: Some(vec![64, 8, 0, 8, 40, 2]), ..options(GraphMode::FullDecodeOnly) };
    let plan_of_given = plan(&given, wide_budget());
    assert_eq!(sizes(plan_of_given.wanted(), GraphKind::Decode), [2, 8, 40]);
    assert_eq!(
        plan_of_given.dropped(),
        [(GraphKey { kind: GraphKind::Decode, rows: 64 }, DropReason::TooLarge)]
    );
    assert!(!plan_of_given.adapts());
    let decode_only = GraphPlan::new(
        &options(GraphMode::FullAndPiecewise),
        limits(),
        &[GraphKind::Decode],
        wide_budget(),
        &cost,
        &Histogram::default(),
    );
    assert_eq!(dropped(&decode_only, DropReason::KindUnsupported), 11);
    assert!(decode_only.adapts());
    assert!(plan(&options(GraphMode::None), wide_budget()).rows().is_empty());
    let limited = GraphOptions { max_size: Some(8), ..options(GraphMode::FullDecodeOnly) };
    assert_eq!(sizes(plan(&limited, wide_budget()).wanted(), GraphKind::Decode), [1, 2, 4, 8]);
}

#[test]
fn estimates_are_those_of_the_next_larger() {
    let plan = plan(&options(GraphMode::FullDecodeOnly), wide_budget());
    let estimate = |rows| plan.estimate(GraphKey { kind: GraphKind::Decode, rows }).bytes.0 / MEBI;
    assert_eq!([estimate(8), estimate(9), estimate(33)], [8, 16, 32]);
}

proptest! {
    #[test]
    fn every_candidate_is_wanted_or_dropped_and_all_that_is_wanted_fits(
        mode in proptest::sample::select(vec![
            GraphMode::Piecewise, GraphMode::Full, GraphMode::FullDecodeOnly, GraphMode::FullAndPiecewise,
        ]),
        max_sequences in 1_u32..600,
        tokens in 1_u32..2_000,
        (memory, streams, captures) in (0_u64..5_000, 0_u32..400, 0_u32..80),
        given in proptest::option::of(proptest::collection::vec(0_u32..700, 0..20)),
        seen in proptest::collection::vec((1_u32..600, any::<bool>()), 0..50),
    ) {
        let limits = StepLimits { max_sequences, step_budget: Tokens(tokens) };
        let options = GraphOptions { sizes: given, ..options(mode) };
        let budget = GraphBudget { bytes: Bytes(memory * MEBI), streams, captures };
        let mut traffic = Histogram::default();
        for (rows, decode_only) in &seen {
            traffic.observe(*rows, *decode_only);
        }
        let plan = GraphPlan::new(&options, limits, &ALL_KINDS[..2], budget, &cost, &traffic);
        let total: GraphUse = plan.wanted().iter().map(|key| cost(*key)).sum();
        prop_assert!(budget.holds(total, plan.wanted().len()));
        let mut all: Vec<GraphKey> = plan.wanted().to_vec();
        all.extend(plan.dropped().iter().map(|(key, _)| *key));
        all.sort_unstable();
        prop_assert_eq!(&all, &GraphPlan::candidates(&options, limits));
        prop_assert_eq!(plan.rows().len(), all.len());
        prop_assert!(plan.first().len() <= 2);
        let shares: f64 = plan.rows().iter().filter_map(|row| row.share).sum();
        prop_assert!(shares <= 1.0 + 1e-9);
    }
}
