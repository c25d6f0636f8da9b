//! Lives of graphs, one rule at a time, and under random inputs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::plan::{GraphOptions, StepLimits};
use super::super::{GraphKind, GraphMode};
use super::*;
use crate::units::{Bytes, Tokens};

const LIMITS: StepLimits = StepLimits { max_sequences: 32, step_budget: Tokens(64) };
const WIDE: GraphBudget = GraphBudget { bytes: Bytes(10_000), streams: 100, captures: 100 };

fn key(rows: u32) -> GraphKey {
    GraphKey { kind: GraphKind::Decode, rows }
}

/// A byte a row, one stream a graph.
fn cost(key: GraphKey) -> GraphUse {
    GraphUse { bytes: Bytes(key.rows.into()), streams: 1 }
}

fn plan(budget: GraphBudget, traffic: &Histogram) -> GraphPlan {
    let options = GraphOptions { mode: GraphMode::FullDecodeOnly, ..GraphOptions::default() };
    GraphPlan::new(&options, LIMITS, &[GraphKind::Decode], budget, &cost, traffic)
}

/// With a device of epoch 1.
fn up(budget: GraphBudget) -> Lifecycles {
    let mut graphs = Lifecycles::new(LifecyclePolicy::default());
    graphs.device_up(Epoch(1), plan(budget, &Histogram::default()), Millis(0));
    graphs
}

fn state(graphs: &Lifecycles, rows: u32) -> &'static str {
    let found = graphs.buckets().find(|(known, _)| *known == key(rows));
    found.map_or("unknown", |(_, state)| state.as_str())
}

fn capture(graphs: &mut Lifecycles, now: Millis, idle: bool) -> Option<GraphKey> {
    match graphs.next(now, idle) {
        Some(Command::Capture(key)) => {
            let epoch = graphs.epoch().expect("a command without a device");
            graphs.captured(epoch, key, cost(key), 7, now);
            Some(key)
        }
        Some(Command::Forget(key)) => panic!("{key} was to be forgotten"),
        None => None,
    }
}

/// Captures everything; gives the order.
fn capture_all(graphs: &mut Lifecycles, now: Millis) -> Vec<u32> {
    graphs.idle(now);
    let later = now + LifecyclePolicy::default().idle_settle;
    std::iter::from_fn(|| capture(graphs, later, true)).map(|key| key.rows).collect()
}

#[test]
fn the_first_set_is_captured_at_once_and_the_rest_when_idle() {
    let mut graphs = up(WIDE);
    assert!(!graphs.first_set_done());
    assert_eq!(capture(&mut graphs, Millis(0), false), Some(key(1)));
    assert_eq!(capture(&mut graphs, Millis(0), false), Some(key(32)));
    assert!(graphs.first_set_done());
    assert_eq!(graphs.next(Millis(1), false), None);
    // A pause between two steps is no idle time.
    assert_eq!(graphs.next(Millis(20), true), None);
    assert_eq!(graphs.next(Millis(69), true), None);
    assert!(matches!(graphs.next(Millis(70), true), Some(Command::Capture(_))));
    assert_eq!(graphs.next(Millis(71), true), None, "two captures at once");
}

#[test]
fn under_load_there_is_one_capture_in_a_while() {
    let mut graphs = up(WIDE);
    let mut times = Vec::new();
    for now in 0..60_000 {
        if capture(&mut graphs, Millis(now), false).is_some() {
            times.push(now);
        }
    }
    assert_eq!(times, [0, 1, 10_001, 20_001, 30_001, 40_001, 50_001]);
    assert!(graphs.buckets().all(|(_, state)| state.as_str() == "ready"));
}

