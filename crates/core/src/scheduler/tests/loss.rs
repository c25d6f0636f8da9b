//! Lost epochs: nothing is lost but time, and the one that kills the executor goes alone.

use super::harness::{Harness, config, new, output, rows};
use crate::ids::{Epoch, SequenceId, StepId};
use crate::scheduler::{Blame, FailureCause, NewSequence, SchedulerConfig, SchedulerEvent};
use crate::step::{Phase, ScheduledSequence};
use crate::units::{Blocks, Millis, Tokens};

impl Harness {
    fn lose(&mut self, blame: Blame) -> Vec<SchedulerEvent> {
        let epoch = self.scheduler.epoch().next();
        let events = self.scheduler.lose(epoch, blame);
        self.scheduler.audit().unwrap();
        events
    }
}

fn strikes(events: &[SchedulerEvent]) -> Vec<(u64, u8)> {
    events
        .iter()
        .filter_map(|event| match event {
            SchedulerEvent::Struck { sequence, strikes } => Some((sequence.0, *strikes)),
            _ => None,
        })
        .collect()
}

#[test]
fn everyone_goes_back_in_order_with_its_tokens() {
    let mut harness = Harness::new(SchedulerConfig { max_sequences: 2, ..config(Blocks(40)) });
    for sequence in 1..4 {
        harness.admit(new(sequence, &[40 + sequence as u32], 4));
    }
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    harness.finish(&first, 9);
    let events = harness.lose(Blame::Nobody);
    assert_eq!(strikes(&events), []);
    assert_eq!(harness.scheduler.waiting().map(|sequence| sequence.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(harness.finish(&second, 8), []);
    let plan = harness.plan().unwrap();
    assert_eq!((plan.epoch, plan.step), (Epoch(2), StepId(0)));
    assert_eq!(rows(&plan), [(1, 0, 2, true), (2, 0, 2, true)]);
    assert_eq!(plan.admitted[0].output, [9]);
    let mut events = harness.finish(&plan, 9);
    events.extend(harness.drain(9));
    assert_eq!([1, 2, 3].map(|sequence| output(&events, sequence).len()), [3, 3, 4]);
}

#[test]
fn a_reservation_that_is_out_is_void() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5], 4));
    harness.admit(new(2, &[6], 4));
    let reservation = harness.scheduler.propose().unwrap();
    harness.scheduler.cancel(SequenceId(2));
    let grants = harness.kv.reserve(&reservation);
    harness.lose(Blame::OldestStep);
    assert_eq!(harness.scheduler.commit(grants, Millis(0)), None);
    assert_eq!(harness.scheduler.lose(Epoch(2), Blame::Nobody), []);
    assert_eq!(rows(&harness.plan().unwrap()), [(1, 0, 1, true)]);
}

#[test]
fn only_the_oldest_step_is_blamed_and_two_tokens_clear() {
    let mut harness = Harness::new(SchedulerConfig { step_budget: Tokens(4), ..config(Blocks(40)) });
    harness.admit(new(1, &[5, 6, 7, 8], 4));
    harness.admit(new(2, &[15, 16, 17, 18], 4));
    harness.plan().unwrap();
    harness.plan().unwrap();
    let events = harness.lose(Blame::OldestStep);
    assert_eq!(strikes(&events), [(1, 1)]);
    harness.plan().unwrap();
    harness.plan().unwrap();
    let events = harness.lose(Blame::Step(StepId(1)));
    assert_eq!(strikes(&events), [(1, 2), (2, 1)]);
    for left in [1, 0] {
        let plan = harness.plan().unwrap();
        harness.finish(&plan, 9);
        assert_eq!(harness.scheduler.load().suspects, left);
    }
}

