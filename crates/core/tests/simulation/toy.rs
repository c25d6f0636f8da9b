//! A device whose next token is a pure function of a sequence's tokens, computed through a paged cache.
//!
//! A step can be computed again as often as one likes; it is taken in (tokens appended) once. Graphs are kept
//! by name and are void with the streams they were captured on.

use std::collections::{BTreeSet, HashMap};

use updraft_core::graphs::{GraphKey, Launched};
use updraft_core::sampling::{Sampled, SamplingParams};
use updraft_core::scheduler::FinishReason;
use updraft_core::step::{ScheduledSequence, SequenceOutput, StepPlan, StepResult, TokenLogprobs};
use updraft_core::{BlockId, Epoch, SequenceId, StepId, TokenId, Tokens};

use crate::dice::mix;

pub(crate) const EOS: TokenId = 0;
pub(crate) const STOP: TokenId = 1;
const VOCABULARY: u64 = 120;

/// What "attention" has seen up to a position, and the token it leads to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Attention(u64);

/// Tokens of a text that repeats itself, more often than not.
const PERIOD: usize = 3;

impl Attention {
    /// What the cache holds for `token` after everything seen so far.
    fn entry(self, token: TokenId) -> u64 {
        mix(self.0, u64::from(token) + 1)
    }

    fn see(&mut self, entry: u64) {
        self.0 = mix(self.0, entry);
    }

    fn next_token(self, produced: usize, sampling: &SamplingParams) -> TokenId {
        let token = (mix(self.0, sampling.seed) % VOCABULARY) as TokenId;
        if is_repetitive(sampling) && !token.is_multiple_of(4) {
            return STOP + 1 + (produced % PERIOD) as TokenId;
        }
        if produced < sampling.min_tokens as usize && token <= STOP { token + 2 } else { token }
    }
}

/// Whether a sequence's output repeats itself, so that its drafts are often right. The toy knows no other use of
/// `top_k`.
fn is_repetitive(sampling: &SamplingParams) -> bool {
    sampling.top_k > 0
}

/// The output of a sequence that nothing disturbs, and why it ends.
pub(crate) fn undisturbed(
    prompt: &[TokenId],
    sampling: &SamplingParams,
    longest: usize,
) -> (Vec<TokenId>, FinishReason) {
    let mut attention = Attention::default();
    for token in prompt {
        attention.see(attention.entry(*token));
    }
    let mut output = Vec::new();
    loop {
        let token = attention.next_token(output.len(), sampling);
        let may_stop = output.len() >= sampling.min_tokens as usize;
        output.push(token);
        if may_stop && token == EOS && !sampling.ignore_eos {
            return (output, FinishReason::Stop { stop_token: None });
        }
        if may_stop && token == STOP {
            return (output, FinishReason::Stop { stop_token: Some(STOP) });
        }
        if output.len() >= sampling.max_tokens as usize || prompt.len() + output.len() >= longest {
            return (output, FinishReason::Length);
        }
        attention.see(attention.entry(token));
    }
}

/// One life of the device.
pub(crate) struct Toy {
    pub(crate) epoch: Epoch,
    next_step: StepId,
    block_size: usize,
    cache: Vec<u64>,
    known: HashMap<SequenceId, Known>,
    graphs: BTreeSet<GraphKey>,
}

struct Known {
    tokens: Vec<TokenId>,
    prompt: usize,
    sampling: std::sync::Arc<SamplingParams>,
    table: Vec<BlockId>,
}

/// A sequence of the step cannot be computed: the device's kernels trip over it.
pub(crate) struct Poisoned;

impl Toy {
    pub(crate) fn new(epoch: Epoch, block_size: Tokens, blocks: u32) -> Self {
        // Every life starts with other rubbish in its memory.
        let rubbish = |slot| mix(epoch.0, slot);
        Self {
            epoch,
            next_step: StepId(0),
            block_size: block_size.0 as usize,
            cache: (0..u64::from(blocks * block_size.0)).map(rubbish).collect(),
            known: HashMap::new(),
            graphs: BTreeSet::new(),
        }
    }

    /// Takes a plan in: who is there and where their blocks are.
    pub(crate) fn prepare(&mut self, plan: &StepPlan) {
        assert_eq!((plan.epoch, plan.step), (self.epoch, self.next_step), "a plan out of order");
        self.next_step = self.next_step.next();
        for sequence in &plan.released {
            self.known.remove(sequence).expect("released but never admitted");
        }
        for init in &plan.admitted {
            let tokens = init.prompt.iter().chain(&init.output).copied().collect();
            let known = Known {
                tokens,
                prompt: init.prompt.len(),
                sampling: init.sampling.clone(),
                table: Vec::new(),
            };
            assert!(self.known.insert(init.sequence, known).is_none(), "admitted twice");
        }
        for row in &plan.scheduled {
            let known = self.known.get_mut(&row.sequence).expect("scheduled but never admitted");
            known.table.extend(&row.new_blocks);
        }
    }