#[test]
fn failures_back_off_and_are_given_up() {
    let mut graphs = up(WIDE);
    let mut failed_at = Vec::new();
    let mut now = 0;
    while now < 1_000_000 {
        if let Some(Command::Capture(found)) = graphs.next(Millis(now), true) {
            if found == key(1) {
                failed_at.push(now);
                graphs.capture_failed(Epoch(1), found, RecoveryClass::Graph, Millis(now));
            } else {
                graphs.captured(Epoch(1), found, cost(found), 1, Millis(now));
            }
        }
        now += 100;
    }
    let waits: Vec<u64> = failed_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits, [1_000, 2_000, 4_000, 8_000]);
    let given_up = |event: &GraphEvent| matches!(event, GraphEvent::Failed { times: 5, again: None, .. });
    assert_eq!(graphs.drain_events().iter().filter(|event| given_up(event)).count(), 1);
    assert!(graphs.first_set_done());
}

#[test]
fn what_the_device_cannot_do_is_not_tried_again() {
    let mut graphs = up(WIDE);
    assert!(graphs.next(Millis(0), true).is_some());
    graphs.capture_failed(Epoch(1), key(1), RecoveryClass::Unsupported, Millis(0));
    assert!(!capture_all(&mut graphs, Millis(1_000_000)).contains(&1));
}

#[test]
fn a_shortage_makes_what_there_is_the_budget() {
    let mut graphs = up(WIDE);
    capture(&mut graphs, Millis(0), true);
    capture(&mut graphs, Millis(0), true);
    let Some(Command::Capture(third)) = graphs.next(Millis(10_000), true) else {
        panic!("nothing to capture")
    };
    graphs.capture_failed(Epoch(1), third, RecoveryClass::Memory, Millis(10_000));
    assert_eq!(graphs.budget().map(|budget| (budget.bytes, budget.streams)), Some((Bytes(33), 2)));
    assert_eq!(capture_all(&mut graphs, Millis(100_000)), [0; 0]);
    // One that is gone leaves its place to one that takes no more.
    graphs.retired(Epoch(1), key(32), RetireReason::Mismatch, Millis(100_000));
    assert_eq!(capture_all(&mut graphs, Millis(200_000)), [24]);
}

#[test]
fn what_takes_more_than_it_was_said_to_is_dropped() {
    let mut graphs = up(GraphBudget { bytes: Bytes(50), ..WIDE });
    assert!(graphs.next(Millis(0), true).is_some());
    graphs.captured(Epoch(1), key(1), GraphUse { bytes: Bytes(51), streams: 1 }, 1, Millis(0));
    assert_eq!(state(&graphs, 1), "retired");
    assert_eq!(graphs.next(Millis(0), true), Some(Command::Forget(key(1))));
    assert_eq!(capture(&mut graphs, Millis(0), true), Some(key(32)));
}

#[test]
fn a_first_graph_that_finds_no_room_keeps_nobody_waiting() {
    let mut graphs = up(GraphBudget { bytes: Bytes(50), ..WIDE });
    assert!(graphs.next(Millis(0), true).is_some());
    graphs.captured(Epoch(1), key(1), GraphUse { bytes: Bytes(40), streams: 1 }, 1, Millis(0));
    assert!(graphs.first_set_done());
    assert_eq!(state(&graphs, 32), "wanted");
}

#[test]
fn a_lost_device_voids_everything_but_the_traffic() {
    let mut graphs = up(WIDE);
    capture_all(&mut graphs, Millis(0));
    (0..10).for_each(|_| graphs.observe(3, true));
    graphs.device_lost(Millis(1));
    assert_eq!((graphs.buckets().count(), graphs.used(), graphs.epoch()), (0, GraphUse::default(), None));
    assert_eq!(graphs.traffic().total(), 10);
    graphs.captured(Epoch(1), key(1), cost(key(1)), 1, Millis(2));
    assert_eq!(graphs.stale(), 1);
    let next_plan = plan(WIDE, graphs.traffic());
    graphs.device_up(Epoch(2), next_plan, Millis(3));
    assert!(graphs.buckets().all(|(_, state)| state == BucketState::Wanted));
    // Late news of the old life, and an old life itself, change nothing.
    graphs.captured(Epoch(1), key(1), cost(key(1)), 1, Millis(4));
    let old_plan = plan(WIDE, &Histogram::default());
    graphs.device_up(Epoch(1), old_plan, Millis(4));
    assert_eq!((graphs.epoch(), graphs.stale()), (Some(Epoch(2)), 3));
    assert_eq!(capture_all(&mut graphs, Millis(5))[..3], [1, 32, 4]);
}

