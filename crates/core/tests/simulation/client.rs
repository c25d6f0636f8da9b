//! One client: what it asks for, what it must get, and how fast it reads.

use std::sync::Arc;

use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::{FinishReason, NewSequence};
use updraft_core::{Millis, SequenceId, TokenId};

use crate::dice::Dice;
use crate::toy::{EOS, STOP, undisturbed};

pub(crate) struct Client {
    pub(crate) request: NewSequence,
    pub(crate) expected: Arc<[TokenId]>,
    pub(crate) reason: FinishReason,
    /// Position at which its sequence cannot be computed.
    pub(crate) poison: Option<u32>,
    /// What its channel was given so far.
    pub(crate) output: Vec<TokenId>,
    /// Of that, not read yet.
    pub(crate) unread: u32,
    /// In percent, how often it reads when it could.
    pub(crate) eagerness: u64,
    pub(crate) prompt_logprobs: Vec<u32>,
    pub(crate) strikes: u8,
    /// Whether a fault that was not its own was held against it.
    pub(crate) unlucky: bool,
    pub(crate) open: bool,
}

impl Client {
    /// Somebody; with prompts and outputs of up to `longest` tokens together, as a rule. `drafted`: drafts are
    /// made, so many a text is to repeat itself.
    pub(crate) fn new(
        sequence: SequenceId,
        longest: u32,
        drafted: bool,
        now: Millis,
        dice: &mut Dice,
    ) -> Self {
        let poisonous = dice.percent(6);
        let family = if poisonous { 1_000 + sequence.0 as u32 } else { dice.below(3) as u32 };
        // Prompts of one family begin alike; those of poison sequences are like no other, so that nobody else
        // computes the poisonous position for them.
        let top = if dice.percent(75) { longest / 3 } else { longest };
        let len = dice.between(1, u64::from(top)) as u32;
        let prompt: Arc<[TokenId]> = (0..len).map(|at| family * 7 + at / 3).collect();
        let sampling = SamplingParams {
            max_tokens: dice.between(1, 50) as u32,
            min_tokens: dice.below(2) as u32 * dice.below(5) as u32,
            eos_token_ids: vec![EOS],
            stop_token_ids: vec![STOP],
            ignore_eos: dice.percent(20),
            seed: dice.below(3),
            prompt_logprobs: dice.percent(10).then_some(1),
            top_k: u32::from(drafted && dice.percent(60)),
            ..SamplingParams::default()
        };
        let request = NewSequence {
            sequence,
            prompt,
            output: Vec::new(),
            priority: dice.below(4) as i32,
            salt: dice.percent(10).then(|| "tenant".into()),
            arrival: now,
            strikes: 0,
            sampling: Arc::new(sampling),
        };
        let (expected, reason) = undisturbed(&request.prompt, &request.sampling, longest as usize);
        // The last token is never computed, so poison there does not work.
        let reach = u64::from(len) + expected.len() as u64 - 1;
        let poison = (poisonous && reach > 0).then(|| dice.below(reach) as u32);
        Self {
            request,
            expected: expected.into(),
            reason,
            poison,
            output: Vec::new(),
            unread: 0,
            eagerness: dice.pick(&[0, 5, 50, 100]),
            prompt_logprobs: Vec::new(),
            strikes: 0,
            unlucky: false,
            open: true,
        }
    }

    /// A token comes through its channel, whose bound is what the request may produce: it always has room.
    pub(crate) fn receive(&mut self, token: TokenId) {
        assert!(self.unread < self.request.sampling.max_tokens, "a channel is full");
        self.output.push(token);
        self.unread += 1;
        self.strikes = 0;
    }

    /// It reads, or not.
    pub(crate) fn read(&mut self, dice: &mut Dice) {
        if dice.percent(self.eagerness) {
            self.unread = 0;
        }
    }

    /// For a scheduler that knows nothing of it: with what its channel was given.
    pub(crate) fn restored(&mut self) -> NewSequence {
        self.prompt_logprobs.retain(|_| !self.output.is_empty());
        NewSequence { output: self.output.clone(), strikes: self.strikes, ..self.request.clone() }
    }

    /// Its output is complete.
    pub(crate) fn check_finished(&self, reason: FinishReason, produced: u32) {
        let sequence = self.request.sequence;
        assert_eq!((&self.output[..], reason), (&self.expected[..], self.reason));
        assert_eq!(self.poison, None, "sequence {sequence} survived its poison");
        assert_eq!(produced as usize, self.output.len());
        if self.request.sampling.prompt_logprobs.is_some() {
            let all: Vec<u32> = (1..self.request.prompt.len() as u32).collect();
            assert_eq!(self.prompt_logprobs, all);
        }
    }

    /// It was given up; whether for its own poison.
    pub(crate) fn check_failed(&self) -> bool {
        if self.unlucky {
            return false;
        }
        let poison = self.poison.expect("an innocent sequence was given up");
        let before = poison.saturating_sub(self.request.prompt.len() as u32 - 1);
        assert_eq!(self.output.len() as u32, before, "given up before or after its poison");
        true
    }
}
