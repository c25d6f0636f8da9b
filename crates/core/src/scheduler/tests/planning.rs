//! Budget, chunks, order, admission, and when a sequence ends.

use std::sync::Arc;

use super::harness::{Harness, config, new, output, rows};
use crate::admission::Refusal;
use crate::ids::{SequenceId, TokenId};
use crate::sampling::SamplingParams;
use crate::scheduler::{
    FailureCause, FinishReason, NewSequence, Policy, SchedulerConfig, SchedulerEvent, SequenceStats,
};
use crate::step::{Phase, TokenLogprobs};
use crate::units::{Blocks, Millis, Tokens};

fn numbers(from: TokenId, count: u32) -> Vec<TokenId> {
    (from..from + count).collect()
}

fn with(sequence: NewSequence, change: impl FnOnce(&mut SamplingParams)) -> NewSequence {
    let mut sampling = (*sequence.sampling).clone();
    change(&mut sampling);
    NewSequence { sampling: Arc::new(sampling), ..sequence }
}

fn reason(events: &[SchedulerEvent]) -> Option<FinishReason> {
    events.iter().find_map(|event| match event {
        SchedulerEvent::Finished { reason, .. } => Some(*reason),
        _ => None,
    })
}

#[test]
fn prompts_are_cut_to_the_budget_and_tokens_go_before_prompts() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &numbers(10, 5), 9));
    harness.admit(new(2, &numbers(30, 20), 9));
    let first = harness.plan().unwrap();
    assert_eq!(rows(&first), [(1, 0, 5, true), (2, 0, 11, false)]);
    assert!(first.scheduled.iter().all(|row| row.phase == Phase::Prefill));
    assert_eq!(first.admitted.len(), 2);
    harness.finish(&first, 9);
    harness.admit(new(3, &numbers(60, 20), 9));
    let second = harness.plan().unwrap();
    assert_eq!(rows(&second), [(1, 5, 1, true), (2, 11, 9, true), (3, 0, 6, false)]);
    assert_eq!(second.scheduled[0].phase, Phase::Decode);
    harness.finish(&second, 9);
    let third = harness.plan().unwrap();
    assert_eq!(rows(&third), [(1, 6, 1, true), (2, 20, 1, true), (3, 6, 14, true)]);
}

#[test]
fn the_chunk_limit_holds_while_a_sequence_is_not_alone() {
    let mut harness = Harness::new(SchedulerConfig { chunk_limit: Tokens(6), ..config(Blocks(40)) });
    harness.admit(new(1, &numbers(10, 20), 1));
    assert_eq!(rows(&harness.plan().unwrap()), [(1, 0, 16, false)]);
    harness.admit(new(2, &numbers(50, 20), 1));
    assert_eq!(rows(&harness.plan().unwrap()), [(1, 16, 4, true), (2, 0, 6, false)]);
}

#[test]
fn newcomers_wait_for_a_place_and_in_order_of_arrival() {
    let mut harness = Harness::new(SchedulerConfig { max_sequences: 2, ..config(Blocks(40)) });
    for sequence in [3, 1, 2] {
        harness.admit(new(sequence, &[50 + sequence as u32], 2));
    }
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 0, 1, true), (2, 0, 1, true)]);
    let mut events = harness.finish(&plan, 9);
    events.extend(harness.drain(9));
    assert_eq!([1, 2, 3].map(|sequence| output(&events, sequence).len()), [2, 2, 2]);
}

#[test]
fn priority_goes_first_until_age_makes_up_for_it() {
    let policy = SchedulerConfig { policy: Policy::Priority, max_sequences: 1, ..config(Blocks(40)) };
    let mut harness = Harness::new(policy);
    let arrivals = [(1, 2, 0), (2, 1, 500), (3, 1, 400), (4, 0, 2_100), (5, 0, 1_999)];
    for (sequence, priority, arrival) in arrivals {
        harness.admit(NewSequence { priority, arrival: Millis(arrival), ..new(sequence, &[9], 1) });
    }
    let order: Vec<u64> = harness.scheduler.waiting().map(|sequence| sequence.0).collect();
    assert_eq!(order, [3, 2, 5, 1, 4]);
}

#[test]
fn the_queue_is_bounded_and_what_cannot_fit_is_refused() {
    let mut harness = Harness::new(SchedulerConfig { max_waiting: 2, ..config(Blocks(5)) });
    let refused = |harness: &mut Harness, new: NewSequence| harness.scheduler.admit(new).unwrap_err();
    let too_big = refused(&mut harness, new(9, &numbers(0, 21), 4));
    assert!(matches!(too_big, Refusal::PromptExceedsPool { capacity: Tokens(20), .. }));
    let empty = refused(&mut harness, new(9, &[], 4));
    assert_eq!(empty, Refusal::EmptyPrompt);
    harness.admit(new(1, &[5], 4));
    assert_eq!(refused(&mut harness, new(1, &[5], 4)), Refusal::Duplicate);
    harness.admit(new(2, &[5], 4));
    let full = refused(&mut harness, new(3, &[5], 4));
    assert!(matches!(full, Refusal::QueueFull { waiting: 2, limit: 2, .. }));
    harness.scheduler.restore(new(3, &[5], 4)).unwrap();
    assert_eq!(harness.scheduler.load().waiting_tokens, Tokens(3));
}