#[test]
fn what_kills_the_device_is_not_tried_at_once_in_each_of_its_lives() {
    let mut graphs = Lifecycles::new(LifecyclePolicy::default());
    let mut lives = 0;
    for now in (0..600_000).step_by(500) {
        if graphs.epoch().is_none() {
            lives += 1;
            let plan = plan(WIDE, graphs.traffic());
            graphs.device_up(Epoch(lives), plan, Millis(now));
        }
        match graphs.next(Millis(now), true) {
            Some(Command::Capture(found)) if found == key(1) => graphs.device_lost(Millis(now)),
            Some(Command::Capture(found)) => {
                graphs.captured(Epoch(lives), found, cost(found), 1, Millis(now));
            }
            _ => {}
        }
    }
    assert_eq!(lives, u64::from(LifecyclePolicy::default().failures_max) + 1);
    assert_eq!(state(&graphs, 32), "ready");
    assert_eq!(state(&graphs, 1), "failed");
}

#[test]
fn new_streams_void_graphs_but_not_the_capture_under_way() {
    let mut graphs = up(WIDE);
    capture(&mut graphs, Millis(0), true);
    assert_eq!(graphs.next(Millis(0), true), Some(Command::Capture(key(32))));
    graphs.voided(Epoch(1));
    assert_eq!((state(&graphs, 1), state(&graphs, 32)), ("wanted", "capturing"));
    graphs.captured(Epoch(1), key(32), cost(key(32)), 1, Millis(1));
    assert_eq!(capture(&mut graphs, Millis(1), true), Some(key(1)));
}

#[test]
fn a_graph_whose_replays_fail_comes_back_a_few_times() {
    let mut graphs = up(WIDE);
    let mut captures = 0;
    for now in (0..1_000_000).step_by(100) {
        if let Some(captured) = capture(&mut graphs, Millis(now), true)
            && captured == key(8)
        {
            captures += 1;
            graphs.retired(Epoch(1), captured, RetireReason::Fault, Millis(now + 1));
        }
    }
    assert_eq!(captures, LifecyclePolicy::default().failures_max);
    // One that is good for long enough starts over.
    let mut graphs = up(WIDE);
    let mut captures = 0;
    for now in (0..2_000_000).step_by(100_000) {
        captures += capture_all(&mut graphs, Millis(now)).iter().filter(|rows| **rows == 8).count();
        graphs.retired(Epoch(1), key(8), RetireReason::Fault, Millis(now + 90_000));
    }
    assert_eq!(captures, 20);
}

#[test]
fn a_graph_that_computed_something_else_stays_away() {
    let mut graphs = up(WIDE);
    capture_all(&mut graphs, Millis(0));
    graphs.retired(Epoch(1), key(8), RetireReason::Mismatch, Millis(1));
    assert_eq!(capture_all(&mut graphs, Millis(10_000_000)), [0; 0]);
    assert_eq!(state(&graphs, 8), "retired");
}

#[test]
fn an_answer_that_nobody_asked_for_is_undone() {
    let mut graphs = up(WIDE);
    graphs.captured(Epoch(1), key(13), cost(key(13)), 1, Millis(0));
    assert_eq!(graphs.next(Millis(0), false), Some(Command::Forget(key(13))));
    graphs.capture_failed(Epoch(1), key(1), RecoveryClass::Graph, Millis(0));
    graphs.retired(Epoch(1), key(1), RetireReason::Fault, Millis(0));
    assert_eq!((graphs.stale(), state(&graphs, 1)), (3, "wanted"));
}

