//! One sequence's stream of tokens, seen from the side that wants them.
//!
//! Owns the memory of what was produced: every token that was handed out is kept here, so that whatever is
//! lost behind the channel (scheduler, executor, block table, all of them) the stream submits itself again
//! with those tokens and goes on. Nothing is repeated, nothing is missing.
//!
//! Dropping a [`Generation`] cancels its sequence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use updraft_core::admission::Refusal;
use updraft_core::fault::TOKENS_TO_CLEAR;
use updraft_core::sampling::SamplingParams;
use updraft_core::scheduler::FinishReason;
use updraft_core::step::TokenLogprobs;
use updraft_core::{SequenceId, TokenId, Tokens};

use crate::engine::Engine;
use crate::gate::Permit;

/// How long a stream that lost its engine waits for a new one before it gives up.
pub const RECOVERY_WAIT_MAX: Duration = Duration::from_secs(60);

/// What a client is told to wait when no device is left: somebody has to repair something first.
pub const OUT_OF_SERVICE_RETRY_AFTER_SECS: u64 = 60;

/// How often in a row, with no new token between, a stream brings itself back to a new scheduler.
pub const RECOVERIES_MAX: u32 = 8;

/// What a client wants continued, in tokens.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Prompt tokens, at least one.
    pub prompt: Arc<[TokenId]>,
    /// How to sample; `max_tokens` already clamped to the room.
    pub sampling: Arc<SamplingParams>,
    /// Lower runs first (under the `priority` policy).
    pub priority: i32,
    /// Keeps prefix caches of different owners apart.
    pub salt: Option<Arc<str>>,
}

/// What happens to a sequence, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// Log-probabilities of prompt positions, ascending; may come in several parts, before the first token.
    PromptLogprobs(Vec<(Tokens, TokenLogprobs)>),
    /// The next token. An end-of-sequence or stop token is delivered too, right before [`Self::Finished`].
    Token {
        /// The token.
        token: TokenId,
        /// Its log-probabilities when asked for.
        logprobs: Option<Box<TokenLogprobs>>,
    },
    /// The last event of a sequence that ran to its end.
    Finished(FinishReason),
    /// The last event of a sequence that could not.
    Failed(GenerationError),
}

/// Why a sequence could not be finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerationError {
    /// It was there each time the engine failed; others go on.
    #[error(
        "this request was being computed at {strikes} engine failures in a row and was stopped; the engine is fine for other requests"
    )]
    Quarantined {
        /// Failures it was present at.
        strikes: u8,
    },
    /// The scheduler found no place for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Its logits were no numbers.
    #[error(
        "the model produced no usable probabilities for this request (not a number); try other sampling parameters"
    )]
    Numerics,
    /// The scheduler was lost again and again before it got anywhere.
    #[error(
        "the engine was restarted {recoveries} times before this request got any further, and it was stopped"
    )]
    NoProgress {
        /// Restarts.
        recoveries: u32,
    },
    /// The engine did not come back in time.
    #[error("the engine did not recover within {waited_secs} s")]
    EngineLost {
        /// How long the stream waited.
        waited_secs: u64,
    },
    /// No device is left.
    #[error("{reason}")]
    OutOfService {
        /// Which device, and why.
        reason: Arc<str>,
        /// When to try again.
        retry_after_secs: u64,
    },
    /// The server was told to stop.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// What travels from the scheduler to a stream.
pub(crate) enum Delivery {
    /// An event for the client; the number of prompt tokens found in the prefix cache goes with it.
    Event(GenerationEvent, Tokens),
    /// The sequence was there at a fault; so many in a row by now. The stream passes the number on should
    /// it have to submit itself again.
    Struck(u8),
}

/// What a sequence brings with it into the engine, besides what its client asked for.
pub(crate) struct Passage {
    /// Tokens it produced under an engine that was lost.
    pub output: Vec<TokenId>,
    /// Faults in a row it was present at.
    pub strikes: u8,
    /// When its client sent it.
    pub arrived: Instant,
    pub permit: Arc<Permit>,
}

/// A sequence on its way, seen from the client's side.
pub(crate) struct Opened {
    pub sequence: SequenceId,
    pub deliveries: flume::Receiver<Delivery>,
    /// Set before the stream is dropped when nothing is missing.
    pub complete: Arc<AtomicBool>,
}

/// A running sequence. See the module page.
pub struct Generation {
    engine: Engine,
    submission: Submission,
    sequence: SequenceId,
    deliveries: flume::Receiver<Delivery>,
    output: Vec<TokenId>,
    cached: Option<Tokens>,
    strikes: u8,
    /// New tokens until the strikes are cleared.
    probation: u8,
    recoveries: u32,
    prompt_logprobs_seen: Tokens,
    ended: bool,
    complete: Arc<AtomicBool>,
    arrived: Instant,
    permit: Arc<Permit>,
}