#[test]
fn sequences_end_for_the_right_reason() {
    let run = |new: NewSequence, token: TokenId| {
        let mut harness = Harness::new(config(Blocks(40)));
        let id = new.sequence.0;
        harness.admit(new);
        let events = harness.drain(token);
        let out = output(&events, id);
        (out.len(), reason(&events).unwrap())
    };
    let stop = |stop_token| FinishReason::Stop { stop_token };
    assert_eq!(run(new(1, &[5], 4), 9), (4, FinishReason::Length));
    assert_eq!(run(new(1, &[5], 4), 0), (1, stop(None)));
    assert_eq!(run(new(1, &[5], 4), 1), (1, stop(Some(1))));
    assert_eq!(run(with(new(1, &[5], 4), |s| s.ignore_eos = true), 0), (4, FinishReason::Length));
    assert_eq!(run(with(new(1, &[5], 4), |s| s.min_tokens = 2), 0), (3, stop(None)));
    assert_eq!(run(new(1, &numbers(10, 60), 99), 9), (4, FinishReason::Length));
    // A pool of 5 blocks of 4 ends an output as well: the 21st token needs no place.
    let mut small = Harness::new(config(Blocks(5)));
    small.admit(new(1, &numbers(10, 10), 99));
    let events = small.drain(9);
    assert_eq!((output(&events, 1).len(), reason(&events)), (11, Some(FinishReason::Length)));
}

#[test]
fn the_end_carries_counts_and_times() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &numbers(10, 9), 2));
    harness.drain(9);
    harness.now = Millis(40);
    harness.admit(new(2, &numbers(10, 9), 2));
    let plan = harness.plan().unwrap();
    harness.now = Millis(50);
    let events = harness.finish(&plan, 9);
    let SchedulerEvent::Token { cached: Tokens(8), index: 0, .. } = events[0] else { panic!("{events:?}") };
    let plan = harness.plan().unwrap();
    harness.now = Millis(60);
    let events = harness.finish(&plan, 9);
    let SchedulerEvent::Finished { stats, .. } = events[1] else { panic!("{events:?}") };
    let expected = SequenceStats {
        prompt_tokens: Tokens(9),
        cached: Tokens(8),
        output_tokens: Tokens(2),
        queued_at: Millis(2),
        scheduled_at: Some(Millis(40)),
        first_token_at: Some(Millis(50)),
        finished_at: Some(Millis(60)),
        preemptions: 0,
    };
    assert_eq!(stats, expected);
}

#[test]
fn prompt_logprobs_come_once_and_are_never_skipped_by_the_cache() {
    let mut harness = Harness::new(SchedulerConfig { prompt_logit_rows: Tokens(9), ..config(Blocks(40)) });
    harness.admit(new(1, &numbers(10, 9), 1));
    harness.drain(9);
    harness.admit(with(new(2, &numbers(10, 9), 1), |s| s.prompt_logprobs = Some(1)));
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(2, 0, 9, true)]);
    let mut result = super::harness::answer(&plan, |_| 9);
    let entry = |position| (Tokens(position), TokenLogprobs::default());
    result.outputs[0].prompt_logprobs = (1..9).map(entry).collect();
    let events = harness.scheduler.complete(&result, Millis(0));
    let SchedulerEvent::PromptLogprobs { entries, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!(entries.len(), 8);
    assert!(matches!(events[1..], [SchedulerEvent::Token { .. }, SchedulerEvent::Finished { .. }]));
}

#[test]
fn prompt_logprobs_of_one_step_are_bounded() {
    let mut harness = Harness::new(SchedulerConfig { prompt_logit_rows: Tokens(6), ..config(Blocks(40)) });
    for sequence in 1..4 {
        let new = new(sequence, &numbers(10 * sequence as TokenId, 5), 2);
        harness.admit(if sequence == 3 { new } else { with(new, |s| s.prompt_logprobs = Some(1)) });
    }
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 0, 5, true), (2, 0, 1, false), (3, 0, 5, true)]);
    harness.finish(&plan, 9);
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 5, 1, true), (3, 5, 1, true), (2, 1, 4, true)]);
}

#[test]
fn a_row_without_its_token_fails_that_sequence_alone() {
    let mut harness = Harness::new(config(Blocks(40)));
    harness.admit(new(1, &[5], 3));
    harness.admit(new(2, &[6], 3));
    let plan = harness.plan().unwrap();
    let mut result = super::harness::answer(&plan, |_| 9);
    result.outputs.remove(0);
    let events = harness.scheduler.complete(&result, Millis(0));
    let failed = SchedulerEvent::Failed { sequence: SequenceId(1), strikes: 0, cause: FailureCause::NoToken };
    assert_eq!(events[0], failed);
    assert_eq!(output(&harness.drain(9), 2).len(), 2);
}

#[test]
fn a_restored_sequence_goes_on_where_it_was() {
    let mut harness = Harness::new(config(Blocks(40)));
    let restored = NewSequence { output: vec![7, 8], ..new(1, &[5], 4) };
    harness.scheduler.restore(restored).unwrap();
    let complete = NewSequence { output: vec![7, 0], ..new(2, &[5], 4) };
    harness.scheduler.restore(complete).unwrap();
    let events = harness.scheduler.drain_events();
    assert_eq!(reason(&events), Some(FinishReason::Stop { stop_token: None }));
    let plan = harness.plan().unwrap();
    assert_eq!(rows(&plan), [(1, 0, 3, true)]);
    assert_eq!(plan.admitted[0].output, [7, 8]);
    let events = harness.finish(&plan, 9);
    assert!(matches!(events[0], SchedulerEvent::Token { index: 2, .. }));
}
