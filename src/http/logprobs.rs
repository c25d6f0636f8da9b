//! Log-probabilities in the forms of chat, completions and prompts.

use updraft_core::step::TokenLogprobs;
use updraft_core::{TokenId, Tokens};
use updraft_protocol::generation::ReportSpec;
use updraft_protocol::logprobs::{
    ChatLogprobs, ChatTokenLogprob, CompletionLogprobs, PromptLogprob, PromptPosition, TopLogprob, finite,
};
use updraft_text::TextModel;

use super::answer::ReportedToken;

/// Turns token ids into the words of a report.
#[derive(Clone, Copy)]
pub(super) struct Speller<'a> {
    text: &'a TextModel,
    as_ids: bool,
}

impl<'a> Speller<'a> {
    pub(super) fn new(text: &'a TextModel, report: &ReportSpec) -> Self {
        Self { text, as_ids: report.tokens_as_ids }
    }

    fn token(&self, id: TokenId) -> String {
        if self.as_ids { format!("token_id:{id}") } else { self.text.token_text(id).unwrap_or_default() }
    }

    fn bytes(&self, id: TokenId) -> Vec<u8> {
        self.text.token_bytes(id)
    }

    /// One entry for each token that has log-probabilities.
    pub(super) fn chat(&self, tokens: &[ReportedToken]) -> ChatLogprobs {
        let content = tokens.iter().filter_map(|(_, entry)| entry.as_deref()).map(|entry| ChatTokenLogprob {
            token: self.token(entry.token),
            logprob: finite(entry.logprob),
            bytes: Some(self.bytes(entry.token)),
            top_logprobs: entry.top.iter().map(|(id, logprob)| self.alternative(*id, *logprob)).collect(),
        });
        ChatLogprobs { content: content.collect() }
    }

    fn alternative(&self, id: TokenId, logprob: f32) -> TopLogprob {
        TopLogprob { token: self.token(id), logprob: finite(logprob), bytes: Some(self.bytes(id)) }
    }

    /// Prompt positions with their alternatives, none for the first token.
    pub(super) fn prompt(
        &self,
        prompt: &[TokenId],
        entries: &[(Tokens, TokenLogprobs)],
    ) -> Vec<Option<PromptPosition>> {
        let mut positions = vec![None; prompt.len()];
        for (at, entry) in entries {
            let Some(position) = positions.get_mut(at.0 as usize) else {
                continue;
            };
            let own = (entry.token, entry.logprob, entry.rank);
            let ranked = entry.top.iter().zip(1..).map(|((id, logprob), rank)| (*id, *logprob, rank));
            let named = ranked.chain([own]).map(|(id, logprob, rank)| {
                let decoded_token = self.token(id);
                (id.to_string(), PromptLogprob { logprob: finite(logprob), rank, decoded_token })
            });
            *position = Some(named.collect());
        }
        positions
    }
}

/// The lists of a completion's report, and how far into the text they reach.
#[derive(Debug, Default)]
pub(super) struct CompletionReport {
    offset: u32,
}

impl CompletionReport {
    /// The lists for these tokens of the answer.
    pub(super) fn answer(&mut self, speller: Speller<'_>, tokens: &[ReportedToken]) -> CompletionLogprobs {
        let mut lists = CompletionLogprobs::default();
        for (token, entry) in tokens {
            self.add(speller, &mut lists, *token, entry.as_deref());
        }
        lists
    }

    /// The lists for an echoed prompt.
    pub(super) fn prompt(
        &mut self,
        speller: Speller<'_>,
        prompt: &[TokenId],
        entries: &[(Tokens, TokenLogprobs)],
    ) -> CompletionLogprobs {
        let mut lists = CompletionLogprobs::default();
        let mut known = entries.iter().peekable();
        for (at, token) in prompt.iter().enumerate() {
            let entry = known.next_if(|(position, _)| position.0 as usize == at);
            self.add(speller, &mut lists, *token, entry.map(|(_, entry)| entry));
        }
        lists
    }

    fn add(
        &mut self,
        speller: Speller<'_>,
        lists: &mut CompletionLogprobs,
        token: TokenId,
        entry: Option<&TokenLogprobs>,
    ) {
        lists.text_offset.push(self.offset);
        self.offset += speller.text.token_text(token).map_or(0, |text| text.chars().count() as u32);
        lists.tokens.push(speller.token(token));
        lists.token_logprobs.push(entry.map(|entry| finite(entry.logprob)));
        lists.top_logprobs.push(entry.map(|entry| {
            // Two tokens can have one text; the likelier one is kept.
            let mut likely = indexmap::IndexMap::new();
            for (id, logprob) in entry.top.iter().copied().chain([(entry.token, entry.logprob)]) {
                likely.entry(speller.token(id)).or_insert(finite(logprob));
            }
            likely
        }));
    }
}

/// Puts the lists of a prompt before those of its answer.
pub(super) fn append(all: &mut CompletionLogprobs, more: CompletionLogprobs) {
    all.text_offset.extend(more.text_offset);
    all.token_logprobs.extend(more.token_logprobs);
    all.tokens.extend(more.tokens);
    all.top_logprobs.extend(more.top_logprobs);
}