#[test]
fn frequent_rows_that_pad_a_lot_get_a_bucket_of_their_own() {
    let mut graphs = up(WIDE);
    capture_all(&mut graphs, Millis(0));
    for _ in 0..300 {
        graphs.observe(5, true);
        graphs.observe(31, true);
        graphs.observe(3, false);
    }
    // 5 pads three of eight, 31 one of 32; what is no decoding step is not replayed in this mode.
    assert_eq!(capture_all(&mut graphs, Millis(1_000)), [5]);
    assert!(graphs.drain_events().contains(&GraphEvent::Proposed(key(5))));
}

#[test]
fn the_unused_makes_room_for_the_used() {
    let budget = GraphBudget { captures: 7, ..WIDE };
    let mut graphs = up(budget);
    assert_eq!(capture_all(&mut graphs, Millis(0)).len(), 7);
    (0..1_000).for_each(|_| {
        graphs.observe(5, true);
        graphs.observe(16, true);
    });
    graphs.idle(Millis(0));
    let Some(Command::Forget(victim)) = graphs.next(Millis(1_000), true) else {
        panic!("nothing makes room")
    };
    assert!(![1, 8, 16, 32].contains(&victim.rows), "{victim} is in use or keeps everything covered");
    assert_eq!(capture(&mut graphs, Millis(1_000), true), Some(key(5)));
    assert_eq!(graphs.next(Millis(1_000), true), None);
    // It is wanted again when somebody could use it.
    graphs.observe(victim.rows, true);
    graphs.next(Millis(1_001), false);
    assert_eq!(state(&graphs, victim.rows), "wanted");
}

#[test]
fn sizes_that_were_given_stay() {
    let options =
        GraphOptions { mode: GraphMode::FullDecodeOnly, sizes: Some(vec![4, 32]), ..GraphOptions::default() };
    let plan = GraphPlan::new(&options, LIMITS, &[GraphKind::Decode], WIDE, &cost, &Histogram::default());
    let mut graphs = Lifecycles::new(LifecyclePolicy::default());
    graphs.device_up(Epoch(1), plan, Millis(0));
    (0..5_000).for_each(|_| graphs.observe(17, true));
    assert_eq!(capture_all(&mut graphs, Millis(0)), [4, 32]);
}

#[test]
fn events_are_bounded() {
    let mut graphs = Lifecycles::new(LifecyclePolicy::default());
    for epoch in 1..=EVENTS_MAX as u64 {
        let plan = plan(WIDE, &Histogram::default());
        graphs.device_up(Epoch(epoch), plan, Millis(0));
    }
    assert_eq!(graphs.dropped_events(), EVENTS_MAX as u64 - 1);
    assert_eq!(graphs.drain_events().len(), EVENTS_MAX);
}

#[derive(Clone, Debug)]
enum Input {
    Up {
        bytes: u64,
        captures: u32,
    },
    Lost,
    Voided,
    Seen {
        rows: u32,
        decode_only: bool,
        times: u32,
    },
    /// Time goes on, and the device is asked.
    Next {
        after: u64,
        idle: bool,
    },
    Answer {
        good: bool,
        late: bool,
        extra: u64,
        class: RecoveryClass,
    },
    Retired {
        which: usize,
        why: RetireReason,
    },
}

fn input() -> impl Strategy<Value = Input> {
    let why = prop_oneof![Just(RetireReason::Fault), Just(RetireReason::Mismatch)];
    let class = proptest::sample::select(RecoveryClass::ALL.to_vec());
    prop_oneof![
        1 => (20_u64..200, 1_u32..12).prop_map(|(bytes, captures)| Input::Up { bytes, captures }),
        1 => Just(Input::Lost),
        1 => Just(Input::Voided),
        4 => (1_u32..40, any::<bool>(), 1_u32..900)
            .prop_map(|(rows, decode_only, times)| Input::Seen { rows, decode_only, times }),
        12 => (0_u64..4_000, any::<bool>()).prop_map(|(after, idle)| Input::Next { after, idle }),
        10 => (any::<bool>(), any::<bool>(), 0_u64..30, class)
            .prop_map(|(good, late, extra, class)| Input::Answer { good, late, extra, class }),
        2 => (any::<usize>(), why).prop_map(|(which, why)| Input::Retired { which, why }),
    ]
}

