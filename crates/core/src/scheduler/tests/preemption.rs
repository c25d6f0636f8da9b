//! Who loses its blocks, and how it comes back.

use super::harness::{Harness, config, new, output, rows};
use crate::ids::{SequenceId, TokenId};
use crate::scheduler::{NewSequence, Policy, SchedulerConfig, SchedulerEvent};
use crate::step::Phase;
use crate::units::{Blocks, Millis};

fn numbers(from: TokenId, count: u32) -> Vec<TokenId> {
    (from..from + count).collect()
}

fn preempted(events: &[SchedulerEvent]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event {
            SchedulerEvent::Preempted { sequence } => Some(sequence.0),
            _ => None,
        })
        .collect()
}

#[test]
fn the_latest_loses_its_blocks_keeps_its_tokens_and_comes_back_first() {
    let mut harness = Harness::new(SchedulerConfig { steps_in_flight: 1, ..config(Blocks(4)) });
    harness.admit(new(1, &numbers(10, 7), 8));
    harness.admit(new(2, &numbers(30, 7), 8));
    harness.admit(new(3, &numbers(50, 7), 8));
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 0, 7, true), (2, 0, 7, true)]);
    harness.finish(&plan, 9);
    let plan = harness.plan().unwrap();
    harness.finish(&plan, 9);
    // Both cross into a third block; there is none.
    let plan = harness.plan().unwrap();
    assert_eq!((rows(&plan), &plan.released), (vec![(1, 8, 1, true)], &vec![SequenceId(2)]));
    let events = harness.finish(&plan, 9);
    assert_eq!(preempted(&events), [2]);
    assert_eq!(harness.scheduler.waiting().map(|sequence| sequence.0).collect::<Vec<_>>(), [2, 3]);
    let mut events = Vec::new();
    while events.last().is_none_or(|event| !matches!(event, SchedulerEvent::Finished { .. })) {
        let plan = harness.plan().unwrap();
        assert_eq!(plan.scheduled.len(), 1, "the second has no room beside the first");
        events.extend(harness.finish(&plan, 9));
    }
    let plan = harness.plan().unwrap();
    let back = &plan.scheduled[0];
    assert_eq!((back.sequence, back.phase), (SequenceId(2), Phase::Prefill));
    assert_eq!(plan.admitted[0].output, [9, 9]);
    let mut rest = harness.finish(&plan, 9);
    rest.extend(harness.drain(9));
    assert_eq!((output(&rest, 2).len(), output(&rest, 3).len()), (6, 8));
    assert_eq!(harness.kv.usage().used, 0);
}

#[test]
fn tokens_under_way_still_count_after_a_preemption() {
    let mut harness = Harness::new(SchedulerConfig { max_sequences: 2, ..config(Blocks(5)) });
    harness.admit(new(1, &numbers(10, 7), 9));
    harness.admit(new(2, &numbers(30, 8), 9));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    harness.finish(&first, 9);
    let third = harness.plan().unwrap();
    assert_eq!(rows(&third), [(1, 8, 1, true)]);
    // The victim's second token was under way when it lost its blocks.
    let events = harness.finish(&second, 8);
    assert_eq!((preempted(&events), output(&events, 2)), (vec![2], vec![8]));
    let mut events = harness.finish(&third, 9);
    events.extend(harness.drain(9));
    assert_eq!((output(&events, 1).len(), output(&events, 2).len()), (7, 7));
}

#[test]
fn nobody_starts_again_while_its_tokens_are_under_way() {
    let mut harness = Harness::new(SchedulerConfig { steps_in_flight: 3, ..config(Blocks(5)) });
    harness.admit(new(1, &numbers(10, 7), 3));
    harness.admit(new(2, &numbers(30, 8), 9));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    let third = harness.plan().unwrap();
    assert_eq!(third.released, [SequenceId(2)]);
    harness.finish(&first, 9);
    // The first one is foreseen to end, nothing else can start before its token is in.
    assert_eq!(harness.plan(), None);
    harness.finish(&second, 9);
    harness.finish(&third, 9);
    let again = harness.plan().unwrap();
    assert_eq!(again.admitted[0].output, [9, 9]);
}

#[test]
fn priority_decides_who_loses() {
    let policy = SchedulerConfig { policy: Policy::Priority, steps_in_flight: 1, ..config(Blocks(4)) };
    let mut harness = Harness::new(policy);
    harness.admit(NewSequence { priority: 3, ..new(1, &numbers(10, 7), 8) });
    harness.admit(NewSequence { priority: 1, arrival: Millis(5), ..new(2, &numbers(30, 7), 8) });
    for _ in 0..2 {
        let plan = harness.plan().unwrap();
        harness.finish(&plan, 9);
    }
    let plan = harness.plan().unwrap();
    assert_eq!((rows(&plan), plan.released), (vec![(2, 8, 1, true)], vec![SequenceId(1)]));
}

#[test]
fn all_work_gets_done_in_the_smallest_pools() {
    for pool in 4..9 {
        let mut harness = Harness::new(config(Blocks(pool)));
        for sequence in 1..8 {
            harness.admit(new(sequence, &numbers(10 * sequence as u32, 4 + sequence as u32), 6));
        }
        let events = harness.drain(9);
        for sequence in 1..8 {
            assert_eq!(output(&events, sequence), [9; 6], "sequence {sequence} in {pool} blocks");
        }
    }
}
