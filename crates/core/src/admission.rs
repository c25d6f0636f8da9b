//! Whether a request may enter at all: what can never run is refused at once, what cannot wait is sent away
//! with a time to come back.
//!
//! A check of numbers against limits, without state. Texts are for the person who wrote the request: they
//! name the limit, the value and what to do.

use serde::{Deserialize, Serialize};

use crate::units::{Blocks, Millis, Tokens};

/// What one server can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Tokens of prompt and answer together.
    pub max_model_len: Tokens,
    /// Tokens in a KV block.
    pub block_size: Tokens,
    /// KV blocks in all.
    pub pool: Blocks,
    /// Sequences that may wait.
    pub max_waiting: u32,
    /// Prompt tokens that may wait; unbounded when absent.
    pub max_waiting_tokens: Option<Tokens>,
}

/// The measures of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestShape {
    /// Prompt tokens.
    pub prompt: Tokens,
    /// Tokens of answer the client asked for, if it said.
    pub max_tokens: Option<Tokens>,
    /// Sequences the request becomes.
    pub sequences: u32,
}

/// How long the queue is and how fast it moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// Sequences waiting.
    pub waiting: u32,
    /// Their prompt tokens.
    pub waiting_tokens: Tokens,
    /// Average time between two sequences that ended while others waited, once known.
    pub pace: Option<Millis>,
}

/// Why a request may not enter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Nothing to continue.
    #[error("the prompt has no tokens; send at least one")]
    EmptyPrompt,
    /// No room for an answer.
    #[error(
        "this model's maximum context length is {max_model_len} tokens, but the prompt has {prompt} and the \
         answer needs at least 1; shorten the prompt"
    )]
    PromptTooLong {
        /// Prompt tokens.
        prompt: Tokens,
        /// The limit.
        max_model_len: Tokens,
    },
    /// The answer asked for alone is beyond the context.
    #[error(
        "this model's maximum context length is {max_model_len} tokens, but {max_tokens} were asked for as \
         answer; ask for fewer"
    )]
    AnswerTooLong {
        /// Answer tokens asked for.
        max_tokens: Tokens,
        /// The limit.
        max_model_len: Tokens,
    },
    /// The prompt would not fit even alone.
    #[error(
        "the prompt has {prompt} tokens, but this server's KV cache holds {capacity} in all; shorten the \
         prompt or give the server more KV memory"
    )]
    PromptExceedsPool {
        /// Prompt tokens.
        prompt: Tokens,
        /// Tokens that all blocks hold.
        capacity: Tokens,
    },
    /// One request would fill more than the whole queue.
    #[error("the request asks for {sequences} sequences, but at most {limit} may wait; ask for fewer")]
    TooManySequences {
        /// Sequences asked for.
        sequences: u32,
        /// The limit.
        limit: u32,
    },
    /// No place in the queue.
    #[error(
        "{waiting} sequences are waiting already and {limit} may; try again in {} s",
        seconds(*retry_after)
    )]
    QueueFull {
        /// Sequences waiting.
        waiting: u32,
        /// The limit.
        limit: u32,
        /// When it is worth trying again.
        retry_after: Millis,
    },
    /// No room for this many tokens in the queue.
    #[error(
        "{waiting} prompt tokens are waiting already and {limit} may; try again in {} s",
        seconds(*retry_after)
    )]
    QueuedTokensFull {
        /// Prompt tokens waiting.
        waiting: Tokens,
        /// The limit.
        limit: Tokens,
        /// When it is worth trying again.
        retry_after: Millis,
    },
    /// The same sequence is there already.
    #[error("this sequence was admitted before")]
    Duplicate,
}

impl Refusal {
    /// When the same request may succeed; none when it never will.
    #[must_use]
    pub fn retry_after(&self) -> Option<Millis> {
        match self {
            Self::QueueFull { retry_after, .. } | Self::QueuedTokensFull { retry_after, .. } => {
                Some(*retry_after)
            }
            _ => None,
        }
    }
}