impl Generation {
    pub(crate) fn new(
        engine: Engine,
        submission: Submission,
        Opened { sequence, deliveries, complete }: Opened,
        arrived: Instant,
        permit: Arc<Permit>,
    ) -> Self {
        Self {
            engine,
            submission,
            sequence,
            deliveries,
            output: Vec::new(),
            cached: None,
            strikes: 0,
            probation: 0,
            recoveries: 0,
            prompt_logprobs_seen: Tokens::ZERO,
            ended: false,
            complete,
            arrived,
            permit,
        }
    }

    /// The next event; `None` after the last one. Waits out restarts of the engine.
    pub async fn next(&mut self) -> Option<GenerationEvent> {
        while !self.ended {
            match self.deliveries.recv_async().await {
                Ok(Delivery::Struck(strikes)) => (self.strikes, self.probation) = (strikes, TOKENS_TO_CLEAR),
                Ok(Delivery::Event(event, cached)) => {
                    if let Some(event) = self.take(event, cached) {
                        return Some(event);
                    }
                }
                Err(flume::RecvError::Disconnected) => {
                    if let Err(error) = self.resume().await {
                        self.ended = true;
                        return Some(GenerationEvent::Failed(error));
                    }
                }
            }
        }
        None
    }

    /// Ends the sequence here because its answer is complete by a rule the engine does not know, such as a
    /// stop string: it counts as finished, not as aborted.
    pub fn finish_here(self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Prompt tokens that came out of the prefix cache when the sequence first ran.
    #[must_use]
    pub fn cached_tokens(&self) -> Tokens {
        self.cached.unwrap_or(Tokens::ZERO)
    }

    /// Tokens delivered so far.
    #[must_use]
    pub fn output(&self) -> &[TokenId] {
        &self.output
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn prompt(&self) -> &[TokenId] {
        &self.submission.prompt
    }

    /// Notes an event, and drops what the client has seen already.
    fn take(&mut self, event: GenerationEvent, cached: Tokens) -> Option<GenerationEvent> {
        self.cached.get_or_insert(cached);
        match event {
            GenerationEvent::Token { token, .. } => {
                self.output.push(token);
                self.recoveries = 0;
                self.probation = self.probation.saturating_sub(1);
                if self.probation == 0 {
                    self.strikes = 0;
                }
            }
            GenerationEvent::PromptLogprobs(ref entries) => {
                let seen = self.prompt_logprobs_seen;
                let fresh: Vec<_> = entries.iter().filter(|(at, _)| *at > seen).cloned().collect();
                self.prompt_logprobs_seen = fresh.last()?.0;
                return Some(GenerationEvent::PromptLogprobs(fresh));
            }
            GenerationEvent::Finished(_) | GenerationEvent::Failed(_) => self.ended = true,
        }
        Some(event)
    }

    /// Submits the sequence again with what it has; called when everything behind the channel is gone.
    async fn resume(&mut self) -> Result<(), GenerationError> {
        self.recoveries += 1;
        if self.recoveries > RECOVERIES_MAX {
            return Err(GenerationError::NoProgress { recoveries: RECOVERIES_MAX });
        }
        let since = Instant::now();
        let passage = Passage {
            output: self.output.clone(),
            strikes: self.strikes,
            arrived: self.arrived,
            permit: Arc::clone(&self.permit),
        };
        let resumed = self
            .engine
            .pass_in(&self.submission, passage, RECOVERY_WAIT_MAX)
            .await
            .ok_or(GenerationError::EngineLost { waited_secs: since.elapsed().as_secs() })?;
        (self.sequence, self.deliveries, self.complete) =
            (resumed.sequence, resumed.deliveries, resumed.complete);
        Ok(())
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.ended {
            self.engine.cancel(self.sequence);
        }
    }
}

/// Why a submission was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It breaks a limit, or the queue is full; the refusal says which and what to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server stops soon.
    #[error("the server is shutting down and takes no new requests")]
    ShuttingDown,
    /// No device is left.
    #[error("{reason}")]
    OutOfService {
        /// Which device, and why.
        reason: Arc<str>,
        /// When to try again.
        retry_after_secs: u64,
    },
    /// The engine is restarting and did not come back in time.
    #[error("the engine is restarting; try again in {retry_after_secs} s")]
    Unavailable {
        /// When to try again.
        retry_after_secs: u64,
    },
}
