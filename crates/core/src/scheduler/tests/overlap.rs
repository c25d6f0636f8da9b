//! Planning ahead of results, and what happens between the messages.

use super::harness::{Harness, answer, config, new, output, rows};
use crate::ids::{Epoch, SequenceId};
use crate::scheduler::{SchedulerConfig, SchedulerEvent};
use crate::units::{Blocks, Millis};

#[test]
fn two_steps_fly_and_the_third_waits() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6], 9));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    assert_eq!(rows(&second), [(1, 2, 1, true)]);
    assert_eq!(harness.plan(), None);
    harness.finish(&first, 9);
    let third = harness.plan().unwrap();
    assert_eq!((third.step.0, rows(&third)), (2, vec![(1, 3, 1, true)]));
    harness.finish(&second, 9);
    let events = harness.finish(&third, 9);
    assert!(matches!(events[..], [SchedulerEvent::Token { index: 2, .. }]));
}

#[test]
fn no_step_is_planned_past_the_last_token() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6], 2));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    harness.finish(&first, 9);
    assert_eq!(harness.plan(), None);
    let events = harness.finish(&second, 9);
    assert_eq!(events.len(), 2);
    assert_eq!(harness.plan(), None);
    assert!(harness.scheduler.is_idle());
    assert_eq!(harness.kv.usage().used, 0);
}

#[test]
fn an_end_found_late_wastes_one_row() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6], 9));
    harness.admit(new(2, &[7], 9));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    let events = harness.finish_with(&first, |sequence| u32::from(sequence.0 == 2) * 9);
    assert_eq!(output(&events, 1), [0]);
    let third = harness.plan().unwrap();
    assert_eq!((rows(&third), third.released), (vec![(2, 2, 1, true)], vec![SequenceId(1)]));
    let events = harness.finish(&second, 9);
    assert_eq!((output(&events, 1), output(&events, 2)), (vec![], vec![9]));
}

#[test]
fn a_cancelled_sequence_gives_its_blocks_back_with_the_next_reservation() {
    let mut harness = Harness::new(SchedulerConfig { steps_in_flight: 1, ..config(Blocks(40)) });
    harness.admit(new(1, &[5, 6], 9));
    harness.admit(new(2, &[7], 9));
    let first = harness.plan().unwrap();
    assert!(harness.scheduler.cancel(SequenceId(1)));
    assert!(!harness.scheduler.cancel(SequenceId(1)));
    assert!(output(&harness.finish(&first, 9), 1).is_empty());
    let second = harness.plan().unwrap();
    assert_eq!((rows(&second), second.released), (vec![(2, 1, 1, true)], vec![SequenceId(1)]));
    assert_eq!(harness.kv.usage().used, 1);
}

#[test]
fn what_was_granted_runs_even_if_cancelled_meanwhile() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6, 7, 8, 9], 9));
    harness.admit(new(2, &[5, 6, 7, 8, 9], 9));
    let reservation = harness.scheduler.propose().unwrap();
    assert!(harness.scheduler.cancel(SequenceId(1)));
    harness.scheduler.audit().unwrap();
    let grants = harness.kv.reserve(&reservation);
    let plan = harness.scheduler.commit(grants, Millis(0)).unwrap();
    // The second one reads the block that the first one fills.
    assert_eq!(rows(&plan), [(1, 0, 5, true), (2, 4, 1, true)]);
    assert!(output(&harness.finish(&plan, 9), 1).is_empty());
    let next = harness.plan().unwrap();
    assert_eq!((rows(&next), next.released), (vec![(2, 5, 1, true)], vec![SequenceId(1)]));
}

#[test]
fn a_sequence_that_ends_while_a_reservation_names_it_is_released_after_its_row() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6], 9));
    let first = harness.plan().unwrap();
    let reservation = harness.scheduler.propose().unwrap();
    let events = harness.scheduler.complete(&answer(&first, |_| 0), Millis(0));
    assert_eq!(output(&events, 1), [0]);
    let grants = harness.kv.reserve(&reservation);
    let plan = harness.scheduler.commit(grants, Millis(0)).unwrap();
    assert_eq!((rows(&plan), plan.released.len()), (vec![(1, 2, 1, true)], 0));
    harness.scheduler.audit().unwrap();
    assert_eq!(harness.finish(&plan, 9), []);
    assert_eq!(harness.plan(), None);
    assert_eq!(harness.kv.usage().used, 0);
    assert!(harness.scheduler.is_idle());
}

#[test]
fn results_of_an_older_epoch_or_another_step_are_ignored() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5, 6], 9));
    let first = harness.plan().unwrap();
    let second = harness.plan().unwrap();
    assert_eq!(harness.finish(&second, 9), []);
    let mut older = answer(&first, |_| 9);
    older.epoch = Epoch(0);
    assert_eq!(harness.scheduler.complete(&older, Millis(0)), []);
    assert_eq!(harness.finish(&first, 9).len(), 1);
    assert_eq!(harness.finish(&first, 9), []);
    assert_eq!(harness.finish(&second, 9).len(), 1);
}
