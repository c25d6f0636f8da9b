//! What the device thread keeps of a sequence between steps: its tokens, its block table, its sampler.

use std::sync::Arc;

use updraft_core::sampling::{Sampler, SamplingParams, Scratch};
use updraft_core::step::{ScheduledSequence, SequenceInit, SequenceOutput};
use updraft_core::{BlockId, TokenId};

/// One sequence on the executor.
pub(super) struct ExecutorSequence {
    /// Prompt and output; grows as tokens are sampled here, ahead of the scheduler.
    pub tokens: Vec<TokenId>,
    /// Length of the prompt.
    pub prompt_len: usize,
    /// Blocks, in order.
    pub table: Vec<BlockId>,
    /// Parameters.
    pub sampling: Arc<SamplingParams>,
    /// Penalty counts and masks.
    pub sampler: Sampler,
}

impl ExecutorSequence {
    pub(super) fn new(init: SequenceInit, vocab: usize) -> Self {
        let sampler = Sampler::new(Arc::clone(&init.sampling), &init.prompt, &init.output, vocab);
        let prompt_len = init.prompt.len();
        let room = prompt_len + init.sampling.max_tokens as usize;
        let mut tokens = Vec::with_capacity(room.min(prompt_len + init.output.len() + TOKENS_AHEAD));
        tokens.extend_from_slice(&init.prompt);
        tokens.extend_from_slice(&init.output);
        Self { tokens, prompt_len, table: Vec::new(), sampling: init.sampling, sampler }
    }

    /// Samples the positions of a row in order, as long as the drafts turn out right: each token is the one
    /// that would be drawn if all before it had been computed one by one. `logits` are those of the known
    /// token and, ahead of it, of the drafts.
    pub(super) fn sample<'a>(
        &mut self,
        row: &ScheduledSequence,
        logits: impl Fn(usize) -> &'a [f32],
        scratch: &mut Scratch,
        output: &mut SequenceOutput,
    ) {
        let Ok(sampled) = self.sampler.sample(logits(0), scratch) else {
            // The scheduler ends a sequence whose row brings no token; the step after this one may be planned
            // already and needs some token here.
            self.push(0);
            return;
        };
        self.push(sampled.token);
        output.token = Some(sampled.token);
        output.logprobs = sampled.logprobs;
        let mut last = output.token;
        for (ahead, draft) in (1..).zip(&row.drafts) {
            if last != Some(*draft) || self.is_complete() {
                return;
            }
            // A position without a token is computed again by itself, which then says so.
            let Ok(sampled) = self.sampler.sample(logits(ahead), scratch) else { return };
            self.push(sampled.token);
            last = Some(sampled.token);
            output.further.push(sampled);
        }
    }

    /// Whether the last token is known to end the sequence; nothing behind it is worth the sampling.
    fn is_complete(&self) -> bool {
        let produced = self.tokens.len() - self.prompt_len;
        let may_end = produced > self.sampling.min_tokens as usize;
        may_end && self.tokens.last().is_some_and(|token| self.sampling.ends_with(*token))
    }

    /// Notes a token sampled here.
    fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.sampler.accept(token);
    }
}

/// Room for sampled tokens set aside at once, so that a step seldom allocates.
const TOKENS_AHEAD: usize = 256;