    /// Computes a plan that was taken in; `poison` says at which position a sequence cannot be computed.
    pub(crate) fn compute(
        &mut self,
        plan: &StepPlan,
        launched: Launched,
        poison: impl Fn(SequenceId) -> Option<u32>,
    ) -> Result<Vec<Vec<Attention>>, Poisoned> {
        if let Launched::Replayed { key, .. } = launched {
            assert!(self.graphs.contains(&key), "{key} is replayed but not there");
        }
        let mut seen = Vec::with_capacity(plan.scheduled.len());
        for row in &plan.scheduled {
            let (start, end) = (row.start.0, row.start.0 + row.count.0);
            if poison(row.sequence).is_some_and(|position| (start..end).contains(&position)) {
                return Err(Poisoned);
            }
            let known = &self.known[&row.sequence];
            seen.push(compute(&mut self.cache, self.block_size, known, row));
        }
        Ok(seen)
    }

    /// A fault leaves rubbish where the step was to write.
    pub(crate) fn spoil(&mut self, plan: &StepPlan, with: u64) {
        for row in &plan.scheduled {
            let known = &self.known[&row.sequence];
            for position in row.start.0 as usize..(row.start.0 + row.count.0) as usize {
                let slot = slot(&known.table, self.block_size, position);
                self.cache[slot] = mix(with, slot as u64);
            }
        }
    }

    /// Samples what was computed.
    pub(crate) fn finish(
        &mut self,
        plan: &StepPlan,
        seen: &[Vec<Attention>],
        launched: Launched,
    ) -> StepResult {
        let mut outputs = Vec::new();
        for (row, seen) in plan.scheduled.iter().zip(seen) {
            let (start, end) = (row.start.0, row.start.0 + row.count.0);
            let known = self.known.get_mut(&row.sequence).expect("scheduled but never admitted");
            let mut output = SequenceOutput {
                sequence: row.sequence,
                token: None,
                logprobs: None,
                further: Vec::new(),
                prompt_logprobs: prompt_logprobs(known, start, end),
            };
            if row.samples {
                assert_eq!(row.first_sampled() as usize + 1, known.tokens.len(), "sampled in the middle");
                let room = known.sampling.max_tokens as usize - (known.tokens.len() - known.prompt);
                assert!(seen.len() <= room, "a token that nobody asked for");
                let mut last = None;
                for (ahead, attention) in seen.iter().enumerate() {
                    // A row goes on as long as its drafts are right.
                    if ahead > 0 && last != row.drafts.get(ahead - 1).copied() {
                        break;
                    }
                    let token = attention.next_token(known.tokens.len() - known.prompt, &known.sampling);
                    known.tokens.push(token);
                    if ahead == 0 {
                        output.token = Some(token);
                    } else {
                        output.further.push(Sampled { token, logprobs: None });
                    }
                    last = Some(token);
                }
            }
            if output.token.is_some() || !output.prompt_logprobs.is_empty() {
                outputs.push(output);
            }
        }
        StepResult {
            epoch: self.epoch,
            step: plan.step,
            outputs,
            device_micros: micros(plan),
            gap_micros: 0,
            launch_micros: 0,
            launched,
        }
    }

    pub(crate) fn capture(&mut self, key: GraphKey) {
        assert!(self.graphs.insert(key), "{key} is there already");
    }

    pub(crate) fn drop_graph(&mut self, key: GraphKey) {
        self.graphs.remove(&key);
    }

    pub(crate) fn rebuild_streams(&mut self) {
        self.graphs.clear();
    }

    pub(crate) fn graphs(&self) -> &BTreeSet<GraphKey> {
        &self.graphs
    }
}

/// Time that a step takes: for itself, for each row, for each position looked back at, and a little more or less.
fn micros(plan: &StepPlan) -> u64 {
    let rows = plan.scheduled.iter().map(|row| 60 * u64::from(row.count.0) + u64::from(row.start.0));
    300 + rows.sum::<u64>() + mix(plan.step.0, plan.epoch.0) % 50
}

fn slot(table: &[BlockId], block_size: usize, position: usize) -> usize {
    table[position / block_size].0 as usize * block_size + position % block_size
}

/// Computes the positions of one row: reads all before, writes its own, and gives what was seen at the last one
/// and at those that drafts follow.
fn compute(cache: &mut [u64], block_size: usize, known: &Known, row: &ScheduledSequence) -> Vec<Attention> {
    let (start, end) = (row.start.0 as usize, (row.start.0 + row.count.0) as usize);
    let mut tokens = known.tokens.clone();
    tokens.extend(&row.drafts);
    assert!(end <= tokens.len(), "nobody knows what to compute there");
    let mut attention = Attention::default();
    let mut seen = Vec::with_capacity(1 + row.drafts.len());
    for (position, token) in tokens.into_iter().enumerate().take(end) {
        let slot = slot(&known.table, block_size, position);
        if position >= start {
            cache[slot] = attention.entry(token);
        }
        attention.see(cache[slot]);
        if position >= row.first_sampled() as usize {
            seen.push(attention);
        }
    }
    seen
}

/// An entry for each prompt position whose predecessor was computed.
fn prompt_logprobs(known: &Known, start: u32, end: u32) -> Vec<(Tokens, TokenLogprobs)> {
    if known.sampling.prompt_logprobs.is_none() {
        return Vec::new();
    }
    let last = (end + 1).min(known.prompt as u32);
    let entry = |position: u32| {
        let token = known.tokens[position as usize];
        (Tokens(position), TokenLogprobs { token, ..TokenLogprobs::default() })
    };
    (start + 1..last).map(entry).collect()
}
