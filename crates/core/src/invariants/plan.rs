//! Plans an executor can run, and an order of starts in which nobody starves.

use std::collections::HashSet;

use super::Violation;
use crate::ids::SequenceId;
use crate::step::{Phase, StepPlan};
use crate::units::Tokens;

/// A plan has rows, stays within its limits and names each sequence at most once.
pub fn plan_is_sound(plan: &StepPlan, budget: Tokens, max_sequences: u32) -> Result<(), Violation> {
    let step = plan.step;
    if plan.scheduled.is_empty() {
        return Err(Violation::EmptyPlan { step });
    }
    if plan.scheduled.len() > max_sequences as usize {
        return Err(Violation::TooManySequences {
            step,
            sequences: plan.scheduled.len(),
            limit: max_sequences,
        });
    }
    let tokens: Tokens = plan.scheduled.iter().map(|row| row.count).sum();
    if tokens > budget {
        return Err(Violation::OverBudget { step, tokens: tokens.0, budget: budget.0 });
    }
    let released: HashSet<SequenceId> = plan.released.iter().copied().collect();
    let admitted: HashSet<SequenceId> = plan.admitted.iter().map(|init| init.sequence).collect();
    let mut rows = HashSet::with_capacity(plan.scheduled.len());
    for row in &plan.scheduled {
        let sequence = row.sequence;
        let bad = |why| Err(Violation::BadRow { step, sequence, why });
        if !rows.insert(sequence) {
            return bad("it has two rows");
        }
        if row.count == Tokens::ZERO {
            return bad("its row is empty");
        }
        let drafts = row.drafts.len();
        if (row.phase == Phase::Verify) != (drafts > 0) || drafts >= row.count.0.max(1) as usize {
            return bad("its drafts are not behind a token that decodes");
        }
        if drafts > 0 && !row.samples {
            return bad("its drafts are not checked");
        }
        if released.contains(&sequence) && !admitted.contains(&sequence) {
            return bad("it was released and not admitted again");
        }
    }
    match admitted.iter().find(|sequence| !rows.contains(sequence)) {
        Some(sequence) => {
            Err(Violation::BadRow { step, sequence: *sequence, why: "it is admitted without a row" })
        }
        None => Ok(()),
    }
}

/// Nobody overtakes: the sequences that started are the first ones of those that waited, in that order.
///
/// With an order in which a later arrival falls behind any given place after a bounded time, this is what
/// keeps a waiting sequence from starving.
pub fn starts_in_order(waiting: &[SequenceId], started: &[SequenceId]) -> Result<(), Violation> {
    for (place, sequence) in started.iter().enumerate() {
        match waiting.get(place) {
            Some(first) if first == sequence => {}
            Some(first) => return Err(Violation::Overtaken { started: *sequence, waiting: *first }),
            None => {
                return Err(Violation::Books { sequence: *sequence, why: "started but was not waiting" });
            }
        }
    }
    Ok(())
}

/// Whoever loses its blocks comes after one that keeps them, the last one first: `running` is the order of
/// those that held blocks, so its first never loses them and always gets on.
pub fn victims_in_order(running: &[SequenceId], preempted: &[SequenceId]) -> Result<(), Violation> {
    let mut bound = running.len();
    for victim in preempted {
        let place = running.iter().position(|sequence| sequence == victim);
        match place.filter(|place| (1..bound).contains(place)) {
            Some(place) => bound = place,
            None => return Err(Violation::Books { sequence: *victim, why: "lost its blocks out of turn" }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, StepId};
    use crate::step::ScheduledSequence;

    fn row(sequence: u64, count: u32) -> ScheduledSequence {
        ScheduledSequence {
            sequence: SequenceId(sequence),
            start: Tokens::ZERO,
            count: Tokens(count),
            new_blocks: Vec::new(),
            phase: Phase::Prefill,
            samples: true,
            drafts: Vec::new(),
        }
    }

    fn plan(scheduled: Vec<ScheduledSequence>, released: Vec<SequenceId>) -> StepPlan {
        StepPlan { epoch: Epoch(0), step: StepId(0), released, admitted: Vec::new(), scheduled }
    }

    #[test]
    fn tells_good_from_bad_plans() {
        let check = |plan: StepPlan| plan_is_sound(&plan, Tokens(8), 2);
        assert_eq!(check(plan(vec![row(1, 4), row(2, 4)], vec![SequenceId(3)])), Ok(()));
        assert!(matches!(check(plan(vec![], vec![])), Err(Violation::EmptyPlan { .. })));
        assert!(matches!(check(plan(vec![row(1, 9)], vec![])), Err(Violation::OverBudget { .. })));
        assert!(matches!(check(plan(vec![row(1, 1), row(1, 1)], vec![])), Err(Violation::BadRow { .. })));
        assert!(matches!(check(plan(vec![row(1, 0)], vec![])), Err(Violation::BadRow { .. })));
        assert!(matches!(check(plan(vec![row(1, 1)], vec![SequenceId(1)])), Err(Violation::BadRow { .. })));
        let drafted = |phase, drafts| {
            plan(vec![ScheduledSequence { phase, drafts: vec![7; drafts], ..row(1, 3) }], vec![])
        };
        assert_eq!(check(drafted(Phase::Verify, 2)), Ok(()));
        for (phase, drafts) in [(Phase::Verify, 3), (Phase::Verify, 0), (Phase::Decode, 2)] {
            assert!(matches!(check(drafted(phase, drafts)), Err(Violation::BadRow { .. })), "{drafts}");
        }
        let three = plan(vec![row(1, 1), row(2, 1), row(3, 1)], vec![]);
        assert!(matches!(check(three), Err(Violation::TooManySequences { .. })));
    }

    #[test]
    fn tells_who_was_overtaken() {
        let [a, b, c] = [1, 2, 3].map(SequenceId);
        assert_eq!(starts_in_order(&[a, b, c], &[a, b]), Ok(()));
        assert_eq!(starts_in_order(&[a, b, c], &[b]), Err(Violation::Overtaken { started: b, waiting: a }));
        assert!(starts_in_order(&[a], &[a, b]).is_err());
    }

    #[test]
    fn tells_who_lost_its_blocks_out_of_turn() {
        let [a, b, c] = [1, 2, 3].map(SequenceId);
        assert_eq!(victims_in_order(&[a, b, c], &[c, b]), Ok(()));
        assert!(victims_in_order(&[a, b, c], &[b, c]).is_err());
        assert!(victims_in_order(&[a, b, c], &[a]).is_err());
        assert!(victims_in_order(&[a], &[b]).is_err());
    }
}
