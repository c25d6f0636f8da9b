//! All answers of one request: submitting them, and one ordered view of what happens to them.

use std::pin::Pin;
use std::sync::Arc;

use futures::stream::{self, SelectAll, Stream, StreamExt as _};
use tokio_util::sync::WaitForCancellationFutureOwned;
use updraft_actors::generation::{GenerationError, GenerationEvent, Submission};
use updraft_core::Tokens;
use updraft_core::sampling::SamplingParams;
use updraft_core::step::TokenLogprobs;
use updraft_protocol::generation::GenerationSpec;
use updraft_protocol::{FinishReason, Usage};

use super::answer::{Answer, End, Piece, ReportedToken};
use super::backend::TokenStream;
use super::errors::Failure;
use super::prepare::Prompt;
use super::state::AppState;

/// Something that happened to one answer.
#[derive(Debug)]
pub(super) struct Update {
    /// Place of the answer: prompt times choices plus choice.
    pub(super) index: u32,
    /// Prompt tokens that came out of the prefix cache.
    cached: u32,
    pub(super) what: Happening,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Happening {
    /// Log-probabilities of prompt positions are there.
    Prompt(Vec<(Tokens, TokenLogprobs)>),
    /// The answer grew or ended.
    Piece(Piece),
    /// The request cannot be finished.
    Failed(GenerationError),
}

/// A request that is ready to be computed.
pub(super) struct Work {
    pub(super) prompts: Vec<Prompt>,
    pub(super) spec: GenerationSpec,
    pub(super) sampling: SamplingParams,
    /// Whether only the prompt is wanted: the token that is computed anyway is not shown.
    pub(super) prompt_only: bool,
}

/// The running answers of one request. Dropping it cancels them.
pub(super) struct Answers {
    running: SelectAll<Pin<Box<dyn Stream<Item = Update> + Send>>>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    is_over: bool,
    prompt_only: bool,
    choices: u32,
    prompt_tokens: u32,
    /// By prompt: what its first answer found in the cache.
    cached: Vec<u32>,
    completion_tokens: u32,
}

/// Submits every answer of a request; all or none.
pub(super) async fn submit(state: &AppState, work: &Work, priority: i32) -> Result<Answers, Failure> {
    let salt: Option<Arc<str>> = work.spec.cache_salt.as_deref().map(Into::into);
    let seed = work.spec.sampling.seed.unwrap_or_else(random_seed);
    let mut running = SelectAll::new();
    for (place, prompt) in work.prompts.iter().enumerate() {
        let room = state.limits.max_model_len.saturating_sub(prompt.tokens.len() as u32);
        for choice in 0..work.spec.choices {
            let sampling = SamplingParams {
                max_tokens: work.sampling.max_tokens.min(room).max(1),
                seed: choice_seed(seed, choice),
                ..work.sampling.clone()
            };
            let answer = Answer::new(&state.text, &work.spec, &sampling);
            let submission = Submission {
                prompt: Arc::clone(&prompt.tokens),
                sampling: Arc::new(sampling),
                priority,
                salt: salt.clone(),
            };
            let tokens = state.backend.submit(submission).await?;
            let index = place as u32 * work.spec.choices + choice;
            running.push(updates(index, tokens, answer));
        }
    }
    Ok(Answers {
        running,
        stopping: Box::pin(state.stopping.clone().cancelled_owned()),
        is_over: false,
        prompt_only: work.prompt_only,
        choices: work.spec.choices,
        prompt_tokens: work.prompts.iter().map(|prompt| prompt.tokens.len() as u32).sum(),
        cached: vec![0; work.prompts.len()],
        completion_tokens: 0,
    })
}

impl Answers {
    /// The next update of any answer; none when all have ended, or after a failure.
    pub(super) async fn next(&mut self) -> Option<Update> {
        if self.is_over {
            return None;
        }
        let mut update = tokio::select! {
            biased;
            update = self.running.next() => update?,
            () = &mut self.stopping => {
                Update { index: 0, cached: 0, what: Happening::Failed(GenerationError::ShuttingDown) }
            }
        };
        match &mut update.what {
            Happening::Failed(_) => {
                self.is_over = true;
                self.running.clear();
                return Some(update);
            }
            Happening::Piece(piece) => {
                if self.prompt_only {
                    hide(piece);
                }
                self.completion_tokens += piece.tokens.len() as u32;
            }
            Happening::Prompt(_) => {}
        }
        self.note_cached(&update);
        Some(update)
    }

