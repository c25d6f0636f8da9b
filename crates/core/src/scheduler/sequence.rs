//! What the scheduler knows of one sequence.

use std::sync::Arc;

use super::config::{NewSequence, SchedulerConfig};
use super::events::{FinishReason, SequenceStats};
use super::order::Precedence;
use crate::fault::{STRIKES_ISOLATE, TOKENS_TO_CLEAR};
use crate::ids::TokenId;
use crate::sampling::SamplingParams;
use crate::speculation::{Proposer, SpeculationConfig};
use crate::units::{Millis, Tokens};

/// Whether a sequence holds blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Running,
}

/// One live sequence (or one that ended while a reservation names it).
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) output: Vec<TokenId>,
    pub(super) sampling: Arc<SamplingParams>,
    pub(super) salt: Option<Arc<str>>,
    pub(super) place: Precedence,
    pub(super) stage: Stage,
    pub(super) ended: bool,
    /// Faults in a row it was present at.
    pub(super) strikes: u8,
    /// New tokens until the strikes are cleared.
    pub(super) probation: u8,
    /// Tokens of prompt and output at most.
    longest: Tokens,

    /// Positions computed once all planned steps have run.
    pub(super) computed: u32,
    /// Output tokens that steps in flight will yield.
    pub(super) pending: u32,
    /// Positions that were known when it started; up to there it is prefill.
    pub(super) prefill: u32,
    /// Known tokens the block manager has been told.
    pub(super) reported: u32,
    /// Whether the executor (and the block manager) know it.
    pub(super) on_executor: bool,
    /// The reservation that named it last.
    pub(super) round: u64,
    /// Prompt and output in one list, while they do not change.
    joined: Option<Arc<[TokenId]>>,
    /// Prompt position whose log-probabilities are due next.
    pub(super) next_prompt_logprob: u32,
    /// Drafts of the reservation that is out.
    pub(super) drafts: Vec<TokenId>,
    /// Makes them; there while it runs and is drafted for.
    proposer: Option<Proposer>,

    pub(super) stats: SequenceStats,
}

impl Sequence {
    pub(super) fn new(new: NewSequence, config: &SchedulerConfig) -> Self {
        let prompt_tokens = new.prompt_tokens();
        Self {
            place: Precedence::new(config, new.priority, new.arrival, new.sequence),
            stage: Stage::Waiting,
            ended: false,
            strikes: new.strikes,
            probation: if new.strikes == 0 { 0 } else { TOKENS_TO_CLEAR },
            longest: config.longest(),
            computed: 0,
            pending: 0,
            prefill: 0,
            reported: 0,
            on_executor: false,
            round: 0,
            joined: None,
            // Whoever has an output has had all of its prompt's log-probabilities.
            next_prompt_logprob: if new.output.is_empty() { 1 } else { prompt_tokens.0 },
            drafts: Vec::new(),
            proposer: None,
            stats: SequenceStats::new(prompt_tokens, new.output.len() as u32, new.arrival),
            prompt: new.prompt,
            output: new.output,
            sampling: new.sampling,
            salt: new.salt,
        }
    }

    /// Prompt and produced tokens.
    pub(super) fn known(&self) -> u32 {
        (self.prompt.len() + self.output.len()) as u32
    }

    /// Positions that can be computed once the steps in flight have run.
    pub(super) fn target(&self) -> u32 {
        self.known() + self.pending
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.strikes >= STRIKES_ISOLATE
    }

    /// Whether a running sequence has something to compute in the next step.
    pub(super) fn wants_row(&self) -> bool {
        // A suspect is not planned past the token that would clear it.
        let held_back = self.is_suspect() && self.pending > 0;
        self.computed < self.target() && !self.is_full(self.pending) && !held_back
    }

    /// Whether its prompt (or what it had when it started) is behind it: from here on it goes token by token.
    pub(super) fn continues(&self) -> bool {
        self.computed >= self.prefill
    }

    /// All known tokens in one list.
    pub(super) fn joined(&mut self) -> Arc<[TokenId]> {
        if self.output.is_empty() {
            return Arc::clone(&self.prompt);
        }
        let (prompt, output) = (&self.prompt, &self.output);
        let joined = self.joined.get_or_insert_with(|| prompt.iter().chain(output).copied().collect());
        Arc::clone(joined)
    }

