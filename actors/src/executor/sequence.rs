//! What the device thread keeps of a sequence between steps: its tokens, its block table, its sampler.

use std::sync::Arc;

use updraft_core::sampling::{Sampler, SamplingParams};
use updraft_core::step::SequenceInit;
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

    /// Notes a token sampled here.
    pub(super) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.sampler.accept(token);
    }
}

/// Room for sampled tokens set aside at once, so that a step seldom allocates.
const TOKENS_AHEAD: usize = 256;