/// Checks one request.
pub fn check(limits: &Limits, request: &RequestShape, queue: &QueueState) -> Result<(), Refusal> {
    check_shape(limits, request)?;
    let retry_after = retry_after(queue);
    if queue.waiting.saturating_add(request.sequences) > limits.max_waiting {
        return Err(Refusal::QueueFull { waiting: queue.waiting, limit: limits.max_waiting, retry_after });
    }
    let tokens = Tokens(request.prompt.0.saturating_mul(request.sequences));
    match limits.max_waiting_tokens {
        // A request that alone exceeds the limit still gets its turn when nobody else waits.
        Some(limit) if queue.waiting > 0 && queue.waiting_tokens + tokens > limit => {
            Err(Refusal::QueuedTokensFull { waiting: queue.waiting_tokens, limit, retry_after })
        }
        _ => Ok(()),
    }
}

/// Checks what no waiting would change.
pub fn check_shape(limits: &Limits, request: &RequestShape) -> Result<(), Refusal> {
    let (prompt, max_model_len) = (request.prompt, limits.max_model_len);
    if prompt == Tokens::ZERO {
        return Err(Refusal::EmptyPrompt);
    }
    if prompt >= max_model_len {
        return Err(Refusal::PromptTooLong { prompt, max_model_len });
    }
    if let Some(max_tokens) = request.max_tokens
        && max_tokens > max_model_len
    {
        return Err(Refusal::AnswerTooLong { max_tokens, max_model_len });
    }
    if prompt.blocks(limits.block_size) > limits.pool {
        let capacity = Tokens(limits.pool.0.saturating_mul(limits.block_size.0));
        return Err(Refusal::PromptExceedsPool { prompt, capacity });
    }
    if request.sequences > limits.max_waiting {
        return Err(Refusal::TooManySequences { sequences: request.sequences, limit: limits.max_waiting });
    }
    Ok(())
}

/// When a full queue should have moved on: the time it takes to empty at its present pace, at least a second
/// and at most a minute. A second while the pace is not known.
#[must_use]
pub fn retry_after(queue: &QueueState) -> Millis {
    let drained = queue.pace.map_or(0, |pace| pace.0.saturating_mul(u64::from(queue.waiting)));
    Millis(drained.clamp(1_000, 60_000))
}

fn seconds(time: Millis) -> u64 {
    time.0.div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            max_model_len: Tokens(100),
            block_size: Tokens(16),
            pool: Blocks(5),
            max_waiting: 4,
            max_waiting_tokens: Some(Tokens(120)),
        }
    }

    fn request(prompt: u32) -> RequestShape {
        RequestShape { prompt: Tokens(prompt), max_tokens: None, sequences: 1 }
    }

    fn refusal(request: &RequestShape, queue: QueueState) -> String {
        check(&limits(), request, &queue).unwrap_err().to_string()
    }

    #[test]
    fn what_can_never_run_is_refused_for_good() {
        let empty = QueueState::default();
        assert_eq!(check(&limits(), &request(80), &empty), Ok(()));
        assert!(refusal(&request(0), empty).contains("no tokens"));
        assert!(refusal(&request(81), empty).contains("holds 80"));
        assert!(refusal(&request(100), empty).contains("maximum context length is 100 tokens"));
        assert!(refusal(&request(100), empty).contains("the prompt has 100"));
        let long_answer = RequestShape { max_tokens: Some(Tokens(101)), ..request(10) };
        assert!(refusal(&long_answer, empty).contains("101 were asked for"));
        let many = RequestShape { sequences: 5, ..request(1) };
        assert!(refusal(&many, empty).contains("5 sequences"));
        let never = check(&limits(), &request(81), &empty).unwrap_err();
        assert_eq!(never.retry_after(), None);
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let queue = QueueState { waiting: 4, waiting_tokens: Tokens(40), pace: Some(Millis(1_600)) };
        let full = check(&limits(), &request(10), &queue).unwrap_err();
        assert_eq!(full.retry_after(), Some(Millis(6_400)));
        assert!(full.to_string().ends_with("try again in 7 s"), "{full}");
        let heavy = QueueState { waiting: 1, waiting_tokens: Tokens(80), pace: None };
        let full = check(&limits(), &request(50), &heavy).unwrap_err();
        assert!(matches!(full, Refusal::QueuedTokensFull { retry_after: Millis(1_000), .. }));
        assert_eq!(check(&limits(), &request(40), &heavy), Ok(()));
    }
}