    /// Drafts what follows its last token, at most `room` tokens, and says how many. None while that token is
    /// not known or anything else has to be computed first, and while a fault is held against it: a draft must
    /// not be what it is blamed for.
    pub(super) fn draft(&mut self, speculation: &SpeculationConfig, room: Tokens) -> Tokens {
        self.drafts.clear();
        let known = self.known();
        let next_is_last = self.computed + 1 == known && self.pending == 0;
        let produced = self.output.len() as u32;
        let left = (self.sampling.max_tokens.max(1).saturating_sub(produced))
            .min(self.longest.0.saturating_sub(known));
        // One token comes without a draft.
        let most = speculation.drafts.min(room).min(Tokens(left.saturating_sub(1)));
        if next_is_last && self.continues() && self.strikes == 0 && most > Tokens::ZERO {
            let proposer = self.proposer.get_or_insert_with(|| Proposer::new(&speculation.method));
            proposer.extend(self.prompt.iter().chain(&self.output).copied().skip(proposer.seen()));
            self.drafts = proposer.propose(most);
        }
        Tokens(self.drafts.len() as u32)
    }

    /// The drafts that a row up to position `end` computes.
    pub(super) fn take_drafts(&mut self, end: u32) -> Vec<TokenId> {
        let mut drafts = std::mem::take(&mut self.drafts);
        drafts.truncate(end.saturating_sub(self.target()) as usize);
        drafts
    }

    /// Known tokens the block manager has not been told yet.
    pub(super) fn report_rest(&mut self) -> Vec<TokenId> {
        let from = (self.reported as usize).saturating_sub(self.prompt.len());
        self.reported = self.known();
        self.output.get(from..).unwrap_or_default().to_vec()
    }

    /// Whether the executor answers its next row with log-probabilities of prompt positions, also with those
    /// it has answered before a preemption.
    pub(super) fn yields_prompt_logprobs(&self) -> bool {
        self.sampling.prompt_logprobs.is_some() && self.rest_of_prompt() > Tokens::ZERO
    }

    /// Prompt positions that no planned step has computed.
    pub(super) fn rest_of_prompt(&self) -> Tokens {
        Tokens((self.prompt.len() as u32).saturating_sub(self.computed))
    }

    /// Whether cached blocks may be used: whoever still wants log-probabilities of prompt positions must have
    /// them computed.
    pub(super) fn may_reuse(&self) -> bool {
        self.sampling.prompt_logprobs.is_none() || self.next_prompt_logprob >= self.prompt.len() as u32
    }

    /// Its blocks are gone; its tokens and the results on their way are not.
    pub(super) fn suspend(&mut self) {
        self.stage = Stage::Waiting;
        self.computed = 0;
        self.reported = 0;
        self.on_executor = false;
        self.drafts = Vec::new();
        self.proposer = None;
    }

    /// Takes in a new token; after enough of them it has survived whatever it was suspected of.
    pub(super) fn push(&mut self, token: TokenId, now: Millis) {
        self.output.push(token);
        self.joined = None;
        self.probation = self.probation.saturating_sub(1);
        if self.probation == 0 {
            self.strikes = 0;
        }
        self.stats.output_tokens = Tokens(self.output.len() as u32);
        self.stats.first_token_at.get_or_insert(now);
    }

    /// Why the sequence ends with its last token, if it does.
    pub(super) fn end_reason(&self) -> Option<FinishReason> {
        let (token, before) = self.output.split_last()?;
        let sampling = &self.sampling;
        if before.len() >= sampling.min_tokens as usize {
            if !sampling.ignore_eos && sampling.eos_token_ids.contains(token) {
                return Some(FinishReason::Stop { stop_token: None });
            }
            if sampling.stop_token_ids.contains(token) {
                return Some(FinishReason::Stop { stop_token: Some(*token) });
            }
        }
        self.is_full(0).then_some(FinishReason::Length)
    }

    /// Whether the output is as long as it may get, counting tokens on their way.
    fn is_full(&self, pending: u32) -> bool {
        let produced = self.output.len() as u32 + pending;
        produced >= self.sampling.max_tokens.max(1) || self.prompt.len() as u32 + produced >= self.longest.0
    }
}
