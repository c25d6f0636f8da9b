//! From a plan to a device's inputs: pure bookkeeping over the sequences the executor knows.

use std::collections::HashMap;

use updraft_core::step::{ScheduledSequence, SequenceSpan, StepInputs, StepPlan};
use updraft_core::{SequenceId, SlotId, TokenId, Tokens};

use super::sequence::ExecutorSequence;

/// The sequences of one executor life.
pub(super) type Sequences = HashMap<SequenceId, ExecutorSequence>;

/// A plan that does not fit what the executor knows: the planner and the executor have drifted apart, which
/// only a new epoch can mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlanError {
    #[error("the plan schedules sequence {0}, which this executor was never told of")]
    UnknownSequence(SequenceId),
    #[error("the plan computes position {position} of sequence {sequence}, whose token is not known")]
    UnknownToken { sequence: SequenceId, position: u32 },
    #[error("the plan computes position {position} of sequence {sequence}, beyond its block table")]
    NoBlock { sequence: SequenceId, position: u32 },
}

/// Applies what the plan changes: forgets, admits, extends block tables.
pub(super) fn apply(plan: &mut StepPlan, sequences: &mut Sequences, vocab: usize) -> Result<(), PlanError> {
    for sequence in &plan.released {
        sequences.remove(sequence);
    }
    for init in plan.admitted.drain(..) {
        sequences.insert(init.sequence, ExecutorSequence::new(init, vocab));
    }
    for row in &plan.scheduled {
        let known = sequences.get_mut(&row.sequence).ok_or(PlanError::UnknownSequence(row.sequence))?;
        known.table.extend_from_slice(&row.new_blocks);
    }
    Ok(())
}

/// Fills `inputs` for the plan. Rows that yield logits are, in order: for each sequence the positions whose
/// prompt log-probabilities are wanted, then the sampled ones.
pub(super) fn assemble(
    plan: &StepPlan,
    sequences: &Sequences,
    block_size: Tokens,
    inputs: &mut StepInputs,
) -> Result<(), PlanError> {
    inputs.clear();
    for row in &plan.scheduled {
        let known = sequences.get(&row.sequence).ok_or(PlanError::UnknownSequence(row.sequence))?;
        append(row, known, block_size, inputs)?;
    }
    Ok(())
}

fn append(
    row: &ScheduledSequence,
    known: &ExecutorSequence,
    block_size: Tokens,
    inputs: &mut StepInputs,
) -> Result<(), PlanError> {
    let (start, end) = (row.start.0, row.start.0 + row.count.0);
    let first_row = inputs.rows() as u32;
    let wants_prompt = prompt_logprob_rows(row, known);
    for position in start..end {
        let token = known.tokens.get(position as usize).or_else(|| draft(row, known, position));
        let block = known.table.get((position / block_size.0) as usize);
        let sequence = row.sequence;
        inputs.token_ids.push(*token.ok_or(PlanError::UnknownToken { sequence, position })?);
        let block = block.ok_or(PlanError::NoBlock { sequence, position })?;
        inputs.slots.push(SlotId(block.0 * block_size.0 + position % block_size.0));
        inputs.positions.push(position);
        let samples = row.samples && position >= row.first_sampled();
        if samples || wants_prompt.contains(&position) {
            inputs.logit_rows.push(first_row + (position - start));
        }
    }
    inputs.spans.push(SequenceSpan {
        row_start: first_row,
        row_count: row.count.0,
        context: end,
        table_start: inputs.block_tables.len() as u32,
        table_len: known.table.len() as u32,
    });
    inputs.block_tables.extend_from_slice(&known.table);
    Ok(())
}

/// The draft at a position behind all known tokens.
fn draft<'a>(row: &'a ScheduledSequence, known: &ExecutorSequence, position: u32) -> Option<&'a TokenId> {
    let ahead = (position as usize).checked_sub(known.tokens.len())?;
    // Drafts stand right behind what is known, or the planner means something else by them.
    let behind_known = row.first_sampled() as usize + 1 == known.tokens.len();
    row.drafts.get(ahead).filter(|_| behind_known)
}

/// Positions of this row whose logits predict a prompt token that the request wants to hear about.
pub(super) fn prompt_logprob_rows(row: &ScheduledSequence, known: &ExecutorSequence) -> std::ops::Range<u32> {
    if known.sampling.prompt_logprobs.is_none() {
        return 0..0;
    }
    let last_predicting = (known.prompt_len as u32).saturating_sub(1);
    row.start.0..(row.start.0 + row.count.0).min(last_predicting).max(row.start.0)
}