proptest! {
    /// A device that does what it is told, and sometimes answers late: what the lifecycles call ready it has,
    /// one capture runs at a time, and (by the audit behind every input) nothing is over budget.
    #[test]
    fn the_books_always_balance(inputs in proptest::collection::vec(input(), 0..120)) {
        let mut graphs = Lifecycles::new(LifecyclePolicy { unused_after: 500, ..LifecyclePolicy::default() });
        let mut device: BTreeMap<GraphKey, Epoch> = BTreeMap::new();
        let mut open: Option<(Epoch, GraphKey)> = None;
        let mut old: Vec<(Epoch, GraphKey)> = Vec::new();
        let (mut epoch, mut now) = (Epoch(0), Millis(0));
        for input in inputs {
            match input {
                Input::Up { bytes, captures } => {
                    epoch = epoch.next();
                    let budget = GraphBudget { bytes: Bytes(bytes), captures, ..WIDE };
                    let plan = plan(budget, graphs.traffic());
                    graphs.device_up(epoch, plan, now);
                    old.extend(open.take());
                    device.clear();
                }
                Input::Lost => {
                    graphs.device_lost(now);
                    old.extend(open.take());
                    device.clear();
                }
                Input::Voided => {
                    graphs.voided(epoch);
                    device.clear();
                }
                Input::Seen { rows, decode_only, times } => {
                    (0..times).for_each(|_| graphs.observe(rows, decode_only));
                }
                Input::Next { after, idle } => {
                    now += Millis(after);
                    match graphs.next(now, idle) {
                        Some(Command::Capture(key)) => {
                            prop_assert!(open.is_none(), "two captures at once");
                            prop_assert!(!device.contains_key(&key), "{} is there already", key);
                            open = Some((epoch, key));
                        }
                        Some(Command::Forget(key)) => {
                            prop_assert!(device.remove(&key).is_some(), "{} was not there", key);
                        }
                        None => {}
                    }
                }
                Input::Answer { good, late, extra, class } => {
                    let (answered, key) = match (late, old.pop(), open) {
                        (true, Some(old), _) => old,
                        (_, _, Some(now)) => { open = None; now }
                        _ => continue,
                    };
                    if good {
                        if answered == epoch && graphs.epoch() == Some(epoch) {
                            device.insert(key, answered);
                        }
                        let cost = GraphUse { bytes: Bytes(u64::from(key.rows) + extra), streams: 1 };
                        graphs.captured(answered, key, cost, 1, now);
                    } else {
                        graphs.capture_failed(answered, key, class, now);
                    }
                }
                Input::Retired { which, why } => {
                    let ready: Vec<GraphKey> = ready(&graphs).into_iter().collect();
                    if let Some(key) = (!ready.is_empty()).then(|| ready[which % ready.len()]) {
                        device.remove(&key);
                        graphs.retired(epoch, key, why, now);
                    }
                }
            }
            prop_assert_eq!(graphs.audit(), Ok(()));
            let there: BTreeSet<GraphKey> = device.keys().copied().collect();
            prop_assert!(ready(&graphs).is_subset(&there), "a ready graph is not there");
        }
        // Left alone, everything that may be captured is, and then there is peace.
        if let (Some((answered, key)), Some(_)) = (open, graphs.epoch()) {
            graphs.captured(answered, key, cost(key), 1, now);
        }
        let mut commands = 0;
        while graphs.epoch().is_some() && commands < 200 {
            now += Millis(400_000);
            match graphs.next(now, true) {
                Some(Command::Capture(key)) => graphs.captured(epoch, key, cost(key), 1, now),
                Some(Command::Forget(_)) => {}
                None if graphs.next(now + Millis(1_000), true).is_none() => break,
                None => panic!("it changed its mind"),
            }
            commands += 1;
        }
        prop_assert!(commands < 200, "it never comes to rest");
    }
}

fn ready(graphs: &Lifecycles) -> BTreeSet<GraphKey> {
    graphs.buckets().filter(|(_, state)| state.as_str() == "ready").map(|(key, _)| key).collect()
}
