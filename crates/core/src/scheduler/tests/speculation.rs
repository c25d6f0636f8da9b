//! Drafts: who gets them, how many, and what is kept of them.

use super::harness::{Harness, answer, config, new, output, rows};
use crate::ids::{SequenceId, TokenId};
use crate::sampling::Sampled;
use crate::scheduler::{Blame, NewSequence, SchedulerConfig, SchedulerEvent};
use crate::speculation::{Method, NgramLengths, SpeculationConfig};
use crate::step::{Phase, StepKind, StepPlan};
use crate::units::{Blocks, Tokens};

/// A prompt whose last two tokens stood before, followed by 7, 8, 9.
const PROMPT: [TokenId; 8] = [5, 6, 7, 8, 9, 40, 5, 6];

fn speculating(drafts: u32, rows: u32) -> SchedulerConfig {
    let method = Method::Ngram(NgramLengths { min: 2, max: 3 });
    let speculation = SpeculationConfig { method, drafts: Tokens(drafts), rows: Tokens(rows) };
    SchedulerConfig { speculation: Some(speculation), ..config(Blocks(40)) }
}

fn drafts(plan: &StepPlan) -> Vec<&[TokenId]> {
    plan.scheduled.iter().map(|row| &row.drafts[..]).collect()
}

/// Answers the one row of a plan with these tokens.
fn finish(harness: &mut Harness, plan: &StepPlan, tokens: &[TokenId]) -> Vec<SchedulerEvent> {
    let mut result = answer(plan, |_| tokens[0]);
    let further = tokens[1..].iter().map(|token| Sampled { token: *token, logprobs: None });
    result.outputs[0].further = further.collect();
    let events = harness.scheduler.complete(&result, harness.now);
    harness.scheduler.audit().unwrap();
    events
}

/// A sequence whose prompt is computed and whose next token stood before.
fn running(config: SchedulerConfig, max_tokens: u32) -> Harness {
    let mut harness = Harness::new(config);
    harness.admit(new(1, &PROMPT, max_tokens));
    let plan = harness.plan().unwrap();
    assert_eq!((plan.scheduled[0].phase, plan.kind()), (Phase::Prefill, StepKind::Mixed));
    assert_eq!(harness.plan(), None, "a second step does not fly");
    finish(&mut harness, &plan, &[7]);
    harness
}

#[test]
fn right_drafts_are_kept_and_wrong_ones_were_never_computed() {
    let mut harness = running(speculating(4, 64), 20);
    let plan = harness.plan().unwrap();
    assert_eq!((drafts(&plan), plan.kind()), (vec![&[8, 9, 40, 5][..]], StepKind::Verify));
    assert_eq!((rows(&plan), plan.scheduled[0].first_sampled()), (vec![(1, 8, 5, true)], 8));
    let events = finish(&mut harness, &plan, &[8, 9, 41]);
    assert_eq!(output(&events, 1), [8, 9, 41]);
    let plan = harness.plan().unwrap();
    assert_eq!((rows(&plan), plan.kind()), (vec![(1, 11, 1, true)], StepKind::Decode));
    assert_eq!(plan.scheduled[0].new_blocks, [], "its block is there from the drafts");
    assert_eq!(output(&finish(&mut harness, &plan, &[5]), 1), [5]);
}

#[test]
fn an_end_among_the_drafts_is_the_end() {
    let mut harness = running(speculating(4, 64), 20);
    let plan = harness.plan().unwrap();
    let events = finish(&mut harness, &plan, &[8, 0, 40, 5, 6]);
    assert_eq!(output(&events, 1), [8, 0]);
    assert!(
        matches!(events.last(), Some(SchedulerEvent::Finished { stats, .. }) if stats.output_tokens.0 == 3)
    );
    assert_eq!(harness.plan(), None);
    assert!(harness.scheduler.is_idle());
    assert_eq!(harness.kv.usage().used, 0);
}

#[test]
fn no_more_is_drafted_than_may_be_produced() {
    for (max_tokens, expected) in [(2, 0), (3, 1), (5, 3), (6, 4)] {
        let mut harness = running(speculating(4, 64), max_tokens);
        let plan = harness.plan().unwrap();
        assert_eq!(drafts(&plan)[0].len(), expected, "of {max_tokens}");
    }
    let mut harness = running(SchedulerConfig { max_model_len: Tokens(11), ..speculating(4, 64) }, 20);
    assert_eq!(rows(&harness.plan().unwrap()), [(1, 8, 2, true)]);
}

#[test]
fn drafts_take_what_the_others_leave() {
    let mut harness = running(speculating(4, 64), 20);
    harness.admit(new(2, &(10..24).collect::<Vec<_>>(), 2));
    let plan = harness.plan().unwrap();
    assert_eq!((rows(&plan), plan.kind()), (vec![(1, 8, 2, true), (2, 0, 14, true)], StepKind::Mixed));
    assert_eq!(drafts(&plan), [&[8][..], &[]]);
    // A limit of its own: the rows of logits.
    let mut harness = running(speculating(4, 3), 20);
    assert_eq!(drafts(&harness.plan().unwrap()), [&[8, 9, 40][..]]);
}

#[test]
fn whoever_a_fault_is_held_against_gets_no_drafts() {
    let mut harness = Harness::new(speculating(4, 64));
    harness.admit(NewSequence { strikes: 1, ..new(1, &PROMPT, 20) });
    for token in [7, 8] {
        let plan = harness.plan().unwrap();
        assert!(drafts(&plan)[0].is_empty());
        finish(&mut harness, &plan, &[token]);
    }
    let plan = harness.plan().unwrap();
    assert_eq!(drafts(&plan), [&[9, 40, 5, 6][..]]);
    // The fault of a step with drafts is forgotten like any other, and so are the drafts.
    harness.scheduler.lose(harness.scheduler.epoch().next(), Blame::OldestStep);
    harness.kv.reset(harness.scheduler.epoch());
    let plan = harness.plan().unwrap();
    assert_eq!((rows(&plan), drafts(&plan)), (vec![(1, 0, 10, true)], vec![&[][..]]));
    assert_eq!(plan.admitted[0].output, [7, 8]);
}

#[test]
fn a_row_with_drafts_that_was_cancelled_is_forgotten() {
    let mut harness = running(speculating(4, 64), 20);
    let reservation = harness.scheduler.propose().unwrap();
    assert!(harness.scheduler.cancel(SequenceId(1)));
    let grants = harness.kv.reserve(&reservation);
    let plan = harness.scheduler.commit(grants, harness.now).unwrap();
    assert_eq!(rows(&plan), [(1, 8, 5, true)]);
    assert_eq!(finish(&mut harness, &plan, &[8, 9]), []);
    assert_eq!(harness.plan(), None);
    assert_eq!(harness.kv.usage().used, 0);
}

#[test]
fn an_answer_with_more_than_was_drafted_is_cut() {
    let mut harness = running(speculating(1, 64), 20);
    let plan = harness.plan().unwrap();
    assert_eq!(output(&finish(&mut harness, &plan, &[8, 9, 50, 51]), 1), [8, 9]);
    assert_eq!(rows(&harness.plan().unwrap())[0].1, 10);
}
