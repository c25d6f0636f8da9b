//! The scheduler's ends of the clients' streams, and the figures of each sequence's life.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use updraft_core::scheduler::{FailureCause, FinishReason, SchedulerEvent, SequenceStats};
use updraft_core::{Millis, SequenceId, Tokens};

use crate::bus::{Bus, RequestRecord, RequestSummary};
use crate::gate::Permit;
use crate::generation::{Delivery, GenerationError, GenerationEvent};
use crate::intake::Admission;

/// All open streams.
pub(super) struct Streams {
    open: HashMap<SequenceId, Stream>,
    bus: Arc<Bus>,
}

struct Stream {
    deliveries: flume::Sender<Delivery>,
    arrived: Millis,
    prompt_tokens: u32,
    output_tokens: u32,
    max_tokens: u32,
    /// Came back from a lost scheduler, with tokens that were counted then.
    resumed: bool,
    last_token: Option<Instant>,
    complete: Arc<AtomicBool>,
    permit: Arc<Permit>,
}

impl Streams {
    pub(super) fn new(bus: Arc<Bus>) -> Self {
        Self { open: HashMap::new(), bus }
    }

    pub(super) fn open(&mut self, admission: Admission, arrived: Millis) {
        let stream = Stream {
            deliveries: admission.deliveries,
            arrived,
            prompt_tokens: admission.prompt.len() as u32,
            output_tokens: admission.output.len() as u32,
            max_tokens: admission.sampling.max_tokens,
            resumed: !admission.output.is_empty(),
            last_token: None,
            complete: admission.complete,
            permit: admission.permit,
        };
        self.open.insert(admission.sequence, stream);
    }

    /// Passes an event on; all events of a step come at the same instant. Returns the sequence when nobody listens
    /// to it any more.
    pub(super) fn deliver(&mut self, event: SchedulerEvent, now: Millis, at: Instant) -> Option<SequenceId> {
        match event {
            SchedulerEvent::Token { sequence, token, logprobs, cached, .. } => {
                let stream = self.open.get_mut(&sequence)?;
                stream.count_token(&self.bus, cached, now, at);
                self.send(sequence, GenerationEvent::Token { token, logprobs }, cached)
            }
            SchedulerEvent::PromptLogprobs { sequence, entries } => {
                self.send(sequence, GenerationEvent::PromptLogprobs(entries), Tokens::ZERO)
            }
            SchedulerEvent::Finished { sequence, reason, stats } => {
                self.send(sequence, GenerationEvent::Finished(reason), stats.cached);
                let label = match reason {
                    FinishReason::Stop { .. } => "stop",
                    FinishReason::Length => "length",
                };
                self.close(sequence, label, &stats, now);
                None
            }
            SchedulerEvent::Failed { sequence, strikes, cause } => {
                let error = match cause {
                    FailureCause::Faults => GenerationError::Quarantined { strikes },
                    FailureCause::NoToken => GenerationError::Numerics,
                };
                self.fail(sequence, error, now);
                None
            }
            SchedulerEvent::Struck { sequence, strikes } => {
                let stream = self.open.get(&sequence)?;
                // Whether anybody listens shows at the next token.
                let _ = stream.deliveries.try_send(Delivery::Struck(strikes));
                None
            }
            SchedulerEvent::Preempted { .. } => None,
        }
    }

    /// All of them.
    pub(super) fn sequences(&self) -> Vec<SequenceId> {
        self.open.keys().copied().collect()
    }

    /// Ends a stream with an error.
    pub(super) fn fail(&mut self, sequence: SequenceId, error: GenerationError, now: Millis) {
        self.send(sequence, GenerationEvent::Failed(error), Tokens::ZERO);
        self.close(sequence, "error", &SequenceStats::default(), now);
    }

    /// Forgets a stream whose client went away: with all it wanted, or in the middle.
    pub(super) fn abandon(&mut self, sequence: SequenceId, stats: &SequenceStats, now: Millis) {
        let complete = self.open.get(&sequence).is_some_and(|stream| stream.complete.load(Ordering::Acquire));
        let label = if complete { "stop" } else { "abort" };
        self.close(sequence, label, stats, now);
    }

    fn send(&self, sequence: SequenceId, event: GenerationEvent, cached: Tokens) -> Option<SequenceId> {
        let stream = self.open.get(&sequence)?;
        // The channel holds all events a sequence can have, so only a client that left makes this fail; were
        // it ever full, the stream would submit itself again with what it has.
        stream.deliveries.try_send(Delivery::Event(event, cached)).is_err().then_some(sequence)
    }

    fn close(&mut self, sequence: SequenceId, reason: &'static str, stats: &SequenceStats, now: Millis) {
        let Some(stream) = self.open.remove(&sequence) else { return };
        // A client that does not read what waits for it keeps nobody out.
        stream.permit.give_back();
        let scheduled = stats.scheduled_at;
        let first_token = stats.first_token_at;
        let ended = stats.finished_at.unwrap_or(now);
        let summary = RequestSummary {
            reason,
            prompt_tokens: stream.prompt_tokens,
            computed_tokens: (Tokens(stream.prompt_tokens) - stats.cached).0,
            output_tokens: stream.output_tokens,
            max_tokens: stream.max_tokens,
            preemptions: stats.preemptions,
            total: ended - stream.arrived,
            queued: scheduled.map(|at| at - stream.arrived),
            prefill: scheduled.zip(first_token).map(|(from, to)| to - from),
            decode: first_token.map(|from| ended - from),
        };
        self.bus.requests.publish(&RequestRecord::Ended(Box::new(summary)));
    }
}

impl Stream {
    fn count_token(&mut self, bus: &Bus, cached: Tokens, now: Millis, at: Instant) {
        match self.last_token.replace(at) {
            // Drafts that were right come with the token before them: between two steps there is one gap.
            Some(last) if last == at => {}
            Some(last) => bus.requests.publish(&RequestRecord::NextToken { gap: at.duration_since(last) }),
            None if !self.resumed => bus.requests.publish(&RequestRecord::FirstToken {
                prompt_tokens: self.prompt_tokens,
                cached_tokens: cached.0,
                since_arrival: now - self.arrived,
            }),
            None => {}
        }
        self.output_tokens += 1;
    }
}