    /// Token counts so far.
    pub(super) fn usage(&self) -> Usage {
        Usage::new(self.prompt_tokens, self.completion_tokens, self.cached.iter().sum())
    }

    /// A prompt counts once, however many answers it gets; so does what its first answer found in the cache.
    fn note_cached(&mut self, update: &Update) {
        if update.index.is_multiple_of(self.choices)
            && let Some(cached) = self.cached.get_mut((update.index / self.choices) as usize)
        {
            *cached = update.cached;
        }
    }
}

/// Leaves nothing of a piece but its end.
fn hide(piece: &mut Piece) {
    let end = piece.end.take().map(|_| End { reason: FinishReason::Length, stop_reason: None });
    *piece = Piece { end, ..Piece::default() };
}

/// One answer as a stream. It ends, and lets go of the sequence, with the answer's last piece.
fn updates(index: u32, tokens: TokenStream, answer: Answer) -> Pin<Box<dyn Stream<Item = Update> + Send>> {
    Box::pin(stream::unfold(Some((tokens, answer)), move |running| async move {
        let (mut tokens, mut answer) = running?;
        let (what, is_last) = match tokens.next().await {
            // A sequence always says how it ended; one that does not is as good as lost.
            None => (Happening::Failed(GenerationError::EngineLost { waited_secs: 0 }), true),
            Some(event) => take(event, &mut answer),
        };
        let update = Update { index, cached: tokens.cached_tokens(), what };
        if is_last {
            // An answer can be complete before the engine knows, by a stop string.
            tokens.finish_here();
            return Some((update, None));
        }
        Some((update, Some((tokens, answer))))
    }))
}

/// What an event means for the answer, and whether it is the last one.
fn take(event: GenerationEvent, answer: &mut Answer) -> (Happening, bool) {
    match event {
        GenerationEvent::PromptLogprobs(entries) => (Happening::Prompt(entries), false),
        GenerationEvent::Token { token, logprobs } => {
            let piece = answer.token(token, logprobs);
            let is_last = piece.end.is_some();
            (Happening::Piece(piece), is_last)
        }
        GenerationEvent::Finished(reason) => (Happening::Piece(answer.finish(reason)), true),
        GenerationEvent::Failed(error) => (Happening::Failed(error), true),
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub(super) struct Grown {
    pub(super) text: String,
    /// Kept when the report needs them.
    pub(super) tokens: Vec<ReportedToken>,
    pub(super) end: Option<End>,
    /// Log-probabilities of the prompt.
    pub(super) prompt: Vec<(Tokens, TokenLogprobs)>,
}

/// Waits for all answers; `count` of them.
pub(super) async fn collect(answers: &mut Answers, count: usize) -> Result<Vec<Grown>, Failure> {
    let mut grown: Vec<Grown> = (0..count).map(|_| Grown::default()).collect();
    while let Some(update) = answers.next().await {
        let Some(answer) = grown.get_mut(update.index as usize) else {
            continue;
        };
        match update.what {
            Happening::Failed(error) => return Err(Failure::from(&error)),
            Happening::Prompt(entries) => answer.prompt.extend(entries),
            Happening::Piece(piece) => {
                answer.text.push_str(&piece.text);
                answer.tokens.extend(piece.tokens);
                answer.end = piece.end;
            }
        }
    }
    Ok(grown)
}

/// The first answer has the request's seed; the others have seeds of their own that follow from it.
fn choice_seed(seed: u64, choice: u32) -> u64 {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    if choice == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(GOLDEN.wrapping_mul(u64::from(choice)));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn random_seed() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // Both halves have fixed bits, at different places.
    high ^ low.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_seeded_request_differ_and_repeat() {
        let seeds: Vec<u64> = (0..100).map(|choice| choice_seed(3, choice)).collect();
        let distinct: std::collections::BTreeSet<_> = seeds.iter().collect();
        assert_eq!((seeds[0], distinct.len()), (3, 100));
        assert_eq!(seeds, (0..100).map(|choice| choice_seed(3, choice)).collect::<Vec<_>>());
        assert_ne!(random_seed(), random_seed());
    }
}