#[test]
fn suspects_run_one_at_a_time_and_before_the_others() {
    let mut harness = Harness::new(config(Blocks(40)));
    for (sequence, strikes) in [(1, 0), (2, 2), (3, 2), (4, 1)] {
        harness.admit(NewSequence { strikes, ..new(sequence, &[40 + sequence as u32, 50], 4) });
    }
    let alone = harness.plan().unwrap();
    assert_eq!(rows(&alone), [(2, 0, 2, true)]);
    // While its token is under way the ones that come before the next suspect may start.
    let others = harness.plan().unwrap();
    assert_eq!(rows(&others), [(1, 0, 2, true)]);
    harness.finish(&alone, 9);
    // Its first token came out of the prompt; the second shows that it decodes as well.
    let again = harness.plan().unwrap();
    assert_eq!(rows(&again), [(2, 2, 1, true)]);
    harness.finish(&others, 9);
    harness.finish(&again, 9);
    let next = harness.plan().unwrap();
    assert_eq!(rows(&next), [(3, 0, 2, true)]);
    let all_but_one = harness.plan().unwrap();
    assert_eq!(rows(&all_but_one), [(1, 2, 1, true), (2, 3, 1, true), (4, 0, 2, true)]);
    harness.finish(&next, 9);
    harness.finish(&all_but_one, 9);
    let last = harness.plan().unwrap();
    assert_eq!(rows(&last), [(3, 2, 1, true)]);
    harness.finish(&last, 9);
    assert_eq!(harness.scheduler.load().suspects, 0);
}

#[test]
fn a_sequence_that_kills_the_executor_only_when_it_decodes_fails_alone() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[41], 9));
    harness.admit(new(2, &[42], 9));
    let mut struck = Vec::new();
    for _ in 0..40 {
        let Some(plan) = harness.plan() else { break };
        let kills = |row: &ScheduledSequence| row.sequence == SequenceId(2) && row.phase == Phase::Decode;
        if plan.scheduled.iter().any(kills) {
            struck.extend(harness.lose(Blame::OldestStep));
        } else {
            harness.finish(&plan, 9);
        }
    }
    let failed = |sequence| {
        let id = SequenceId(sequence);
        struck.iter().any(|event| matches!(event, SchedulerEvent::Failed { sequence, .. } if *sequence == id))
    };
    assert!(failed(2), "{struck:?}");
    assert!(!failed(1), "{struck:?}");
}

#[test]
fn a_suspect_waits_for_room_without_being_passed() {
    let mut harness = Harness::new(SchedulerConfig { steps_in_flight: 1, ..config(Blocks(4)) });
    harness.admit(new(1, &(10..20).collect::<Vec<_>>(), 3));
    let plan = harness.plan().unwrap();
    harness.finish(&plan, 9);
    harness.admit(NewSequence { strikes: 2, ..new(2, &(30..36).collect::<Vec<_>>(), 3) });
    harness.admit(new(3, &[7], 3));
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 10, 1, true)]);
    harness.finish(&plan, 9);
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 11, 1, true)]);
    harness.finish(&plan, 9);
    assert_eq!(rows(&harness.plan().unwrap()), [(2, 0, 6, true)]);
}

#[test]
fn the_one_that_kills_the_executor_fails_alone() {
    let mut harness = Harness::new(config(Blocks(40)));
    for sequence in 1..4 {
        harness.admit(new(sequence, &[40 + sequence as u32], 4));
    }
    let poison = SequenceId(2);
    let (mut events, mut faults) = (Vec::new(), 0);
    while let Some(plan) = harness.plan() {
        if plan.scheduled.iter().any(|row| row.sequence == poison && row.start.0 + row.count.0 > 2) {
            faults += 1;
            events.extend(harness.lose(Blame::OldestStep));
        } else {
            events.extend(harness.finish(&plan, 9));
        }
    }
    let failed = SchedulerEvent::Failed { sequence: poison, strikes: 3, cause: FailureCause::Faults };
    assert_eq!(events.iter().filter(|event| matches!(event, SchedulerEvent::Failed { .. })).count(), 1);
    assert!(events.contains(&failed));
    assert_eq!(faults, 3);
    assert_eq!([1, 2, 3].map(|sequence| output(&events, sequence).len()), [4, 2, 4]);
    assert!(harness.scheduler.is_idle());
}
